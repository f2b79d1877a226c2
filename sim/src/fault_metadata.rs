//! One life's handle on the metadata store, with faults.

use crate::audit::Audit;
use crate::calls::{Effects, Link};
use crate::metadata_server::MetadataServer;
use crate::planted::{CommitBug, Plant, current_fence};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::Result;
use floe_metadata::Backend;
use floe_metadata::facts::{Change, ChangeOutcome, FactKey, FactRange, Fence, Write};
use floe_metadata::rows::{
    AbortedInRange, DeadObject, Extent, ExtentPage, FreshBounds, MarkerFacts, MarkerOutcome,
    PartitionState, ProducerState, Replacement, SegmentFacts, SegmentOutcome,
};
use futures::FutureExt;
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicPartition};
use std::sync::Arc;

/// The facts that are tables' pointers.
const TABLES: &str = "tables/";
/// The facts that clients or readers can see: who writes them must hold a registration.
const VISIBLE: [&str; 6] =
    ["topics/", "groups/", "offsets/", "transactions/", "pending-offsets/", TABLES];

/// One life's handle on the metadata.
#[derive(Clone)]
pub struct FaultMetadata {
    link: Link,
    server: Arc<MetadataServer>,
    /// Looks on.
    audit: Audit,
    /// A planted bug.
    plant: Plant,
    bug: Option<CommitBug>,
}

impl FaultMetadata {
    /// A handle of the node behind `link`.
    pub fn new(link: Link, audit: Audit, plant: Plant, bug: Option<CommitBug>) -> Self {
        Self { link, server: audit.metadata.clone(), audit, plant, bug }
    }

    async fn commit(
        &self,
        fence: Fence,
        segments: Vec<SegmentFacts>,
    ) -> Result<Vec<SegmentOutcome>> {
        let ids: Vec<String> = segments.iter().map(|segment| segment.id.to_string()).collect();
        let (server, audit) = (self.server.clone(), self.audit.clone());
        let (plant, calls, env) = (self.plant, self.link.calls.clone(), self.link.env().clone());
        let segments = plant.committed(segments);
        let work = move || {
            async move {
                let backend = server.backend().await;
                if let Some(refused) = plant.refused(&calls, &env) {
                    return Err(refused);
                }
                let before = audit.before_commit(&fence, &segments).await;
                let is_unfenced = plant == Plant::CommitWithoutFence;
                let fence =
                    if is_unfenced { current_fence(&*backend, &fence).await? } else { fence };
                let outcomes = backend.commit_segments(&fence, &segments).await?;
                audit.committed(&before, &segments, &outcomes).await;
                Ok(outcomes)
            }
            .boxed()
        };
        self.link.call("commit_segments", Effects::Change, ids.join(" "), work).await
    }
}

/// A call of the backend with owned copies of its arguments.
#[allow(clippy::clone_on_copy, reason = "the macro takes both kinds")]
macro_rules! call {
    ($self:ident, $method:ident, $effects:ident, $what:expr, $($argument:ident),*) => {{
        let server = $self.server.clone();
        $(let $argument = $argument.clone();)*
        let what: String = $what;
        let work = move || {
            async move { server.backend().await.$method($(call!(@pass $argument)),*).await }.boxed()
        };
        $self.link.call(stringify!($method), Effects::$effects, what, work).await
    }};
    (@pass $argument:ident) => { PassAs::pass(&$argument) };
}

/// Hands an owned copy on as the backend takes it: what is small by value, the rest by reference.
trait PassAs<'a> {
    type As;
    fn pass(&'a self) -> Self::As;
}

macro_rules! pass_by_value {
    ($($kind:ty),*) => {
        $(impl PassAs<'_> for $kind {
            type As = $kind;
            fn pass(&self) -> $kind {
                *self
            }
        })*
    };
}

