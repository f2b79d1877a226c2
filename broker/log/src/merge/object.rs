//! From the batches of adjacent extents to one object: byte for byte, with absolute offsets.

use crate::blocks::{Block, Blocks, BlocksKey, MergedBlocks};
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::rows::{Extent, Place};
use kfs::{
    BatchHeader, BatchPlace, ClusterId, OffsetMode, SectionStart, SegmentBuilder, TopicPartition,
};
use std::ops::Range;
use std::sync::Arc;

/// An object that is ready to be put, and the extents that name it.
pub(crate) struct MergedObject {
    pub(crate) parts: Vec<Bytes>,
    pub(crate) size: u64,
    pub(crate) extents: Vec<Extent>,
    /// The extents' blocks: the sources' own memory.
    pub(crate) blocks: Vec<MergedBlocks>,
}

/// What the object is of.
pub(crate) struct Merge {
    pub(crate) cluster: ClusterId,
    pub(crate) partition: TopicPartition,
    pub(crate) topic_name: Arc<str>,
    /// Below the cluster's root.
    pub(crate) key: String,
    pub(crate) sources: Vec<Extent>,
    /// Which sources are in the cache, and so may stay there under new names.
    pub(crate) cached: Vec<bool>,
    pub(crate) extent_bytes_max: u64,
}

/// Builds the object of the sources' blocks, which come in the sources' order and, but for cached
/// ones, are let go of one by one. Small batches are copied, large ones are slices of the blocks.
///
/// Errors: `Corrupt` where the blocks are not whole batches with growing offsets.
pub(crate) fn build(merge: &Merge, sources: Vec<Blocks>) -> Result<MergedObject> {
    let corrupt = |error| Error::corrupt("merging extents").with_source(error);
    let mut builder = SegmentBuilder::new(merge.cluster);
    let start = SectionStart {
        topic: merge.partition.topic,
        topic_name: merge.topic_name.clone(),
        partition: merge.partition.partition,
        mode: OffsetMode::Absolute,
        // Batches say when their newest record was made, not their oldest.
        min_timestamp_ms: i64::MIN,
        aborted: Vec::new(),
        delete_horizon_ms: None,
    };
    builder.begin(start).map_err(corrupt)?;
    let mut extents = Vec::new();
    let mut cuts = Cuts::default();
    for (source, blocks) in sources.into_iter().enumerate() {
        for block in blocks.iter() {
            let mut position = 0;
            for batch in kfs::batches(&block.bytes) {
                let header = batch.map_err(|error| corrupt(error.into()))?.header;
                let end = position + header.total_len();
                let place = builder.push(block.bytes.slice(position..end)).map_err(corrupt)?;
                add_batch(merge, &header, place, &mut extents);
                cuts.begin(extents.len(), source);
                if merge.cached[source] {
                    cuts.add(&header, &block.bytes, position..end);
                }
                position = end;
            }
        }
    }
    close_gaps(&merge.sources, &mut extents);
    let blocks = cuts.blocks(&extents);
    let built = builder.finish().map_err(corrupt)?;
    Ok(MergedObject { parts: built.parts, size: built.length, extents, blocks })
}

/// The sources' blocks as the merged extents cut them: one list an extent.
#[derive(Default)]
struct Cuts {
    extents: Vec<(Range<usize>, Vec<Block>)>,
    /// The last extent's last block may go on.
    is_open: bool,
}

impl Cuts {
    /// The next batch is of the last of `extent_count` extents and comes from this source.
    fn begin(&mut self, extent_count: usize, source: usize) {
        if self.extents.len() < extent_count {
            self.extents.push((source..source, Vec::new()));
            self.is_open = false;
        }
        if let Some((sources, _)) = self.extents.last_mut() {
            sources.end = source + 1;
        }
    }

    /// Adds a batch, which lies at `place` of a block.
    fn add(&mut self, header: &BatchHeader, block: &Bytes, place: Range<usize>) {
        let Some((_, blocks)) = self.extents.last_mut() else { return };
        match blocks.last_mut() {
            // It follows the last one in the same memory.
            Some(last) if self.is_open && place.start > 0 => {
                let from = place.start - last.bytes.len();
                last.bytes = block.slice(from..place.end);
                last.last_offset = header.last_offset();
            }
            _ => blocks.push(Block {
                base_offset: header.base_offset,
                last_offset: header.last_offset(),
                bytes: block.slice(place),
            }),
        }
        self.is_open = true;
    }

    fn blocks(self, extents: &[Extent]) -> Vec<MergedBlocks> {
        let named = |(extent, (sources, blocks)): (&Extent, (Range<usize>, Vec<Block>))| {
            let Place::Range { key, position, .. } = &extent.place else { return None };
            let key = BlocksKey { object: key.as_str().into(), position: *position };
            Some(MergedBlocks { key, blocks: Arc::new(blocks), sources })
        };
        extents.iter().zip(self.extents).filter_map(named).collect()
    }
}

/// Adds a batch to the last extent, or to a new one where that is full.
fn add_batch(merge: &Merge, header: &BatchHeader, place: BatchPlace, extents: &mut Vec<Extent>) {
    if let Some(Extent { place: Place::Range { length, .. }, max_timestamp_ms, .. }) =
        extents.last_mut()
        && *length + u64::from(place.length) <= merge.extent_bytes_max
    {
        *length += u64::from(place.length);
        *max_timestamp_ms = header.max_timestamp_ms.max(*max_timestamp_ms);
        return;
    }
    extents.push(Extent {
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        place: Place::Range {
            key: merge.key.clone(),
            position: place.position,
            length: u64::from(place.length),
        },
        offset_mode: OffsetMode::Absolute,
        max_timestamp_ms: header.max_timestamp_ms,
        timestamp_type: merge.sources[0].timestamp_type,
        has_transactional: false,
    });
}

/// Lets each extent reach until the next one, and all of them cover what the sources cover.
fn close_gaps(sources: &[Extent], extents: &mut [Extent]) {
    if let (Some(first), Some(source)) = (extents.first_mut(), sources.first()) {
        first.base_offset = source.base_offset;
    }
    let mut end = sources.last().map_or(0, |source| source.last_offset);
    for extent in extents.iter_mut().rev() {
        extent.last_offset = end;
        end = extent.base_offset - 1;
    }
}
