//! From what the store and the bridge count themselves to the metrics.

use crate::metrics::{
    RequestKind, RequestOutcome, StoreMetrics, TableMetrics, TableState, set_total,
};
use floe_iceberg_bridge::Bridge;
use floe_store::StoreCounts;

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
