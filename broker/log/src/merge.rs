//! Merging: adjacent small extents of a partition go byte for byte into one object with absolute
//! offsets, which takes their place in one transaction that checks that none of them has changed.
//! It bounds what a partition costs: rows in the metadata store, objects, and requests of whoever
//! reads it from its start.
//!
//! Transactions are merged once they have ended: their markers become control batches, and the
//! aborted ones are listed in the object's footer, so that it can be read without the metadata.
//!
//! A **round** looks at every partition of every topic that has changed since it was last looked
//! at. What may be merged is decided by [`plan`](plan::plan). A merge reads its sources (from the
//! cache where they are there), puts the object under a key of its own, and swaps the extents. The
//! sources' objects are dead then, and [deleted later](crate::clean), so that readers that still
//! hold the old extents are not disturbed. What was cached stays cached under its new names. A
//! crash at any point leaves an object that nobody names, which goes with its broker's
//! registration.
//!
//! What is merged is packed no longer in its segment's row. So that the others do not pile up
//! there, the round ends by **unpacking** the oldest segments beyond [`FRESH_KEPT`]: extents that
//! wait for company get rows of their own. Between two rounds there may be more fresh extents; up
//! to [`INDEXED_EXTENTS_MAX`](floe_metadata::INDEXED_EXTENTS_MAX) a reader finds in memory.
//!
//! One merge at a time; it holds its sources' bytes, [`OBJECT_BYTES_MAX`] at most, and copies of
//! the small batches among them, so twice that at most; before that, what a few reads bring and is
//! being copied from them.

mod object;
mod plan;

pub use plan::{
    AGE_MS, AGED_GROWTH_MIN, AGED_PIECES_MIN, EXTENT_BYTES_MAX, FRESH_KEPT, GROWTH_MIN,
    MERGE_PAUSE, MergeRules, OBJECT_BYTES_MAX, PIECES_ENOUGH, PIECES_MIN, REMOTE_BYTES_MIN,
};

use crate::blocks::BlocksKey;
use crate::keys::merged_key;
use crate::loads::cache_key;
use crate::log::Log;
use crate::rewrite;
use floe_env::{Background, Env, ErrorKind, Result, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::rows::{Extent, PartitionState, Replacement};
use kfs::{PartitionIndex, TopicPartition};
use object::{Merge, MergedObject};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Extents that one look at a partition brings at most, and so sources of one merge.
const EXTENTS_PER_LOOK: usize = 1024;
/// Looks at one partition in one round at most; each merges once at most.
const LOOKS_PER_VISIT_MAX: usize = 16;
/// Bytes that one round merges at most, but for the end of its last visit; the next one goes on.
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
    /// Merged objects that took the place of their sources.
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
        let mut round = MergeRound::default();
        let mut failures = Vec::new();
        for chunk in partitions.chunks(STATES_PER_QUERY) {
            let asked: Vec<_> = chunk.iter().map(|named| named.partition).collect();
            let states = self.0.metadata.partition_states(&asked).await?;
            for (named, state) in chunk.iter().zip(states) {
                if shutdown.is_triggered() {
                    return Ok(round);
                }
                let looked = memory.partitions.entry(named.partition).or_default();
                let Some(state) = state else { continue };
                let boundaries = self.0.log.boundaries();
                if boundaries.is_passing(named.partition) || self.0.is_idle(looked, &state, now_ms)
                {
                    continue;
                }
                if boundaries.take_rewritten(named.partition) {
                    // What was large enough may be small now.
                    *looked = Looked::default();
                }
                if let Err(error) = self.0.visit(named, looked, now_ms, &mut round).await {
                    failures.push(error.context(&format!("merging {}", named.partition)));
                }
                if failures.last().is_some_and(|error| error.kind() == ErrorKind::Fenced)
                    || failures.len() >= FAILURES_PER_ROUND_MAX
                    || round.bytes >= BYTES_PER_ROUND_MAX
                {
                    memory.resume_after = Some(named.partition);
                    return failures.into_iter().next().map_or(Ok(round), Err);
                }
            }
        }
        failures.into_iter().next().map_or(Ok(round), Err)
    }
}

