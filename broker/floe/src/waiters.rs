//! How many wait for something, whatever ends the wait of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<AtomicUsize>);

/// One that waits, until it is dropped.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Waiters {
    /// Counts one more for as long as it keeps what it gets here.
    pub(crate) fn enter(&self) -> Waiting<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.0)
    }

    /// Whether anybody waits now.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
