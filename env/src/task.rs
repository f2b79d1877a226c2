//! A spawned task, and how it ended.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Why a task gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// It panicked, with this message.
    #[error("task panicked: {0}")]
    Panicked(String),
    /// It was aborted, or its runtime or node is gone.
    #[error("task was cancelled")]
    Cancelled,
}

/// A running task: a future of its value. Dropping it leaves the task running.
#[derive(Debug)]
pub struct Task<T> {
    result: oneshot::Receiver<Result<T, TaskError>>,
    handle: AbortHandle,
}

impl<T> Task<T> {
    pub(crate) fn new(
        result: oneshot::Receiver<Result<T, TaskError>>,
        handle: AbortHandle,
    ) -> Self {
        Self { result, handle }
    }

    /// Ends the task at its next wait.
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// True once the task has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = Pin::new(&mut self.result).poll(context);
        result.map(|answer| answer.unwrap_or(Err(TaskError::Cancelled)))
    }
}

/// The text of a panic's payload.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
