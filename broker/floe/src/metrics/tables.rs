//! Iceberg tables: how far each is behind its topic, and whether it still runs.

use super::registrar::{Registrar, label_values};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
type Ratio = Gauge<f64, AtomicU64>;

/// Names of tables, by whether they have series of their own.
#[derive(Default)]
struct KnownTables {
    listed: BTreeSet<String>,
    unlisted: BTreeSet<String>,
}

/// All tables.
pub struct TableMetrics {
    lag_records: Family<TableLabels, Gauge>,
    lag_seconds: Family<TableLabels, Seconds>,
    states: Family<StateLabels, Gauge>,
    commits: Family<TableLabels, Counter>,
    failures: Family<TableLabels, Counter>,
    conflicts: Family<TableLabels, Counter>,
    puts: Family<TableLabels, Counter>,
    files: Family<TableLabels, Gauge>,
    bytes: Family<TableLabels, Gauge>,
    columns: Family<TableLabels, Gauge>,
    small_file_ratio: Family<TableLabels, Ratio>,
    rescued_rows: Family<TableLabels, Counter>,
    undecodable_rows: Family<TableLabels, Counter>,
    gap_offsets: Family<TableLabels, Gauge>,
    last_commit: Family<TableLabels, Seconds>,
    known: Mutex<KnownTables>,
    unlisted: Gauge,
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
    /// Commits that were made again, because somebody else was faster.
    pub conflicts: Counter,
    /// Objects put by commits.
    pub puts: Counter,
    files: Gauge,
    bytes: Gauge,
    columns: Gauge,
    small_file_ratio: Ratio,
    /// Rows committed with something in `_kafka_rescued`.
    pub rescued_rows: Counter,
    /// Rows committed with a `_kafka_error`.
    pub undecodable_rows: Counter,
    gap_offsets: Gauge,
    last_commit: Seconds,
}

impl TableHandle {
    /// A handle that records nothing that is shown.
    fn unlisted() -> Self {
        Self {
            lag_records: Gauge::default(),
            lag_seconds: Seconds::default(),
            states: std::array::from_fn(|_| Gauge::default()),
            commits: Counter::default(),
            failures: Counter::default(),
            conflicts: Counter::default(),
            puts: Counter::default(),
            files: Gauge::default(),
            bytes: Gauge::default(),
            columns: Gauge::default(),
            small_file_ratio: Ratio::default(),
            rescued_rows: Counter::default(),
            undecodable_rows: Counter::default(),
            gap_offsets: Gauge::default(),
            last_commit: Seconds::default(),
        }
    }

    /// Sets how far the table is behind its topic: records, and age of the oldest of them.
    pub fn set_lag(&self, records: u64, seconds: f64) {
        self.lag_records.set(i64::try_from(records).unwrap_or(i64::MAX));
        self.lag_seconds.set(seconds);
    }

