//! Compaction: of a topic whose `cleanup.policy` says `compact`, the log keeps the newest record of
//! each key, with Kafka's rules.
//!
//! * [`plan`] says whether a partition is worth a pass, and how far it may reach: below the last
//!   stable offset, beyond `min.compaction.lag.ms`, and no further than the topic's table has read,
//!   for a table is the whole history.
//! * A **pass** ([`pass`]) learns the newest offset of each key of what is new since the last one
//!   ([`newest`]), and cleans the log from its start. What becomes of each batch is decided by
//!   [`clean`], which is pure. It replaces **units** ([`unit`]) of adjacent extents, one object and
//!   one transaction each. What has not changed is not written again.
//! * A **mark** in the metadata store says how far passes have been over a partition. Where one is
//!   lost, a pass is made for nothing.
//!
//! A **round** looks at every partition of every compacted topic, and goes over those that are due,
//! the dirtiest first, one at a time. It holds the table of keys
//! ([`CompactionRules::key_bytes_max`]), what is left of a unit
//! ([`CompactionRules::object_bytes_max`], and copies of small batches), and some MiB of what is
//! being read. Extents that a merge, a retention or another compactor has changed meanwhile are not
//! replaced; the pass ends then and begins anew in a later round.
//!
//! Unlike in Kafka, the newest records are compacted too, as there is no active segment, and what
//! waits for its delete horizon goes after it even if nothing more is written.

mod boundaries;
mod clean;
mod newest;
mod pass;
mod plan;
mod transactions;
mod unit;

pub(crate) use boundaries::Boundaries;
pub use plan::{
    COMPACTED_BYTES_MAX, COMPACTION_PAUSE, CompactionRules, CompactionTerms, DIRT_AGE_MS,
    KEY_BYTES_MAX, REMOTE_DIRT_BYTES_MIN,
};

use crate::log::Log;
use floe_env::{Background, Env, ErrorKind, Instant, Result, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::compaction::CompactionMark;
use floe_metadata::rows::PartitionState;
use floe_metadata::topics::Topic;
use kfs::{PartitionIndex, TopicId, TopicPartition};
use pass::{Ended, Pass};
use plan::{Dirt, Limits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Partitions whose state is asked for at once.
const STATES_PER_QUERY: usize = 1000;
/// Extents that one look at a dirty part brings.
const EXTENTS_PER_LOOK: usize = 512;
/// Partitions that may fail before a round ends; the next one begins with others.
const FAILURES_PER_ROUND_MAX: usize = 16;

/// What topics ask for, and how far their tables have got.
pub trait CompactionPolicy: Send + Sync + 'static {
    /// What a topic's configs say of compaction; `None` where it is not compacted.
    fn terms(&self, topic: &Topic) -> Option<CompactionTerms>;

    /// The first offset of each partition that a table lacks, by its progress as the metadata
    /// store has it; partitions beyond are at 0.
    ///
    /// # Errors
    /// `Corrupt` for a progress that nobody writes.
    fn table_ends(&self, progress: &[u8]) -> Result<Vec<i64>>;
}

/// What compaction has done since the broker started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionCounts {
    /// Passes that came to their end.
    pub passes: u64,
    /// Passes that ended early because others changed what they were about to replace, or what the
    /// topic asks for.
    pub conflicts: u64,
    /// Replacements of extents.
    pub replacements: u64,
    /// Bytes of batches that were read, for keys and to be cleaned.
    pub bytes_read: u64,
    /// Bytes of batches that were written again.
    pub bytes_written: u64,
    /// Bytes of batches that went.
    pub bytes_removed: u64,
    /// Records that went, in passes that came to their end.
    pub records_removed: u64,
}

impl CompactionCounts {
    fn add(&mut self, other: &Self) {
        self.passes += other.passes;
        self.conflicts += other.conflicts;
        self.replacements += other.replacements;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.bytes_removed += other.bytes_removed;
        self.records_removed += other.records_removed;
    }
}

