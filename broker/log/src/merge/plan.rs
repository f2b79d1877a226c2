//! Which extents are merged next: pure.
//!
//! A **piece** is a stretch of extents that lie side by side in one object: a fresh extent, or all
//! of a merged object. Pieces are what is counted, so that the extents of one merged object are not
//! taken for many small ones. A run of pieces is merged only into an object that is several times
//! as large as the largest of them; so each merge of a byte moves it to an object at least
//! [`AGED_GROWTH_MIN`] times as large, and none is rewritten more often than
//! log2([`OBJECT_BYTES_MAX`] / bytes of its first extent): 16 times from 1 KiB, 6 from 1 MiB. While
//! a partition is written to, the larger factor [`GROWTH_MIN`] holds and the bound is half of that.
//!
//! Where requests have a price ([`MergeRules::bytes_min`]), a merge takes [`PIECES_ENOUGH`] pieces
//! or makes one of [`REMOTE_BYTES_MIN`], and a merged piece of so many bytes is **done**: what a
//! reader gains from a larger one is less than what it costs. So a byte is rewritten twice while
//! 64 x 64 of the partition's pieces make [`REMOTE_BYTES_MIN`], once where 64 do.

use floe_metadata::rows::{Extent, FreshBounds, Place};
use kfs::OffsetMode;
use std::ops::Range;
use std::time::Duration;

/// Pause between rounds.
pub const MERGE_PAUSE: Duration = Duration::from_secs(10);
/// Bytes of a merged object's batches at most.
pub const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one extent of a merged object at most, or one batch: what a reader loads at once.
pub const EXTENT_BYTES_MAX: u64 = 1 << 20;
/// Adjacent pieces that are worth a merge where they are together as large as the rules ask.
pub const PIECES_MIN: usize = 8;
/// Adjacent pieces that are worth a merge however small they are.
pub const PIECES_ENOUGH: usize = 64;
/// On a remote store, whose requests have a price, fewer than [`PIECES_ENOUGH`] pieces are merged
/// only where they are so many bytes: half a segment. What was merged is done then.
pub const REMOTE_BYTES_MIN: u64 = 4 << 20;
/// Adjacent pieces that are worth a merge once no more is expected to come soon.
pub const AGED_PIECES_MIN: usize = 2;
/// A piece is aged when its newest record is so old, ms. Records' times are the producers': a wrong
/// one makes a merge earlier or later, and no more than that.
pub const AGE_MS: i64 = 10 * 60 * 1000;
/// A merged object is at least so many times as large as its largest piece.
pub const GROWTH_MIN: u64 = 4;
/// The same, of aged pieces.
pub const AGED_GROWTH_MIN: u64 = 2;

/// Fresh segments that a round leaves packed.
pub const FRESH_KEPT: FreshBounds = FreshBounds { segments: 4096, extents: 1 << 19 };

/// When extents are merged.
#[derive(Clone, Copy, Debug)]
pub struct MergeRules {
    /// See [`MERGE_PAUSE`].
    pub pause: Duration,
    /// See [`OBJECT_BYTES_MAX`].
    pub object_bytes_max: u64,
    /// See [`EXTENT_BYTES_MAX`].
    pub extent_bytes_max: u64,
    /// See [`PIECES_MIN`].
    pub pieces_min: usize,
    /// Bytes that [`pieces_min`](Self::pieces_min) pieces must have to be worth a merge: none on a
    /// local disk, [`REMOTE_BYTES_MIN`] where a request has a price.
    pub bytes_min: u64,
    /// Bytes of a run from which it grows no longer than it must: where partitions share objects,
    /// the same stretch of all of them comes with few reads.
    pub run_bytes_enough: u64,
    /// See [`AGED_PIECES_MIN`].
    pub aged_pieces_min: usize,
    /// See [`AGE_MS`].
    pub age_ms: i64,
    /// See [`FRESH_KEPT`].
    pub fresh_kept: FreshBounds,
}

impl Default for MergeRules {
    fn default() -> Self {
        Self {
            pause: MERGE_PAUSE,
            object_bytes_max: OBJECT_BYTES_MAX,
            extent_bytes_max: EXTENT_BYTES_MAX,
            pieces_min: PIECES_MIN,
            bytes_min: 0,
            run_bytes_enough: u64::MAX,
            aged_pieces_min: AGED_PIECES_MIN,
            age_ms: AGE_MS,
            fresh_kept: FRESH_KEPT,
        }
    }
}

impl MergeRules {
    /// Partitions share objects, because each PUT has a price.
    pub(crate) fn shares(&self) -> bool {
        self.bytes_min > 0
    }

    fn is_aged(&self, newest_ms: i64, now_ms: i64) -> bool {
        newest_ms <= now_ms.saturating_sub(self.age_ms)
    }

    /// The rules of a topic of so many partitions: where they share objects, one has room for a run
    /// of each of them.
    pub(crate) fn of_topic(self, partition_count: i32) -> Self {
        if !self.shares() {
            return self;
        }
        let part = self.object_bytes_max / u64::from(partition_count.unsigned_abs()).max(1);
        Self { run_bytes_enough: part.max(self.bytes_min), ..self }
    }
}

/// A stretch of extents that lie side by side in one object.
struct Piece {
    extents: Range<usize>,
    bytes: u64,
    newest_ms: i64,
    /// It was merged before.
    is_merged: bool,
    /// It may be merged with the piece before it.
    follows: bool,
}

