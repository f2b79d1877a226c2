//! Puts a segment's object: sent again under the same key when it is slow, given up when it takes
//! too long.

use bytes::Bytes;
use floe_env::{Env, Error, Lane, Result, Task};
use floe_store::{ObjectStore, PutOutcome, holds_content};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How many of the newest PUT times are remembered.
const PUT_TIMES_MAX: usize = 200;
/// A PUT slower than this many times the running p99 is sent again.
const HEDGE_FACTOR: f64 = 3.0;
/// Before so many PUTs nothing is known of how long one takes.
const HEDGE_SAMPLES_MIN: usize = 20;
/// A PUT is never sent again sooner: a disk that hiccups is not a lost request.
const HEDGE_DELAY_MIN: Duration = Duration::from_millis(200);

/// Puts objects into one store; cheap to clone.
#[derive(Clone)]
pub(crate) struct Uploader {
    env: Env,
    store: Arc<dyn ObjectStore>,
    timeout: Duration,
    put_times: Arc<Mutex<VecDeque<Duration>>>,
}

impl Uploader {
    pub(crate) fn new(env: Env, store: Arc<dyn ObjectStore>, timeout: Duration) -> Self {
        Self { env, store, timeout, put_times: Arc::default() }
    }

    /// Puts an object, and answers how long it took. `Err` means that it is not known to be there:
    /// it may come later.
    pub(crate) async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<Duration> {
        let started = self.env.monotonic();
        let put = self.put_until_there(key, parts);
        match self.env.timeout(self.timeout, put).await {
            None => Err(Error::unavailable(format!("put of {key}: no answer in time"))),
            Some(Err(error)) => Err(error),
            Some(Ok(())) => {
                let took = self.env.monotonic() - started;
                self.remember(took);
                Ok(took)
            }
        }
    }

    async fn put_until_there(&self, key: &str, parts: Vec<Bytes>) -> Result<()> {
        let mut first = self.start(key, parts.clone());
        let hedge_after = self.hedge_delay();
        tokio::select! {
            biased;
            ended = &mut first => return ended.map_err(lost_task)?,
            () = self.env.sleep(hedge_after) => {}
        }
        let mut second = self.start(key, parts);
        let (ended, other) = tokio::select! {
            biased;
            ended = &mut first => (ended, second),
            ended = &mut second => (ended, first),
        };
        match ended.map_err(lost_task)? {
            Ok(()) => Ok(()),
            Err(_) => other.await.map_err(lost_task)?,
        }
    }

    /// One try, as a task of its own: an upload that was sent is not cancelled half-way.
    fn start(&self, key: &str, parts: Vec<Bytes>) -> Task<Result<()>> {
        let (store, key) = (self.store.clone(), key.to_owned());
        self.env.spawn("put segment", Lane::Foreground, async move {
            match store.put(&key, parts.clone()).await? {
                PutOutcome::Created => Ok(()),
                // Only this run of this broker writes this key: an earlier try has arrived.
                PutOutcome::Exists if holds_content(store.as_ref(), &key, &parts).await? => Ok(()),
                PutOutcome::Exists => {
                    Err(Error::corrupt(format!("{key} exists with other content")))
                }
            }
        })
    }

    fn remember(&self, took: Duration) {
        let mut put_times = self.put_times.lock();
        if put_times.len() == PUT_TIMES_MAX {
            put_times.pop_front();
        }
        put_times.push_back(took);
    }

    fn hedge_delay(&self) -> Duration {
        let put_times = self.put_times.lock();
        if put_times.len() < HEDGE_SAMPLES_MIN {
            return self.timeout;
        }
        let mut sorted: Vec<Duration> = put_times.iter().copied().collect();
        sorted.sort_unstable();
        let p99 = sorted[(sorted.len() * 99 / 100).min(sorted.len() - 1)];
        p99.mul_f64(HEDGE_FACTOR).max(HEDGE_DELAY_MIN)
    }
}

fn lost_task(ended: floe_env::TaskError) -> Error {
    Error::unknown_outcome("an upload was interrupted").with_source(ended)
}
