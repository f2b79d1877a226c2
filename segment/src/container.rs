//! The `.kfs` container, version 2: batches of many partitions in one object, and a footer that
//! says where they are. `FORMAT.md` gives every byte.
//!
//! ```text
//! header 32 | section (batches of one partition) ... | footer | padding | trailer 48
//! ```
//!
//! - Writing: [`SegmentBuilder`] takes batches section by section and gives the object's bytes as
//!   slices, most of them the batches as they came.
//! - Reading: [`open`] needs the object's length and two range reads, of which the first is
//!   enough where the footer is small; [`tail_range`], [`Tail`] and [`Footer::parse`] are the
//!   same step by step, for stores that are not blocking.
//! - [`v1`](crate::v1) reads version 1.

mod assemble;
mod builder;
mod decode;
mod encode;
mod fields;
mod frame;
#[cfg(test)]
mod tests;

pub use builder::{BatchPlace, BuiltSegment, SectionStart, SegmentBuilder, SegmentError};
pub use frame::{OpenError, Tail, Trailer, open, parse_header, tail_range};

use crate::ids::{
    ClusterId, PartitionIndex, ProducerEpoch, ProducerId, SegmentId, TopicId, TopicPartition,
};
use crate::mode::OffsetMode;
use std::sync::Arc;

/// The version that this crate writes, and the newest that it reads.
pub const VERSION: u16 = 2;
/// Bytes of the header; the first section begins here.
pub const CONTAINER_HEADER_LEN: usize = 32;
/// Bytes of the trailer, the last of the object.
pub const TRAILER_LEN: usize = 48;
/// Bytes that the first read takes from the object's end.
pub const TAIL_BYTES: u64 = 64 * 1024;
/// Most bytes of a footer, written or read.
pub const FOOTER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most bytes of batches between two entries of a batch index, but for a single larger batch.
pub const INDEX_STEP_BYTES: u64 = 64 * 1024;
/// Most bytes of a topic's name, as in Kafka.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;
/// A parsed footer takes at most this many times the footer's bytes.
pub const FOOTER_EXPANSION_MAX: usize = 32;

const _: () = assert!(TAIL_BYTES > TRAILER_LEN as u64);

/// What an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The cluster that wrote it.
    pub cluster: ClusterId,
    /// Which fresh segment it is; `None` in merged objects.
    pub segment: Option<SegmentId>,
    /// The sections, by position.
    pub sections: Vec<Section>,
}

/// The batches of one partition, side by side and in the order of their commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The topic.
    pub topic: TopicId,
    /// The topic's name when the object was written; the id is what counts.
    pub topic_name: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// First byte, from the object's start.
    pub position: u64,
    /// Bytes.
    pub length: u64,
    /// CRC-32C of these bytes as stored.
    pub crc: u32,
    /// Batches.
    pub batch_count: u64,
    /// Records, control records too.
    pub record_count: u64,
    /// No timestamp is smaller (milliseconds).
    pub min_timestamp_ms: i64,
    /// The greatest timestamp of the batches' headers (milliseconds).
    pub max_timestamp_ms: i64,
    /// Whether a batch is transactional.
    pub has_transactional: bool,
    /// Whether a batch is a control batch.
    pub has_control: bool,
    /// What the batches' base offsets mean.
    pub offsets: SectionOffsets,
    /// Idempotent producers, in the order of their first batches.
    pub producers: Vec<ProducerRun>,
    /// Where to begin reading; never empty, the first entry is the section's start.
    pub index: Vec<IndexEntry>,
    /// Transactions that were aborted, by last offset; merged objects only.
    pub aborted: Vec<AbortedTransaction>,
    /// When the section's tombstones and markers may go (milliseconds), if compaction said so.
    pub delete_horizon_ms: Option<i64>,
}

impl Section {
    /// Topic and partition.
    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition { topic: self.topic, partition: self.partition }
    }

    /// The entry that stands for the whole section.
    fn start_entry(&self) -> IndexEntry {
        let max_timestamp_ms = self.max_timestamp_ms;
        IndexEntry { relative_offset: 0, position: 0, max_timestamp_ms }
    }

    /// The last index entry at or before this offset, which counts from the section's first.
    pub fn seek_offset(&self, relative_offset: u64) -> &IndexEntry {
        let after = self.index.partition_point(|entry| entry.relative_offset <= relative_offset);
        &self.index[after.saturating_sub(1)]
    }

    /// The first index entry whose batches reach this timestamp (milliseconds).
    pub fn seek_timestamp(&self, timestamp_ms: i64) -> Option<&IndexEntry> {
        self.index.iter().find(|entry| entry.max_timestamp_ms >= timestamp_ms)
    }
}

/// What the base offsets in a section's batches mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionOffsets {
    /// Nothing, they are 0; offsets are dense and known to the metadata store alone.
    Relative,
    /// They are the log's.
    Absolute {
        /// The first batch's base offset.
        base_offset: i64,
        /// The last batch's last offset.
        last_offset: i64,
    },
}

impl SectionOffsets {
    /// The mode without the offsets.
    pub fn mode(&self) -> OffsetMode {
        match self {
            Self::Relative => OffsetMode::Relative,
            Self::Absolute { .. } => OffsetMode::Absolute,
        }
    }
}

/// Batches of one producer whose sequences follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerRun {
    /// The producer.
    pub producer: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of the first record.
    pub first_sequence: i32,
    /// Sequence of the last record; smaller than the first where it passed 2147483647.
    pub last_sequence: i32,
}

/// A batch from which reading can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The batch's base offset, counted from the section's first.
    pub relative_offset: u64,
    /// The batch's first byte, counted from the section's first.
    pub position: u64,
    /// Greatest timestamp of the batches from here to the next entry (milliseconds).
    pub max_timestamp_ms: i64,
}

/// A transaction that was aborted, as a read_committed consumer needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer: ProducerId,
    /// Offset of its first record in the partition.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
    /// The partition's last stable offset after it.
    pub last_stable_offset: i64,
}

/// Why an object, or a part of one, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It does not begin or end as one.
    #[error("not a .kfs object")]
    NotKfs,
    /// It is of version 1, which [`v1`](crate::v1) reads.
    #[error("a .kfs object of version 1")]
    Version1,
    /// A newer version, which says that this reader would misread it.
    #[error("version {version} needs a reader of version {min_reader}, this one is of {VERSION}")]
    TooNew {
        /// The object's version.
        version: u16,
        /// The least version of a reader.
        min_reader: u16,
    },
    /// A field that must be understood and is not.
    #[error("unknown critical field {id} in the {scope}")]
    CriticalField {
        /// Where it stands.
        scope: &'static str,
        /// Its number.
        id: u64,
    },
    /// Fewer bytes than there should be.
    #[error("{0} is cut short")]
    Truncated(&'static str),
    /// A checksum does not match.
    #[error("checksum of the {0} does not match")]
    Checksum(&'static str),
    /// A field is missing.
    #[error("field {0} is missing")]
    Missing(&'static str),
    /// A value contradicts another, or is none.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The object's length is not what its trailer says: a part of it, or more than it.
    #[error("object of {actual} bytes says that it has {stated}")]
    Length {
        /// As the trailer says.
        stated: u64,
        /// As it is.
        actual: u64,
    },
}
