//! A backend that counts the changes asked of it: each is a transaction that waits for a disk or
//! for another machine, so what costs none and what costs how many is worth a figure. Reads are
//! not counted.

use crate::backend::Backend;
use crate::facts::{Change, ChangeOutcome, FactKey, FactRange, Fence};
use crate::rows::{
    AbortedInRange, DeadObject, Extent, ExtentPage, FreshBounds, MarkerFacts, MarkerOutcome,
    PartitionState, ProducerState, Replacement, SegmentFacts, SegmentOutcome,
};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::Result;
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicPartition};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Changes asked for, by kind, whatever became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Commits of segments: of one or of several together.
    pub segments: u64,
    /// Ends of transactions.
    pub transactions: u64,
    /// Changes of facts: topics, groups, transactional ids, tables and all else.
    pub facts: u64,
    /// What keeps the rest small: outcomes, producers, extents and objects that go or move.
    pub upkeep: u64,
}

#[derive(Debug, Default)]
struct Counters {
    segments: AtomicU64,
    transactions: AtomicU64,
    facts: AtomicU64,
    upkeep: AtomicU64,
}

/// The counts of a backend; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeCounters(Arc<Counters>);

impl ChangeCounters {
    /// The counts now. Each is exact; together they are of about one moment.
    pub(crate) fn snapshot(&self) -> ChangeCounts {
        ChangeCounts {
            segments: self.0.segments.load(Ordering::Relaxed),
            transactions: self.0.transactions.load(Ordering::Relaxed),
            facts: self.0.facts.load(Ordering::Relaxed),
            upkeep: self.0.upkeep.load(Ordering::Relaxed),
        }
    }
}

/// A backend whose changes are counted.
pub(crate) struct Counted {
    inner: Arc<dyn Backend>,
    counters: ChangeCounters,
}

impl Counted {
    /// Counts the changes of a backend.
    pub(crate) fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner, counters: ChangeCounters::default() }
    }

    /// The counts.
    pub(crate) fn counters(&self) -> ChangeCounters {
        self.counters.clone()
    }

    /// The backend, for upkeep.
    fn upkeep(&self) -> &dyn Backend {
        self.counters.0.upkeep.fetch_add(1, Ordering::Relaxed);
        self.inner.as_ref()
    }
}

#[async_trait]
impl Backend for Counted {
    async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>> {
        self.counters.0.segments.fetch_add(1, Ordering::Relaxed);
        self.inner.commit_segments(fence, segments).await
    }

    async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>> {
        self.inner.segment_outcome(id).await
    }

    async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome> {
        self.upkeep().abandon_segment(fence, id).await
    }

    async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()> {
        self.upkeep().forget_outcomes(fence, up_to).await
    }

    async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()> {
        self.upkeep().forget_registrations(broker, up_to).await
    }

    async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>> {
        self.inner.partition_states(partitions).await
    }

    async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        self.inner.extents(partition, offset, limit).await
    }

    async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        self.inner.extent_by_time(partition, timestamp_ms).await
    }

    async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        self.inner.extent_of_max_timestamp(partition).await
    }

    async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>> {
        self.inner.producers(partition).await
    }

    async fn expire_producers(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        written_before_ms: i64,
    ) -> Result<usize> {
        self.upkeep().expire_producers(fence, partition, written_before_ms).await
    }

    async fn end_transaction(
        &self,
        change: &Change,
        markers: &[MarkerFacts],
    ) -> Result<Option<Vec<MarkerOutcome>>> {
        self.counters.0.transactions.fetch_add(1, Ordering::Relaxed);
        self.inner.end_transaction(change, markers).await
    }

    async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Option<AbortedInRange>> {
        self.inner.aborted(partition, from, until).await
    }

    async fn advance_log_start(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        self.upkeep().advance_log_start(fence, partition, offset).await
    }

    async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome> {
        self.upkeep().replace_extents(fence, replacement).await
    }

    async fn unpack_fresh(&self, kept: FreshBounds) -> Result<usize> {
        self.upkeep().unpack_fresh(kept).await
    }

    async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>> {
        self.inner.dead_objects(dead_before_ms, limit).await
    }

    async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>> {
        self.inner.known_objects(keys).await
    }

    async fn forget_objects(&self, keys: &[String]) -> Result<()> {
        self.upkeep().forget_objects(keys).await
    }

    async fn get(&self, keys: &[FactKey]) -> Result<Vec<Option<Bytes>>> {
        self.inner.get(keys).await
    }

    async fn scan(&self, range: &FactRange, limit: usize) -> Result<Vec<(FactKey, Bytes)>> {
        self.inner.scan(range, limit).await
    }

    async fn change(&self, change: &Change) -> Result<ChangeOutcome> {
        self.counters.0.facts.fetch_add(1, Ordering::Relaxed);
        self.inner.change(change).await
    }

    async fn now_ms(&self) -> Result<i64> {
        self.inner.now_ms().await
    }
}
