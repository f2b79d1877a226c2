//! Iceberg tables: how far each is behind its topic, and whether it still runs.

use super::registrar::{Registrar, label_values};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More tables get no series of their own; their handles then record nothing that is shown.
const TABLE_SERIES_MAX: usize = 10_000;

/// Whether a table follows its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableState {
    /// It does.
    Running,
    /// It does, with a gap or an error that somebody should look at.
    Degraded,
    /// It does not, until somebody resumes it.
    Stopped,
}

label_values!(TableState { Running => "running", Degraded => "degraded", Stopped => "stopped" });

const STATES: [TableState; 3] = [TableState::Running, TableState::Degraded, TableState::Stopped];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableLabels {
    table: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    table: Arc<str>,
    state: TableState,
}

type Seconds = Gauge<f64, AtomicU64>;

/// All tables.
pub struct TableMetrics {
    lag_records: Family<TableLabels, Gauge>,
    lag_seconds: Family<TableLabels, Seconds>,
    states: Family<StateLabels, Gauge>,
    commits: Family<TableLabels, Counter>,
    failures: Family<TableLabels, Counter>,
    listed: AtomicUsize,
    /// Tables without series of their own.
    pub unlisted: Counter,
}

/// One table's series.
#[derive(Clone, Debug)]
pub struct TableHandle {
    lag_records: Gauge,
    lag_seconds: Seconds,
    states: [Gauge; 3],
    /// Commits that succeeded.
    pub commits: Counter,
    /// Commits that failed.
    pub failures: Counter,
}

impl TableHandle {
    /// Sets how far the table is behind its topic: records, and age of the oldest of them.
    pub fn set_lag(&self, records: u64, seconds: f64) {
        self.lag_records.set(i64::try_from(records).unwrap_or(i64::MAX));
        self.lag_seconds.set(seconds);
    }

    /// Sets the state.
    pub fn set_state(&self, state: TableState) {
        for (known, gauge) in STATES.into_iter().zip(&self.states) {
            gauge.set(i64::from(known == state));
        }
    }
}

impl TableMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        let table = &["table"];
        Self {
            lag_records: registrar.gauges(
                "table_lag_records",
                table,
                "Records of the topic that are not yet in the table.",
            ),
            lag_seconds: registrar.gauges(
                "table_lag_seconds",
                table,
                "Age of the oldest record that is not yet in the table, 0 if there is none.",
            ),
            states: registrar.gauges(
                "table_state",
                &["table", "state"],
                "1 for the state that the table is in, 0 for the others.",
            ),
            commits: registrar.counters("table_commits", table, "Commits to the table."),
            failures: registrar.counters(
                "table_commit_failures",
                table,
                "Commits to the table that failed.",
            ),
            listed: AtomicUsize::new(0),
            unlisted: registrar.counter(
                "tables_unlisted",
                "Tables without series of their own, because there are too many.",
            ),
        }
    }

    /// The series of a table by its full name, made on first use. Keep it: making it allocates.
    pub fn table(&self, name: &str) -> TableHandle {
        let table: Arc<str> = Arc::from(name);
        let labels = TableLabels { table: table.clone() };
        let is_new = self.commits.get(&labels).is_none();
        if is_new && self.listed.fetch_add(1, Ordering::Relaxed) >= TABLE_SERIES_MAX {
            self.listed.fetch_sub(1, Ordering::Relaxed);
            self.unlisted.inc();
            return TableHandle {
                lag_records: Gauge::default(),
                lag_seconds: Gauge::default(),
                states: std::array::from_fn(|_| Gauge::default()),
                commits: Counter::default(),
                failures: Counter::default(),
            };
        }
        let states = STATES.map(|state| {
            self.states.get_or_create_owned(&StateLabels { table: table.clone(), state })
        });
        TableHandle {
            lag_records: self.lag_records.get_or_create_owned(&labels),
            lag_seconds: self.lag_seconds.get_or_create_owned(&labels),
            states,
            commits: self.commits.get_or_create_owned(&labels),
            failures: self.failures.get_or_create_owned(&labels),
        }
    }

    /// Removes a dropped table's series.
    pub fn forget(&self, name: &str) {
        let table: Arc<str> = Arc::from(name);
        let labels = TableLabels { table: table.clone() };
        self.lag_records.remove(&labels);
        self.lag_seconds.remove(&labels);
        if self.commits.remove(&labels) {
            self.listed.fetch_sub(1, Ordering::Relaxed);
        }
        self.failures.remove(&labels);
        for state in STATES {
            self.states.remove(&StateLabels { table: table.clone(), state });
        }
    }
}
