//! Log compaction: topics that keep the newest record of each key.

use super::registrar::Registrar;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// What compaction has done, and what it must leave.
pub struct CompactionMetrics {
    /// Passes that came to their end.
    pub passes: Counter,
    /// Passes that ended early.
    pub conflicts: Counter,
    /// Replacements of extents.
    pub replacements: Counter,
    /// Bytes that were read.
    pub bytes_read: Counter,
    /// Bytes that were written again.
    pub bytes_written: Counter,
    /// Bytes that went.
    pub bytes_removed: Counter,
    /// Records that went.
    pub records_removed: Counter,
    /// Partitions that wait for their tables.
    pub waiting_partitions: Gauge,
}

impl CompactionMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        Self {
            passes: registrar
                .counter("compaction_passes", "Passes over partitions of compacted topics."),
            conflicts: registrar.counter(
                "compaction_conflicts",
                "Passes that ended early because extents were changed by others; they are made \
                 again.",
            ),
            replacements: registrar
                .counter("compaction_replacements", "Replacements of extents by what is left."),
            bytes_read: registrar.counter(
                "compaction_read_bytes",
                "Bytes of batches that passes have read, to learn keys and to be cleaned.",
            ),
            bytes_written: registrar
                .counter("compaction_written_bytes", "Bytes of batches that were written again."),
            bytes_removed: registrar
                .counter("compaction_removed_bytes", "Bytes of batches that left the log."),
            records_removed: registrar.counter(
                "compaction_removed_records",
                "Records that left the log because a newer one of their key was there, or as \
                 tombstones, aborted or without a key.",
            ),
            waiting_partitions: registrar.gauge(
                "compaction_waiting_partitions",
                "Partitions that are not compacted further because their table has not read them.",
            ),
        }
    }
}
