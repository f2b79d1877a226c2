//! What a pass replaces at once: adjacent extents, and the batches that are left of them. What is
//! unchanged at either end stays as it is.

use super::clean::{BatchCleaner, Cleaned};
use super::transactions::Aborted;
use crate::blocks::Blocks;
use crate::rewrite::{NO_RECORDS_MS, NewExtents};
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::rows::{Extent, Place};
use kfs::{
    AbortedTransaction, BatchHeader, ClusterId, OffsetMode, SectionStart, SegmentBuilder,
    TopicPartition,
};
use std::ops::Range;
use std::sync::Arc;

/// Extents that one replacement takes at most.
const SOURCES_MAX: usize = 1024;
/// A unit ends before so many bytes that have not changed: they are not worth to be written again.
const UNCHANGED_BYTES_MAX: u64 = 4 << 20;

/// An extent, and what is left of it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) extent: Extent,
    batches: Vec<Bytes>,
    is_changed: bool,
    /// Abort markers that are gone.
    forgotten_aborts: Vec<i64>,
}

impl Source {
    fn bytes(&self) -> u64 {
        self.batches.iter().map(|batch| batch.len() as u64).sum()
    }
}

/// Cleans extents, whose blocks come in their order.
///
/// Errors: `Corrupt` where the blocks are not whole batches.
pub(crate) fn clean_extents(
    cleaner: &mut BatchCleaner,
    extents: Vec<Extent>,
    blocks: Vec<Blocks>,
    aborted: &Aborted,
) -> Result<Vec<Source>> {
    extents.into_iter().zip(blocks).map(|of| clean_extent(cleaner, of, aborted)).collect()
}

fn clean_extent(
    cleaner: &mut BatchCleaner,
    (extent, blocks): (Extent, Blocks),
    aborted: &Aborted,
) -> Result<Source> {
    let corrupt = |error| Error::corrupt("compacting extents").with_source(error);
    let (mut batches, mut is_changed, mut forgotten_aborts) = (Vec::new(), false, Vec::new());
    for block in blocks.iter() {
        for batch in kfs::batches(&block.bytes) {
            let batch = batch.map_err(corrupt)?;
            let cleaned = cleaner.clean(&batch, aborted).map_err(corrupt)?;
            is_changed |= cleaned != Cleaned::Kept;
            if is_changed_marker(&batch.header, &cleaned) {
                forgotten_aborts.extend(aborted.ending_at(&batch.header));
            }
            match cleaned {
                Cleaned::Kept => batches.push(block.bytes.slice_ref(batch.bytes())),
                Cleaned::Rewritten(batch) => batches.push(batch),
                Cleaned::Gone => {}
            }
        }
    }
    if is_changed {
        // Little may be left of a block, which must not stay in memory for that.
        batches.iter_mut().for_each(|batch| *batch = Bytes::copy_from_slice(batch));
    }
    Ok(Source { extent, batches, is_changed, forgotten_aborts })
}

/// True for a marker whose record goes, whether its batch stays or not.
fn is_changed_marker(header: &BatchHeader, cleaned: &Cleaned) -> bool {
    header.is_control()
        && match cleaned {
            Cleaned::Kept => false,
            Cleaned::Gone => true,
            Cleaned::Rewritten(batch) => batch.len() == kfs::HEADER_LEN,
        }
}

/// Sources that are collected until they are worth a replacement.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    sources: Vec<Source>,
    bytes: u64,
    /// Bytes of unchanged sources at the end.
    unchanged_bytes: u64,
}

impl Unit {
    /// Adds the next source; nothing that is unchanged at the beginning.
    pub(crate) fn add(&mut self, source: Source) {
        let bytes = source.bytes();
        self.unchanged_bytes = if source.is_changed { 0 } else { self.unchanged_bytes + bytes };
        if self.sources.is_empty() && !source.is_changed {
            self.unchanged_bytes = 0;
            return;
        }
        self.bytes += bytes;
        self.sources.push(source);
    }

    /// True where no more is to be added.
    pub(crate) fn is_full(&self, object_bytes_max: u64) -> bool {
        self.bytes >= object_bytes_max
            || self.sources.len() >= SOURCES_MAX
            || self.unchanged_bytes >= UNCHANGED_BYTES_MAX
    }

