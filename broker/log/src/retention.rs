//! Retention: old records leave the log from its beginning, by age (`retention.ms`) and by size
//! (`retention.bytes`), with Kafka's rules. What goes is a whole [extent](plan), where Kafka takes
//! a whole segment file.
//!
//! A **round** looks at every partition of every topic whose configs let something go, as they are
//! now. It moves log starts, and nothing else: that is one transaction of the metadata store each,
//! which checks the broker's registration, and from which on nobody is served what is below. The
//! objects die with their last extent and are [deleted later](crate::clean).
//!
//! * No extent goes that reaches the last stable offset: an open transaction keeps its records.
//! * What a topic's table has not read yet stays longer, up to the [`TableHold`]; then it goes all
//!   the same, and the table's next commit notes the gap.
//! * Records without a timestamp are as old as the first look at them, and those that were old when
//!   they came are held for their table from that look on: see [`floe_metadata::retention`].
//! * Timestamps in the future keep a log as they do in Kafka, but [`Kept::Future`] says so.
//!
//! A round is one pass over all partitions, or several where one has much to lose or configs change
//! meanwhile. **Its cost**: one scan of the topics, one query for the ends of each 1000 partitions,
//! and no more where nothing is due: of each partition the first extent is remembered. Where one is
//! due, a query for a page of extents from the log start on and a transaction a page, and one query
//! for the tables' progress a 1000 partitions. After each the job rests as long as that took, so
//! that it never has more than half of the metadata store's time.
//!
//! Nothing needs to be remembered between rounds or brokers. Two at work on one log do no harm: a
//! log start only moves forward.

mod plan;

pub use plan::{RetentionTerms, TableHold};

use crate::log::Log;
use floe_env::{Background, Env, ErrorKind, Instant, Result, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::retention::WrittenMark;
use floe_metadata::rows::PartitionState;
use floe_metadata::topics::Topic;
use kfs::{PartitionIndex, TopicId, TopicPartition};
use plan::{Limits, Oldest, Over};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Partitions whose state is asked for at once.
const STATES_PER_QUERY: usize = 1000;
/// Extents that the first look at a partition brings: mostly one or none is due.
const FIRST_LOOK_EXTENTS: usize = 16;
/// Extents that a further look brings, and so that one transaction takes, at most.
const EXTENTS_PER_LOOK: usize = 512;
/// Looks at one partition before others have their turn.
const LOOKS_PER_VISIT_MAX: usize = 32;
/// Configs are looked at again when they are older than this: who has just asked for more to be
/// kept must not lose it to a long round.
const TERMS_AGE_MAX: Duration = Duration::from_secs(1);
/// Partitions that may fail before a round ends; the next one goes on behind them.
const FAILURES_PER_ROUND_MAX: usize = 16;
/// The first round is no sooner after the start than this, as in Kafka.
const FIRST_ROUND_AFTER: Duration = Duration::from_secs(30);
/// A timestamp further ahead of the clock than this keeps its log for longer than anybody means,
/// ms: Kafka's default of `message.timestamp.after.max.ms`, so that only topics that allow more
/// have any.
pub const FUTURE_MS: i64 = 3_600_000;

/// What topics ask for, and how far their tables have got.
pub trait RetentionPolicy: Send + Sync + 'static {
    /// What a topic's configs keep.
    fn terms(&self, topic: &Topic) -> RetentionTerms;

    /// The first offset of each partition that a table lacks, by its progress as the metadata
    /// store has it; partitions beyond are at 0.
    ///
    /// # Errors
    /// `Corrupt` for a progress that nobody writes.
    fn table_ends(&self, progress: &[u8]) -> Result<Vec<i64>>;
}

/// When and how records go.
#[derive(Clone, Copy, Debug)]
pub struct RetentionRules {
    /// Pause between rounds (`log.retention.check.interval.ms`).
    pub pause: Duration,
    /// How long records wait for tables.
    pub hold: TableHold,
}

