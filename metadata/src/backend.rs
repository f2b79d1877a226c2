//! What each metadata store implements: the log's hot operations and keyed facts. Everything else
//! is written once above it, in [`MetadataStore`](crate::MetadataStore).
//!
//! Rules for every implementation, which the public suite checks:
//!
//! * Each call is one transaction. It is durable when it returns, and a reader that starts then
//!   sees it.
//! * An error of kind `UnknownOutcome` is the only one after which a change may have been made.
//! * Transactions may run concurrently; their outcome is that of some serial order, and that order
//!   is consistent with real time. Locks are taken in the order: placeholders of absent facts, the
//!   fence, facts by key, partitions by (topic id, index).
//! * A change that clients or readers can see takes a fence, and fails with `Fenced` where that
//!   does not hold. What only tidies up (outcomes of closed registrations, objects that are
//!   deleted, packed rows) takes none: it is right whoever does it, and as often as it is done.
//! * Calls are safe to drop at any point: the transaction is then made or not made, never half.

use crate::facts::{Change, ChangeOutcome, FactKey, FactRange, Fence};
use crate::rows::{
    AbortedInRange, DeadObject, Extent, ExtentPage, FreshBounds, MarkerFacts, MarkerOutcome,
    PartitionState, ProducerState, Replacement, SegmentFacts, SegmentOutcome,
};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::Result;
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicPartition};

/// One store of all facts about the log.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Commits uploaded segments in the order given: checks sequences and transactions, assigns
    /// offsets, writes extents, moves the watermarks, adds partitions to the transactions that
    /// batches join, and keeps the outcome under the segment's id. A segment whose
    /// id was decided before gets that outcome again and changes nothing. Batches are decided one
    /// by one and in order; a refused one fails no other, and two accepted ones that touch in the
    /// object and in offsets share an extent.
    ///
    /// Errors: `Fenced` where the fence does not hold, and nothing was decided.
    async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>>;

    /// What was decided about a segment, after an ambiguous answer. `None` if nothing was.
    ///
    /// Errors: `Invalid` where the outcome has been forgotten, here and in the two calls that
    /// decide.
    async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>>;

    /// Makes sure that a segment is never committed, and answers [`SegmentOutcome::Abandoned`]; if
    /// it was committed already, answers that outcome.
    async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome>;

    /// Forgets the outcomes of one broker's registration up to and with `counter`, whose answers
    /// have all been taken.
    async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()>;

    /// Forgets all outcomes of a broker's registrations up to and with `up_to`, and that there were
    /// any. They must be closed: then the fence answers whoever still asks for a decision, and
    /// `segment_outcome` knows nothing any more.
    async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()>;

    /// The state of each partition, in the order asked; `None` where it does not exist. All are of
    /// one moment.
    async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>>;

    /// A partition's state, and up to `limit` extents from the one that holds `offset`. `None` if
    /// there is no such partition.
    async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>>;

    /// The state, and the first extent in offset order, from log start, whose greatest timestamp is
    /// at least `timestamp_ms`.
    async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>>;

    /// The state, and the first extent in offset order that has the partition's greatest timestamp.
    async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>>;

    /// All that the partition remembers of idempotent producers, by producer id.
    async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>>;

    /// Forgets the partition's producers that last wrote before `written_before_ms` (the store's
    /// clock) and have no open transaction. Answers how many.
    async fn expire_producers(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        written_before_ms: i64,
    ) -> Result<usize>;

    /// Makes a change of facts together with the markers that end transactions: each takes one
    /// offset, closes what its producer has open there, leaves its epoch in the producer's state
    /// (whose sequences begin again where the epoch is a new one), and of an abort what readers
    /// must know. A partition occurs once at most. Answers one outcome a marker, in order; `None`
    /// if a check did not hold, and nothing was done. The change names no partitions.
    async fn end_transaction(
        &self,
        change: &Change,
        markers: &[MarkerFacts],
    ) -> Result<Option<Vec<MarkerOutcome>>>;

    /// Aborted transactions whose marker is at or after `from` and whose first record is before
    /// `until`, with the partition's ends at the same moment. Costs no more than those in the
    /// range, and one. `None` if there is no such partition.
    async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Option<AbortedInRange>>;

    /// Moves the log start forward to `offset`, at most to the high watermark, and drops extents
    /// that lie wholly below. Never moves it back. Answers the state afterwards.
    async fn advance_log_start(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>>;

    /// Swaps a run of extents for another place of the same records, or of those that compaction
    /// leaves, and counts the objects' references. `Rejected` if any source has changed, or if an
    /// object that it [joins](Replacement::joins_object) does not live any more. Sources may be
    /// fresh; those before them that are fresh too get rows of their own, as in
    /// [`Backend::unpack_fresh`].
    async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome>;

    /// Bounds how many fresh segments are kept packed: where there are more than `kept`, the fresh
    /// extents that some partitions have up to the oldest segment get rows of their own. Answers of
    /// how many partitions, [`UNPACKED_PARTITIONS_MAX`](crate::validate::UNPACKED_PARTITIONS_MAX)
    /// at most; 0 where nothing is left to do. Nobody sees a difference.
    async fn unpack_fresh(&self, kept: FreshBounds) -> Result<usize>;

    /// Up to `limit` objects that no extent has named since before `dead_before_ms` (the store's
    /// clock), oldest first.
    async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>>;

    /// Whether some extent names, or a dead object's row still holds, each of these keys, in the
    /// order asked. An upload of a closed broker epoch of which this says no is an orphan.
    async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>>;

    /// Forgets dead objects that have been deleted from the object store.
    async fn forget_objects(&self, keys: &[String]) -> Result<()>;

    /// The values of some facts of one moment, in the order asked.
    async fn get(&self, keys: &[FactKey]) -> Result<Vec<Option<Bytes>>>;

    /// The facts of a range of one moment, by key, `limit` at most.
    async fn scan(&self, range: &FactRange, limit: usize) -> Result<Vec<(FactKey, Bytes)>>;

    /// Makes an atomic change. `Fenced` where its fence does not hold.
    async fn change(&self, change: &Change) -> Result<ChangeOutcome>;

    /// The store's own clock, ms since the Unix epoch: the only clock that leases know.
    async fn now_ms(&self) -> Result<i64>;
}
