//! Whether a partition is worth a pass, and how far it may reach: pure.
//!
//! What passes have been over is **clean**, what follows is **dirty**. Of the dirty part a pass may
//! take the extents up to the first that reaches the last stable offset, is younger than
//! `min.compaction.lag.ms`, or has not been read by the topic's table.

use floe_metadata::compaction::CompactionMark;
use floe_metadata::rows::{Extent, PartitionState};
use std::time::Duration;

/// Pause between rounds, as Kafka's `log.cleaner.backoff.ms`.
pub const COMPACTION_PAUSE: Duration = Duration::from_secs(15);
/// Bytes that keys may take in one pass, as Kafka's `log.cleaner.dedupe.buffer.size`.
pub const KEY_BYTES_MAX: usize = 128 << 20;
/// Bytes of a compacted object's batches at most.
pub const COMPACTED_BYTES_MAX: u64 = 64 << 20;
/// On a remote store, whose requests have a price, less than this is compacted only once it is
/// [`DIRT_AGE_MS`] old.
pub const REMOTE_DIRT_BYTES_MIN: u64 = 1 << 20;
/// Dirt is aged when its oldest record is so old, ms, or the last pass so long ago.
pub const DIRT_AGE_MS: i64 = 10 * 60 * 1000;

/// What a topic's configs say of compaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionTerms {
    /// A pass is worth it where more than this part of the bytes is dirty
    /// (`min.cleanable.dirty.ratio`).
    pub dirty_ratio_min: f64,
    /// Records younger than this stay, ms (`min.compaction.lag.ms`).
    pub lag_ms_min: i64,
    /// Records are compacted when they are so old, ms, whatever the ratio
    /// (`max.compaction.lag.ms`).
    pub lag_ms_max: i64,
    /// A tombstone stays so long after its first pass, ms (`delete.retention.ms`).
    pub delete_retention_ms: i64,
    /// The topic has a table, which must have read what goes.
    pub has_table: bool,
}

/// When partitions are compacted, and in how much memory.
#[derive(Clone, Copy, Debug)]
pub struct CompactionRules {
    /// See [`COMPACTION_PAUSE`].
    pub pause: Duration,
    /// See [`KEY_BYTES_MAX`].
    pub key_bytes_max: usize,
    /// See [`COMPACTED_BYTES_MAX`].
    pub object_bytes_max: u64,
    /// Bytes of one extent at most, or one batch: what a reader loads at once.
    pub extent_bytes_max: u64,
    /// Bytes that young dirt must have to be worth a pass: none on a local disk,
    /// [`REMOTE_DIRT_BYTES_MIN`] where a request has a price.
    pub dirt_bytes_min: u64,
    /// See [`DIRT_AGE_MS`].
    pub dirt_age_ms: i64,
}

impl Default for CompactionRules {
    fn default() -> Self {
        Self {
            pause: COMPACTION_PAUSE,
            key_bytes_max: KEY_BYTES_MAX,
            object_bytes_max: COMPACTED_BYTES_MAX,
            extent_bytes_max: crate::merge::EXTENT_BYTES_MAX,
            dirt_bytes_min: 0,
            dirt_age_ms: DIRT_AGE_MS,
        }
    }
}

/// What bounds a pass over one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) terms: CompactionTerms,
    pub(crate) now_ms: i64,
    /// The first offset that the topic's table lacks; `i64::MAX` without one.
    pub(crate) table_end: i64,
}

/// What a partition's dirty part is, as far as it has been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dirt {
    /// Where it begins.
    pub(crate) from: i64,
    /// The end of what a pass may take.
    pub(crate) until: i64,
    /// Bytes that it may take.
    pub(crate) bytes: u64,
    /// Bytes that are dirty but must wait.
    pub(crate) waiting_bytes: u64,
    /// The oldest of the extents' newest timestamps, of those that have one, ms.
    pub(crate) oldest_ms: i64,
    /// It ends because the topic's table has read no further.
    pub(crate) waits_for_table: bool,
    is_closed: bool,
}

impl Dirt {
    /// Nothing yet, from where the last pass ended: everything, where the log is another one now.
    pub(crate) fn new(state: &PartitionState, mark: Option<&CompactionMark>) -> Self {
        let clean_until = mark.map_or(0, |mark| mark.clean_until);
        let is_known = clean_until <= state.high_watermark;
        let from =
            if is_known { clean_until.max(state.log_start_offset) } else { state.log_start_offset };
        Self {
            from,
            until: from,
            bytes: 0,
            waiting_bytes: 0,
            oldest_ms: i64::MAX,
            waits_for_table: false,
            is_closed: false,
        }
    }

    /// Takes in the next extent behind.
    pub(crate) fn add(&mut self, extent: &Extent, state: &PartitionState, limits: &Limits) {
        let Limits { terms, now_ms, table_end } = limits;
        let is_young = terms.lag_ms_min > 0
            && extent.max_timestamp_ms > now_ms.saturating_sub(terms.lag_ms_min);
        let is_open = extent.last_offset >= state.last_stable_offset;
        let is_unread = extent.last_offset >= *table_end;
        if !self.is_closed && (is_young || is_open || is_unread) {
            self.is_closed = true;
            self.waits_for_table = is_unread && !is_young && !is_open;
        }
        if self.is_closed {
            self.waiting_bytes += extent.bytes();
            return;
        }
        self.bytes += extent.bytes();
        self.until = extent.last_offset + 1;
        if extent.max_timestamp_ms >= 0 {
            self.oldest_ms = self.oldest_ms.min(extent.max_timestamp_ms);
        }
    }

    /// Nothing of it may be taken, whatever else is behind.
    pub(crate) fn all_waits(&self) -> bool {
        self.is_closed && self.until == self.from
    }

    /// Which part of what a pass would go over is dirty, 0 to 1.
    pub(crate) fn ratio(&self, state: &PartitionState) -> f64 {
        let clean = state.bytes.saturating_sub(self.bytes + self.waiting_bytes);
        match clean + self.bytes {
            0 => 0.0,
            total => self.bytes as f64 / total as f64,
        }
    }

    /// How much a pass is worth it; `None` where it is not. What `max.compaction.lag.ms` asks for
    /// comes first, then the dirtiest.
    pub(crate) fn urgency(
        &self,
        state: &PartitionState,
        mark: Option<&CompactionMark>,
        limits: &Limits,
        rules: &CompactionRules,
    ) -> Option<f64> {
        let Limits { terms, now_ms, .. } = limits;
        let is_older = |age_ms: i64| {
            let before_ms = now_ms.saturating_sub(age_ms);
            self.oldest_ms < before_ms || mark.is_some_and(|mark| mark.at_ms < before_ms)
        };
        if self.until > self.from {
            if is_older(terms.lag_ms_max) {
                return Some(f64::INFINITY);
            }
            let is_enough = self.bytes >= rules.dirt_bytes_min || is_older(rules.dirt_age_ms);
            let ratio = self.ratio(state);
            if is_enough && ratio > terms.dirty_ratio_min {
                return Some(ratio);
            }
        }
        // Nothing new that is worth it, but what the last pass left may go by now.
        let is_past = mark.and_then(|mark| mark.horizon_ms).is_some_and(|at_ms| at_ms <= *now_ms);
        is_past.then_some(0.0)
    }
}

#[cfg(test)]
mod tests;
