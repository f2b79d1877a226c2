//! The log's rows as values: what a commit brings, what it decides, and what a reader gets.

use kfs::{
    OffsetMode, PartitionIndex, ProducerEpoch, ProducerId, SegmentId, TimestampType, TopicId,
    TopicPartition,
};
use std::sync::Arc;

/// The producer side of an idempotent batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    /// The producer.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of the batch's first record.
    pub first_sequence: i32,
    /// Sequence of the batch's last record; wraps from 2^31 - 1 to 0.
    pub last_sequence: i32,
    /// An earlier batch of the same epoch, from this sequence on, did not get into the log and may
    /// still come again: a partition that knows nothing of the producer takes none behind it.
    pub lost_sequence: Option<i32>,
}

/// The transaction that a batch wants to be part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionBatch {
    /// The transactional id.
    pub id: Arc<str>,
    /// The commit adds the partition to the transaction (KIP-890's second part); else it must have
    /// been added before.
    pub joins: bool,
}

/// What a commit needs to know of one batch in an uploaded segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchFacts {
    /// Where the batch begins in the object, bytes.
    pub position: u64,
    /// Its length, bytes.
    pub length: u32,
    /// How many offsets it takes: last offset delta + 1.
    pub record_count: u32,
    /// The greatest timestamp of its records, ms.
    pub max_timestamp_ms: i64,
    /// Whose clock made the timestamps.
    pub timestamp_type: TimestampType,
    /// Present for idempotent producers.
    pub producer: Option<ProducerBatch>,
    /// Present for batches of a transaction.
    pub transaction: Option<TransactionBatch>,
}

/// One partition's batches in a segment, contiguous and in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionFacts {
    /// The topic's id as seen when the batches arrived.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The batches, by position; each begins where the one before ends.
    pub batches: Vec<BatchFacts>,
}

impl SectionFacts {
    /// The partition that the section belongs to.
    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition { topic: self.topic, partition: self.partition }
    }
}

/// An uploaded segment that asks to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its identity; a commit of the same id is decided once.
    pub id: SegmentId,
    /// Its object's key, below the cluster's root.
    pub key: String,
    /// The object's size, bytes.
    pub size: u64,
    /// Its sections; a partition occurs once at most.
    pub sections: Vec<SectionFacts>,
}

/// Why a batch was refused; no other batch is affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The topic or partition does not exist (any more).
    UnknownPartition,
    /// The sequence does not follow the producer's last one.
    OutOfOrderSequence,
    /// A newer epoch of the producer has written.
    StaleProducerEpoch,
    /// A sequence from the past that is no longer remembered. Kafka answers it as out of order.
    ForgottenDuplicate,
    /// A batch outside of any transaction, while its producer has one open on the partition.
    InvalidTransactionState,
    /// The transactional id is unknown or has another producer id.
    UnknownTransaction,
    /// The transactional id has another epoch: the transaction is over, or another producer's.
    FencedTransaction,
    /// The partition has not been added to the transaction.
    NotInTransaction,
    /// The transaction has as many partitions as one may have.
    TransactionTooLarge,
    /// The partition has as many open transactions as one may have.
    TooManyOpenTransactions,
}

impl Refusal {
    /// True where a batch was not let into its transaction, whatever its sequence was.
    pub fn is_of_transaction(self) -> bool {
        matches!(
            self,
            Self::UnknownTransaction
                | Self::FencedTransaction
                | Self::NotInTransaction
                | Self::TransactionTooLarge
                | Self::TooManyOpenTransactions
        )
    }
}

/// What a commit decided about one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// It is in the log.
    Accepted {
        /// The offset of its first record.
        base_offset: i64,
    },
    /// It was in the log already and was not written again.
    Duplicate {
        /// The first offset it has there.
        base_offset: i64,
        /// Its greatest timestamp there, ms.
        max_timestamp_ms: i64,
    },
    /// It is not in the log.
    Refused(Refusal),
}

/// What a commit decided about one section, in the section's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionOutcome {
    /// One outcome a batch.
    pub batches: Vec<BatchOutcome>,
    /// The partition after the commit; `None` where it does not exist.
    pub state: Option<PartitionState>,
}

/// What became of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentOutcome {
    /// It was committed, now or by an earlier try.
    Committed(Vec<SectionOutcome>),
    /// It was abandoned before a commit arrived; its object may be deleted.
    Abandoned,
}

/// The ends of a partition's log, always read and cached as one tuple: an older version never
/// replaces a newer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionState {
    /// Raised by every change of the partition.
    pub version: u64,
    /// The first offset that readers get.
    pub log_start_offset: i64,
    /// The offset that the next record gets; everything below is durable and visible.
    pub high_watermark: i64,
    /// The first offset of the earliest open transaction, else the high watermark.
    pub last_stable_offset: i64,
    /// Bytes of all extents.
    pub bytes: u64,
}

