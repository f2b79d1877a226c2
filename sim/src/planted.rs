//! Bugs that the checks must find. They sit in the fault decorators, so that the product has
//! no test code: the broker above is the real one, and believes a store that lies.

mod lies;

use crate::calls::{EndBy, Phase};
use crate::fault_metadata::FaultMetadata;
use crate::object_server::ObjectServer;
use floe_env::{Env, Lane, Result};
use floe_metadata::Backend;
use floe_metadata::facts::{Check, Expect, Fence};
use floe_metadata::rows::{
    BatchOutcome, PartitionState, SectionFacts, SectionOutcome, SegmentFacts, SegmentOutcome,
};
use kfs::{SegmentId, TopicPartition};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The pause between two tries of a commit that was promised.
const PROMISE_RETRY: Duration = Duration::from_millis(100);
/// Segments get their next life's id by adding this to their counter.
const AGAIN_STEP: u64 = 1 << 40;

/// What is added to the key of a segment that is committed again.
const AGAIN: &str = ".again";

/// The key under which the object of a segment that was committed again was put.
pub fn first_key(key: &str) -> &str {
    key.split_once(AGAIN).map_or(key, |(first, _)| first)
}

pub use lies::put_later;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The broker as it is.
    Nothing,
    /// Commits are answered with made-up offsets, and made afterwards.
    AcknowledgeBeforeCommit,
    /// A commit that is asked again has another segment id, so that it may be applied twice.
    AmbiguousCommitTwice,
    /// A successor goes on with the next free segment number that it sees when it starts, as if no
    /// PUT of its predecessor could still arrive, and takes an object that exists for its own.
    SuccessorIgnoresLatePut,
    /// Commits are made without what says whose the batches are, so that none is a duplicate.
    CommitForgetsProducers,
    /// The fence of a commit is not checked.
    CommitWithoutFence,
    /// No fence of any other change is checked.
    ChangeWithoutFence,
    /// A commit is told at times that another broker has taken its place.
    FencedByNobody,
    /// When nothing fails any more, every commit fails.
    CommitsEndWithFaults,
    /// The metadata store knows of no object when a cleaner asks.
    KnowsNoObject,
    /// Deletions are answered and not made.
    DeletesNothing,
    /// The put of an object of the log is answered before it is made.
    LogPutComesLater,
    /// The put of a table's data file is answered before it is made.
    TablePutComesLater,
    /// A fold's file has the rows of an earlier one.
    FoldHasOtherRows,
    /// A log start is told to have moved and has not.
    LogStartStays,
    /// A log start moves further than it was asked to.
    LogStartTooFar,
    /// Extents are told to be older than they are.
    ExtentsLookOld,
    /// Extents are told to be younger than they are.
    ExtentsLookYoung,
    /// What compaction leaves of the first extent is not named.
    CompactionTakesTooMuch,
    /// Replacements that make a log smaller are answered and not made.
    CompactionIsForgotten,
    /// A table's progress is told to be further than it is.
    TableLooksFurther,
    /// A topic's deletion is answered and not made.
    TopicStays,
    /// A commit of a group's offsets is answered and not made.
    OffsetsAreForgotten,
    /// A change of a consumer group is answered and not made.
    GroupIsForgotten,
    /// What is known of partitions' ends is at times said to be broken.
    EndsAreCorrupt,
    /// A table's pointer moves whatever it was, and whoever moves it.
    PointerWithoutCompare,
    /// The end of a topic that a table's cut reads is told too small.
    CutTooShort,
    /// The log start that a table's cut reads is told too great.
    CutStartsTooLate,
    /// The directory store does not sync its directories.
    NamesAreNotSynced,
    /// SQLite does not sync its log.
    LastTransactionIsLost,
    /// The end of a transaction reaches its first partition alone.
    TornEnd,
    /// The end of a transaction leaves out the offsets of groups that it commits.
    EndForgetsOffsets,
    /// A commit does not ask whether a batch's transaction is still open.
    LateBatchesAreLetIn,
}

/// A bug of the commit.
#[derive(Clone)]
pub enum CommitBug {
    /// See [`Plant::AcknowledgeBeforeCommit`].
    Early(Promises),
    /// See [`Plant::AmbiguousCommitTwice`].
    Twice(Renamed),
}

impl Plant {
    /// What this bug does to the commits of one life.
    pub fn commit_bug(self, env: &Env) -> Option<CommitBug> {
        match self {
            Self::AcknowledgeBeforeCommit => Some(CommitBug::Early(Promises::new(env.clone()))),
            Self::AmbiguousCommitTwice => Some(CommitBug::Twice(Renamed::default())),
            _ => None,
        }
    }

    /// True for a bug that keeps objects under other keys than the broker knows.
    pub fn renames_objects(self) -> bool {
        matches!(self, Self::AmbiguousCommitTwice | Self::SuccessorIgnoresLatePut)
    }

