//! What the stores say and do under a planted bug that needs no memory.

use super::Plant;
use crate::actors::sharer;
use crate::calls::Calls;
use crate::dice::{between_ms, chance};
use crate::fault_metadata::{is_pointer, is_visible, key_of};
use bytes::Bytes;
use floe_env::{Env, Error, Lane, Result};
use floe_iceberg_bridge::progress::Progress;
use floe_metadata::facts::{Change, FactKey, Fence, PartitionChange, Write};
use floe_metadata::rows::{
    Extent, ExtentPage, MarkerFacts, PartitionState, Place, Replacement, SegmentFacts,
};
use floe_store::{ObjectStore, PutOutcome};
use kfs::TopicId;
use std::sync::Arc;
use uuid::Uuid;

/// Commits that are fenced by nobody, and ends that are told to be broken; per mille.
const AT_TIMES: u64 = 50;
/// By how much extents are told to be older or younger, ms.
const OTHER_AGE_MS: i64 = 600_000;
/// The facts that are copies of tables' progress.
const TABLE_PROGRESS: &str = "table-progress/";
/// The facts that are committed offsets.
const OFFSETS: &str = "offsets/";
/// The facts that are consumer groups.
const GROUPS: &str = "groups/";
/// A data file's name is an id of so many characters, behind which a folded one has a number.
const ID_LENGTH: usize = 36;
/// Objects of a folder that are looked through.
const LISTED_MAX: usize = 1000;

/// The metadata store.
impl Plant {
    /// The segments as they are committed.
    pub fn committed(self, mut segments: Vec<SegmentFacts>) -> Vec<SegmentFacts> {
        if self == Self::CommitForgetsProducers {
            let sections = segments.iter_mut().flat_map(|segment| &mut segment.sections);
            let batches = sections.flat_map(|section| &mut section.batches);
            batches.for_each(|batch| batch.producer = None);
        }
        segments
    }

    /// A replacement of extents as it is made; nothing where it is answered and not made.
    pub fn replaced(self, mut replacement: Replacement) -> Option<Replacement> {
        let bytes = |extents: &[Extent]| extents.iter().map(Extent::bytes).sum::<u64>();
        if bytes(&replacement.replacement) < bytes(&replacement.sources) {
            match self {
                Self::CompactionIsForgotten => return None,
                Self::CompactionTakesTooMuch => replacement.replacement[0].place = Place::Hole,
                _ => {}
            }
        }
        Some(replacement)
    }

    /// What a commit fails with which the store would make.
    pub fn refused(self, calls: &Calls, env: &Env) -> Option<Error> {
        match self {
            Self::FencedByNobody if chance(env, AT_TIMES) => {
                Some(Error::fenced("planted: another broker has taken over"))
            }
            Self::CommitsEndWithFaults if calls.is_calm() => {
                Some(Error::retry("planted: no commit any more"))
            }
            _ => None,
        }
    }

    /// The fence of a change that clients or readers can see, as it is checked.
    pub fn fence(self, fence: Option<&Fence>) -> Option<&Fence> {
        fence.filter(|_| self != Self::ChangeWithoutFence)
    }

    /// A change of facts as it is made; nothing where it is answered and not made.
    pub fn changed(self, change: &Change) -> Option<Change> {
        let drops_partition =
            change.partitions.iter().any(|change| matches!(change, PartitionChange::Drop(_)));
        let is_offset = |write: &Write| key_of(write).starts_with(OFFSETS);
        let is_shared = |write: &Write| {
            key_of(write).strip_prefix(GROUPS).is_some_and(|group| group == sharer::GROUP)
        };
        match self {
            Self::GroupIsForgotten if change.writes.iter().any(is_shared) => None,
            Self::TopicStays if drops_partition => None,
            Self::OffsetsAreForgotten if change.writes.iter().any(is_offset) => None,
            Self::PointerWithoutCompare if change.writes.iter().any(is_pointer) => {
                Some(Change { checks: Vec::new(), fence: None, ..change.clone() })
            }
            _ if is_visible(change) => {
                Some(Change { fence: self.fence(change.fence.as_ref()).cloned(), ..change.clone() })
            }
            _ => Some(change.clone()),
        }
    }

