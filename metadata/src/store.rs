//! Layer two: everything that is written once, over any [`Backend`]. Here are the handle, the
//! backend's own calls, and the helpers that the other files share; each kind of fact has a file.
//!
//! Facts are read, a change is computed, and it is made on condition that what was read still
//! stands. If it does not, the call starts over, a bounded number of times. Where a change's
//! outcome is unknown, a call that can tell from the facts what became of it does so; the others
//! pass `UnknownOutcome` on.

#[cfg(test)]
mod tests;

use crate::backend::Backend;
use crate::counted::{ChangeCounters, ChangeCounts, Counted};
use crate::facts::{Change, ChangeOutcome, Check, Expect, FactKey, FactRange, Fence, Write};
use crate::rows::{
    AbortedTransaction, DeadObject, Extent, ExtentPage, FreshBounds, PartitionState, ProducerState,
    Replacement, SegmentFacts, SegmentOutcome,
};
use bytes::Bytes;
use floe_env::{Env, Error, ErrorKind, Result};
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicId, TopicPartition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// How often a call starts over because somebody else changed what it had read.
pub const CONFLICT_ATTEMPTS_MAX: u32 = 32;
/// Facts that one query of a scan returns.
const SCAN_PAGE_FACTS: usize = 1000;
/// The longest wait before a call starts over, grows up to this; milliseconds.
const CONFLICT_WAIT_MS_MAX: u32 = 64;

/// All facts about the log. A cheap handle.
#[derive(Clone)]
pub struct MetadataStore {
    backend: Arc<dyn Backend>,
    counters: ChangeCounters,
    env: Env,
    fence: Option<Fence>,
    on_fenced: Option<FencedObserver>,
}

/// Called whenever a change is refused because its broker's registration is closed.
type FencedObserver = Arc<dyn Fn() + Send + Sync>;

impl std::fmt::Debug for MetadataStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("MetadataStore").finish_non_exhaustive()
    }
}

impl MetadataStore {
    /// A handle on a backend.
    pub fn new(backend: Arc<dyn Backend>, env: Env) -> Self {
        let counted = Counted::new(backend);
        let counters = counted.counters();
        Self { backend: Arc::new(counted), counters, env, fence: None, on_fenced: None }
    }

    /// A handle of a broker that has registered. Every change that it makes of what clients and
    /// readers see carries this fence; once the broker's epoch is closed, they fail with `Fenced`.
    #[must_use]
    pub fn fenced_by(&self, fence: Fence) -> Self {
        Self { fence: Some(fence), ..self.clone() }
    }

    /// A handle that calls this whenever its own fence fails a change: the broker has been
    /// replaced, which it may not notice otherwise for as long as it writes no records.
    #[must_use]
    pub fn on_fenced(&self, call: impl Fn() + Send + Sync + 'static) -> Self {
        Self { on_fenced: Some(Arc::new(call)), ..self.clone() }
    }

    /// Tells the observer where `made` under this handle's own fence failed for it.
    pub(crate) fn observed<T>(&self, fence: Option<&Fence>, made: Result<T>) -> Result<T> {
        let is_fenced = made.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced);
        if is_fenced
            && fence == self.fence.as_ref()
            && let Some(call) = &self.on_fenced
        {
            call();
        }
        made
    }

    /// Makes an atomic change, with this handle's fence where it names no other.
    pub async fn change(&self, change: &Change) -> Result<ChangeOutcome> {
        if self.fence.is_none() || change.fence.is_some() {
            let made = self.backend.change(change).await;
            return self.observed(change.fence.as_ref(), made);
        }
        let fenced = Change { fence: self.fence.clone(), ..change.clone() };
        self.observed(fenced.fence.as_ref(), self.backend.change(&fenced).await)
    }

    /// The backend, to read facts that have no file here, and for what only tidies up. What it
    /// changes carries no fence.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The changes that were asked of the backend, by this handle and those made from it.
    pub fn change_counts(&self) -> ChangeCounts {
        self.counters.snapshot()
    }

    pub(crate) fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// One fact.
    pub(crate) async fn fact(&self, key: &FactKey) -> Result<Option<Bytes>> {
        let mut values = self.backend.get(std::slice::from_ref(key)).await?;
        values.pop().ok_or_else(|| Error::bug("the backend answered no value for a key"))
    }

    /// All facts of a range, page by page: not of one moment where there is more than a page.
    pub(crate) async fn scan_all(&self, range: FactRange) -> Result<Vec<(FactKey, Bytes)>> {
        let mut rest = range;
        let mut facts = Vec::new();
        loop {
            let page = self.backend.scan(&rest, SCAN_PAGE_FACTS).await?;
            let is_last = page.len() < SCAN_PAGE_FACTS;
            facts.extend(page);
            match facts.last() {
                // The smallest key above the last one.
                Some((last, _)) if !is_last => rest.from = format!("{}\u{0}", last.as_str()),
                _ => return Ok(facts),
            }
        }
    }

    /// Waits a random, growing while before a call starts over.
    pub async fn wait_for_conflict(&self, attempt: u32) {
        let longest_ms = (1u32 << attempt.min(10)).min(CONFLICT_WAIT_MS_MAX);
        let wait_ms = f64::from(longest_ms) * self.env.random_unit();
        self.env.sleep(Duration::from_secs_f64(wait_ms / 1000.0)).await;
    }
}

/// The error of a call that lost every race.
pub(crate) fn too_many_conflicts(doing: &str) -> Error {
    Error::retry(format!("{doing}: others changed the same facts {CONFLICT_ATTEMPTS_MAX} times"))
}

