//! The one pattern of every background job: a name, a pause between rounds, errors that are counted
//! and shown, panics that are caught and shown, and an end with the broker's shutdown. A job never
//! stops silently: after a failure its next round is due as usual.

use crate::{Env, Lane, Result, Shutdown, Task};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What is known of a background job.
#[derive(Clone, Debug, Default)]
pub struct BackgroundStatus {
    /// Rounds that ended well.
    pub rounds: u64,
    /// Rounds that failed or panicked.
    pub failures: u64,
    /// The newest failure, if the newest round failed.
    pub last_error: Option<String>,
}

/// A running background job.
#[derive(Debug)]
pub struct Background {
    monitor: Monitor,
    task: Task<()>,
}

/// Shows how a job is doing, also to others than its owner.
#[derive(Clone, Debug)]
pub struct Monitor {
    name: &'static str,
    status: Arc<Mutex<BackgroundStatus>>,
}

impl Monitor {
    /// The job's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What is known of it now.
    pub fn status(&self) -> BackgroundStatus {
        self.status.lock().clone()
    }
}

impl Background {
    /// Starts a job: `round` runs, then the job waits for `pause` or for `shutdown`, and so on. A
    /// round that is running at shutdown is finished first.
    pub fn start<Round, Running>(
        env: &Env,
        name: &'static str,
        pause: Duration,
        shutdown: Shutdown,
        mut round: Round,
    ) -> Self
    where
        Round: FnMut() -> Running + Send + 'static,
        Running: Future<Output = Result<()>> + Send + 'static,
    {
        let status = Arc::new(Mutex::new(BackgroundStatus::default()));
        let (own_env, own_status) = (env.clone(), status.clone());
        let task = env.spawn(name, Lane::Background, async move {
            while !shutdown.is_triggered() {
                let ended = own_env.spawn(name, Lane::Background, round()).await;
                let failure = match ended {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(error) => Some(error.to_string()),
                };
                record(&own_status, name, failure);
                tokio::select! {
                    biased;
                    () = shutdown.wait() => {}
                    () = own_env.sleep(pause) => {}
                }
            }
        });
        Self { monitor: Monitor { name, status }, task }
    }

    /// A view of how it is doing.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Waits until the job has ended after a shutdown.
    pub async fn join(self) {
        // A cancelled job has ended as well.
        let _ = self.task.await;
    }
}

fn record(status: &Mutex<BackgroundStatus>, name: &str, failure: Option<String>) {
    let mut status = status.lock();
    match failure {
        None => {
            status.rounds += 1;
            status.last_error = None;
        }
        Some(error) => {
            tracing::warn!(job = name, %error, "background round failed");
            status.failures += 1;
            status.last_error = Some(error);
        }
    }
}