/// What retention has done since the broker started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionCounts {
    /// Pages of extents that were read to see what is over.
    pub looks: u64,
    /// Moves of log starts.
    pub moves: u64,
    /// Extents that went.
    pub extents: u64,
    /// Bytes that went for their age.
    pub bytes_by_time: u64,
    /// Bytes that went because there were too many.
    pub bytes_by_size: u64,
    /// Offsets that went before the topic's table had read them.
    pub lacked_by_table: u64,
}

impl RetentionCounts {
    fn add(&mut self, over: &Over) {
        self.moves += 1;
        self.extents += over.extents as u64;
        self.bytes_by_time += over.bytes_by_time;
        self.bytes_by_size += over.bytes_by_size;
        self.lacked_by_table += over.lacked_by_table;
    }
}

/// Why a partition keeps records longer than its configs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The newest timestamp of its first extent is far in the future, ms.
    Future(i64),
    /// Its table has not read them, but those below this offset.
    ForTable(i64),
}

/// Moves log starts by age and size; cheap to clone.
#[derive(Clone)]
pub struct Retention(Arc<Inner>);

struct Inner {
    env: Env,
    log: Log,
    metadata: MetadataStore,
    policy: Arc<dyn RetentionPolicy>,
    rules: RetentionRules,
    memory: Mutex<Memory>,
    told: parking_lot::Mutex<Told>,
}

/// What others may ask.
#[derive(Default)]
struct Told {
    counts: RetentionCounts,
    kept: BTreeMap<TopicPartition, Kept>,
}

/// What is remembered between rounds; without it, a round asks more.
#[derive(Default)]
struct Memory {
    partitions: BTreeMap<TopicPartition, Seen>,
    /// Where the last pass ended early.
    resume_after: Option<TopicPartition>,
}

/// The beginning of a partition as it was last looked at. While the log start stays, its first
/// extent can only be merged into others, which are not due sooner, or compacted, which makes it
/// due sooner at times: then it goes when it would have without.
#[derive(Clone, Copy)]
struct Seen {
    log_start: i64,
    oldest: Oldest,
    /// It is over, but its table lacks it from here on.
    waits_for_table_at: Option<i64>,
}

/// A partition as a round knows it.
#[derive(Clone)]
struct Named {
    partition: TopicPartition,
    topic_name: Arc<str>,
    terms: RetentionTerms,
}

/// What a round begins with.
struct Moment {
    now_ms: i64,
    /// Of the topics, as they were read.
    revision: u64,
    hold: TableHold,
    named: Vec<Named>,
    marks: BTreeMap<TopicPartition, WrittenMark>,
}

impl Retention {
    /// Retention of all partitions, under the log's registration.
    pub fn new(
        env: &Env,
        log: &Log,
        metadata: MetadataStore,
        policy: Arc<dyn RetentionPolicy>,
        rules: RetentionRules,
    ) -> Self {
        let (env, log) = (env.clone(), log.clone());
        let (memory, told) = (Mutex::default(), parking_lot::Mutex::default());
        Self(Arc::new(Inner { env, log, metadata, policy, rules, memory, told }))
    }

    /// Starts the background job.
    pub fn start(&self, shutdown: Shutdown) -> Background {
        let (retention, asked) = (self.clone(), shutdown.clone());
        let (env, pause) = (&self.0.env, self.0.rules.pause);
        let not_before = env.monotonic() + FIRST_ROUND_AFTER.min(pause);
        Background::start(env, "retention", pause, shutdown, move || {
            let (retention, asked) = (retention.clone(), asked.clone());
            async move {
                tokio::select! {
                    biased;
                    () = asked.wait() => return Ok(()),
                    () = retention.0.env.sleep_until(not_before) => {}
                }
                retention.round(&asked).await.map(drop)
            }
        })
    }

    /// What it has done so far.
    pub fn counts(&self) -> RetentionCounts {
        self.0.told.lock().counts
    }

    /// Partitions that keep records longer than their configs say, as the last round found them.
    pub fn kept(&self) -> BTreeMap<TopicPartition, Kept> {
        self.0.told.lock().kept.clone()
    }

    /// Why a partition keeps records longer than its configs say, if it does.
    pub fn why_kept(&self, partition: TopicPartition) -> Option<Kept> {
        self.0.told.lock().kept.get(&partition).copied()
    }

