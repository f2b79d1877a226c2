//! A worker: one thread that takes all that waits in a bounded queue and handles it together. In
//! the simulation, which has no threads, it is a task.

use crate::{Env, Lane};
use tokio::sync::mpsc;

/// Sends items to a worker; the worker ends when every sender is gone.
#[derive(Debug)]
pub struct Worker<T> {
    queue: mpsc::Sender<T>,
}

impl<T> Clone for Worker<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Starts a worker. `capacity` bounds the queue, `batch_max` what one call of `handle` gets.
    pub fn start(
        env: &Env,
        name: &str,
        capacity: usize,
        batch_max: usize,
        mut handle: impl FnMut(Vec<T>) + Send + 'static,
    ) -> Self {
        let (queue, mut items) = mpsc::channel(capacity);
        if env.has_threads() {
            env.thread(name, move || {
                let mut batch = Vec::new();
                while items.blocking_recv_many(&mut batch, batch_max) > 0 {
                    handle(std::mem::take(&mut batch));
                }
            });
        } else {
            env.spawn(name, Lane::Foreground, async move {
                let mut batch = Vec::new();
                while items.recv_many(&mut batch, batch_max).await > 0 {
                    handle(std::mem::take(&mut batch));
                }
            });
        }
        Self { queue }
    }

    /// Puts an item into the queue, waiting for room. Gives it back where the worker is gone.
    pub async fn send(&self, item: T) -> Result<(), T> {
        self.queue.send(item).await.map_err(|refused| refused.0)
    }
}