    /// Facts as they are told.
    pub fn read(self, keys: &[FactKey], mut values: Vec<Option<Bytes>>) -> Vec<Option<Bytes>> {
        if self == Self::TableLooksFurther {
            for (key, value) in keys.iter().zip(&mut values) {
                let topic = key.as_str().strip_prefix(TABLE_PROGRESS);
                if let Some(topic) = topic.and_then(|topic| Uuid::parse_str(topic).ok()) {
                    let next_offsets = vec![i64::MAX / 2];
                    let further = Progress { topic: TopicId(topic), next_offsets };
                    *value = Some(further.pack().into());
                }
            }
        }
        values
    }

    /// Extents as they are told.
    pub fn dated(self, mut page: Option<ExtentPage>) -> Option<ExtentPage> {
        let by_ms = match self {
            Self::ExtentsLookOld => -OTHER_AGE_MS,
            Self::ExtentsLookYoung => OTHER_AGE_MS,
            _ => return page,
        };
        for extent in page.iter_mut().flat_map(|page| &mut page.extents) {
            extent.max_timestamp_ms += by_ms;
        }
        page
    }

    /// An end of a transaction as it is made.
    pub fn ended(self, change: &Change, markers: &[MarkerFacts]) -> (Change, Vec<MarkerFacts>) {
        let (mut change, mut markers) = (change.clone(), markers.to_vec());
        match self {
            Self::TornEnd => markers.truncate(1),
            Self::EndForgetsOffsets => {
                change.writes.retain(|write| !key_of(write).starts_with(OFFSETS));
            }
            _ => {}
        }
        (change, markers)
    }

    /// The states of partitions as they are told.
    ///
    /// # Errors
    /// That they are broken.
    pub fn told(
        self,
        states: Vec<Option<PartitionState>>,
        env: &Env,
    ) -> Result<Vec<Option<PartitionState>>> {
        if self == Self::EndsAreCorrupt && chance(env, AT_TIMES) {
            return Err(Error::corrupt("planted: a row makes no sense"));
        }
        let told = |state: PartitionState| {
            let PartitionState { log_start_offset: start, last_stable_offset: end, .. } = state;
            match self {
                Self::CutTooShort => {
                    PartitionState { last_stable_offset: (end - 1).max(start), ..state }
                }
                Self::CutStartsTooLate => {
                    PartitionState { log_start_offset: (start + 1).min(end), ..state }
                }
                _ => state,
            }
        };
        Ok(states.into_iter().map(|state| state.map(told)).collect())
    }
}

/// The object store.
impl Plant {
    /// True for a put that is answered before it is made.
    pub fn puts_later(self, key: &str) -> bool {
        match self {
            Self::LogPutComesLater => key.contains("/wal/") || key.contains("/log/"),
            Self::TablePutComesLater => key.ends_with(".parquet"),
            _ => false,
        }
    }

    /// The bytes that are put.
    pub async fn put(
        self,
        objects: &Arc<dyn ObjectStore>,
        key: &str,
        parts: Vec<Bytes>,
    ) -> Vec<Bytes> {
        if self != Self::FoldHasOtherRows || !is_folded(key) {
            return parts;
        }
        earlier_fold(objects, key).await.map_or(parts, |bytes| vec![bytes])
    }
}

/// Says that an object is there, and puts it some time later.
pub fn put_later(
    env: &Env,
    objects: Arc<dyn ObjectStore>,
    key: String,
    parts: Vec<Bytes>,
) -> PutOutcome {
    let world = env.clone();
    env.spawn("late put", Lane::Foreground, async move {
        world.sleep(between_ms(&world, 500, 3000)).await;
        // Nobody learns how it ends.
        let _ = objects.put(&key, parts).await;
    });
    PutOutcome::Created
}

/// What an earlier fold of the same table has put.
async fn earlier_fold(objects: &Arc<dyn ObjectStore>, key: &str) -> Option<Bytes> {
    let (folder, _) = key.rsplit_once('/')?;
    let listed = objects.list(folder, None, LISTED_MAX).await.ok()?;
    let earlier = listed.into_iter().find(|object| is_folded(&object.key))?;
    objects.get(&earlier.key).await.ok().flatten()
}

fn is_folded(key: &str) -> bool {
    let name = key.rsplit('/').next().and_then(|name| name.strip_suffix(".parquet"));
    name.is_some_and(|name| name.len() > ID_LENGTH)
}