    /// Sets what the newest snapshot holds: data files, their bytes, and offsets that are lost.
    pub fn set_content(&self, files: u64, bytes: u64, gap_offsets: u64) {
        let values = [(&self.files, files), (&self.bytes, bytes), (&self.gap_offsets, gap_offsets)];
        for (gauge, value) in values {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    /// Sets how many columns the table has beside the ten.
    pub fn set_columns(&self, columns: u64) {
        self.columns.set(i64::try_from(columns).unwrap_or(i64::MAX));
    }

    /// Sets the part of the files that is small, if it is known.
    pub fn set_small_file_ratio(&self, ratio: Option<f64>) {
        self.small_file_ratio.set(ratio.unwrap_or(f64::NAN));
    }

    /// Sets when the newest commit was made, seconds since the Unix epoch.
    pub fn set_last_commit(&self, seconds: f64) {
        self.last_commit.set(seconds);
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
            conflicts: registrar.counters(
                "table_commit_conflicts",
                table,
                "Commits that were made again, because somebody else was faster.",
            ),
            puts: registrar.counters("table_puts", table, "Objects put for the table."),
            files: registrar.gauges("table_files", table, "Data files of the newest snapshot."),
            bytes: registrar.gauges("table_bytes", table, "Bytes of these data files."),
            columns: registrar.gauges(
                "table_columns",
                table,
                "Columns beside the ten, those within structs and lists counted one by one.",
            ),
            small_file_ratio: registrar.gauges(
                "table_small_file_ratio",
                table,
                "The part of the data files that folding would make larger, NaN until it is known.",
            ),
            rescued_rows: registrar.counters(
                "table_rescued_rows",
                table,
                "Rows committed with values that no column holds, in _kafka_rescued.",
            ),
            undecodable_rows: registrar.counters(
                "table_undecodable_rows",
                table,
                "Rows committed with a _kafka_error: the value looked like JSON and stayed raw.",
            ),
            gap_offsets: registrar.gauges(
                "table_gap_offsets",
                table,
                "Offsets that it can never hold.",
            ),
            last_commit: registrar.gauges(
                "table_last_commit_timestamp_seconds",
                table,
                "When the table was last committed to, 0 if it never was.",
            ),
            known: Mutex::default(),
            unlisted: registrar.gauge(
                "tables_unlisted",
                "Tables without series of their own, because there are too many.",
            ),
        }
    }

    /// The series of a table by its full name, made on first use. Keep it: making it allocates.
    pub fn table(&self, name: &str) -> TableHandle {
        if !self.is_listed(name) {
            return TableHandle::unlisted();
        }
        let table: Arc<str> = Arc::from(name);
        let labels = TableLabels { table: table.clone() };
        let states = STATES.map(|state| {
            self.states.get_or_create_owned(&StateLabels { table: table.clone(), state })
        });
        TableHandle {
            lag_records: self.lag_records.get_or_create_owned(&labels),
            lag_seconds: self.lag_seconds.get_or_create_owned(&labels),
            states,
            commits: self.commits.get_or_create_owned(&labels),
            failures: self.failures.get_or_create_owned(&labels),
            conflicts: self.conflicts.get_or_create_owned(&labels),
            puts: self.puts.get_or_create_owned(&labels),
            files: self.files.get_or_create_owned(&labels),
            bytes: self.bytes.get_or_create_owned(&labels),
            columns: self.columns.get_or_create_owned(&labels),
            small_file_ratio: self.small_file_ratio.get_or_create_owned(&labels),
            rescued_rows: self.rescued_rows.get_or_create_owned(&labels),
            undecodable_rows: self.undecodable_rows.get_or_create_owned(&labels),
            gap_offsets: self.gap_offsets.get_or_create_owned(&labels),
            last_commit: self.last_commit.get_or_create_owned(&labels),
        }
    }

    /// Whether a table has series of its own; the first ones have.
    fn is_listed(&self, name: &str) -> bool {
        let mut known = self.known.lock();
        let is_listed = known.listed.contains(name) || known.listed.len() < TABLE_SERIES_MAX;
        if is_listed {
            known.unlisted.remove(name);
        }
        let names = if is_listed { &mut known.listed } else { &mut known.unlisted };
        if !names.contains(name) {
            names.insert(name.to_owned());
        }
        self.unlisted.set(i64::try_from(known.unlisted.len()).unwrap_or(i64::MAX));
        is_listed
    }

    /// Removes the series of tables that are not among these.
    pub fn keep_only(&self, names: &BTreeSet<&str>) {
        let mut known = self.known.lock();
        known.unlisted.retain(|name| names.contains(name.as_str()));
        known.listed.retain(|name| {
            let is_kept = names.contains(name.as_str());
            if !is_kept {
                self.remove(name);
            }
            is_kept
        });
    }

    fn remove(&self, name: &str) {
        let table: Arc<str> = Arc::from(name);
        let labels = TableLabels { table: table.clone() };
        for gauges in
            [&self.lag_records, &self.files, &self.bytes, &self.columns, &self.gap_offsets]
        {
            gauges.remove(&labels);
        }
        for gauges in [&self.lag_seconds, &self.small_file_ratio, &self.last_commit] {
            gauges.remove(&labels);
        }
        for counters in [
            &self.commits,
            &self.failures,
            &self.conflicts,
            &self.puts,
            &self.rescued_rows,
            &self.undecodable_rows,
        ] {
            counters.remove(&labels);
        }
        for state in STATES {
            self.states.remove(&StateLabels { table: table.clone(), state });
        }
    }
}