    /// One round, until nothing more is due; it ends early on a shutdown. Answers what it did.
    ///
    /// # Errors
    /// The first one that a partition met; the others were visited all the same.
    pub async fn round(&self, shutdown: &Shutdown) -> Result<RetentionCounts> {
        let mut memory = self.0.memory.lock().await;
        let mut done = RetentionCounts::default();
        while self.0.pass(&mut memory, &mut done, shutdown).await? {}
        if done.moves > 0 {
            let RetentionCounts { moves, extents, bytes_by_time, bytes_by_size, .. } = done;
            tracing::info!(
                moves,
                extents,
                bytes_by_time,
                bytes_by_size,
                "old records left the log"
            );
        }
        Ok(done)
    }
}

impl Inner {
    /// Visits each partition once. True where more is due than one visit takes.
    async fn pass(
        &self,
        memory: &mut Memory,
        done: &mut RetentionCounts,
        shutdown: &Shutdown,
    ) -> Result<bool> {
        let mut moment = self.begin().await?;
        let is_named: BTreeSet<_> = moment.named.iter().map(|named| named.partition).collect();
        memory.partitions.retain(|partition, _| is_named.contains(partition));
        let resume_after = memory.resume_after.take();
        let first = moment.named.partition_point(|named| Some(named.partition) <= resume_after);
        moment.named.rotate_left(first);
        let (mut failures, mut is_unfinished) = (Vec::new(), false);
        let (mut visited, mut checked) = (resume_after, self.env.monotonic());
        for chunk in moment.named.chunks(STATES_PER_QUERY) {
            let due = self.due(chunk, &moment, memory).await?;
            let ends = self.table_ends(&due).await?;
            for (named, state) in due {
                if shutdown.is_triggered() {
                    return Ok(false);
                }
                if self.env.monotonic() - checked > TERMS_AGE_MAX {
                    if self.metadata.topics_revision().await? != moment.revision {
                        memory.resume_after = visited;
                        return Ok(true);
                    }
                    checked = self.env.monotonic();
                }
                visited = Some(named.partition);
                let (limits, until) = (moment.limits(named, &ends), checked + TERMS_AGE_MAX);
                let mut visit = Visit { inner: self, limits, until, named };
                match visit.run(&state, memory, done).await {
                    Ok(is_more) => is_unfinished |= is_more,
                    Err(error) => {
                        let doing = format!("retention of {}", named.partition);
                        failures.push(error.context(&doing));
                    }
                }
                if failures.last().is_some_and(|error| error.kind() == ErrorKind::Fenced)
                    || failures.len() >= FAILURES_PER_ROUND_MAX
                {
                    memory.resume_after = visited;
                    return failures.into_iter().next().map_or(Ok(false), Err);
                }
            }
        }
        self.tell(&moment, memory);
        if !moment.marks.is_empty() {
            self.forget_marks(&is_named).await?;
        }
        failures.into_iter().next().map_or(Ok(is_unfinished), Err)
    }

    async fn begin(&self) -> Result<Moment> {
        let mut named = Vec::new();
        let revision = self.metadata.topics_revision().await?;
        for topic in self.metadata.topics().await? {
            let terms = self.policy.terms(&topic);
            if terms.keeps_all() {
                continue;
            }
            let topic_name: Arc<str> = topic.name.as_str().into();
            named.extend((0..topic.partition_count).map(|index| Named {
                partition: TopicPartition { topic: topic.id, partition: PartitionIndex(index) },
                topic_name: topic_name.clone(),
                terms,
            }));
        }
        named.sort_by_key(|named| named.partition);
        let marks = self.metadata.written_marks().await?;
        let now_ms = self.metadata.now_ms().await?;
        Ok(Moment { now_ms, revision, hold: self.rules.hold, named, marks })
    }

