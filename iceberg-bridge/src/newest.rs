//! The newest known version of a table: whole while it is in use, its head alone when it has not
//! been for a while. So a thousand tables that are committed once a minute take the memory of a
//! few; opening one again is CPU alone, and asks the store for nothing.

use crate::commit::{LoadedTable, TableHead};
use floe_env::Instant;
use std::sync::Arc;
use std::time::Duration;

/// A table that nobody has used for so long is kept as its head.
const REST_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Newest {
    head: Arc<TableHead>,
    whole: Option<Arc<LoadedTable>>,
    used: Instant,
}

impl Newest {
    pub(crate) fn new(table: Arc<LoadedTable>, now: Instant) -> Self {
        Self { head: table.head.clone(), whole: Some(table), used: now }
    }

    pub(crate) fn head(&self) -> &Arc<TableHead> {
        &self.head
    }

    /// The whole table if it is at hand; this counts as a use of it.
    pub(crate) fn whole(&mut self, now: Instant) -> Option<Arc<LoadedTable>> {
        self.used = now;
        self.whole.clone()
    }

    /// Takes a table that was opened from a head. False if the head is not this one's any more.
    pub(crate) fn opened(&mut self, table: &Arc<LoadedTable>) -> bool {
        let is_same = Arc::ptr_eq(&self.head, &table.head);
        if is_same {
            self.whole = Some(table.clone());
        }
        is_same
    }

    /// Lets the metadata go if nobody has used it for a while.
    pub(crate) fn rest(&mut self, now: Instant) {
        if now >= self.used + REST_AFTER {
            self.whole = None;
        }
    }
}
