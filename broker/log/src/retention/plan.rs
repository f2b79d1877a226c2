//! Which extents retention takes from the beginning of a partition: pure.
//!
//! An extent is what goes or stays: all of it goes once its *newest* record may go. So no record
//! goes before its time, and one may stay as long as the newest of its extent does, which holds
//! what one segment brought of the partition, or 1 MiB of a merged object.

use floe_metadata::retention::WrittenMark;
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
    /// So long beyond `retention.ms`, and since retention would have taken them, ms.
    pub time_ms: i64,
    /// So much of a partition beyond `retention.bytes`, bytes.
    pub bytes: u64,
}

/// What is over in one partition at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) terms: RetentionTerms,
    pub(crate) now_ms: i64,
    /// Since when records are known to be in the log whose timestamps do not tell.
    pub(crate) written: Option<WrittenMark>,
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
        let mark = self.mark_of(oldest);
        let written_ms = match oldest.is_untimed() {
            true => mark?.since_ms,
            false => oldest.max_timestamp_ms,
        };
        let is_older_than =
            |from_ms: i64, time_ms: i64| self.now_ms.saturating_sub(from_ms) > time_ms;
        let is_old = |time_ms: i64| is_older_than(written_ms, time_ms.saturating_add(held_ms));
        // A record's time may be long past when it comes: its table has as long as any other.
        let has_waited =
            held_ms == 0 || mark.is_some_and(|mark| is_older_than(mark.since_ms, held_ms));
        (self.terms.time_ms.is_some_and(is_old) && has_waited).then_some(Reason::Time)
    }

    /// What is known of when the first extent was written.
    fn mark_of(&self, oldest: &Oldest) -> Option<WrittenMark> {
        self.written.filter(|mark| mark.covers(oldest.last_offset))
    }

    /// True where somebody has to note that the first extent is here, because its age begins then,
    /// or the time that it waits for its table.
    pub(crate) fn needs_mark(&self, oldest: &Oldest) -> bool {
        let Some(time_ms) = self.terms.time_ms else { return false };
        let is_over = self.now_ms.saturating_sub(oldest.max_timestamp_ms) > time_ms;
        let waits = is_over && self.hold.time_ms > 0 && oldest.last_offset >= self.table_end;
        (oldest.is_untimed() || waits) && self.mark_of(oldest).is_none()
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
