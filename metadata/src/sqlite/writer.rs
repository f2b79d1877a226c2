//! The one writer: takes all calls that wait, runs each in a savepoint of one transaction, and
//! answers them when that is on disk. So many calls share an fsync, and a failed one touches no
//! other. A call that waits alone needs no savepoint, which would copy each page that it changes.
//!
//! A COMMIT that fails with an IO error may or may not be on disk: its callers get
//! `UnknownOutcome`. After that the system's idea of the file cannot be trusted (a later sync may
//! succeed without the lost pages), so the writer refuses everything until the process restarts.

#[cfg(test)]
mod tests;

use super::error::{SqlResult, is_ambiguous_commit, statement_error};
use super::lock::FileLock;
use floe_env::{Env, Error, Result, Worker};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Calls that wait for the writer.
const QUEUE_CALLS_MAX: usize = 256;
/// Calls in one transaction.
const BATCH_CALLS_MAX: usize = 256;

/// One call: its work, then its answer.
trait Job: Send {
    /// Runs the work; true where its changes are to stay.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Answers: what the work answered, or why its changes are not there after all.
    fn finish(self: Box<Self>, undone: Option<&Error>);
}

struct Call<T, F> {
    work: Option<F>,
    answer: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> SqlResult<T> + Send,
{
    fn run(&mut self, connection: &Connection) -> bool {
        let work = self.work.take().expect("a job runs once");
        let answer = work(connection).map_err(Error::from);
        let stays = answer.is_ok();
        self.answer = Some(answer);
        stays
    }

    fn finish(self: Box<Self>, undone: Option<&Error>) {
        let answer = match (self.answer, undone) {
            (Some(Ok(_)) | None, Some(error)) => Err(error.clone()),
            (Some(answer), _) => answer,
            (None, None) => Err(Error::bug("a metadata call was answered before it ran")),
        };
        // The caller may have gone away.
        let _ = self.reply.send(answer);
    }
}

/// Sends calls to the writer.
#[derive(Clone)]
pub(crate) struct Writer {
    worker: Worker<Box<dyn Job>>,
}

impl Writer {
    /// Starts the writer, which keeps the file's lock as long as it lives.
    pub(crate) fn start(env: &Env, connection: Connection, lock: Arc<FileLock>) -> Self {
        let mut state = WriterState { connection, failure: None };
        let handle = move |jobs: Vec<Box<dyn Job>>| {
            let _held = &lock;
            state.run_all(jobs);
        };
        let worker =
            Worker::start(env, "metadata-writer", QUEUE_CALLS_MAX, BATCH_CALLS_MAX, handle);
        Self { worker }
    }

    /// Runs work within a transaction and waits until it is on disk. Dropping the wait does not
    /// stop the work.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Call { work: Some(work), answer: None, reply });
        let sent = self.worker.send(job).await;
        sent.map_err(|_| Error::unavailable("the metadata writer has stopped"))?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::unknown_outcome("the metadata writer stopped during the call"))
        })
    }
}

struct WriterState {
    connection: Connection,
    /// Set once a COMMIT ended in doubt.
    failure: Option<Error>,
}

impl WriterState {
    fn run_all(&mut self, jobs: Vec<Box<dyn Job>>) {
        let mut waiting = VecDeque::from(jobs);
        while !waiting.is_empty() {
            if let Some(failure) = &self.failure {
                finish_all(waiting, Some(failure));
                return;
            }
            if let Err(error) = self.execute("BEGIN IMMEDIATE") {
                finish_all(waiting, Some(&statement_error(error)));
                return;
            }
            self.run_transaction(&mut waiting);
        }
    }

    /// Runs the calls that wait in the transaction that has begun, and ends it. Some may be left,
    /// where SQLite had to give the transaction up.
    fn run_transaction(&mut self, waiting: &mut VecDeque<Box<dyn Job>>) {
        let mut ran = Vec::new();
        let is_alone = waiting.len() == 1;
        while let Some(mut job) = waiting.pop_front() {
            let outcome =
                if is_alone { self.run_alone(job.as_mut()) } else { self.run_job(job.as_mut()) };
            ran.push(job);
            if outcome.is_err() || self.connection.is_autocommit() {
                // A full disk, or an error of IO or memory, rolls the whole transaction back.
                self.roll_back();
                let undone = Error::unavailable("another metadata call ended the transaction");
                finish_all(ran, Some(&undone));
                return;
            }
        }
        let committed = self.execute("COMMIT");
        let undone = committed.err().map(|error| self.commit_failed(error));
        finish_all(ran, undone.as_ref());
    }

    /// Runs a call whose transaction is all its own.
    fn run_alone(&self, job: &mut dyn Job) -> rusqlite::Result<()> {
        if job.run(&self.connection) || self.connection.is_autocommit() {
            return Ok(());
        }
        // What ends then is a transaction without changes.
        self.execute("ROLLBACK")?;
        self.execute("BEGIN")
    }

    fn run_job(&self, job: &mut dyn Job) -> rusqlite::Result<()> {
        self.execute("SAVEPOINT call")?;
        if !job.run(&self.connection) {
            if self.connection.is_autocommit() {
                return Ok(());
            }
            self.execute("ROLLBACK TO call")?;
        }
        self.execute("RELEASE call")
    }

    fn commit_failed(&mut self, error: rusqlite::Error) -> Error {
        self.roll_back();
        if !is_ambiguous_commit(&error) {
            return statement_error(error);
        }
        let message = "the metadata file failed at a commit; a restart is needed";
        self.failure = Some(Error::unavailable(message).with_source(error));
        Error::unknown_outcome(message)
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            // The next BEGIN fails then, and its callers are told.
            tracing::error!(%error, "metadata transaction could not be rolled back");
        }
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }
}

fn finish_all(jobs: impl IntoIterator<Item = Box<dyn Job>>, undone: Option<&Error>) {
    for job in jobs {
        job.finish(undone);
    }
}
