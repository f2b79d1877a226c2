//! From what the log, the store and the bridge tell to the metrics.

use crate::metrics::{
    CommitOutcome, CutReason, Metrics, RequestKind, RequestOutcome, StoreMetrics, TableMetrics,
    TableState, set_total,
};
use floe_iceberg_bridge::Bridge;
use floe_log::Observer;
use floe_store::StoreCounts;
use std::time::Duration;

/// The log's observer.
pub(super) struct LogObserver(pub(super) Metrics);

impl Observer for LogObserver {
    fn segment_cut(&self, reason: floe_log::CutReason, bytes: u64, _sections: usize) {
        let reason = match reason {
            floe_log::CutReason::Full => CutReason::Full,
            floe_log::CutReason::Time => CutReason::Time,
            floe_log::CutReason::Shutdown => CutReason::Shutdown,
        };
        self.0.log.cut(reason, bytes);
        self.0.log.uploads_in_flight.inc();
        self.0.log.uploads_in_flight_bytes.inc_by(bytes.cast_signed());
    }

    fn waited_for_cut(&self, waited: Duration) {
        self.0.log.produce_queue_seconds.observe(waited.as_secs_f64());
    }

    fn uploaded(&self, took: Duration, bytes: u64, ok: bool) {
        self.0.log.uploads_in_flight.dec();
        self.0.log.uploads_in_flight_bytes.dec_by(bytes.cast_signed());
        if ok {
            self.0.log.upload_seconds.observe(took.as_secs_f64());
        } else {
            self.0.log.uploads_abandoned.inc();
        }
    }

    fn committed(&self, took: Duration, batches: usize) {
        self.0.log.commit(CommitOutcome::Applied);
        self.0.log.commit_seconds.observe(took.as_secs_f64());
        self.0.log.batches.inc_by(batches as u64);
    }
}

/// Brings the object store's counts into the metrics.
pub(super) fn export_store(metrics: &StoreMetrics, counts: &StoreCounts) {
    let kinds = [
        (RequestKind::Put, &counts.put),
        (RequestKind::Get, &counts.get),
        (RequestKind::Head, &counts.head),
        (RequestKind::List, &counts.list),
        (RequestKind::Delete, &counts.delete),
    ];
    for (kind, calls) in kinds {
        let ok = calls.requests.saturating_sub(calls.errors);
        set_total(metrics.requests(kind, RequestOutcome::Ok), ok);
        set_total(metrics.requests(kind, RequestOutcome::Failed), calls.errors);
        set_total(metrics.bytes(kind), calls.volume);
    }
}

/// Brings each table's state and lag into the metrics.
pub(super) fn export_tables(metrics: &TableMetrics, bridge: &Bridge) {
    for status in bridge.statuses() {
        let Some(table) = status.table else { continue };
        let handle = metrics.table(&table);
        let lag = u64::try_from(status.lag_records).unwrap_or(0);
        handle.set_lag(lag, status.lag_ms as f64 / 1000.0);
        handle.set_state(match status.state {
            floe_iceberg_bridge::TableState::Running => TableState::Running,
            floe_iceberg_bridge::TableState::Degraded => TableState::Degraded,
            floe_iceberg_bridge::TableState::Stopped => TableState::Stopped,
        });
        set_total(&handle.commits, status.commits);
    }
}
