//! Fresh extents: what a commit makes. All that one segment brings stand **packed** in one row,
//! which is written once and never changed. Later, merging (or unpacking) gives a partition's
//! extents rows of their own, and the partition's `fresh_from` moves past them. So
//!
//! * an extent is *fresh* where it ends at or after the partition's `fresh_from`, and at or after
//!   its log start; before that, what is packed is dead, and rows stand for themselves;
//! * a partition's fresh extents and the markers among them follow one another without a gap, up to
//!   its high watermark. A marker has a row wherever it stands, as no segment brings it.
//!
//! [`FreshIndex`] is what a process remembers of packed rows, by partition. What it holds are facts
//! that never change: an offset of a topic's id is given once. So whoever reads takes the
//! partition's row, and then asks the index; a gap, and nothing else, says that a segment is
//! missing there and must be read. Thus it needs no news of other brokers' commits, and whatever
//! their order, a reader sees the moment of the partition's row.
//!
//! The index is filled by readers alone, with what is committed. It is bounded by
//! [`INDEXED_EXTENTS_MAX`]; when it is full it begins anew. Beyond that many fresh extents reads
//! stay right and get slow: each reads packed rows again. Merging keeps them below that.

use crate::rows::{Extent, PartitionState, Place};
use kfs::{OffsetMode, TimestampType, TopicPartition};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Extents that the index of one process holds at most; about 80 bytes each.
pub const INDEXED_EXTENTS_MAX: usize = 1 << 20;

/// A fresh extent, without the object that it lies in. Its offset mode is relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreshExtent {
    /// Offset of the first record.
    pub(crate) base_offset: i64,
    /// Offset of the last record.
    pub(crate) last_offset: i64,
    /// Where it begins in its object, bytes.
    pub(crate) position: u64,
    /// Its length, bytes.
    pub(crate) length: u64,
    /// The greatest timestamp, ms.
    pub(crate) max_timestamp_ms: i64,
    /// Whose clock made the timestamps.
    pub(crate) timestamp_type: TimestampType,
    /// Holds at least one batch of a transaction.
    pub(crate) has_transactional: bool,
}

impl FreshExtent {
    /// The extent in the object of this key.
    pub(crate) fn in_object(&self, key: &str) -> Extent {
        Extent {
            base_offset: self.base_offset,
            last_offset: self.last_offset,
            place: Place::Range {
                key: key.to_owned(),
                position: self.position,
                length: self.length,
            },
            offset_mode: OffsetMode::Relative,
            max_timestamp_ms: self.max_timestamp_ms,
            timestamp_type: self.timestamp_type,
            has_transactional: self.has_transactional,
        }
    }
}

/// A partition's row as readers take it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartitionRow {
    /// Its ends.
    pub(crate) state: PartitionState,
    /// Extents before this offset have rows of their own, those from it on are fresh.
    pub(crate) fresh_from: i64,
}

impl PartitionRow {
    /// The offsets that fresh extents hold; the first may begin before them.
    pub(crate) fn fresh_range(&self) -> Range<i64> {
        self.fresh_from.max(self.state.log_start_offset)..self.state.high_watermark
    }
}

/// A packed row: the fresh extents of one segment.
#[derive(Clone, Debug)]
pub(crate) struct FreshSegment {
    /// The row id of its object, which is never given to another.
    pub(crate) object: i64,
    /// The key of its object.
    pub(crate) key: Arc<str>,
    /// Its extents, by partition and offset.
    pub(crate) extents: Vec<(TopicPartition, FreshExtent)>,
}

/// A fresh extent with its object.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// The row id of the object.
    pub(crate) object: i64,
    /// The key of the object.
    pub(crate) key: Arc<str>,
    /// The extent.
    pub(crate) extent: FreshExtent,
}

impl Placed {
    pub(crate) fn to_extent(&self) -> Extent {
        self.extent.in_object(&self.key)
    }
}

/// What a process remembers of fresh segments.
#[derive(Debug)]
pub(crate) struct FreshIndex {
    remembered: Mutex<Remembered>,
    extents_max: usize,
}

#[derive(Debug, Default)]
struct Remembered {
    /// By offset.
    partitions: BTreeMap<TopicPartition, VecDeque<Indexed>>,
    segments: BTreeMap<i64, Segment>,
    extents: usize,
}

#[derive(Clone, Copy, Debug)]
struct Indexed {
    object: i64,
    extent: FreshExtent,
}

#[derive(Debug)]
struct Segment {
    key: Arc<str>,
    /// Extents that are in the index.
    extents: usize,
}

impl Default for FreshIndex {
    fn default() -> Self {
        Self::with_extents_max(INDEXED_EXTENTS_MAX)
    }
}

