//! The upkeep of Iceberg tables: what folding, retention and the sweep have done.

use super::registrar::Registrar;
use prometheus_client::metrics::counter::Counter;

/// The counters, over all tables since the start.
pub struct UpkeepMetrics {
    /// Files that the sweep took for orphans.
    pub orphans_marked: Counter,
    /// Orphans deleted.
    pub orphans_deleted: Counter,
    /// Folds of small files into larger ones.
    pub folds: Counter,
    /// Files that folds took out.
    pub folded_files: Counter,
    /// Bytes of the files that folds made.
    pub folded_bytes: Counter,
    /// Files that were too old.
    pub trimmed_files: Counter,
    /// Rows in these.
    pub trimmed_rows: Counter,
}

impl UpkeepMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        Self {
            orphans_marked: registrar.counter(
                "tables_orphans_marked",
                "Files below tables that no version named when they were looked at.",
            ),
            folds: registrar.counter("tables_folds", "Folds of small data files into larger ones."),
            folded_files: registrar
                .counter("tables_folded_files", "Small data files that were folded."),
            folded_bytes: registrar
                .counter("tables_folded_bytes", "Bytes of the data files that folds have made."),
            trimmed_files: registrar.counter(
                "tables_trimmed_files",
                "Data files that left tables because their rows were older than iceberg.retention.ms.",
            ),
            trimmed_rows: registrar
                .counter("tables_trimmed_rows", "Rows in the data files that left tables so."),
            orphans_deleted: registrar.counter(
                "tables_orphans_deleted",
                "Files below tables that no version named when they were looked at again.",
            ),
        }
    }
}
