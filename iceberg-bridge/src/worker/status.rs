//! How a table is doing, as its worker knows it.

use super::Worker;
use super::refresh::why_dropped;
use crate::commit::TableCounts;
use crate::newest::Newest;
use crate::status::{Signs, TableStatus};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Worker {
    pub(crate) fn status(&self) -> TableStatus {
        let state = self.state.lock();
        let (newest, status) = (state.newest.as_ref().map(Newest::head), &state.status);
        let pointer = newest.map(|table| &table.pointer);
        let config = &self.shared.config;
        let counts = newest.map_or_else(TableCounts::default, |table| table.counts);
        let lag_ms = status.lag_ms(self.shared.env.now_ms());
        let signs = Signs {
            stopped: newest
                .and_then(|table| table.stopped.clone())
                .or_else(|| state.dropped.as_deref().map(why_dropped)),
            is_enabled: state.settings.is_enabled,
            last_error: status.failing(),
            gap_offsets: counts.gap_offsets,
            is_backfilling: state.is_backfilling,
            lag_records: status.lag_records,
            lag: Duration::from_millis(lag_ms.unsigned_abs()),
            lag_max: config.lag_max,
        };
        let (table_state, reason) = signs.judge();
        let dropped_name = || {
            let (_, name) = state.dropped.as_deref()?.rsplit_once('.')?;
            Some(name.to_owned())
        };
        TableStatus {
            topic: self.topic,
            topic_name: self.topic_name.clone(),
            table: pointer.map(|pointer| pointer.name.clone()).or_else(dropped_name),
            namespace: pointer.map_or(&config.namespace, |pointer| &pointer.namespace).clone(),
            state: table_state,
            reason,
            lag_records: status.lag_records,
            lag_ms,
            commits: status.commits,
            last_commit_ms: status.last_commit_ms.or(counts.committed_ms),
            last_error: status.last_error.clone(),
            gap_offsets: counts.gap_offsets,
            files: counts.files,
            small_files: status.full_files.map(|full| counts.files.saturating_sub(full)),
            bytes: counts.bytes,
            rescued_rows: counts.rescued_rows,
            undecodable_rows: counts.undecodable_rows,
            conflicts: self.counts.conflicts.load(Ordering::Relaxed),
            puts: self.counts.puts.load(Ordering::Relaxed),
            failures: status.failures,
            columns: newest.map_or(0, |table| table.mapping.leaves()),
            retention_ms: state.settings.retention_ms,
            decoded: status.decoded,
        }
    }
}
