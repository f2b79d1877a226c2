//! The readers: few connections, each behind its own worker with a bounded queue. A read sees one
//! moment, and everything that was committed before it started.

use super::error::SqlResult;
use super::lock::FileLock;
use super::open::open_reader;
use floe_env::{Env, Error, Result, Worker};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;

/// Connections that read.
const READERS: usize = 2;
/// Calls that wait for one reader.
const QUEUE_CALLS_MAX: usize = 128;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// Sends calls to the readers in turn.
pub(crate) struct Readers {
    workers: Vec<Worker<Job>>,
    next: AtomicUsize,
}

impl Readers {
    /// Starts the readers, which keep the file's lock as long as they live.
    pub(crate) fn start(env: &Env, path: &Path, lock: &Arc<FileLock>) -> Result<Self> {
        let mut workers = Vec::with_capacity(READERS);
        for number in 0..READERS {
            let connection = open_reader(path)?;
            let lock = Arc::clone(lock);
            let handle = move |jobs: Vec<Job>| {
                let _held = &lock;
                for job in jobs {
                    job(&connection);
                }
            };
            let name = format!("metadata-reader-{number}");
            workers.push(Worker::start(env, &name, QUEUE_CALLS_MAX, 1, handle));
        }
        Ok(Self { workers, next: AtomicUsize::new(0) })
    }

    /// Runs work within a read transaction.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // The caller may have gone away.
            let _ = reply.send(read(connection, work).map_err(Error::from));
        });
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        let stopped = || Error::unavailable("a metadata reader has stopped");
        self.workers[turn].send(job).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

fn read<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> SqlResult<T>,
) -> SqlResult<T> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let answer = work(connection);
    if !connection.is_autocommit() {
        connection.prepare_cached("COMMIT")?.execute([])?;
    }
    answer
}
