//! Which extents retention takes from the beginning of a partition: pure.
//!
//! An extent is what goes or stays: all of it goes once its *newest* record may go. So no record
//! goes before its time, and one may stay as long as the newest of its extent does, which holds
//! what one segment brought of the partition, or 1 MiB of a merged object.

use floe_metadata::retention::UntimedMark;
use floe_metadata::rows::{Extent, PartitionState};

/// What a topic's configs keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionTerms {
    /// Records older than this go, ms (`retention.ms`); `None` keeps them for ever.
    pub time_ms: Option<i64>,
    /// A partition's oldest extents go as long as this much is left of it, bytes
    /// (`retention.bytes`); `None` keeps all.
    pub bytes: Option<u64>,
    /// The topic has a table, which is waited for as long as [`TableHold`] says.
    pub has_table: bool,
}

impl RetentionTerms {
    /// True where nothing ever goes.
    pub fn keeps_all(&self) -> bool {
        self.time_ms.is_none() && self.bytes.is_none()
    }
}

/// How much longer records stay that a table lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableHold {
    /// So long beyond `retention.ms`, ms.
    pub time_ms: i64,
    /// So much of a partition beyond `retention.bytes`, bytes.
    pub bytes: u64,
}

/// What is over in one partition at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) terms: RetentionTerms,
    pub(crate) now_ms: i64,
    /// How old records without a timestamp are known to be.
    pub(crate) untimed: Option<UntimedMark>,
    /// The first offset that the topic's table lacks; `i64::MAX` without one.
    pub(crate) table_end: i64,
    pub(crate) hold: TableHold,
}

/// What is remembered of a partition's first extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Oldest {
    pub(crate) last_offset: i64,
    pub(crate) max_timestamp_ms: i64,
    pub(crate) bytes: u64,
}

impl Oldest {
    pub(crate) fn of(extent: &Extent) -> Self {
        let Extent { last_offset, max_timestamp_ms, .. } = *extent;
        Self { last_offset, max_timestamp_ms, bytes: extent.bytes() }
    }

    /// True where none of its records has a timestamp. A marker has one.
    pub(crate) fn is_untimed(&self) -> bool {
        self.max_timestamp_ms < 0
    }
}

/// Why an extent goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It is older than `retention.ms`.
    Time,
    /// There is more than `retention.bytes` without it.
    Size,
}

impl Limits {
    /// Why the first extent of a partition of `bytes` bytes goes, if it does. As in Kafka, size is
    /// asked before time, and a record is over when its age is more than `retention.ms`.
    pub(crate) fn why_over(&self, oldest: &Oldest, bytes: u64) -> Option<Reason> {
        let is_in_table = oldest.last_offset < self.table_end;
        let (held_ms, held_bytes) =
            if is_in_table { (0, 0) } else { (self.hold.time_ms, self.hold.bytes) };
        let is_too_much =
            |kept: u64| bytes.saturating_sub(oldest.bytes) >= kept.saturating_add(held_bytes);
        if self.terms.bytes.is_some_and(is_too_much) {
            return Some(Reason::Size);
        }
        let written_ms = match oldest.is_untimed() {
            true => self.untimed.filter(|mark| mark.covers(oldest.last_offset))?.since_ms,
            false => oldest.max_timestamp_ms,
        };
        let age_ms = self.now_ms.saturating_sub(written_ms);
        let is_old = |time_ms: i64| age_ms > time_ms.saturating_add(held_ms);
        self.terms.time_ms.is_some_and(is_old).then_some(Reason::Time)
    }

    /// True where nobody has noted yet how old the first extent is.
    pub(crate) fn needs_mark(&self, oldest: &Oldest) -> bool {
        self.terms.time_ms.is_some()
            && oldest.is_untimed()
            && !self.untimed.is_some_and(|mark| mark.covers(oldest.last_offset))
    }

    /// The same as if the topic's table had everything.
    pub(crate) fn without_table(self) -> Self {
        Self { table_end: i64::MAX, ..self }
    }
}

/// A run of extents that go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Over {
    /// How many.
    pub(crate) extents: usize,
    /// Where the log starts without them; 0 where there are none.
    pub(crate) log_start: i64,
    /// Bytes that go for their age.
    pub(crate) bytes_by_time: u64,
    /// Bytes that go because there are too many.
    pub(crate) bytes_by_size: u64,
    /// Offsets among them that the topic's table lacks.
    pub(crate) lacked_by_table: u64,
}

impl Over {
    /// Bytes that go.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_by_time + self.bytes_by_size
    }
}

/// The extents that go of a page that begins with the partition's first one. None reaches the last
/// stable offset: an open transaction keeps what it has written.
pub(crate) fn over(extents: &[Extent], state: &PartitionState, limits: &Limits) -> Over {
    let mut over = Over::default();
    let mut bytes = state.bytes;
    for extent in extents {
        let oldest = Oldest::of(extent);
        if oldest.last_offset >= state.last_stable_offset {
            break;
        }
        match limits.why_over(&oldest, bytes) {
            None => break,
            Some(Reason::Time) => over.bytes_by_time += oldest.bytes,
            Some(Reason::Size) => over.bytes_by_size += oldest.bytes,
        }
        let from = extent.base_offset.max(state.log_start_offset).max(limits.table_end);
        let lacked = oldest.last_offset.saturating_add(1).saturating_sub(from).max(0);
        over.lacked_by_table += lacked.unsigned_abs();
        over.extents += 1;
        over.log_start = oldest.last_offset + 1;
        bytes = bytes.saturating_sub(oldest.bytes);
    }
    over
}

#[cfg(test)]
mod tests;