    /// The end of a life that shows this bug best: most lives end so, that few seeds are needed.
    pub fn telling_end(self) -> Option<(EndBy, (&'static str, u64), Phase)> {
        match self {
            Self::SuccessorIgnoresLatePut => Some((EndBy::Kill, ("put", 20), Phase::In)),
            Self::PointerWithoutCompare => Some((EndBy::Pause, ("put_table", 4), Phase::After)),
            _ => None,
        }
    }

    /// True for a bug of compaction.
    pub fn needs_compaction(self) -> bool {
        matches!(self, Self::CompactionTakesTooMuch | Self::CompactionIsForgotten)
    }

    /// True for a bug that only a power cut shows.
    pub fn needs_machine(self) -> bool {
        matches!(self, Self::NamesAreNotSynced | Self::LastTransactionIsLost)
    }

    /// What this bug does to the keys of one life that starts now.
    pub async fn renumbered(self, objects: &ObjectServer, numbers: &Numbers) -> Option<Renumbered> {
        let is_this = self == Self::SuccessorIgnoresLatePut;
        if is_this { Some(Renumbered::after(objects, numbers.clone()).await) } else { None }
    }
}

/// A fence that holds, whatever the given one says.
///
/// # Errors
/// Whatever the backend answers.
pub async fn current_fence(backend: &dyn Backend, fence: &Fence) -> Result<Fence> {
    let key = fence.0.key.clone();
    let value = backend.get(std::slice::from_ref(&key)).await?.pop().flatten();
    let expect = value.map_or(Expect::Absent, Expect::Value);
    Ok(Fence(Check { key, expect }))
}

/// Forgets that a segment's commit was asked before.
#[derive(Clone, Default)]
pub struct Renamed(Arc<Mutex<BTreeMap<SegmentId, u64>>>);

impl Renamed {
    /// The segments under ids that were never asked.
    pub fn again(&self, segments: &[SegmentFacts]) -> Vec<SegmentFacts> {
        let mut asked = self.0.lock();
        let renamed = segments.iter().map(|segment| {
            let times = asked.entry(segment.id).or_default();
            let mut renamed = segment.clone();
            if *times > 0 {
                renamed.id.counter += *times * AGAIN_STEP;
                // An object is committed once: the store's second defence is to be got round, too.
                renamed.key = format!("{}{AGAIN}{times}", segment.key);
            }
            *times += 1;
            renamed
        });
        renamed.collect()
    }
}

/// Promises that are not kept yet.
#[derive(Clone)]
pub struct Promises {
    env: Env,
    ends: Arc<Mutex<BTreeMap<TopicPartition, PartitionState>>>,
}

impl Promises {
    fn new(env: Env) -> Self {
        Self { env, ends: Arc::default() }
    }

    /// Partitions whose ends must be read before something can be promised.
    pub fn unknown(&self, segments: &[SegmentFacts]) -> Vec<TopicPartition> {
        let ends = self.ends.lock();
        let sections = segments.iter().flat_map(|segment| &segment.sections);
        let partitions = sections.map(SectionFacts::topic_partition);
        partitions.filter(|partition| !ends.contains_key(partition)).collect()
    }

    /// Takes ends in.
    pub fn learn(&self, partitions: &[TopicPartition], states: &[Option<PartitionState>]) {
        let mut ends = self.ends.lock();
        for (partition, state) in partitions.iter().zip(states) {
            if let Some(state) = state {
                ends.entry(*partition).or_insert(*state);
            }
        }
    }

    /// Makes the real commit, some time.
    pub fn commit_later(&self, metadata: FaultMetadata, fence: Fence, segments: Vec<SegmentFacts>) {
        let env = self.env.clone();
        self.env.spawn("promised commit", Lane::Foreground, async move {
            while metadata.commit_segments(&fence, &segments).await.is_err() {
                env.sleep(PROMISE_RETRY).await;
            }
        });
    }

    /// What the commit would decide if all went well.
    pub fn make_up(&self, segments: &[SegmentFacts]) -> Vec<SegmentOutcome> {
        let mut ends = self.ends.lock();
        let mut section = |section: &SectionFacts| {
            let state = ends.entry(section.topic_partition()).or_default();
            let mut batches = Vec::new();
            for batch in &section.batches {
                batches.push(BatchOutcome::Accepted { base_offset: state.high_watermark });
                state.high_watermark += i64::from(batch.record_count);
            }
            state.last_stable_offset = state.high_watermark;
            state.version += 1;
            SectionOutcome { batches, state: Some(*state) }
        };
        let outcomes = segments.iter().map(|segment| {
            SegmentOutcome::Committed(segment.sections.iter().map(&mut section).collect())
        });
        outcomes.collect()
    }
}

/// Segment keys that are numbered over all lives.
pub struct Renumbered {
    first: u64,
    known: Numbers,
}

/// Which number each segment's file name got; kept over lives, so that old objects are found.
pub type Numbers = Arc<Mutex<BTreeMap<String, u64>>>;

const NUMBERED: &str = "numbered-";

impl Renumbered {
    /// Goes on after the greatest number that is there now.
    async fn after(objects: &ObjectServer, known: Numbers) -> Self {
        let listed = objects.keys("").await.unwrap_or_default();
        let numbers = listed.iter().filter_map(|key| {
            key.rsplit_once(NUMBERED)?.1.strip_suffix(".kfs")?.parse::<u64>().ok()
        });
        let first = numbers.max().map_or(0, |last| last + 1);
        Self { first, known }
    }

    /// The key under which an object is kept.
    pub fn key(&self, key: &str) -> String {
        let Some((folder, name)) = key.rsplit_once('/') else { return key.to_owned() };
        let (Some((root, _)), Some(id)) = (folder.split_once("/wal/"), name.strip_suffix(".kfs"))
        else {
            return key.to_owned();
        };
        let counter: u64 = id.rsplit('-').next().and_then(|last| last.parse().ok()).unwrap_or(0);
        let mut known = self.known.lock();
        let number = *known.entry(name.to_owned()).or_insert(self.first + counter);
        format!("{root}/wal/{NUMBERED}{number}.kfs")
    }
}
