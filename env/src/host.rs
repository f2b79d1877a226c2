//! What an [`Env`](crate::Env) stands on.

use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Work that may block its thread.
pub type BlockingJob = Box<dyn FnOnce() + Send>;

/// Where a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// With the connections and all store IO: never over 100 us of CPU between two waits.
    Foreground,
    /// Tables, merge, compaction: single-threaded runtimes of lower priority, slices of at most 10
    /// ms.
    Background,
}

/// Clock, randomness, tasks and threads; implemented for the real world and for the simulation.
pub trait Host: Send + Sync {
    /// Wall clock, milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// A random number.
    fn random_u64(&self) -> u64;
    /// A random (version 4) UUID.
    fn uuid(&self) -> uuid::Uuid;
    /// Runs a future to its end.
    fn spawn(&self, lane: Lane, future: BoxFuture<'static, ()>) -> AbortHandle;
    /// Runs blocking work off the runtime's own threads.
    fn run_blocking(&self, job: BlockingJob);
    /// Runs blocking work for as long as the process lives, on a thread of its own. `None` where
    /// there are no threads: the caller then does the work in a task.
    fn thread(&self, name: &str, job: BlockingJob) -> Option<BlockingJob>;
}

/// The real world: the system's clock and randomness, tokio's runtimes, threads.
pub(crate) struct RealHost {
    foreground: Handle,
    background: Handle,
    random: Mutex<fastrand::Rng>,
}

impl RealHost {
    pub(crate) fn new(foreground: Handle, background: Handle) -> Arc<Self> {
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        Arc::new(Self {
            foreground,
            background,
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        })
    }
}

impl Host for RealHost {
    fn now_ms(&self) -> i64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }

    fn random_u64(&self) -> u64 {
        self.random.lock().u64(..)
    }

    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::new_v4()
    }

    fn spawn(&self, lane: Lane, future: BoxFuture<'static, ()>) -> AbortHandle {
        match lane {
            Lane::Foreground => self.foreground.spawn(future).abort_handle(),
            Lane::Background => self.background.spawn(future).abort_handle(),
        }
    }

    fn run_blocking(&self, job: BlockingJob) {
        // On threads of the runtime that asks: what a background job reads, checks and encodes must
        // not take foreground threads, nor their priority.
        let runtime = Handle::try_current().unwrap_or_else(|_| self.foreground.clone());
        runtime.spawn_blocking(job);
    }

    fn thread(&self, name: &str, job: BlockingJob) -> Option<BlockingJob> {
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(job);
        spawned.expect("the system has threads for a few long-lived workers");
        None
    }
}