impl FreshIndex {
    fn with_extents_max(extents_max: usize) -> Self {
        Self { remembered: Mutex::default(), extents_max }
    }

    /// The extents that hold the wanted offsets, of what the index knows and of `others`, which are
    /// of the same partition. `None` where one is missing.
    fn cover(&self, wanted: &Wanted, others: &[Placed]) -> Option<Vec<Placed>> {
        let Wanted { partition, range, limit, markers } = wanted;
        let remembered = self.remembered.lock();
        let mut others: Vec<&Placed> = others.iter().collect();
        others.sort_by_key(|other| other.extent.base_offset);
        let none = VecDeque::new();
        let indexed = remembered.partitions.get(partition).unwrap_or(&none);
        let mut at = indexed.partition_point(|known| known.extent.last_offset < range.start);
        let mut other_at = others.partition_point(|other| other.extent.last_offset < range.start);
        let mut found: Vec<Placed> = Vec::new();
        let mut next_offset = range.start;
        let mut markers =
            markers.iter().copied().skip_while(|marker| *marker < range.start).peekable();
        while next_offset < range.end && found.len() < *limit {
            if markers.next_if_eq(&next_offset).is_some() {
                next_offset += 1;
                continue;
            }
            let holds = |extent: &FreshExtent| {
                extent.base_offset == next_offset
                    || (found.is_empty() && extent.base_offset <= next_offset)
            };
            // One may be known twice: what ends before the next offset is the same again.
            let is_over = |extent: &FreshExtent| extent.last_offset < next_offset;
            while indexed.get(at).is_some_and(|known| is_over(&known.extent)) {
                at += 1;
            }
            while others.get(other_at).is_some_and(|other| is_over(&other.extent)) {
                other_at += 1;
            }
            let known = indexed.get(at).filter(|known| holds(&known.extent));
            let placed = match known {
                Some(known) => Placed {
                    object: known.object,
                    key: remembered.segments.get(&known.object)?.key.clone(),
                    extent: known.extent,
                },
                None => (*others.get(other_at).filter(|other| holds(&other.extent))?).clone(),
            };
            next_offset = placed.extent.last_offset + 1;
            found.push(placed);
        }
        Some(found)
    }

    /// The row ids of the segments that are known.
    pub(crate) fn known(&self) -> BTreeSet<i64> {
        self.remembered.lock().segments.keys().copied().collect()
    }

    /// Remembers a committed segment.
    pub(crate) fn insert(&self, segment: &FreshSegment) {
        let mut remembered = self.remembered.lock();
        let is_new = !remembered.segments.contains_key(&segment.object);
        if !is_new || segment.extents.len() > self.extents_max {
            return;
        }
        if remembered.extents + segment.extents.len() > self.extents_max {
            *remembered = Remembered::default();
        }
        for (partition, extent) in &segment.extents {
            let known = remembered.partitions.entry(*partition).or_default();
            let indexed = Indexed { object: segment.object, extent: *extent };
            match known.back() {
                Some(last) if last.extent.base_offset > extent.base_offset => {
                    let at = known
                        .partition_point(|before| before.extent.base_offset < extent.base_offset);
                    known.insert(at, indexed);
                }
                _ => known.push_back(indexed),
            }
        }
        let count = segment.extents.len();
        remembered.extents += count;
        let known = Segment { key: segment.key.clone(), extents: count };
        remembered.segments.insert(segment.object, known);
    }

    /// Forgets the partition's extents that end before an offset: they are no longer fresh.
    pub(crate) fn forget_below(&self, partition: TopicPartition, offset: i64) {
        let remembered = &mut *self.remembered.lock();
        let Some(known) = remembered.partitions.get_mut(&partition) else { return };
        while let Some(first) = known.front().copied() {
            if first.extent.last_offset >= offset {
                break;
            }
            known.pop_front();
            remembered.extents -= 1;
            if let Some(segment) = remembered.segments.get_mut(&first.object) {
                segment.extents -= 1;
                if segment.extents == 0 {
                    remembered.segments.remove(&first.object);
                }
            }
        }
        if known.is_empty() {
            remembered.partitions.remove(&partition);
        }
    }
}

/// Which fresh extents somebody needs: those that hold the offsets of a range, by offset and up to
/// a limit.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) partition: TopicPartition,
    pub(crate) range: Range<i64>,
    pub(crate) limit: usize,
    /// All markers in the range, by offset: they are not fresh, and nothing is missing there.
    pub(crate) markers: Vec<i64>,
}

