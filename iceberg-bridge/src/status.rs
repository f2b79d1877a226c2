//! What the bridge says of each table, and how it judges a table's state.

use crate::encode::DecodeCounts;
use crate::names::plain_name;
use floe_env::Error;
use kfs::TopicId;
use std::time::Duration;

/// A table that has not had all for so many times as long as it should is degraded.
const LATE_FACTOR: u32 = 5;

/// How a table is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// All is well.
    Running,
    /// Work goes on, but something was lost or keeps failing.
    Degraded,
    /// Nothing is written until an operator has decided.
    Stopped,
}

impl std::fmt::Display for TableState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Stopped => "stopped",
        })
    }
}

/// What is known of a topic's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStatus {
    /// The topic.
    pub topic: TopicId,
    /// Its name.
    pub topic_name: String,
    /// The table's name, once it is made.
    pub table: Option<String>,
    /// The namespace that it is in, or will be.
    pub namespace: String,
    /// How it is doing.
    pub state: TableState,
    /// Why it is not running, or that it is catching up.
    pub reason: Option<String>,
    /// Offsets of the topic that the table does not have, as last seen.
    pub lag_records: i64,
    /// For how long it has not had all, ms.
    pub lag_ms: i64,
    /// Commits since the broker started.
    pub commits: u64,
    /// When the newest commit was made, ms since the Unix epoch; before this broker's first one it
    /// may be a fold.
    pub last_commit_ms: Option<i64>,
    /// What went wrong last, until something goes right.
    pub last_error: Option<String>,
    /// Offsets that the table can never hold.
    pub gap_offsets: u64,
    /// Data files of the newest snapshot.
    pub files: u64,
    /// How many of them are small, so that folding would make them larger. `None` until the upkeep
    /// has looked at the table, which it does again when there are more of them.
    pub small_files: Option<u64>,
    /// The files' bytes.
    pub bytes: u64,
    /// Rows with something in `_kafka_rescued`, committed in the table's whole life.
    pub rescued_rows: u64,
    /// Rows with a `_kafka_error`, committed in the table's whole life.
    pub undecodable_rows: u64,
    /// Commits since the broker started that others were faster than, and that were made again.
    pub conflicts: u64,
    /// Objects put for the table since the broker started.
    pub puts: u64,
    /// Commits since the broker started that failed.
    pub failures: u64,
    /// Leaf columns beside the ten.
    pub columns: usize,
    /// Age at which rows leave the table, ms; `None` for never.
    pub retention_ms: Option<i64>,
    /// What became of the values committed since the broker started.
    pub decoded: DecodeCounts,
}

impl TableStatus {
    /// The name under which it is shown: of a table that cannot be made, the one that it is to get.
    /// `None` while there is nothing to tell, and of one that is not wanted any more.
    pub fn shown_name(&self) -> Option<String> {
        let is_wanted = self.last_error.is_some() && self.state != TableState::Stopped;
        let wanted = || is_wanted.then(|| plain_name(&self.topic_name));
        self.table.clone().or_else(wanted)
    }
}

/// By what a table's state is told.
pub(crate) struct Signs {
    /// Why it must not be written.
    pub(crate) stopped: Option<String>,
    /// Its topic wants a table.
    pub(crate) is_enabled: bool,
    pub(crate) last_error: Option<String>,
    pub(crate) gap_offsets: u64,
    /// Its cut is further away than a look may wait.
    pub(crate) is_backfilling: bool,
    pub(crate) lag_records: i64,
    pub(crate) lag: Duration,
    /// How long it may lack a record.
    pub(crate) lag_max: Duration,
}

impl Signs {
    /// State and reason; the first sign that says something counts.
    pub(crate) fn judge(self) -> (TableState, Option<String>) {
        use TableState::{Degraded, Running, Stopped};
        let (lag_s, records) = (self.lag.as_secs(), self.lag_records);
        let switched_off = || "switched off: its topic has iceberg.enable=false".to_owned();
        let lost = || format!("{} offsets were lost before they were read", self.gap_offsets);
        let late = || format!("for {lag_s} s it has not had all of its topic");
        let catching_up = || format!("catching up: {records} records to go");
        let is_late = self.lag >= self.lag_max * LATE_FACTOR && !self.is_backfilling;
        let stopped = self.stopped.map(|reason| (Stopped, reason));
        stopped
            .or_else(|| (!self.is_enabled).then(|| (Stopped, switched_off())))
            .or_else(|| self.last_error.map(|error| (Degraded, error)))
            .or_else(|| is_late.then(|| (Degraded, late())))
            .or_else(|| (self.gap_offsets > 0).then(|| (Degraded, lost())))
            .or_else(|| self.is_backfilling.then(|| (Running, catching_up())))
            .map_or((Running, None), |(state, reason)| (state, Some(reason)))
    }
}

