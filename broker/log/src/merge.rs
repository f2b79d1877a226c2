//! Merging: adjacent small extents of a partition go byte for byte into one object with absolute
//! offsets, which takes their place in one transaction that checks that none of them has changed.
//! It bounds what a partition costs: rows in the metadata store, objects, and requests of whoever
//! reads it from its start.
//!
//! Transactions are merged once they have ended: their markers become control batches, and the
//! aborted ones are listed in the object's footer, so that it can be read without the metadata.
//!
//! A **round** looks at every partition of every topic that has changed since it was last looked
//! at, and at those with something to merge again. What may be merged is decided by
//! [`plan`](plan::plan), and which partitions share an object, where a PUT has a price, by
//! [`group`]. A merge reads its sources (from the cache where they are there, and what lies side by
//! side with one read), puts the object under a key of its own, and swaps the extents of one
//! partition after the other. A partition whose extents have changed meanwhile, or that is gone,
//! keeps what it has; its part of the object is named by nobody. Who swaps after the first one
//! joins the object only while it lives. The sources' objects are dead then, and
//! [deleted later](crate::clean), so that readers that still hold the old extents are not
//! disturbed; a merged object is dead when the last partition lets go of it. What was cached stays
//! cached under its new names. A crash before the first swap leaves an object that nobody names,
//! which goes with its broker's registration; later, one that lives for those that were swapped.
//!
//! What is merged is packed no longer in its segment's row. So that the others do not pile up
//! there, the round ends by **unpacking** the oldest segments beyond [`FRESH_KEPT`]: extents that
//! wait for company get rows of their own. Between two rounds there may be more fresh extents; up
//! to [`INDEXED_EXTENTS_MAX`](floe_metadata::INDEXED_EXTENTS_MAX) a reader finds in memory.
//!
//! One merge at a time, of however many partitions; it holds its sources' bytes,
//! [`OBJECT_BYTES_MAX`] at most, and copies of the small batches among them, so twice that at most;
//! before that, what a few reads bring and is being copied from them. What is gathered for the next
//! ones are extents, about 4 MiB of them for either of two objects, and no records.

mod group;
mod make;
mod object;
mod plan;

pub use plan::{
    AGE_MS, AGED_GROWTH_MIN, AGED_PIECES_MIN, EXTENT_BYTES_MAX, FRESH_KEPT, GROWTH_MIN,
    MERGE_PAUSE, MergeRules, OBJECT_BYTES_MAX, PIECES_ENOUGH, PIECES_MIN, REMOTE_BYTES_MIN,
};