/// Compacts the partitions of all topics that ask for it; cheap to clone.
#[derive(Clone)]
pub struct Compactor(Arc<Inner>);

struct Inner {
    env: Env,
    log: Log,
    metadata: MetadataStore,
    policy: Arc<dyn CompactionPolicy>,
    rules: CompactionRules,
    memory: Mutex<Memory>,
    told: parking_lot::Mutex<Told>,
}

/// What others may ask.
#[derive(Default)]
struct Told {
    counts: CompactionCounts,
    waiting: BTreeMap<TopicPartition, i64>,
}

/// What is remembered between rounds; without it, a round asks more.
#[derive(Default)]
struct Memory {
    /// As the metadata store has them; `None` before they were read.
    marks: Option<BTreeMap<TopicPartition, CompactionMark>>,
    /// Partitions whose pass failed in the last round: others come first.
    failed: BTreeSet<TopicPartition>,
}

/// A partition as a round knows it.
#[derive(Clone)]
pub(crate) struct Named {
    partition: TopicPartition,
    topic_name: Arc<str>,
    terms: CompactionTerms,
}

/// A partition that is due.
struct Due {
    named: Named,
    urgency: f64,
}

impl Compactor {
    /// Compaction of all partitions, under the log's registration.
    pub fn new(
        env: &Env,
        log: &Log,
        metadata: MetadataStore,
        policy: Arc<dyn CompactionPolicy>,
        rules: CompactionRules,
    ) -> Self {
        let (env, log) = (env.clone(), log.clone());
        let (memory, told) = (Mutex::default(), parking_lot::Mutex::default());
        Self(Arc::new(Inner { env, log, metadata, policy, rules, memory, told }))
    }

    /// Starts the background job.
    pub fn start(&self, shutdown: Shutdown) -> Background {
        let (compactor, asked) = (self.clone(), shutdown.clone());
        Background::start(&self.0.env, "compaction", self.0.rules.pause, shutdown, move || {
            let (compactor, asked) = (compactor.clone(), asked.clone());
            async move { compactor.round(&asked).await.map(drop) }
        })
    }

    /// What it has done so far.
    pub fn counts(&self) -> CompactionCounts {
        self.0.told.lock().counts
    }

    /// Partitions of which something waits for their tables, as the last round found them, and the
    /// first offset that the table lacks.
    pub fn waiting(&self) -> BTreeMap<TopicPartition, i64> {
        self.0.told.lock().waiting.clone()
    }

    /// The first offset that the table of a partition lacks, if something waits for it.
    pub fn why_waiting(&self, partition: TopicPartition) -> Option<i64> {
        self.0.told.lock().waiting.get(&partition).copied()
    }

    /// One round; it ends early on a shutdown. Answers what it did.
    ///
    /// # Errors
    /// The first one that a partition met; the others were visited all the same.
    pub async fn round(&self, shutdown: &Shutdown) -> Result<CompactionCounts> {
        let mut memory = self.0.memory.lock().await;
        let mut done = CompactionCounts::default();
        let ended = self.0.round(&mut memory, &mut done, shutdown).await;
        if done.replacements > 0 {
            let CompactionCounts { passes, bytes_written, bytes_removed, records_removed, .. } =
                done;
            tracing::info!(
                passes,
                bytes_written,
                bytes_removed,
                records_removed,
                "compacted partitions"
            );
        }
        ended.map(|()| done)
    }
}