/// Where an extent's batches are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In an object.
    Range {
        /// The object's key, below the cluster's root.
        key: String,
        /// Where the extent begins, bytes.
        position: u64,
        /// Its length, bytes.
        length: u64,
    },
    /// A transaction marker, whose control batch is made when it is read.
    Marker {
        /// The producer.
        producer: ProducerId,
        /// The epoch that the marker carries.
        epoch: ProducerEpoch,
        /// Commit, or abort.
        commit: bool,
        /// The coordinator's epoch.
        coordinator_epoch: i32,
        /// When the transaction ended, ms.
        timestamp_ms: i64,
    },
    /// Offsets without records.
    Hole,
}

/// A run of offsets of one partition that lies in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Where the batches are.
    pub place: Place,
    /// How the batches' own base offsets are to be read.
    pub offset_mode: OffsetMode,
    /// The greatest timestamp, ms.
    pub max_timestamp_ms: i64,
    /// Whose clock made the timestamps.
    pub timestamp_type: TimestampType,
    /// Holds at least one batch of a transaction.
    pub has_transactional: bool,
}

impl Extent {
    /// Bytes that it takes in its object; 0 where it has none.
    pub fn bytes(&self) -> u64 {
        match &self.place {
            Place::Range { length, .. } => *length,
            Place::Marker { .. } | Place::Hole => 0,
        }
    }
}

/// A partition's state and a page of its extents, read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentPage {
    /// The partition when the page was read.
    pub state: PartitionState,
    /// Extents by offset. The first is the one that holds the asked offset, or the next one after
    /// it.
    pub extents: Vec<Extent>,
}

/// A batch that an idempotent producer wrote, as remembered to find duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedBatch {
    /// Sequence of its first record.
    pub first_sequence: i32,
    /// Sequence of its last record.
    pub last_sequence: i32,
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// Its greatest timestamp, ms.
    pub max_timestamp_ms: i64,
}

/// What a partition remembers of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The producer.
    pub id: ProducerId,
    /// Its newest epoch.
    pub epoch: ProducerEpoch,
    /// Its last batches in this epoch, oldest first, five at most.
    pub batches: Vec<RememberedBatch>,
    /// First offset of its open transaction.
    pub transaction_start: Option<i64>,
    /// The store's clock when it last wrote, ms; for expiry.
    pub last_written_ms: i64,
}

/// An aborted transaction on one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer: ProducerId,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its abort marker.
    pub last_offset: i64,
    /// The last stable offset after it: a reader that starts there needs nothing older.
    pub last_stable_offset: i64,
}

/// The aborted transactions of a range of offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortedInRange {
    /// The partition: what is below its log start is forgotten.
    pub state: PartitionState,
    /// By their markers.
    pub transactions: Vec<AbortedTransaction>,
}

/// The end of a producer's transaction on one partition, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerFacts {
    /// The partition.
    pub partition: TopicPartition,
    /// The producer.
    pub producer: ProducerId,
    /// The epoch that the marker carries.
    pub epoch: ProducerEpoch,
    /// Commit, or abort.
    pub commit: bool,
    /// An open transaction is ended only where the epoch is above the partition's.
    pub raises_epoch: bool,
    /// The coordinator's epoch.
    pub coordinator_epoch: i32,
    /// Whose clock the topic goes by: the marker says so.
    pub timestamp_type: TimestampType,
}

/// What became of one marker; no other is affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkerOutcome {
    /// It is in the log, and the transaction over.
    Written {
        /// The marker, in the log from now on.
        marker: Extent,
        /// The partition afterwards.
        state: PartitionState,
    },
    /// The topic or partition does not exist (any more).
    UnknownPartition,
    /// The partition knows a newer epoch of the producer.
    StaleEpoch,
}

/// Replaces a run of extents by an object that holds the same records, or those of them that
/// compaction leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The partition.
    pub partition: TopicPartition,
    /// What was read, by offset and without gaps between them; nothing is done if any has changed.
    pub sources: Vec<Extent>,
    /// What stands there afterwards: the same first and last offset.
    pub replacement: Vec<Extent>,
    /// The size of the new object, bytes.
    pub object_size: u64,
    /// The object holds other partitions' records too, and one of their replacements has named it
    /// already: nothing is done where it has died since, for it may be deleted at any moment.
    pub joins_object: bool,
    /// Offsets of abort markers that do not stand there any more: readers are told nothing of their
    /// transactions from then on, for they would wait for the markers.
    pub forgotten_aborts: Vec<i64>,
}

/// How many fresh segments are kept packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreshBounds {
    /// Segments at most.
    pub segments: usize,
    /// Fresh extents in all of them at most.
    pub extents: usize,
}

/// An object that no extent names any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadObject {
    /// Its key, below the cluster's root.
    pub key: String,
    /// Its size, bytes.
    pub size: u64,
    /// The store's clock when its last extent went, ms.
    pub dead_since_ms: i64,
}
