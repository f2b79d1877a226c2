//! What the bridge says of each table.

use crate::encode::DecodeCounts;
use floe_env::Error;
use kfs::TopicId;

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
    /// How it is doing.
    pub state: TableState,
    /// Why it is not running.
    pub reason: Option<String>,
    /// Offsets of the topic that the table does not have, as last seen.
    pub lag_records: i64,
    /// For how long it has not had all, ms.
    pub lag_ms: i64,
    /// Commits since the broker started.
    pub commits: u64,
    /// When the newest commit was made, ms since the Unix epoch.
    pub last_commit_ms: Option<i64>,
    /// What went wrong last, until something goes right.
    pub last_error: Option<String>,
    /// Offsets that the table can never hold.
    pub gap_offsets: i64,
    /// Data files of the newest snapshot.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Commits since the broker started that others were faster than, and that were made again.
    pub conflicts: u64,
    /// Objects that commits have put since the broker started.
    pub puts: u64,
    /// Commits since the broker started that failed.
    pub failures: u64,
    /// Leaf columns beside the ten.
    pub columns: usize,
    /// What became of the values committed since the broker started.
    pub decoded: DecodeCounts,
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
