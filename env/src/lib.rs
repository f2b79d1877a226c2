//! What the rest of Floe may know of the world outside its stores. Product code reaches clock,
//! randomness, ids, tasks and threads through an [`Env`], a value that is handed in; in the
//! simulation that value is a [`simulated::Node`], and every choice comes from the seed. Sleeping
//! and time-outs are tokio's, whose time the simulation pauses.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "this crate is what replaces them")]

pub mod background;
pub mod date;
pub mod error;
pub mod hash;
pub mod host;
pub mod shutdown;
pub mod simulated;
pub mod task;
pub mod worker;

pub use background::{Background, BackgroundStatus, Monitor};
pub use error::{Error, ErrorKind, Result};
pub use hash::{HashMap, HashSet};
pub use host::{Host, Lane};
pub use shutdown::{Shutdown, ShutdownTrigger, shutdown_signal};
pub use task::{Task, TaskError};
pub use tokio::time::Instant;
pub use worker::Worker;

use futures::FutureExt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The one door to clock, randomness, ids, tasks and threads; cheap to clone.
#[derive(Clone)]
pub struct Env {
    host: Arc<dyn Host>,
    has_threads: bool,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Env").field("has_threads", &self.has_threads).finish()
    }
}

impl Env {
    /// The real world. `background` is the runtime of the jobs that must never slow a connection.
    pub fn real(foreground: Handle, background: Handle) -> Self {
        Self { host: host::RealHost::new(foreground, background), has_threads: true }
    }

    /// The real world with every task on the current runtime: for tests and small tools.
    pub fn current() -> Self {
        Self::real(Handle::current(), Handle::current())
    }

    /// A node of a simulation.
    pub fn simulated(node: simulated::Node) -> Self {
        Self { host: Arc::new(node), has_threads: false }
    }

    /// Wall clock, milliseconds since the Unix epoch. It may jump: never measure with it.
    pub fn now_ms(&self) -> i64 {
        self.host.now_ms()
    }

    /// A clock that only goes forward.
    pub fn monotonic(&self) -> Instant {
        Instant::now()
    }

    /// A random number.
    pub fn random_u64(&self) -> u64 {
        self.host.random_u64()
    }

    /// A random number in `[0, 1)`, for jitter.
    pub fn random_unit(&self) -> f64 {
        (self.random_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A random (version 4) UUID.
    pub fn uuid(&self) -> uuid::Uuid {
        self.host.uuid()
    }

    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until a point in time.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline).await;
    }

    /// The future's value, or `None` if it is not there in time; the future is dropped then.
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Option<F::Output> {
        tokio::time::timeout(duration, future).await.ok()
    }

    /// Runs a future as a task of its own. A panic in it is logged and becomes the task's error.
    pub fn spawn<T, F>(&self, name: &str, lane: Lane, future: F) -> Task<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let name = name.to_owned();
        let guarded = async move {
            let ended = AssertUnwindSafe(future).catch_unwind().await;
            let ended = ended.map_err(|payload| {
                let message = task::panic_message(payload.as_ref());
                tracing::error!(task = name, message, "task panicked");
                TaskError::Panicked(message)
            });
            // Nobody may be waiting for the value.
            let _ = sender.send(ended);
        };
        Task::new(receiver, self.host.spawn(lane, guarded.boxed()))
    }

    /// Runs work that blocks its thread (file IO) or takes over 100 us of CPU, off the runtime's
    /// threads. A panic in it goes on in the caller.
    pub async fn blocking<T, F>(&self, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.host.run_blocking(Box::new(move || {
            let result = std::panic::catch_unwind(AssertUnwindSafe(work));
            // The caller may have gone away.
            let _ = sender.send(result);
        }));
        match receiver.await {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // The runtime is shutting down and has dropped the work: so is the caller's.
            Err(_) => futures::future::pending().await,
        }
    }

    /// True in the real world; the simulation has one thread.
    pub fn has_threads(&self) -> bool {
        self.has_threads
    }

    /// Runs long-lived blocking work on a thread of its own. Only where [`Env::has_threads`].
    pub(crate) fn thread(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        let refused = self.host.thread(name, Box::new(work));
        assert!(refused.is_none(), "threads exist only in the real world");
    }
}