use crate::log::Log;
use floe_env::{Background, Env, Error, ErrorKind, Result, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::rows::PartitionState;
use group::{Groups, Run};
use kfs::{PartitionIndex, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Extents that one look at a partition brings at most, and so sources of one merge.
const EXTENTS_PER_LOOK: usize = 1024;
/// Looks at one partition in one visit at most.
const LOOKS_PER_VISIT_MAX: usize = 16;
/// Visits to one partition in one round at most; each merges once at most.
const VISITS_PER_ROUND_MAX: usize = 16;
/// Bytes that one round merges at most, but for those of its last objects; the next one goes on.
const BYTES_PER_ROUND_MAX: u64 = 1 << 30;
/// Partitions whose state is asked for at once.
const STATES_PER_QUERY: usize = 1000;
/// Transactions of one round that unpack; the next one goes on.
const UNPACKS_PER_ROUND_MAX: usize = 1000;
/// Partitions that may fail before a round ends: a store that is away fails for all.
const FAILURES_PER_ROUND_MAX: usize = 3;

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeRound {
    /// Merged objects that took the place of their sources, of one partition at least.
    pub merges: usize,
    /// Extents that they replaced.
    pub sources: usize,
    /// Bytes that were rewritten.
    pub bytes: u64,
}

/// Merges the extents of all partitions; cheap to clone.
#[derive(Clone)]
pub struct Merger(Arc<Inner>);

struct Inner {
    env: Env,
    log: Log,
    metadata: MetadataStore,
    rules: MergeRules,
    memory: Mutex<Memory>,
}

/// What is remembered between rounds; without it, a round only takes longer.
#[derive(Default)]
struct Memory {
    partitions: BTreeMap<TopicPartition, Looked>,
    /// Where the last round ended early.
    resume_after: Option<TopicPartition>,
    /// Partitions whose records could not be read: they share no object until they can, so that the
    /// others' merges are not begun in vain.
    unreadable: BTreeSet<TopicPartition>,
}

/// What the last visit found of a partition.
#[derive(Clone, Copy, Default)]
struct Looked {
    /// Nothing before this offset is merged any more.
    from: i64,
    /// The partition's version at which nothing was left to merge, and when, ms.
    idle: Option<(u64, i64)>,
}

/// A partition as a round knows it.
#[derive(Clone)]
struct Named {
    partition: TopicPartition,
    topic_name: Arc<str>,
    /// Of its topic.
    partition_count: i32,
}

/// A round on its way.
#[derive(Default)]
struct Going {
    done: MergeRound,
    gathered: Groups,
    failures: Vec<Error>,
    /// They are not visited again.
    failed: BTreeSet<TopicPartition>,
    /// See [`Memory::unreadable`].
    unreadable: BTreeSet<TopicPartition>,
}

impl Going {
    /// A merge of these partitions, or a look at one, has failed.
    fn failed(&mut self, partitions: &[TopicPartition], error: &Error) {
        let what = match partitions {
            [partition] => format!("merging {partition}"),
            _ => format!("merging {} partitions", partitions.len()),
        };
        self.failed.extend(partitions);
        self.failures.push(error.clone().context(&what));
    }

    fn must_end(&self) -> bool {
        let is_fenced = |error: &Error| error.kind() == ErrorKind::Fenced;
        self.failures.last().is_some_and(is_fenced)
            || self.failures.len() >= FAILURES_PER_ROUND_MAX
            || self.done.bytes >= BYTES_PER_ROUND_MAX
    }

    fn ended(self) -> Result<MergeRound> {
        self.failures.into_iter().next().map_or(Ok(self.done), Err)
    }
}

impl Merger {
    /// A merger of all partitions, under the log's registration.
    pub fn new(env: &Env, log: &Log, metadata: MetadataStore, rules: MergeRules) -> Self {
        let memory = Mutex::default();
        Self(Arc::new(Inner { env: env.clone(), log: log.clone(), metadata, rules, memory }))
    }

    /// Starts the background job.
    pub fn start(&self, shutdown: Shutdown) -> Background {
        let (merger, asked) = (self.clone(), shutdown.clone());
        Background::start(&self.0.env, "merge", self.0.rules.pause, shutdown, move || {
            let (merger, asked) = (merger.clone(), asked.clone());
            async move {
                let done = merger.round(&asked).await?;
                if done.merges > 0 {
                    tracing::debug!(done.merges, done.sources, done.bytes, "merged extents");
                }
                Ok(())
            }
        })
    }

    /// One round; it ends early on a shutdown.
    ///
    /// # Errors
    /// The first one that a partition met; the others were visited all the same.
    pub async fn round(&self, shutdown: &Shutdown) -> Result<MergeRound> {
        let merged = self.merge_partitions(shutdown).await;
        self.0.unpack(shutdown).await?;
        merged
    }

    async fn merge_partitions(&self, shutdown: &Shutdown) -> Result<MergeRound> {
        let mut memory = self.0.memory.lock().await;
        let now_ms = self.0.metadata.now_ms().await?;
        let mut partitions = self.0.partitions().await?;
        let mut known = std::mem::take(&mut memory.partitions);
        for named in &partitions {
            let looked = known.remove(&named.partition).unwrap_or_default();
            memory.partitions.insert(named.partition, looked);
        }
        let resume_after = memory.resume_after.take();
        let first = partitions.partition_point(|named| Some(named.partition) <= resume_after);
        partitions.rotate_left(first);
        let due = self.0.changed(partitions, &mut memory, now_ms).await?;
        let unreadable = std::mem::take(&mut memory.unreadable);
        let mut round = Going { unreadable, ..Going::default() };
        self.0.visit_all(due, &mut memory, now_ms, &mut round, shutdown).await;
        memory.unreadable = std::mem::take(&mut round.unreadable);
        round.ended()
    }
}

impl Inner {
    /// Visits partitions, and again those where something was found.
    async fn visit_all(
        &self,
        mut due: Vec<Named>,
        memory: &mut Memory,
        now_ms: i64,
        round: &mut Going,
        shutdown: &Shutdown,
    ) {
        for _ in 0..VISITS_PER_ROUND_MAX {
            let mut found = Vec::new();
            for named in due {
                if shutdown.is_triggered() {
                    return;
                }
                let looked = memory.partitions.entry(named.partition).or_default();
                if self.gather(&named, looked, now_ms, round).await {
                    found.push(named.clone());
                }
                if round.must_end() {
                    memory.resume_after = Some(named.partition);
                    return;
                }
            }
            self.make_gathered(round).await;
            found.retain(|named| !round.failed.contains(&named.partition));
            if found.is_empty() || round.must_end() {
                return;
            }
            due = found;
        }
    }

    /// All partitions, by topic id and index.
    async fn partitions(&self) -> Result<Vec<Named>> {
        let mut partitions = Vec::new();
        for topic in self.metadata.topics().await? {
            let topic_name: Arc<str> = topic.name.as_str().into();
            partitions.extend((0..topic.partition_count).map(|index| Named {
                partition: TopicPartition { topic: topic.id, partition: PartitionIndex(index) },
                topic_name: topic_name.clone(),
                partition_count: topic.partition_count,
            }));
        }
        partitions.sort_by_key(|named| named.partition);
        Ok(partitions)
    }

    /// Unpacks the oldest fresh segments beyond those kept.
    async fn unpack(&self, shutdown: &Shutdown) -> Result<()> {
        for _ in 0..UNPACKS_PER_ROUND_MAX {
            let is_done = self.metadata.unpack_fresh(self.rules.fresh_kept).await? == 0;
            if is_done || shutdown.is_triggered() {
                break;
            }
        }
        Ok(())
    }

    /// True where nothing has happened since there was nothing to do; what was young then may be
    /// aged after a while.
    fn is_idle(&self, looked: &Looked, state: &PartitionState, now_ms: i64) -> bool {
        let since = |(version, at_ms): (u64, i64)| {
            version == state.version && now_ms.saturating_sub(at_ms) < self.rules.age_ms
        };
        state.bytes == 0 || looked.idle.is_some_and(since)
    }

    /// The partitions that have changed since there was nothing to do.
    async fn changed(
        &self,
        partitions: Vec<Named>,
        memory: &mut Memory,
        now_ms: i64,
    ) -> Result<Vec<Named>> {
        let mut changed = Vec::new();
        for chunk in partitions.chunks(STATES_PER_QUERY) {
            let asked: Vec<_> = chunk.iter().map(|named| named.partition).collect();
            let states = self.metadata.partition_states(&asked).await?;
            for (named, state) in chunk.iter().zip(states) {
                let looked = memory.partitions.entry(named.partition).or_default();
                if state.is_some_and(|state| !self.is_idle(looked, &state, now_ms)) {
                    changed.push(named.clone());
                }
            }
        }
        Ok(changed)
    }

    /// Looks for something to merge, and makes what must be made before it can be gathered. True
    /// where there was something.
    async fn gather(
        &self,
        named: &Named,
        looked: &mut Looked,
        now_ms: i64,
        round: &mut Going,
    ) -> bool {
        let boundaries = self.log.boundaries();
        if boundaries.is_passing(named.partition) {
            return false;
        }
        if boundaries.take_rewritten(named.partition) {
            // What was large enough may be small now.
            *looked = Looked::default();
        }
        match self.visit(named, looked, now_ms).await {
            Ok(Some(run)) => {
                let may_share = !boundaries.is_compacted(named.partition.topic)
                    && !round.unreadable.contains(&named.partition);
                if let Some(group) = round.gathered.add(run, may_share, &self.rules) {
                    self.make(group, round).await;
                }
                true
            }
            Ok(None) => false,
            Err(error) => {
                round.failed(&[named.partition], &error);
                false
            }
        }
    }

    /// Makes what has been gathered.
    async fn make_gathered(&self, round: &mut Going) {
        for group in round.gathered.take() {
            self.make(group, round).await;
        }
    }

    /// Looks at a partition from where the last visit ended, for a run that is worth a merge.
    async fn visit(&self, named: &Named, looked: &mut Looked, now_ms: i64) -> Result<Option<Run>> {
        looked.idle = None;
        let clean_until = self.log.boundaries().clean_until(named.partition);
        let rules = self.rules.of_topic(named.partition_count);
        for _ in 0..LOOKS_PER_VISIT_MAX {
            let page = self.metadata.extents(named.partition, looked.from, EXTENTS_PER_LOOK);
            let Some(page) = page.await? else { return Ok(None) };
            let is_full = page.extents.len() == EXTENTS_PER_LOOK;
            let extents =
                if is_full { plan::whole_pieces(&page.extents) } else { &page.extents[..] };
            let stable = page.state.last_stable_offset;
            if let Some(range) = plan::plan(extents, (stable, clean_until), &rules, now_ms) {
                return Ok(Some(Run {
                    partition: named.partition,
                    topic_name: named.topic_name.clone(),
                    sources: extents[range].to_vec(),
                }));
            }
            looked.from = plan::open_tail(extents, &rules).max(looked.from);
            if !is_full {
                looked.idle = Some((page.state.version, now_ms));
                return Ok(None);
            }
            // The next look must bring something new, whatever this page is made of.
            looked.from = looked.from.max(extents[extents.len() / 2].base_offset);
        }
        Ok(None)
    }
}