impl Inner {
    async fn round(
        &self,
        memory: &mut Memory,
        done: &mut CompactionCounts,
        shutdown: &Shutdown,
    ) -> Result<()> {
        let named = self.begin(memory).await?;
        let mut due = self.due(&named, memory, shutdown).await?;
        let failed = std::mem::take(&mut memory.failed);
        let order = |due: &Due| (failed.contains(&due.named.partition), -due.urgency);
        due.sort_by(|one, other| {
            let (one, other) = (order(one), order(other));
            one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
        });
        let mut failures = Vec::new();
        for Due { named, .. } in due {
            if shutdown.is_triggered() {
                return Ok(());
            }
            if let Err(error) = self.compact(&named, memory, done, shutdown).await {
                memory.failed.insert(named.partition);
                failures.push(error.context(&format!("compacting {}", named.partition)));
            }
            if failures.last().is_some_and(|error| error.kind() == ErrorKind::Fenced)
                || failures.len() >= FAILURES_PER_ROUND_MAX
            {
                break;
            }
        }
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    /// All partitions that are compacted. Marks of topics that are gone are removed.
    async fn begin(&self, memory: &mut Memory) -> Result<Vec<Named>> {
        let topics = self.metadata.topics().await?;
        let mut named = Vec::new();
        for topic in &topics {
            let Some(terms) = self.policy.terms(topic) else { continue };
            let topic_name: Arc<str> = topic.name.as_str().into();
            named.extend((0..topic.partition_count).map(|index| Named {
                partition: TopicPartition { topic: topic.id, partition: PartitionIndex(index) },
                topic_name: topic_name.clone(),
                terms,
            }));
        }
        let compacted = named.iter().map(|named| named.partition.topic).collect();
        self.log.boundaries().set_compacted(compacted);
        if memory.marks.is_none() {
            let marks = self.metadata.compaction_marks().await?;
            for (partition, mark) in &marks {
                self.log.boundaries().set(*partition, Some(mark.clean_until));
            }
            memory.marks = Some(marks);
        }
        let marks = memory.marks.get_or_insert_default();
        let is_there: BTreeSet<TopicId> = topics.iter().map(|topic| topic.id).collect();
        let gone = marks.keys().filter(|partition| !is_there.contains(&partition.topic));
        for partition in gone.copied().collect::<Vec<_>>() {
            self.metadata.set_compaction_mark(partition, None).await?;
            self.log.boundaries().set(partition, None);
            marks.remove(&partition);
        }
        Ok(named)
    }

    /// The partitions that are worth a pass.
    async fn due(&self, named: &[Named], memory: &Memory, shutdown: &Shutdown) -> Result<Vec<Due>> {
        let (mut due, mut waiting) = (Vec::new(), BTreeMap::new());
        for chunk in named.chunks(STATES_PER_QUERY) {
            let asked: Vec<_> = chunk.iter().map(|named| named.partition).collect();
            let states = self.metadata.partition_states(&asked).await?;
            let ends = self.table_ends(chunk).await?;
            let now_ms = self.metadata.now_ms().await?;
            for (named, state) in chunk.iter().zip(states) {
                if shutdown.is_triggered() {
                    return Ok(due);
                }
                let Some(state) = state else { continue };
                let started = self.env.monotonic();
                let limits = limits(named, now_ms, &ends);
                let mark = mark_of(memory, named.partition);
                let dirt = self.look(named.partition, &state, mark, &limits).await?;
                if dirt.waits_for_table {
                    waiting.insert(named.partition, limits.table_end);
                }
                if let Some(urgency) = dirt.urgency(&state, mark, &limits, &self.rules) {
                    due.push(Due { named: named.clone(), urgency });
                }
                self.rest(started).await;
            }
        }
        self.told.lock().waiting = waiting;
        Ok(due)
    }

    /// What of a partition is dirty. Costs nothing where nothing is, and little where all of it
    /// must wait.
    async fn look(
        &self,
        partition: TopicPartition,
        state: &PartitionState,
        mark: Option<&CompactionMark>,
        limits: &Limits,
    ) -> Result<Dirt> {
        let mut dirt = Dirt::new(state, mark);
        let mut next = dirt.from;
        while next < state.high_watermark && !dirt.all_waits() {
            let page = self.metadata.extents(partition, next, EXTENTS_PER_LOOK).await?;
            let Some(page) = page else { break };
            let Some(last) = page.extents.last() else { break };
            next = last.last_offset + 1;
            page.extents.iter().for_each(|extent| dirt.add(extent, state, limits));
        }
        Ok(dirt)
    }

    /// Goes over a partition, if it still is due.
    async fn compact(
        &self,
        named: &Named,
        memory: &mut Memory,
        done: &mut CompactionCounts,
        shutdown: &Shutdown,
    ) -> Result<()> {
        let partition = named.partition;
        // Others may have had long passes since the round began: who has asked meanwhile for
        // records to be kept must not lose them.
        let topic = partition.topic;
        let Some(terms) = terms_now(&self.metadata, &*self.policy, topic).await? else {
            return Ok(());
        };
        let named = &Named { terms, ..named.clone() };
        let now_ms = self.metadata.now_ms().await?;
        let ends = self.table_ends(std::slice::from_ref(named)).await?;
        let state = self.metadata.partition_states(&[partition]).await?.pop().flatten();
        let Some(state) = state else { return Ok(()) };
        let (limits, mark) = (limits(named, now_ms, &ends), mark_of(memory, partition));
        let _passing = self.log.boundaries().pass(partition);
        let dirt = self.look(partition, &state, mark, &limits).await?;
        if dirt.urgency(&state, mark, &limits, &self.rules).is_none() {
            return Ok(());
        }
        let mut pass = Pass {
            env: &self.env,
            log: &self.log,
            metadata: &self.metadata,
            policy: &*self.policy,
            rules: &self.rules,
            named,
            dirt,
            now_ms,
            shutdown,
            counts: CompactionCounts::default(),
        };
        let ended = pass.run(state.log_start_offset).await;
        pass.counts.conflicts += u64::from(matches!(ended, Ok(Ended::Conflict)));
        done.add(&pass.counts);
        self.told.lock().counts.add(&pass.counts);
        if let Ended::Done(mark) = ended? {
            self.metadata.set_compaction_mark(partition, Some(mark)).await?;
            self.log.boundaries().set(partition, Some(mark.clean_until));
            memory.marks.get_or_insert_default().insert(partition, mark);
        }
        Ok(())
    }

    /// How far the tables of these partitions' topics have got.
    async fn table_ends(&self, named: &[Named]) -> Result<BTreeMap<TopicId, Vec<i64>>> {
        let with_table = named.iter().filter(|named| named.terms.has_table);
        let topics: BTreeSet<TopicId> = with_table.map(|named| named.partition.topic).collect();
        let topics: Vec<TopicId> = topics.into_iter().collect();
        if topics.is_empty() {
            return Ok(BTreeMap::new());
        }
        let copies = self.metadata.table_progress_of(&topics).await?;
        let mut ends = BTreeMap::new();
        for (topic, copy) in topics.into_iter().zip(copies) {
            let Some(copy) = copy else { continue };
            match self.policy.table_ends(&copy) {
                Ok(of_topic) => drop(ends.insert(topic, of_topic)),
                // It waits as if its table had nothing; others do not.
                Err(error) => tracing::error!(%topic, %error, "a table's progress is unreadable"),
            }
        }
        Ok(ends)
    }

    /// Leaves the store to others for as long as it was busy.
    async fn rest(&self, since: Instant) {
        self.env.sleep(self.env.monotonic() - since).await;
    }
}

/// What a topic's configs say of compaction now; `None` where it is not compacted, or gone.
async fn terms_now(
    metadata: &MetadataStore,
    policy: &dyn CompactionPolicy,
    topic: TopicId,
) -> Result<Option<CompactionTerms>> {
    let topic = metadata.topic_by_id(topic).await?;
    Ok(topic.and_then(|topic| policy.terms(&topic)))
}

fn mark_of(memory: &Memory, partition: TopicPartition) -> Option<&CompactionMark> {
    memory.marks.as_ref()?.get(&partition)
}

fn limits(named: &Named, now_ms: i64, ends: &BTreeMap<TopicId, Vec<i64>>) -> Limits {
    let TopicPartition { topic, partition } = named.partition;
    let index = usize::try_from(partition.0).unwrap_or(usize::MAX);
    let table_end = match named.terms.has_table {
        true => ends.get(&topic).and_then(|ends| ends.get(index)).copied().unwrap_or(0),
        false => i64::MAX,
    };
    Limits { terms: named.terms, now_ms, table_end }
}