impl Inner {
    /// All partitions, by topic id and index.
    async fn partitions(&self) -> Result<Vec<Named>> {
        let mut partitions = Vec::new();
        for topic in self.metadata.topics().await? {
            let topic_name: Arc<str> = topic.name.as_str().into();
            partitions.extend((0..topic.partition_count).map(|index| Named {
                partition: TopicPartition { topic: topic.id, partition: PartitionIndex(index) },
                topic_name: topic_name.clone(),
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

    /// Looks at a partition from where the last visit ended, and merges what there is.
    async fn visit(
        &self,
        named: &Named,
        looked: &mut Looked,
        now_ms: i64,
        round: &mut MergeRound,
    ) -> Result<()> {
        looked.idle = None;
        let clean_until = self.log.boundaries().clean_until(named.partition);
        for _ in 0..LOOKS_PER_VISIT_MAX {
            let page = self.metadata.extents(named.partition, looked.from, EXTENTS_PER_LOOK);
            let Some(page) = page.await? else { return Ok(()) };
            let is_full = page.extents.len() == EXTENTS_PER_LOOK;
            let extents =
                if is_full { plan::whole_pieces(&page.extents) } else { &page.extents[..] };
            let stable = page.state.last_stable_offset;
            if let Some(range) = plan::plan(extents, (stable, clean_until), &self.rules, now_ms) {
                self.merge(named, &extents[range], round).await?;
                continue;
            }
            looked.from = plan::open_tail(extents, &self.rules).max(looked.from);
            if !is_full {
                looked.idle = Some((page.state.version, now_ms));
                return Ok(());
            }
            // The next look must bring something new, whatever this page is made of.
            looked.from = looked.from.max(extents[extents.len() / 2].base_offset);
        }
        Ok(())
    }

    /// Merges a run of extents, unless it has changed meanwhile.
    async fn merge(&self, named: &Named, sources: &[Extent], round: &mut MergeRound) -> Result<()> {
        let config = self.log.config();
        let base_offset = sources.first().map_or(0, |source| source.base_offset);
        let key = merged_key(named.partition, base_offset, self.log.next_merge_id());
        let reader = self.log.reader();
        let keys: Vec<_> = sources.iter().map(cache_key).collect();
        let is_cached = |key: &Option<BlocksKey>| {
            key.as_ref().is_none_or(|key| reader.cache.peek(key).is_some())
        };
        let merge = Merge {
            cluster: config.cluster,
            partition: named.partition,
            topic_name: named.topic_name.clone(),
            key: key.clone(),
            cached: keys.iter().map(is_cached).collect(),
            aborted: rewrite::footer(
                &rewrite::aborted(&self.metadata, named.partition, sources).await?,
            ),
            sources: sources.to_vec(),
            extent_bytes_max: self.rules.extent_bytes_max,
        };
        let blocks = reader.blocks_once(sources).await?;
        let (built, merge) =
            self.env.blocking(move || (object::build(&merge, blocks), merge)).await;
        let MergedObject { parts, size, extents, blocks } = built?;
        let object = rewrite::put(reader, &key, parts).await?;
        let replacement = Replacement {
            partition: named.partition,
            sources: merge.sources,
            replacement: extents,
            object_size: size,
            joins_object: false,
            forgotten_aborts: Vec::new(),
        };
        if rewrite::swap(&self.log, &self.metadata, Some(&object), &replacement).await? {
            reader.cache.replace(&keys, blocks);
            round.merges += 1;
            round.sources += replacement.sources.len();
            round.bytes += replacement.sources.iter().map(Extent::bytes).sum::<u64>();
        }
        Ok(())
    }
}
