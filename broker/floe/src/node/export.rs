//! From what the store and the bridge count themselves to the metrics.

use super::inspect::small_file_ratio;
use crate::metrics::{
    ColumnLimit, CompactionMetrics, DecodingMetrics, MetadataMetrics, Metrics, RequestKind,
    RequestOutcome, RetentionMetrics, TableMetrics, TableState, UpkeepMetrics, set_total,
};
use floe_env::ErrorKind;
use floe_iceberg_bridge::{Bridge, TableStatus};
use floe_log::{Compactor, Kept, Retention};
use floe_metadata::ChangeCounts;
use floe_store::{CallKind, StoreCounters};
use std::sync::atomic::Ordering;

/// Has every request to the object store counted and timed.
pub(super) fn observe_store(metrics: &Metrics, counters: &StoreCounters) {
    let metrics = metrics.clone();
    counters.on_call(move |call| {
        let outcome = match call.error {
            None => RequestOutcome::Ok,
            Some(ErrorKind::UnknownOutcome) => RequestOutcome::Unknown,
            Some(_) => RequestOutcome::Failed,
        };
        metrics.store.request(request_kind(call.kind), outcome, call.took, call.bytes);
    });
}

fn request_kind(kind: CallKind) -> RequestKind {
    match kind {
        CallKind::Put => RequestKind::Put,
        CallKind::Get => RequestKind::Get,
        CallKind::Head => RequestKind::Head,
        CallKind::List => RequestKind::List,
        CallKind::Delete => RequestKind::Delete,
    }
}

/// Brings the counts of changes of the metadata store into the metrics.
pub(super) fn export_metadata(metrics: &MetadataMetrics, counts: &ChangeCounts) {
    set_total(&metrics.segments, counts.segments);
    set_total(&metrics.transactions, counts.transactions);
    set_total(&metrics.facts, counts.facts);
    set_total(&metrics.upkeep, counts.upkeep);
}

/// Brings what retention has done, and what it must leave, into the metrics.
pub(super) fn export_retention(metrics: &RetentionMetrics, retention: &Retention) {
    let counts = retention.counts();
    set_total(&metrics.looks, counts.looks);
    set_total(&metrics.moves, counts.moves);
    set_total(&metrics.extents, counts.extents);
    set_total(&metrics.bytes_by_time, counts.bytes_by_time);
    set_total(&metrics.bytes_by_size, counts.bytes_by_size);
    set_total(&metrics.lacked_by_table, counts.lacked_by_table);
    let kept = retention.kept();
    let future = kept.values().filter(|kept| matches!(kept, Kept::Future(_))).count();
    let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    metrics.future_partitions.set(gauge(future));
    metrics.waiting_partitions.set(gauge(kept.len() - future));
}

/// Brings what compaction has done, and what it must leave, into the metrics.
pub(super) fn export_compaction(metrics: &CompactionMetrics, compactor: &Compactor) {
    let counts = compactor.counts();
    set_total(&metrics.passes, counts.passes);
    set_total(&metrics.conflicts, counts.conflicts);
    set_total(&metrics.replacements, counts.replacements);
    set_total(&metrics.bytes_read, counts.bytes_read);
    set_total(&metrics.bytes_written, counts.bytes_written);
    set_total(&metrics.bytes_removed, counts.bytes_removed);
    set_total(&metrics.records_removed, counts.records_removed);
    let waiting = i64::try_from(compactor.waiting().len()).unwrap_or(i64::MAX);
    metrics.waiting_partitions.set(waiting);
}

/// Brings each table's state and lag into the metrics; tables that are gone leave them.
pub(super) fn export_tables(metrics: &TableMetrics, bridge: &Bridge) {
    let own = &bridge.config().namespace;
    let statuses = bridge.statuses();
    let shown =
        statuses.into_iter().filter_map(|status| Some((series_name(own, &status)?, status)));
    let shown: Vec<_> = shown.collect();
    metrics.keep_only(&shown.iter().map(|(name, _)| name.as_str()).collect());
    for (name, status) in shown {
        let handle = metrics.table(&name);
        let lag = u64::try_from(status.lag_records).unwrap_or(0);
        handle.set_lag(lag, status.lag_ms as f64 / 1000.0);
        handle.set_state(match status.state {
            floe_iceberg_bridge::TableState::Running => TableState::Running,
            floe_iceberg_bridge::TableState::Degraded => TableState::Degraded,
            floe_iceberg_bridge::TableState::Stopped => TableState::Stopped,
        });
        handle.set_content(status.files, status.bytes, status.gap_offsets);
        handle.set_columns(status.columns as u64);
        handle.set_small_file_ratio(small_file_ratio(&status));
        set_total(&handle.rescued_rows, status.decoded.rescued_rows);
        set_total(&handle.undecodable_rows, status.decoded.undecodable_rows);
        handle.set_last_commit(status.last_commit_ms.unwrap_or(0) as f64 / 1000.0);
        set_total(&handle.commits, status.commits);
        set_total(&handle.failures, status.failures);
        set_total(&handle.conflicts, status.conflicts);
        set_total(&handle.puts, status.puts);
    }
}

/// A table's name, with its namespace where an engine has moved it out of that of topics' tables.
fn series_name(own: &str, status: &TableStatus) -> Option<String> {
    let (namespace, name) = (&status.namespace, status.shown_name()?);
    Some(if namespace == own { name } else { format!("{namespace}.{name}") })
}

/// Brings what the upkeep of tables has done into the metrics.
pub(super) fn export_upkeep(metrics: &UpkeepMetrics, bridge: &Bridge) {
    let counts = bridge.fold_counts();
    set_total(&metrics.folds, counts.folds.load(Ordering::Relaxed));
    set_total(&metrics.folded_files, counts.files.load(Ordering::Relaxed));
    set_total(&metrics.folded_bytes, counts.bytes.load(Ordering::Relaxed));
    let counts = bridge.trim_counts();
    set_total(&metrics.trimmed_files, counts.files.load(Ordering::Relaxed));
    set_total(&metrics.trimmed_rows, counts.rows.load(Ordering::Relaxed));
    let counts = bridge.sweep_counts();
    set_total(&metrics.orphans_marked, counts.marked.load(Ordering::Relaxed));
    set_total(&metrics.orphans_deleted, counts.deleted.load(Ordering::Relaxed));
}

/// Brings what limits kept out of tables' columns into the metrics.
pub(super) fn export_decoding(metrics: &DecodingMetrics, bridge: &Bridge) {
    let all = bridge.decode_counts();
    let limits = [
        (ColumnLimit::Columns, all.limits.leaf_columns),
        (ColumnLimit::ObjectKeys, all.limits.object_keys),
        (ColumnLimit::Depth, all.limits.depth),
        (ColumnLimit::KeyBytes, all.limits.key_bytes),
    ];
    for (limit, total) in limits {
        set_total(&metrics.limited(limit), total);
    }
}