/// The part of it that a worker keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerStatus {
    pub(crate) lag_records: i64,
    /// When the table was last seen to have all.
    covered_at_ms: Option<i64>,
    behind_since_ms: Option<i64>,
    pub(crate) commits: u64,
    pub(crate) last_commit_ms: Option<i64>,
    /// How the newest turn failed, if it did.
    pub(crate) last_error: Option<String>,
    /// How the newest visit of the background job failed, if it did.
    visit_error: Option<String>,
    pub(crate) failures: u64,
    /// Files of a full one's size, as the upkeep saw last.
    pub(crate) full_files: Option<u64>,
    pub(crate) decoded: DecodeCounts,
}

impl WorkerStatus {
    /// Notes how far the table was behind at some moment.
    pub(crate) fn note_lag(&mut self, lag_records: i64, now_ms: i64) {
        self.lag_records = lag_records;
        if lag_records == 0 {
            self.covered_at_ms = Some(now_ms);
            self.behind_since_ms = None;
        } else if self.behind_since_ms.is_none() {
            self.behind_since_ms = self.covered_at_ms.or(Some(now_ms));
        }
    }

    /// Notes how a visit of the background job has ended. What a turn could not do, another broker
    /// may have done since.
    pub(crate) fn note_visit(&mut self, error: Option<&Error>) {
        self.visit_error = error.map(ToString::to_string);
        if error.is_none() && self.lag_records == 0 {
            self.last_error = None;
        }
    }

    /// What keeps failing.
    pub(crate) fn failing(&self) -> Option<String> {
        self.last_error.clone().or_else(|| self.visit_error.clone())
    }

    /// For how long the table has not had all, ms.
    pub(crate) fn lag_ms(&self, now_ms: i64) -> i64 {
        self.behind_since_ms.map_or(0, |since| now_ms.saturating_sub(since).max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs() -> Signs {
        Signs {
            stopped: None,
            is_enabled: true,
            last_error: None,
            gap_offsets: 0,
            is_backfilling: false,
            lag_records: 0,
            lag: Duration::ZERO,
            lag_max: Duration::from_secs(60),
        }
    }

    #[test]
    fn the_gravest_sign_is_the_state() {
        let (late, error) = (Duration::from_secs(300), Some("no route".to_owned()));
        let cases = [
            (signs(), "running", ""),
            (Signs { lag: late / 2, ..signs() }, "running", ""),
            (Signs { lag: late, ..signs() }, "degraded", "for 300 s"),
            (Signs { lag: late, is_backfilling: true, ..signs() }, "running", "catching up"),
            (Signs { gap_offsets: 7, ..signs() }, "degraded", "7 offsets"),
            (Signs { gap_offsets: 7, last_error: error, ..signs() }, "degraded", "no route"),
            (Signs { is_enabled: false, gap_offsets: 7, ..signs() }, "stopped", "switched off"),
            (Signs { stopped: Some("x".to_owned()), is_enabled: false, ..signs() }, "stopped", "x"),
        ];
        for (signs, state, begins) in cases {
            let (found, reason) = signs.judge();
            assert_eq!(found.to_string(), state);
            let reason = reason.unwrap_or_default();
            assert!(reason.starts_with(begins) && reason.is_empty() == begins.is_empty());
        }
    }

    #[test]
    fn lag_counts_from_when_all_was_there_last() {
        let mut status = WorkerStatus::default();
        status.note_lag(0, 1_000);
        status.note_lag(5, 4_000);
        status.note_lag(9, 5_000);
        assert_eq!((status.lag_records, status.lag_ms(6_000)), (9, 5_000));
        status.note_lag(0, 7_000);
        assert_eq!((status.lag_records, status.lag_ms(9_000)), (0, 0));
    }
}
