//! Records that leave the log by age and size.

use super::registrar::{Registrar, label_values};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Why records left the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reason {
    Time,
    Size,
}

label_values!(Reason { Time => "time", Size => "size" });

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: Reason,
}

/// Records that leave the log by age and size.
pub struct RetentionMetrics {
    /// Pages of extents that were read.
    pub looks: Counter,
    /// Moves of log starts.
    pub moves: Counter,
    /// Extents that went.
    pub extents: Counter,
    /// Bytes that went for their age.
    pub bytes_by_time: Counter,
    /// Bytes that went because there were too many.
    pub bytes_by_size: Counter,
    /// Offsets that went before their table had read them.
    pub lacked_by_table: Counter,
    /// Partitions whose oldest records have timestamps in the future.
    pub future_partitions: Gauge,
    /// Partitions that keep records for their tables.
    pub waiting_partitions: Gauge,
}

impl RetentionMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        let bytes: Family<Labels, Counter> = registrar.counters(
            "retention_bytes",
            &["reason"],
            "Bytes of records that left the log, by why: time (retention.ms), size \
             (retention.bytes).",
        );
        let by = |reason| bytes.get_or_create_owned(&Labels { reason });
        Self {
            bytes_by_time: by(Reason::Time),
            bytes_by_size: by(Reason::Size),
            looks: registrar.counter(
                "retention_looks",
                "Pages of extents read to see what is over. None where nothing is.",
            ),
            moves: registrar.counter("retention_moves", "Moves of a partition's log start."),
            extents: registrar.counter("retention_extents", "Extents that left the log."),
            lacked_by_table: registrar.counter(
                "retention_lacked_by_table_offsets",
                "Offsets that left the log before their table had read them, which is a gap there.",
            ),
            future_partitions: registrar.gauge(
                "retention_future_partitions",
                "Partitions that keep old records because of a timestamp in the future.",
            ),
            waiting_partitions: registrar.gauge(
                "retention_waiting_partitions",
                "Partitions that keep old records because their table has not read them.",
            ),
        }
    }
}