    /// The partitions of which something may be over, with their states.
    async fn due<'a>(
        &self,
        chunk: &'a [Named],
        moment: &Moment,
        memory: &mut Memory,
    ) -> Result<Vec<(&'a Named, PartitionState)>> {
        let asked: Vec<_> = chunk.iter().map(|named| named.partition).collect();
        let states = self.metadata.partition_states(&asked).await?;
        let mut due = Vec::new();
        for (named, state) in chunk.iter().zip(states) {
            let Some(state) = state else { continue };
            if state.log_start_offset >= state.last_stable_offset {
                memory.partitions.remove(&named.partition);
                continue;
            }
            let seen = memory.partitions.get_mut(&named.partition);
            let seen = seen.filter(|seen| seen.log_start == state.log_start_offset);
            let is_due = seen.is_none_or(|seen| {
                seen.waits_for_table_at = None;
                let limits = moment.limits(named, &BTreeMap::new()).without_table();
                limits.why_over(&seen.oldest, state.bytes).is_some()
                    || limits.needs_mark(&seen.oldest)
            });
            if is_due {
                due.push((named, state));
            }
        }
        Ok(due)
    }

    /// How far the tables of these topics have got.
    async fn table_ends(
        &self,
        due: &[(&Named, PartitionState)],
    ) -> Result<BTreeMap<TopicId, Vec<i64>>> {
        let with_table = due.iter().filter(|(named, _)| named.terms.has_table);
        let topics: BTreeSet<TopicId> =
            with_table.map(|(named, _)| named.partition.topic).collect();
        if topics.is_empty() {
            return Ok(BTreeMap::new());
        }
        let topics: Vec<TopicId> = topics.into_iter().collect();
        let copies = self.metadata.table_progress_of(&topics).await?;
        let mut ends = BTreeMap::new();
        for (topic, copy) in topics.into_iter().zip(copies) {
            let Some(copy) = copy else { continue };
            match self.policy.table_ends(&copy) {
                Ok(of_topic) => drop(ends.insert(topic, of_topic)),
                // Its records wait as if the table had none of them; those of others do not.
                Err(error) => tracing::error!(%topic, %error, "a table's progress is unreadable"),
            }
        }
        Ok(ends)
    }

    /// Lets others know who keeps records for longer, and says what is new.
    fn tell(&self, moment: &Moment, memory: &Memory) {
        let mut kept = BTreeMap::new();
        for named in &moment.named {
            let Some(seen) = memory.partitions.get(&named.partition) else { continue };
            let newest_ms = seen.oldest.max_timestamp_ms;
            let is_future = newest_ms > moment.now_ms.saturating_add(FUTURE_MS);
            if let Some(offset) = seen.waits_for_table_at {
                kept.insert(named.partition, Kept::ForTable(offset));
            } else if is_future && named.terms.time_ms.is_some() {
                kept.insert(named.partition, Kept::Future(newest_ms));
                if !self.told.lock().kept.contains_key(&named.partition) {
                    tracing::warn!(
                        topic = %named.topic_name,
                        partition = named.partition.partition.0,
                        log_start = seen.log_start,
                        timestamp_ms = newest_ms,
                        "records with a timestamp in the future keep the log until then"
                    );
                }
            }
        }
        self.told.lock().kept = kept;
    }

    /// Removes marks that say nothing any more.
    async fn forget_marks(&self, is_named: &BTreeSet<TopicPartition>) -> Result<()> {
        let marks = self.metadata.written_marks().await?;
        let asked: Vec<TopicPartition> = marks.keys().copied().collect();
        let states = self.metadata.partition_states(&asked).await?;
        for ((partition, mark), state) in marks.into_iter().zip(states) {
            let is_ahead = state.is_some_and(|state| mark.covers(state.log_start_offset));
            if !is_ahead || !is_named.contains(&partition) {
                self.metadata.set_written_mark(partition, None).await?;
            }
        }
        Ok(())
    }

    /// Leaves the store to others for as long as it was busy.
    async fn rest(&self, since: Instant) {
        self.env.sleep(self.env.monotonic() - since).await;
    }
}

