//! From the batches of adjacent extents to one object: byte for byte, with absolute offsets.

use crate::blocks::{Block, Blocks, BlocksKey, MergedBlocks};
use crate::rewrite::NewExtents;
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::rows::{Extent, Place};
use kfs::{
    AbortedTransaction, BatchHeader, ClusterId, OffsetMode, SectionStart, SegmentBuilder,
    TimestampType, TopicPartition,
};
use std::ops::Range;
use std::sync::Arc;

/// An object that is ready to be put, and the extents that name it.
pub(crate) struct MergedObject {
    pub(crate) parts: Vec<Bytes>,
    pub(crate) size: u64,
    pub(crate) extents: Vec<Extent>,
    /// The blocks of those extents whose sources are all cached: the sources' own memory.
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
    /// Aborted transactions with records in the sources, by their markers.
    pub(crate) aborted: Vec<AbortedTransaction>,
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
        aborted: merge.aborted.clone(),
        delete_horizon_ms: None,
    };
    builder.begin(start).map_err(corrupt)?;
    let timestamp_type =
        merge.sources.first().map_or(TimestampType::CreateTime, |source| source.timestamp_type);
    let mut extents = NewExtents::new(&merge.key, merge.extent_bytes_max);
    let mut cuts = Cuts::default();
    for (source, blocks) in sources.into_iter().enumerate() {
        for block in blocks.iter() {
            let mut position = 0;
            for batch in kfs::batches(&block.bytes) {
                let header = batch.map_err(|error| corrupt(error.into()))?.header;
                let end = position + header.total_len();
                let place = builder.push(block.bytes.slice(position..end)).map_err(corrupt)?;
                extents.add(&header, place, timestamp_type);
                cuts.begin(extents.count(), source);
                if merge.cached[source] {
                    cuts.add(&header, &block.bytes, position..end);
                }
                position = end;
            }
        }
    }
    let extents = extents.covering(&merge.sources);
    let blocks = cuts.blocks(&extents, &merge.cached);
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

    /// Only whole extents: one that lacks a source must never be taken for all that there is.
    fn blocks(self, extents: &[Extent], cached: &[bool]) -> Vec<MergedBlocks> {
        let named = |(extent, (sources, blocks)): (&Extent, (Range<usize>, Vec<Block>))| {
            if !cached[sources.clone()].iter().all(|is_cached| *is_cached) {
                return None;
            }
            let Place::Range { key, position, .. } = &extent.place else { return None };
            let key = BlocksKey { object: key.as_str().into(), position: *position };
            Some(MergedBlocks { key, blocks: Arc::new(blocks), sources })
        };
        extents.iter().zip(self.extents).filter_map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::BlockMemory;
    use crate::extents::to_blocks;
    use kfs::{BatchBuilder, NewRecord, PartitionIndex, TopicId};

    /// Extents of one record each, and their blocks.
    fn sources(count: i64) -> (Vec<Extent>, Vec<Blocks>) {
        let one = |offset: i64| {
            let mut builder = BatchBuilder::new();
            let record =
                NewRecord { timestamp_ms: 1, key: None, value: Some(b"value"), headers: &[] };
            builder.push(&record).expect("a small record");
            let bytes = builder.build().expect("a batch");
            let place =
                Place::Range { key: "wal".to_owned(), position: 0, length: bytes.len() as u64 };
            let extent = Extent {
                base_offset: offset,
                last_offset: offset,
                place,
                offset_mode: OffsetMode::Relative,
                max_timestamp_ms: 1,
                timestamp_type: TimestampType::CreateTime,
                has_transactional: false,
            };
            let memory = BlockMemory::default();
            let blocks = to_blocks(&extent, vec![bytes], true, &memory).expect("its batch");
            (extent, blocks)
        };
        (0..count).map(one).unzip()
    }

    /// A reader may bring a source into the cache while its merge is under way: its batches are not
    /// among the blocks all the same, and what lacks them must not stay.
    #[test]
    fn an_extent_with_a_source_that_was_not_cached_has_no_blocks() {
        let (extents, blocks) = sources(6);
        let partition = TopicPartition {
            topic: TopicId(uuid::Uuid::from_u128(1)),
            partition: PartitionIndex(0),
        };
        let merge = Merge {
            cluster: ClusterId(uuid::Uuid::from_u128(2)),
            partition,
            topic_name: "t".into(),
            key: "log".to_owned(),
            extent_bytes_max: 2 * extents[0].bytes(),
            cached: vec![true, true, true, false, true, true],
            sources: extents,
            aborted: Vec::new(),
        };
        let built = build(&merge, blocks).expect("an object");
        assert_eq!(built.extents.len(), 3, "two sources each");
        let offsets = |blocks: &MergedBlocks| {
            let each = blocks.blocks.iter();
            let offsets: Vec<_> =
                each.map(|block| (block.base_offset, block.last_offset)).collect();
            (blocks.sources.clone(), offsets)
        };
        let found: Vec<_> = built.blocks.iter().map(offsets).collect();
        assert_eq!(found, [(0..2, vec![(0, 0), (1, 1)]), (4..6, vec![(4, 4), (5, 5)])]);
    }
}