impl Wanted {
    /// What completes a page: `rows` are the partition's extents that have rows, from the one that
    /// holds `offset` and `limit` at most. Those from `fresh_from` on are markers.
    pub(crate) fn behind(
        partition: TopicPartition,
        row: &PartitionRow,
        rows: &[Extent],
        (offset, limit): (i64, usize),
    ) -> Self {
        let offsets = rows.iter().map(|extent| extent.base_offset);
        let markers: Vec<i64> = offsets.filter(|offset| *offset >= row.fresh_from).collect();
        let mut range = row.fresh_range();
        range.start = range.start.max(offset);
        if let Some(last) = rows.last().filter(|_| rows.len() == limit) {
            // Behind it there may be markers that are not known here, and nothing is wanted.
            range.end = range.end.min(last.base_offset);
        }
        let limit = limit - (rows.len() - markers.len());
        Self { partition, range, limit, markers }
    }
}

/// A page of extents by offset, of those with rows and fresh ones.
pub(crate) fn page_of(mut rows: Vec<Extent>, found: &[Placed], limit: usize) -> Vec<Extent> {
    rows.extend(found.iter().map(Placed::to_extent));
    rows.sort_by_key(|extent| extent.base_offset);
    rows.truncate(limit);
    rows
}

/// A search for fresh extents: first in the index; then, where something is missing, in packed rows
/// that whoever searches reads and shows.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    index: &'a FreshIndex,
    wanted: Vec<Wanted>,
    found: Vec<Option<Vec<Placed>>>,
    /// What was shown, of the partitions that miss something.
    others: BTreeMap<TopicPartition, Vec<Placed>>,
}

impl<'a> Search<'a> {
    /// Looks in the index. A partition is wanted once.
    pub(crate) fn new(index: &'a FreshIndex, wanted: Vec<Wanted>) -> Self {
        let found: Vec<_> = wanted.iter().map(|wanted| index.cover(wanted, &[])).collect();
        let missing = wanted.iter().zip(&found).filter(|(_, found)| found.is_none());
        let others = missing.map(|(wanted, _)| (wanted.partition, Vec::new())).collect();
        Self { index, wanted, found, others }
    }

    /// Shows a packed row.
    pub(crate) fn show(&mut self, segment: &FreshSegment) {
        for (partition, extent) in &segment.extents {
            if let Some(others) = self.others.get_mut(partition) {
                let (object, key) = (segment.object, segment.key.clone());
                others.push(Placed { object, key, extent: *extent });
            }
        }
    }

    /// Looks again; true where nothing is missing.
    pub(crate) fn is_complete(&mut self) -> bool {
        for (wanted, found) in self.wanted.iter().zip(&mut self.found) {
            if found.is_none() {
                let others = self.others.get(&wanted.partition).map_or(&[][..], Vec::as_slice);
                *found = self.index.cover(wanted, others);
            }
        }
        self.found.iter().all(Option::is_some)
    }

    /// What was found, in the order asked.
    pub(crate) fn into_found(self) -> Vec<Vec<Placed>> {
        self.found.into_iter().flatten().collect()
    }
}

/// The first of some fresh extents whose greatest timestamp is at least `timestamp_ms`.
pub(crate) fn first_at_time(placed: &[Placed], timestamp_ms: i64) -> Option<Extent> {
    let found = placed.iter().find(|one| one.extent.max_timestamp_ms >= timestamp_ms);
    found.map(Placed::to_extent)
}

/// The one of two that comes first.
pub(crate) fn first_of(one: Option<Extent>, other: Option<Extent>) -> Option<Extent> {
    one.into_iter().chain(other).min_by_key(|extent| extent.base_offset)
}

/// The first extent with the greatest timestamp, of one with a row and of fresh ones.
pub(crate) fn newest(with_row: Option<Extent>, placed: &[Placed]) -> Option<Extent> {
    let newest_ms = placed.iter().map(|one| one.extent.max_timestamp_ms).max();
    let fresh = newest_ms.and_then(|newest_ms| first_at_time(placed, newest_ms));
    match (with_row, fresh) {
        (Some(one), Some(other)) if one.max_timestamp_ms != other.max_timestamp_ms => {
            Some(if one.max_timestamp_ms > other.max_timestamp_ms { one } else { other })
        }
        (one, other) => first_of(one, other),
    }
}

/// Extents that are no longer fresh, per object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// How many.
    pub(crate) extents: i64,
    /// Their bytes.
    pub(crate) bytes: i64,
}

/// Counts extents that are no longer fresh by the row id of their object.
pub(crate) fn released<'a>(
    placed: impl IntoIterator<Item = &'a Placed>,
) -> BTreeMap<i64, Released> {
    let mut counted: BTreeMap<i64, Released> = BTreeMap::new();
    for one in placed {
        let count = counted.entry(one.object).or_default();
        count.extents += 1;
        count.bytes += i64::try_from(one.extent.length).unwrap_or(i64::MAX);
    }
    counted
}

#[cfg(test)]
mod tests;