/// What became of one try to change facts.
pub(crate) enum Attempt {
    /// It was made.
    Applied,
    /// Somebody else was first.
    Conflict,
    /// Read again to see what became of it.
    Unknown,
}

impl MetadataStore {
    /// Makes a change, with an unknown outcome as a value.
    pub(crate) async fn attempt(&self, change: &Change) -> Result<Attempt> {
        match self.change(change).await {
            Ok(ChangeOutcome::Applied) => Ok(Attempt::Applied),
            Ok(ChangeOutcome::Rejected) => Ok(Attempt::Conflict),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => Ok(Attempt::Unknown),
            Err(error) => Err(error),
        }
    }
}

/// A check that a fact still is what was read.
pub(crate) fn unchanged(key: FactKey, value: Option<Bytes>) -> Check {
    let expect = value.map_or(Expect::Absent, Expect::Value);
    Check { key, expect }
}

/// A write of a value as JSON.
pub(crate) fn put_json(key: FactKey, value: &impl Serialize) -> Write {
    Write::Put(key, to_json(value))
}

pub(crate) fn to_json(value: &impl Serialize) -> Bytes {
    let bytes = serde_json::to_vec(value).expect("plain structs with string keys are JSON");
    Bytes::from(bytes)
}

pub(crate) fn from_json<T: DeserializeOwned>(key: &FactKey, value: &[u8]) -> Result<T> {
    serde_json::from_slice(value).map_err(|error| {
        Error::corrupt(format!("fact {} is malformed", key.as_str())).with_source(error)
    })
}

/// A counter as stored: decimal text; 0 where there is none yet.
pub(crate) fn counter<T: std::str::FromStr + Default>(
    key: &FactKey,
    value: Option<&Bytes>,
) -> Result<T> {
    let Some(value) = value else {
        return Ok(T::default());
    };
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::corrupt(format!("fact {} is no number", key.as_str())))
}

pub(crate) fn counter_value(value: impl std::fmt::Display) -> Bytes {
    Bytes::from(value.to_string())
}

/// The nth segment of a key as a topic id.
pub(crate) fn topic_segment(key: &FactKey, at: usize) -> Result<TopicId> {
    let text = key.segments().into_iter().nth(at).unwrap_or_default();
    let id = uuid::Uuid::parse_str(&text);
    id.map(TopicId).map_err(|_| Error::corrupt(format!("fact {} names no topic", key.as_str())))
}

/// The backend's own calls; see [`Backend`] for what each promises.
impl MetadataStore {
    /// See [`Backend::commit_segments`].
    pub async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>> {
        self.backend.commit_segments(fence, segments).await
    }

    /// See [`Backend::segment_outcome`].
    pub async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>> {
        self.backend.segment_outcome(id).await
    }

    /// See [`Backend::abandon_segment`].
    pub async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome> {
        self.backend.abandon_segment(fence, id).await
    }

    /// See [`Backend::forget_outcomes`].
    pub async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()> {
        self.observed(Some(fence), self.backend.forget_outcomes(fence, up_to).await)
    }

    /// See [`Backend::forget_registrations`].
    pub async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()> {
        self.backend.forget_registrations(broker, up_to).await
    }

    /// See [`Backend::partition_states`].
    pub async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>> {
        self.backend.partition_states(partitions).await
    }

    /// See [`Backend::extents`].
    pub async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        self.backend.extents(partition, offset, limit).await
    }

    /// See [`Backend::extent_by_time`].
    pub async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        self.backend.extent_by_time(partition, timestamp_ms).await
    }

    /// See [`Backend::extent_of_max_timestamp`].
    pub async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        self.backend.extent_of_max_timestamp(partition).await
    }

    /// See [`Backend::producers`].
    pub async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>> {
        self.backend.producers(partition).await
    }

    /// See [`Backend::expire_producers`].
    pub async fn expire_producers(
        &self,
        partition: TopicPartition,
        written_before_ms: i64,
    ) -> Result<usize> {
        let fence = self.fence.as_ref();
        let expired = self.backend.expire_producers(fence, partition, written_before_ms).await;
        self.observed(fence, expired)
    }

    /// See [`Backend::aborted`]; none where there is no such partition.
    pub async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Vec<AbortedTransaction>> {
        let found = self.backend.aborted(partition, from, until).await?;
        Ok(found.map(|found| found.transactions).unwrap_or_default())
    }

    /// See [`Backend::advance_log_start`].
    pub async fn advance_log_start(
        &self,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        let fence = self.fence.as_ref();
        self.observed(fence, self.backend.advance_log_start(fence, partition, offset).await)
    }

    /// See [`Backend::replace_extents`].
    pub async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome> {
        self.observed(Some(fence), self.backend.replace_extents(fence, replacement).await)
    }

    /// See [`Backend::unpack_fresh`].
    pub async fn unpack_fresh(&self, kept: FreshBounds) -> Result<usize> {
        self.backend.unpack_fresh(kept).await
    }

    /// See [`Backend::dead_objects`].
    pub async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>> {
        self.backend.dead_objects(dead_before_ms, limit).await
    }

    /// See [`Backend::known_objects`].
    pub async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>> {
        self.backend.known_objects(keys).await
    }

    /// See [`Backend::forget_objects`].
    pub async fn forget_objects(&self, keys: &[String]) -> Result<()> {
        self.backend.forget_objects(keys).await
    }

    /// See [`Backend::now_ms`].
    pub async fn now_ms(&self) -> Result<i64> {
        self.backend.now_ms().await
    }
}