    /// What is to be replaced, if anything; the next unit begins.
    pub(crate) fn take(&mut self) -> Option<Vec<Source>> {
        let Self { mut sources, .. } = std::mem::take(self);
        let changed = sources.iter().rposition(|source| source.is_changed)? + 1;
        // Where nothing is left of the changed ones, the next that has something covers their
        // offsets.
        let has_batches = |source: &Source| !source.batches.is_empty();
        let covering = match sources[..changed].iter().any(has_batches) {
            true => changed,
            false => sources.iter().position(has_batches).map_or(changed, |at| at + 1),
        };
        sources.truncate(covering);
        Some(sources)
    }
}

/// What the object of a unit is of.
pub(crate) struct Compacted {
    pub(crate) cluster: ClusterId,
    pub(crate) partition: TopicPartition,
    pub(crate) topic_name: Arc<str>,
    /// Below the cluster's root.
    pub(crate) key: String,
    /// Aborted transactions with records in the sources, by their markers.
    pub(crate) aborted: Vec<AbortedTransaction>,
    pub(crate) extent_bytes_max: u64,
}

/// What stands in the place of a unit.
pub(crate) struct CompactedUnit {
    /// The object to be put; none where nothing is left.
    pub(crate) parts: Vec<Bytes>,
    pub(crate) size: u64,
    pub(crate) sources: Vec<Extent>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) forgotten_aborts: Vec<i64>,
}

/// The offsets that these sources hold.
pub(crate) fn offsets(sources: &[Source]) -> Range<i64> {
    let first = sources.first().map_or(0, |source| source.extent.base_offset);
    first..sources.last().map_or(first, |source| source.extent.last_offset + 1)
}

/// Builds the object of what is left of these sources, and the extents that name it.
///
/// Errors: `Corrupt` where offsets do not grow.
pub(crate) fn build(of: Compacted, sources: Vec<Source>) -> Result<CompactedUnit> {
    let forgotten = sources.iter().flat_map(|source| source.forgotten_aborts.iter().copied());
    let forgotten_aborts: Vec<i64> = forgotten.collect();
    let is_told = |one: &AbortedTransaction| !forgotten_aborts.contains(&one.last_offset);
    let batches = || sources.iter().flat_map(|source| &source.batches);
    if batches().next().is_none() {
        let sources: Vec<Extent> = sources.into_iter().map(|source| source.extent).collect();
        let extents = hole(&sources).into_iter().collect();
        return Ok(CompactedUnit {
            parts: Vec::new(),
            size: 0,
            sources,
            extents,
            forgotten_aborts,
        });
    }
    let corrupt = |error| Error::corrupt("compacting extents").with_source(error);
    let mut builder = SegmentBuilder::new(of.cluster);
    let start = SectionStart {
        topic: of.partition.topic,
        topic_name: of.topic_name,
        partition: of.partition.partition,
        mode: OffsetMode::Absolute,
        // Batches say when their newest record was made, not their oldest.
        min_timestamp_ms: i64::MIN,
        aborted: of.aborted.into_iter().filter(is_told).collect(),
        delete_horizon_ms: batches().filter_map(horizon_ms).max(),
    };
    builder.begin(start).map_err(corrupt)?;
    let mut extents = NewExtents::new(&of.key, of.extent_bytes_max);
    let mut replaced = Vec::with_capacity(sources.len());
    for source in sources {
        for batch in source.batches {
            let header = BatchHeader::parse(&batch).map_err(|error| corrupt(error.into()))?;
            let place = builder.push(batch).map_err(corrupt)?;
            extents.add(&header, place, source.extent.timestamp_type);
        }
        replaced.push(source.extent);
    }
    let built = builder.finish().map_err(corrupt)?;
    Ok(CompactedUnit {
        parts: built.parts,
        size: built.length,
        extents: extents.covering(&replaced),
        sources: replaced,
        forgotten_aborts,
    })
}

fn horizon_ms(batch: &Bytes) -> Option<i64> {
    let header = BatchHeader::parse(batch).ok()?;
    header.has_delete_horizon().then_some(header.base_timestamp_ms)
}

/// The offsets of these extents without any record.
fn hole(sources: &[Extent]) -> Option<Extent> {
    let (first, last) = (sources.first()?, sources.last()?);
    Some(Extent {
        last_offset: last.last_offset,
        place: Place::Hole,
        offset_mode: OffsetMode::Absolute,
        max_timestamp_ms: NO_RECORDS_MS,
        has_transactional: false,
        ..first.clone()
    })
}
