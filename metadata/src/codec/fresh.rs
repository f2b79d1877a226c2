//! The packed extents of one segment: a version, then per topic its id and how many extents of it
//! follow. An extent's numbers are differences from what the one before lets expect, so that a
//! segment whose sections follow one another takes about ten bytes an extent.
//!
//! | field | as |
//! |---|---|
//! | partition | signed, from the partition before; the first of a topic from 0 |
//! | flags | one byte, as in the rows of extents |
//! | base offset | signed, from the end of the extent before if its partition is the same, else 0 |
//! | last offset | unsigned, from the base offset |
//! | position | signed, from the end of the extent before |
//! | length | unsigned |
//! | max timestamp | signed, from the extent before; the first from 0 |

use super::{Reader, Writer, decode_flags, extent_flags};
use crate::fresh::FreshExtent;
use floe_env::Result;
use kfs::{OffsetMode, PartitionIndex, TopicId, TopicPartition};
use uuid::Uuid;

/// What the next extent is expected to be.
#[derive(Clone, Copy)]
struct Expected {
    partition: PartitionIndex,
    next_offset: i64,
    position: u64,
    max_timestamp_ms: i64,
}

impl Expected {
    const FIRST: Self =
        Self { partition: PartitionIndex(0), next_offset: 0, position: 0, max_timestamp_ms: 0 };

    fn base_offset(&self, partition: PartitionIndex) -> i64 {
        if partition == self.partition { self.next_offset } else { 0 }
    }

    fn after(partition: PartitionIndex, extent: &FreshExtent) -> Self {
        Self {
            partition,
            next_offset: extent.last_offset.wrapping_add(1),
            position: extent.position.wrapping_add(extent.length),
            max_timestamp_ms: extent.max_timestamp_ms,
        }
    }
}

/// The bytes of a segment's extents, which are put into the order of partition and offset.
pub(crate) fn encode_fresh(extents: &[(TopicPartition, FreshExtent)]) -> Vec<u8> {
    let mut sorted: Vec<&(TopicPartition, FreshExtent)> = extents.iter().collect();
    sorted.sort_by_key(|(partition, extent)| (*partition, extent.base_offset));
    let mut writer = Writer::new();
    let of_topics = sorted.chunk_by(|one, next| one.0.topic == next.0.topic);
    writer.unsigned(of_topics.clone().count() as u64);
    let mut expected = Expected::FIRST;
    for of_topic in of_topics {
        writer.bytes.extend_from_slice(of_topic[0].0.topic.0.as_bytes());
        writer.unsigned(of_topic.len() as u64);
        expected = Expected { partition: PartitionIndex(0), next_offset: 0, ..expected };
        for (partition, extent) in of_topic {
            writer.fresh_extent(partition.partition, extent, &expected);
            expected = Expected::after(partition.partition, extent);
        }
    }
    writer.bytes
}

/// The extents of such bytes, by partition and offset.
pub(crate) fn decode_fresh(bytes: &[u8]) -> Result<Vec<(TopicPartition, FreshExtent)>> {
    let mut reader = Reader::new(bytes, "fresh segment")?;
    let mut extents = Vec::new();
    let mut expected = Expected::FIRST;
    for _ in 0..reader.unsigned()? {
        let topic = TopicId(Uuid::from_bytes(reader.array()?));
        expected = Expected { partition: PartitionIndex(0), next_offset: 0, ..expected };
        for _ in 0..reader.unsigned()? {
            let (partition, extent) = reader.fresh_extent(&expected)?;
            expected = Expected::after(partition, &extent);
            extents.push((TopicPartition { topic, partition }, extent));
        }
    }
    reader.end(extents)
}

impl Writer {
    fn fresh_extent(
        &mut self,
        partition: PartitionIndex,
        extent: &FreshExtent,
        expected: &Expected,
    ) {
        let flags =
            extent_flags(OffsetMode::Relative, extent.timestamp_type, extent.has_transactional);
        self.signed(i64::from(partition.0) - i64::from(expected.partition.0));
        self.byte(flags.to_le_bytes()[0]);
        self.signed(extent.base_offset.wrapping_sub(expected.base_offset(partition)));
        self.unsigned(extent.last_offset.wrapping_sub(extent.base_offset).cast_unsigned());
        self.signed(extent.position.wrapping_sub(expected.position).cast_signed());
        self.unsigned(extent.length);
        self.signed(extent.max_timestamp_ms.wrapping_sub(expected.max_timestamp_ms));
    }
}

impl Reader<'_> {
    fn fresh_extent(&mut self, expected: &Expected) -> Result<(PartitionIndex, FreshExtent)> {
        let partition = i64::from(expected.partition.0).checked_add(self.signed()?);
        let partition = partition.and_then(|index| i32::try_from(index).ok());
        let partition = PartitionIndex(partition.ok_or_else(|| self.corrupt())?);
        let (mode, timestamp_type, has_transactional) = decode_flags(self.byte()?.into())?;
        let base_offset = expected.base_offset(partition).wrapping_add(self.signed()?);
        let last_offset = base_offset.checked_add_unsigned(self.unsigned()?);
        let last_offset = last_offset.ok_or_else(|| self.corrupt())?;
        if mode != OffsetMode::Relative {
            return Err(self.corrupt());
        }
        let extent = FreshExtent {
            base_offset,
            last_offset,
            position: expected.position.wrapping_add_signed(self.signed()?),
            length: self.unsigned()?,
            max_timestamp_ms: expected.max_timestamp_ms.wrapping_add(self.signed()?),
            timestamp_type,
            has_transactional,
        };
        Ok((partition, extent))
    }
}