/// The first and longest run of extents that is worth a merge, as indices. `extents` are of one
/// partition, by offset. Of a compacted topic, none reaches over the offset `clean_until`.
pub(crate) fn plan(
    extents: &[Extent],
    (last_stable_offset, clean_until): (i64, Option<i64>),
    rules: &MergeRules,
    now_ms: i64,
) -> Option<Range<usize>> {
    let mut pieces = pieces(extents, last_stable_offset, clean_until);
    if rules.shares() {
        take_done_out(&mut pieces, rules.bytes_min);
    }
    // The pieces behind which more is expected: the last ones of a partition that is written to.
    let behind = pieces.last().and_then(|piece| extents.get(piece.extents.end));
    let is_open = behind.is_none_or(|next| next.last_offset >= last_stable_offset);
    let is_young = |last: &Extent| !rules.is_aged(last.max_timestamp_ms, now_ms);
    let grows_from = match rules.shares() && is_open && extents.last().is_some_and(is_young) {
        true => pieces.iter().rposition(|piece| !piece.follows).unwrap_or(0),
        false => pieces.len(),
    };
    (0..pieces.len())
        .find_map(|first| longest_run(&pieces[first..], rules, first >= grows_from, now_ms))
}

/// Leaves out what was merged into pieces of so many bytes.
fn take_done_out(pieces: &mut Vec<Piece>, bytes_min: u64) {
    let mut is_behind_done = false;
    pieces.retain_mut(|piece| {
        let is_done = piece.is_merged && piece.bytes >= bytes_min;
        piece.follows &= !is_behind_done;
        is_behind_done = is_done;
        !is_done
    });
}

/// The offset from which extents may still be part of a merge with what comes after them: those
/// before it are as many bytes behind as a merged object holds. 0 where there are none.
pub(crate) fn open_tail(extents: &[Extent], rules: &MergeRules) -> i64 {
    let mut bytes = 0;
    let mut start = extents.last().map_or(0, |extent| extent.base_offset);
    for piece in pieces(extents, i64::MAX, None).iter().rev() {
        bytes += piece.bytes;
        if bytes > rules.object_bytes_max {
            break;
        }
        start = extents[piece.extents.start].base_offset;
    }
    start
}

/// A full page without the piece at its end, which may go on behind it.
pub(crate) fn whole_pieces(extents: &[Extent]) -> &[Extent] {
    match pieces(extents, i64::MAX, None).last() {
        Some(last) if last.extents.end == extents.len() && last.extents.start > 0 => {
            &extents[..last.extents.start]
        }
        _ => extents,
    }
}

/// The longest run from the first piece on. Where more is expected to come behind the pieces
/// (`grows`), aged ones wait for as much company as others, but not for bytes.
fn longest_run(
    pieces: &[Piece],
    rules: &MergeRules,
    grows: bool,
    now_ms: i64,
) -> Option<Range<usize>> {
    let aged_min = match grows {
        true => (rules.pieces_min, GROWTH_MIN),
        false => (rules.aged_pieces_min, AGED_GROWTH_MIN),
    };
    let mut longest = None;
    let (mut bytes, mut largest, mut all_aged) = (0u64, 0u64, true);
    for (at, piece) in pieces.iter().enumerate() {
        bytes = bytes.saturating_add(piece.bytes);
        if bytes > rules.object_bytes_max || (at > 0 && !piece.follows) {
            break;
        }
        if longest.is_some() && bytes > rules.run_bytes_enough {
            break;
        }
        largest = largest.max(piece.bytes);
        all_aged &= rules.is_aged(piece.newest_ms, now_ms);
        let is_worth =
            |(count_min, growth_min)| at + 1 >= count_min && bytes / growth_min >= largest;
        let is_enough = at + 1 >= PIECES_ENOUGH || bytes >= rules.bytes_min;
        if (is_enough && is_worth((rules.pieces_min, GROWTH_MIN)))
            || (all_aged && is_worth(aged_min))
        {
            longest = Some(pieces[0].extents.start..piece.extents.end);
        }
    }
    longest
}

/// The pieces of what may be merged: batches and markers below the last stable offset, where every
/// transaction has ended.
fn pieces(extents: &[Extent], last_stable_offset: i64, clean_until: Option<i64>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (at, extent) in extents.iter().enumerate() {
        let length = match &extent.place {
            Place::Range { length, .. } => *length,
            Place::Marker { .. } => kfs::MARKER_LEN as u64,
            Place::Hole => continue,
        };
        if extent.last_offset >= last_stable_offset {
            continue;
        }
        let before = at.checked_sub(1).map(|before| &extents[before]);
        let touches = before.is_some_and(|before| {
            before.last_offset + 1 == extent.base_offset
                && before.timestamp_type == extent.timestamp_type
                && clean_until != Some(extent.base_offset)
        });
        let last = pieces.last_mut().filter(|last| touches && last.extents.end == at);
        let follows = last.is_some();
        let goes_on = before.is_some_and(|before| lie_side_by_side(&before.place, &extent.place));
        match last {
            Some(last) if goes_on => {
                last.extents.end = at + 1;
                last.bytes += length;
                last.newest_ms = last.newest_ms.max(extent.max_timestamp_ms);
            }
            _ => pieces.push(Piece {
                extents: at..at + 1,
                bytes: length,
                newest_ms: extent.max_timestamp_ms,
                is_merged: extent.offset_mode == OffsetMode::Absolute,
                follows,
            }),
        }
    }
    pieces
}

fn lie_side_by_side(one: &Place, next: &Place) -> bool {
    match (one, next) {
        (
            Place::Range { key, position, length },
            Place::Range { key: same, position: from, .. },
        ) => key == same && position + length == *from,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
