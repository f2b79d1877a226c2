//! Tables that are due are committed in **convoys**: so many at once, in the order of their topics'
//! ids, that what they lack of the log can be got ready for all of them together. Topics share
//! segments, in that order; committed one by one, a thousand tables that were away for a minute
//! would read each segment a thousand times.
//!
//! A round of the background job starts one convoy at most, behind the last one, and waits for
//! none of its commits. A convoy that is under way lets no other come before it is about done: what
//! was got ready for it must stay.

use crate::log_reader::{LogRange, LogReader, PartitionCut};
use crate::turns::TurnEnd;
use crate::worker::Worker;
use floe_env::{Env, Instant, Result};
use kfs::TopicId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Tables of one convoy at least: of those that do not fit, as much is got ready as there is room.
const CONVOY_TABLES_MIN: usize = 4;
/// Commits of a convoy that may still run when the next one starts.
const STRAGGLERS_MAX: usize = 1;
/// A convoy that takes longer keeps no other waiting.
const CONVOY_TIME: Duration = Duration::from_secs(10);

/// A table that should be committed.
pub(crate) struct Due {
    pub(crate) worker: Arc<Worker>,
    pub(crate) cut: Vec<PartitionCut>,
    /// Bytes of log that it lacks, by estimate.
    pub(crate) bytes: u64,
}

/// The convoys of one bridge.
#[derive(Default)]
pub(crate) struct Convoys {
    /// The last table of the newest one.
    at: Option<TopicId>,
    running: Vec<watch::Receiver<TurnEnd>>,
    started: Option<Instant>,
}

impl Convoys {
    /// Starts the next convoy of those that are due, if it is time for one.
    pub(crate) async fn start_next(
        &mut self,
        env: &Env,
        log: &dyn LogReader,
        due: Vec<Due>,
    ) -> Result<()> {
        self.running.retain(|turn| turn.borrow().is_none() && turn.has_changed().is_ok());
        let is_late = self.started.is_some_and(|at| env.monotonic() >= at + CONVOY_TIME);
        let Some(bytes_max) = log.together_bytes_max() else {
            due.into_iter().for_each(|due| drop(due.worker.request(due.cut, false)));
            return Ok(());
        };
        if due.is_empty() || (self.running.len() > STRAGGLERS_MAX && !is_late) {
            return Ok(());
        }
        let convoy = self.next_of(due, bytes_max as u64);
        self.at = convoy.last().map(|due| due.worker.topic);
        self.started = Some(env.monotonic());
        let loaded = match convoy.len() {
            1 => Ok(()),
            _ => log.load_together(&ranges_of(&convoy)).await,
        };
        // Whether that worked or not: what is not ready is read when it is wanted.
        let turns = convoy.into_iter().map(|due| due.worker.request(due.cut, false));
        self.running.extend(turns);
        loaded
    }

    /// Those behind the last convoy, as many as fit.
    fn next_of(&self, mut due: Vec<Due>, bytes_max: u64) -> Vec<Due> {
        due.sort_by_key(|due| due.worker.topic);
        let behind = due.partition_point(|due| self.at.is_some_and(|at| due.worker.topic <= at));
        let first = if behind == due.len() { 0 } else { behind };
        due.rotate_left(first);
        let mut bytes = 0u64;
        let fits = due.iter().take_while(|due| {
            bytes = bytes.saturating_add(due.bytes);
            bytes <= bytes_max
        });
        let count = fits.count().max(CONVOY_TABLES_MIN);
        due.truncate(count);
        due
    }
}

fn ranges_of(convoy: &[Due]) -> Vec<LogRange> {
    convoy.iter().flat_map(|due| due.worker.ranges(&due.cut)).collect()
}
