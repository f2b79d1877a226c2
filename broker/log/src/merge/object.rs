//! From the batches of adjacent extents of one partition or of several to one object: byte for
//! byte, with absolute offsets, one section a partition.

use crate::blocks::{Block, Blocks, BlocksKey, MergedBlocks};
use crate::rewrite::NewExtents;
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::rows::{Extent, Place};
use kfs::{
    AbortedTransaction, BatchHeader, ClusterId, OffsetMode, SectionStart, SegmentBuilder,
    SegmentError, TimestampType, TopicPartition,
};
use std::ops::Range;
use std::sync::Arc;

/// An object that is ready to be put, and what names it.
pub(crate) struct MergedObject {
    pub(crate) parts: Vec<Bytes>,
    pub(crate) size: u64,
    /// In the order of the merge's sections.
    pub(crate) sections: Vec<MergedSection>,
}

/// A partition's part of the object.
pub(crate) struct MergedSection {
    pub(crate) extents: Vec<Extent>,
    /// The blocks of those extents whose sources are all cached: the sources' own memory.
    pub(crate) blocks: Vec<MergedBlocks>,
}

/// What the object is of.
pub(crate) struct Merge {
    pub(crate) cluster: ClusterId,
    /// Below the cluster's root.
    pub(crate) key: String,
    pub(crate) extent_bytes_max: u64,
    /// Of one partition each.
    pub(crate) sections: Vec<Section>,
}

/// What comes from one partition.
pub(crate) struct Section {
    pub(crate) partition: TopicPartition,
    pub(crate) topic_name: Arc<str>,
    pub(crate) sources: Vec<Extent>,
    /// Aborted transactions with records in the sources, by their markers.
    pub(crate) aborted: Vec<AbortedTransaction>,
    /// Which sources are in the cache, and so may stay there under new names.
    pub(crate) cached: Vec<bool>,
}

/// Builds the object of the sources' blocks, which come section by section in the sources' order
/// and, but for cached ones, are let go of one by one. Small batches are copied, large ones are
/// slices of the blocks.
///
/// Errors: `Corrupt` where the blocks are not whole batches with growing offsets.
pub(crate) fn build(merge: &Merge, blocks: Vec<Blocks>) -> Result<MergedObject> {
    let mut builder = SegmentBuilder::new(merge.cluster);
    let mut blocks = blocks.into_iter();
    let sections = merge.sections.iter().map(|section| {
        let blocks = blocks.by_ref().take(section.sources.len());
        build_section(merge, section, blocks, &mut builder)
    });
    let sections = sections.collect::<Result<_>>()?;
    let built = builder.finish().map_err(corrupt)?;
    Ok(MergedObject { parts: built.parts, size: built.length, sections })
}

fn build_section(
    merge: &Merge,
    section: &Section,
    blocks: impl Iterator<Item = Blocks>,
    builder: &mut SegmentBuilder,
) -> Result<MergedSection> {
    let start = SectionStart {
        topic: section.partition.topic,
        topic_name: section.topic_name.clone(),
        partition: section.partition.partition,
        mode: OffsetMode::Absolute,
        // Batches say when their newest record was made, not their oldest.
        min_timestamp_ms: i64::MIN,
        aborted: section.aborted.clone(),
        delete_horizon_ms: None,
    };
    builder.begin(start).map_err(corrupt)?;
    let timestamp_type =
        section.sources.first().map_or(TimestampType::CreateTime, |source| source.timestamp_type);
    let mut extents = NewExtents::new(&merge.key, merge.extent_bytes_max);
    let mut cuts = Cuts::default();
    for (source, blocks) in blocks.enumerate() {
        for block in blocks.iter() {
            let mut position = 0;
            for batch in kfs::batches(&block.bytes) {
                let header = batch.map_err(|error| corrupt(error.into()))?.header;
                let end = position + header.total_len();
                let place = builder.push(block.bytes.slice(position..end)).map_err(corrupt)?;
                extents.add(&header, place, timestamp_type);
                cuts.begin(extents.count(), source);
                if section.cached[source] {
                    cuts.add(&header, &block.bytes, position..end);
                }
                position = end;
            }
        }
    }
    let extents = extents.covering(&section.sources);
    let blocks = cuts.blocks(&extents, &section.cached);
    Ok(MergedSection { extents, blocks })
}

fn corrupt(error: SegmentError) -> Error {
    Error::corrupt("merging extents").with_source(error)
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

    /// Of these sources for each partition, which are cached or not; two of them make an extent.
    fn merge(sources: &[Extent], cached: &[&[bool]]) -> Merge {
        let section = |(index, cached): (usize, &&[bool])| Section {
            partition: TopicPartition {
                topic: TopicId(uuid::Uuid::from_u128(1)),
                partition: PartitionIndex(index as i32),
            },
            topic_name: "t".into(),
            sources: sources[..cached.len()].to_vec(),
            aborted: Vec::new(),
            cached: cached.to_vec(),
        };
        Merge {
            cluster: ClusterId(uuid::Uuid::from_u128(2)),
            key: "log".to_owned(),
            extent_bytes_max: 2 * sources[0].bytes(),
            sections: cached.iter().enumerate().map(section).collect(),
        }
    }

    /// Each partition has a section of its own, whose extents lie side by side and name no more.
    #[test]
    fn partitions_share_an_object_section_by_section() {
        let (extents, blocks) = sources(4);
        let merge = merge(&extents, &[&[true; 4], &[true, false], &[true; 3]]);
        let blocks = [&blocks[..], &blocks[..2], &blocks[..3]].concat();
        let built = build(&merge, blocks).expect("an object");
        let bytes = bytes::Bytes::from(built.parts.concat());
        assert_eq!(bytes.len() as u64, built.size);
        let read =
            |range: Range<u64>| Ok::<_, ()>(bytes.slice(range.start as usize..range.end as usize));
        let footer = kfs::open(built.size, read).expect("a whole object");
        let mut next = 32;
        for (at, (section, merged)) in footer.sections.iter().zip(&built.sections).enumerate() {
            assert_eq!(section.partition.0 as usize, at);
            assert_eq!(section.position, next);
            for extent in &merged.extents {
                let Place::Range { position, length, .. } = extent.place else { panic!("a range") };
                assert_eq!(position, next);
                next += length;
            }
            assert_eq!(next, section.position + section.length);
            let last_offset = merge.sections[at].sources.len() as i64 - 1;
            assert_eq!(merged.extents[0].base_offset, 0);
            assert_eq!(merged.extents.last().expect("extents").last_offset, last_offset);
        }
        let counts = |of: fn(&MergedSection) -> usize| -> Vec<usize> {
            built.sections.iter().map(of).collect()
        };
        assert_eq!(counts(|section| section.extents.len()), [2, 1, 2]);
        assert_eq!(counts(|section| section.blocks.len()), [2, 0, 2]);
        assert_eq!(built.sections[2].blocks[1].sources, 2..3, "counted in the section");
    }

    /// A reader may bring a source into the cache while its merge is under way: its batches are not
    /// among the blocks all the same, and what lacks them must not stay.
    #[test]
    fn an_extent_with_a_source_that_was_not_cached_has_no_blocks() {
        let (extents, blocks) = sources(6);
        let merge = merge(&extents, &[&[true, true, true, false, true, true]]);
        let built = build(&merge, blocks).expect("an object").sections.remove(0);
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
