//! Logs as the plans of the background jobs are tested with.

use floe_metadata::rows::{Extent, PartitionState, Place};
use kfs::{OffsetMode, TimestampType};

/// Extents of two offsets each, with these greatest timestamps and bytes.
pub(crate) fn extents(of: &[(i64, u64)]) -> Vec<Extent> {
    let extent = |(at, (max_timestamp_ms, length)): (usize, &(i64, u64))| Extent {
        base_offset: at as i64 * 2,
        last_offset: at as i64 * 2 + 1,
        place: Place::Range { key: format!("wal/{at}"), position: 32, length: *length },
        offset_mode: OffsetMode::Relative,
        max_timestamp_ms: *max_timestamp_ms,
        timestamp_type: TimestampType::CreateTime,
        has_transactional: false,
    };
    of.iter().enumerate().map(extent).collect()
}

/// A partition of just these, all of it stable.
pub(crate) fn state(extents: &[Extent]) -> PartitionState {
    let end = extents.last().map_or(0, |last| last.last_offset + 1);
    PartitionState {
        version: 1,
        log_start_offset: 0,
        high_watermark: end,
        last_stable_offset: end,
        bytes: extents.iter().map(Extent::bytes).sum(),
    }
}