impl Moment {
    fn limits(&self, named: &Named, ends: &BTreeMap<TopicId, Vec<i64>>) -> Limits {
        let TopicPartition { topic, partition } = named.partition;
        let index = usize::try_from(partition.0).unwrap_or(usize::MAX);
        let table_end = match named.terms.has_table {
            true => ends.get(&topic).and_then(|ends| ends.get(index)).copied().unwrap_or(0),
            false => i64::MAX,
        };
        Limits {
            terms: named.terms,
            now_ms: self.now_ms,
            written: self.marks.get(&named.partition).copied(),
            table_end,
            hold: self.hold,
        }
    }
}

/// A visit of one partition.
struct Visit<'a> {
    inner: &'a Inner,
    named: &'a Named,
    limits: Limits,
    /// Until when the configs that the limits come from are good.
    until: Instant,
}

impl Visit<'_> {
    /// Takes what is over, page by page. True where there is more.
    async fn run(
        &mut self,
        state: &PartitionState,
        memory: &mut Memory,
        done: &mut RetentionCounts,
    ) -> Result<bool> {
        let partition = self.named.partition;
        let seen = memory.partitions.get_mut(&partition);
        if let Some(seen) = seen.filter(|seen| seen.log_start == state.log_start_offset)
            && self.limits.why_over(&seen.oldest, state.bytes).is_none()
            && !self.limits.needs_mark(&seen.oldest)
        {
            seen.waits_for_table_at = Some(self.limits.table_end);
            return Ok(false);
        }
        let mut log_start = state.log_start_offset;
        for look in 0..LOOKS_PER_VISIT_MAX {
            let started = self.inner.env.monotonic();
            if look > 0 && started > self.until {
                return Ok(true);
            }
            let limit = if look == 0 { FIRST_LOOK_EXTENTS } else { EXTENTS_PER_LOOK };
            done.looks += 1;
            self.inner.told.lock().counts.looks += 1;
            let page = self.inner.metadata.extents(partition, log_start, limit).await?;
            let Some(page) = page else { return Ok(false) };
            let over = plan::over(&page.extents, &page.state, &self.limits);
            if over.extents > 0 && !self.advance(&over, done).await? {
                return Ok(false);
            }
            self.inner.rest(started).await;
            log_start = page.state.log_start_offset.max(over.log_start);
            if let Some(next) = page.extents.get(over.extents) {
                let seen = self.see(log_start, Oldest::of(next), &page.state, over.bytes());
                memory.partitions.insert(partition, seen);
                return self.mark(&seen.oldest, page.state.high_watermark).await.map(|()| false);
            }
            memory.partitions.remove(&partition);
            if page.extents.len() < limit {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What is remembered of the extent that stays.
    fn see(&self, log_start: i64, oldest: Oldest, state: &PartitionState, gone_bytes: u64) -> Seen {
        let bytes = state.bytes.saturating_sub(gone_bytes);
        let would_go = self.limits.without_table().why_over(&oldest, bytes).is_some();
        let is_stable = oldest.last_offset < state.last_stable_offset;
        let waits = would_go && is_stable;
        Seen { log_start, oldest, waits_for_table_at: waits.then_some(self.limits.table_end) }
    }

    /// Moves the log start. False where the partition is gone.
    async fn advance(&self, over: &Over, done: &mut RetentionCounts) -> Result<bool> {
        let Named { partition, topic_name, .. } = self.named;
        let moved = self.inner.log.advance_log_start(*partition, over.log_start).await?;
        if moved.is_none() {
            return Ok(false);
        }
        done.add(over);
        self.inner.told.lock().counts.add(over);
        if over.lacked_by_table > 0 {
            tracing::warn!(
                topic = %topic_name,
                partition = partition.partition.0,
                log_start = over.log_start,
                offsets = over.lacked_by_table,
                "records left the log before their table had read them: it has a gap there"
            );
        }
        Ok(true)
    }

    /// Notes that records are in the log whose timestamps do not tell since when.
    async fn mark(&mut self, oldest: &Oldest, end: i64) -> Result<()> {
        if !self.limits.needs_mark(oldest) {
            return Ok(());
        }
        // The clock is read after the end: all below it was written before.
        let mark = WrittenMark { end, since_ms: self.inner.metadata.now_ms().await? };
        self.limits.written = Some(mark);
        self.inner.metadata.set_written_mark(self.named.partition, Some(mark)).await
    }
}