macro_rules! pass_by_reference {
    ($($kind:ty),*) => {
        $(impl<'a> PassAs<'a> for $kind {
            type As = &'a $kind;
            fn pass(&'a self) -> &'a $kind {
                self
            }
        })*
    };
}

pass_by_value!(i64, usize, BrokerEpoch, BrokerId, FreshBounds, SegmentId, TopicPartition);
pass_by_reference!(Fence, Change, FactRange, Replacement);

impl<'a, T: 'a> PassAs<'a> for Vec<T> {
    type As = &'a [T];
    fn pass(&'a self) -> &'a [T] {
        self
    }
}

/// The fact that a write changes.
pub fn key_of(write: &Write) -> &str {
    match write {
        Write::Put(key, _) | Write::Delete(key) => key.as_str(),
    }
}

/// A write that moves a table's pointer.
pub fn is_pointer(write: &Write) -> bool {
    matches!(write, Write::Put(key, _) if key.as_str().starts_with(TABLES))
}

/// True for a change that clients or readers can see.
pub fn is_visible(change: &Change) -> bool {
    let is_visible = |write| VISIBLE.iter().any(|folder| key_of(write).starts_with(folder));
    !change.partitions.is_empty() || change.writes.iter().any(is_visible)
}

#[async_trait]
impl Backend for FaultMetadata {
    async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>> {
        let commit = |mut segments: Vec<SegmentFacts>| {
            if self.plant == Plant::LateBatchesAreLetIn {
                let sections = segments.iter_mut().flat_map(|segment| &mut segment.sections);
                let batches = sections.flat_map(|section| &mut section.batches);
                batches.for_each(|batch| batch.transaction = None);
            }
            self.commit(fence.clone(), segments)
        };
        match &self.bug {
            None => commit(segments.to_vec()).await,
            Some(CommitBug::Twice(renamed)) => commit(renamed.again(segments)).await,
            Some(CommitBug::Early(promises)) => {
                let partitions = promises.unknown(segments);
                let states = self.partition_states(&partitions).await?;
                promises.learn(&partitions, &states);
                let later = Self { bug: None, ..self.clone() };
                promises.commit_later(later, fence.clone(), segments.to_vec());
                Ok(promises.make_up(segments))
            }
        }
    }

    async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>> {
        call!(self, segment_outcome, Read, id.to_string(), id)
    }

    async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome> {
        call!(self, abandon_segment, Change, id.to_string(), fence, id)
    }

    async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()> {
        call!(self, forget_outcomes, Change, up_to.to_string(), fence, up_to)
    }

    async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()> {
        call!(self, forget_registrations, Change, format!("{broker}-{up_to}"), broker, up_to)
    }

    async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>> {
        let partitions = partitions.to_vec();
        let states: Result<Vec<Option<PartitionState>>> =
            call!(self, partition_states, Read, partitions.len().to_string(), partitions);
        self.plant.told(states?, self.link.env())
    }

    async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        let what = format!("{partition} {offset}");
        let page: Result<Option<ExtentPage>> =
            call!(self, extents, Read, what, partition, offset, limit);
        Ok(self.plant.dated(page?))
    }

    async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        call!(self, extent_by_time, Read, partition.to_string(), partition, timestamp_ms)
    }

    async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        call!(self, extent_of_max_timestamp, Read, partition.to_string(), partition)
    }

    async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>> {
        call!(self, producers, Read, partition.to_string(), partition)
    }

    async fn expire_producers(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        before_ms: i64,
    ) -> Result<usize> {
        let (server, fence) = (self.server.clone(), fence.cloned());
        let work = move || {
            async move {
                let backend = server.backend().await;
                backend.expire_producers(fence.as_ref(), partition, before_ms).await
            }
            .boxed()
        };
        let what = partition.to_string();
        self.link.call("expire_producers", Effects::Change, what, work).await
    }

    async fn end_transaction(
        &self,
        change: &Change,
        markers: &[MarkerFacts],
    ) -> Result<Option<Vec<MarkerOutcome>>> {
        let (server, audit, plant) = (self.server.clone(), self.audit.clone(), self.plant);
        let (change, markers) = plant.ended(change, markers);
        let what = markers.len().to_string();
        let work = move || {
            async move {
                let standing = audit.standing(change.fence.as_ref()).await;
                let fence = plant.fence(change.fence.as_ref()).cloned();
                let made = Change { fence, ..change };
                let outcomes = server.backend().await.end_transaction(&made, &markers).await?;
                if outcomes.is_some() {
                    audit.applied(standing, format_args!("an end of a transaction"));
                }
                Ok(outcomes)
            }
            .boxed()
        };
        self.link.call("end_transaction", Effects::Change, what, work).await
    }

    async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Option<AbortedInRange>> {
        call!(self, aborted, Read, partition.to_string(), partition, from, until)
    }

    async fn advance_log_start(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        let (server, audit, plant) = (self.server.clone(), self.audit.clone(), self.plant);
        let fence = fence.cloned();
        let work = move || {
            async move {
                let backend = server.backend().await;
                let standing = audit.standing(fence.as_ref()).await;
                let offset = if plant == Plant::LogStartTooFar { offset + 3 } else { offset };
                if plant == Plant::LogStartStays {
                    let told = |state| PartitionState { log_start_offset: offset, ..state };
                    let state = backend.partition_states(&[partition]).await?.pop().flatten();
                    return Ok(state.map(told));
                }
                let fence = plant.fence(fence.as_ref());
                let state = backend.advance_log_start(fence, partition, offset).await?;
                if let Some(state) = &state {
                    audit.applied(standing, format_args!("a log start of {partition}"));
                    audit.log_start_moved(partition, state).await;
                }
                Ok(state)
            }
            .boxed()
        };
        let what = format!("{partition} {offset}");
        self.link.call("advance_log_start", Effects::Change, what, work).await
    }

    async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome> {
        let (server, audit, plant) = (self.server.clone(), self.audit.clone(), self.plant);
        let (fence, replacement) = (fence.clone(), replacement.clone());
        let what = replacement.partition.to_string();
        let work = move || {
            async move {
                let backend = server.backend().await;
                let standing = audit.standing(Some(&fence)).await;
                let is_unfenced = plant.fence(Some(&fence)).is_none();
                let fence =
                    if is_unfenced { current_fence(&*backend, &fence).await? } else { fence };
                let Some(replacement) = plant.replaced(replacement) else {
                    return Ok(ChangeOutcome::Applied);
                };
                let outcome = backend.replace_extents(&fence, &replacement).await?;
                if outcome == ChangeOutcome::Applied {
                    let partition = replacement.partition;
                    audit.applied(standing, format_args!("a merge of {partition}"));
                    audit.replaced(&replacement.replacement).await;
                }
                Ok(outcome)
            }
            .boxed()
        };
        self.link.call("replace_extents", Effects::Change, what, work).await
    }

    async fn unpack_fresh(&self, kept: FreshBounds) -> Result<usize> {
        call!(self, unpack_fresh, Change, kept.segments.to_string(), kept)
    }

    async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>> {
        call!(self, dead_objects, Read, String::new(), dead_before_ms, limit)
    }

    async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>> {
        if self.plant == Plant::KnowsNoObject {
            return Ok(vec![false; keys.len()]);
        }
        let keys = keys.to_vec();
        call!(self, known_objects, Read, keys.len().to_string(), keys)
    }

    async fn forget_objects(&self, keys: &[String]) -> Result<()> {
        let keys = keys.to_vec();
        call!(self, forget_objects, Change, keys.len().to_string(), keys)
    }

    async fn get(&self, keys: &[FactKey]) -> Result<Vec<Option<Bytes>>> {
        let keys = keys.to_vec();
        let server = self.server.clone();
        let what = keys.first().map_or_else(String::new, |key| key.as_str().to_owned());
        let asked = keys.clone();
        let work = move || async move { server.backend().await.get(&asked).await }.boxed();
        let values = self.link.call("get_facts", Effects::Read, what, work).await?;
        Ok(self.plant.read(&keys, values))
    }

    async fn scan(&self, range: &FactRange, limit: usize) -> Result<Vec<(FactKey, Bytes)>> {
        call!(self, scan, Read, range.from.clone(), range, limit)
    }

    async fn change(&self, change: &Change) -> Result<ChangeOutcome> {
        let first = change.writes.first().map(|write| match write {
            Write::Put(key, _) => format!("put {}", key.as_str()),
            Write::Delete(key) => format!("delete {}", key.as_str()),
        });
        let is_table = change.writes.iter().any(is_pointer);
        let what = first.unwrap_or_default();
        let (server, audit, doing) = (self.server.clone(), self.audit.clone(), what.clone());
        let (asked, made) = (change.clone(), self.plant.changed(change));
        let work = move || {
            async move {
                let Some(made) = made else { return Ok(ChangeOutcome::Applied) };
                let standing = audit.standing(asked.fence.as_ref()).await;
                let outcome = server.backend().await.change(&made).await?;
                if outcome == ChangeOutcome::Applied {
                    audit.changed(standing, &asked, &doing).await;
                }
                Ok(outcome)
            }
            .boxed()
        };
        let kind = if is_table { "change_table" } else { "change" };
        self.link.call(kind, Effects::Change, what, work).await
    }

    async fn now_ms(&self) -> Result<i64> {
        call!(self, now_ms, Read, String::new(),)
    }
}
