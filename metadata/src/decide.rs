//! The pure heart of a commit, shared by every backend: from the rows as they are and the segments
//! that ask to be committed, the rows as they become and the answers. No IO, no clock.
//!
//! A batch is decided by Kafka's rules for idempotent producers (`check_producer`), in the order of
//! arrival; what an earlier batch of the same call changed is seen by the later ones. Accepted
//! batches that touch in the object share an extent.
//!
//! A batch of a transaction is let in without a further look where its producer has one open on
//! the partition, because the end of a transaction closes it in the same transaction of the store.
//! Else the transactional id's row decides (`admit`), so that a batch that comes late neither
//! hangs nor joins the next transaction.

mod markers;
#[cfg(test)]
mod tests;

pub(crate) use markers::{MarkerRow, decide_marker};

use crate::extent_runs::ExtentRuns;
use crate::fresh::FreshExtent;
use crate::producers::{OPEN_TRANSACTIONS_MAX, PartitionProducers};
use crate::rows::{
    BatchFacts, BatchOutcome, PartitionState, ProducerBatch, ProducerState, Refusal,
    RememberedBatch, SectionFacts, SectionOutcome, SegmentFacts, SegmentOutcome, TransactionBatch,
};
use crate::transactions::{Admission, TransactionRow};
use kfs::{ProducerId, SegmentId, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many batches of a producer a partition remembers, as in Kafka.
pub const REMEMBERED_BATCHES_MAX: usize = 5;

/// Sequences are modulo 2^31.
const SEQUENCE_MODULUS: i64 = 1 << 31;

/// A partition as a commit reads and writes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitPartition {
    /// Its ends.
    pub(crate) state: PartitionState,
    /// Its producers; those that the segments name are among them, where they are remembered.
    pub(crate) producers: PartitionProducers,
    /// Producers that get rows of their own; set once all is decided.
    pub(crate) spilled: Vec<ProducerState>,
}

/// The rows that a commit reads, locked until it ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitRows {
    /// What was decided before, of the segments asked for.
    pub(crate) decided: BTreeMap<SegmentId, SegmentOutcome>,
    /// The partitions that exist.
    pub(crate) partitions: BTreeMap<TopicPartition, CommitPartition>,
    /// The transactional ids that exist, of those [asked for](Self::asks_transactions).
    pub(crate) transactions: BTreeMap<Arc<str>, TransactionRow>,
}

impl CommitRows {
    /// Producers that the segments name and that may be spilled: whoever reads rows looks for them.
    pub(crate) fn maybe_spilled(
        &self,
        segments: &[SegmentFacts],
    ) -> Vec<(TopicPartition, ProducerId)> {
        let mut named = Vec::new();
        for section in segments.iter().flat_map(|segment| &segment.sections) {
            let partition = section.topic_partition();
            let Some(row) = self.partitions.get(&partition) else { continue };
            if row.producers.has_spilled {
                let producers = section.batches.iter().filter_map(|batch| batch.producer);
                let missing = producers.filter(|one| row.producers.get(one.id).is_none());
                named.extend(missing.map(|producer| (partition, producer.id)));
            }
        }
        named.sort_unstable();
        named.dedup();
        named
    }

    /// The transactional ids whose rows must be read: those of batches that no open transaction
    /// lets in. Known once spilled producers are.
    pub(crate) fn asks_transactions(&self, segments: &[SegmentFacts]) -> BTreeSet<Arc<str>> {
        let mut asked = BTreeSet::new();
        for section in segments.iter().flat_map(|segment| &segment.sections) {
            let row = self.partitions.get(&section.topic_partition());
            let Some(row) = row else { continue };
            for batch in &section.batches {
                if let (Some(producer), Some(transaction)) = (&batch.producer, &batch.transaction)
                    && !is_open(row.producers.get(producer.id), producer)
                {
                    asked.insert(transaction.id.clone());
                }
            }
        }
        asked
    }
}

/// Every transactional id that the segments name.
pub(crate) fn transactions_named(segments: &[SegmentFacts]) -> BTreeSet<Arc<str>> {
    let sections = segments.iter().flat_map(|segment| &segment.sections);
    let batches = sections.flat_map(|section| &section.batches);
    batches.filter_map(|batch| Some(batch.transaction.as_ref()?.id.clone())).collect()
}

/// A segment's object that becomes known with its extents.
#[derive(Clone, Debug)]
pub(crate) struct NewObject {
    /// Its key.
    pub(crate) key: String,
    /// Its size, bytes.
    pub(crate) size: u64,
    /// Its extents.
    pub(crate) extents: Vec<(TopicPartition, FreshExtent)>,
}

impl NewObject {
    /// Bytes that its extents name.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.extents.iter().map(|(_, extent)| extent.length).sum()
    }
}

/// The rows that a commit writes, and what it answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitWrites {
    /// One answer a segment, in the order asked.
    pub(crate) outcomes: Vec<SegmentOutcome>,
    /// Which of these are new: the segment, and where its answer is.
    decided: BTreeMap<SegmentId, usize>,
    /// Partitions that changed, in their order.
    pub(crate) partitions: Vec<(TopicPartition, CommitPartition)>,
    /// Objects that are new.
    pub(crate) objects: Vec<NewObject>,
    /// Transactional ids whose transactions got partitions.
    pub(crate) transactions: BTreeMap<Arc<str>, TransactionRow>,
}

impl CommitWrites {
    /// The outcomes that are new.
    pub(crate) fn decided(&self) -> impl Iterator<Item = (SegmentId, &SegmentOutcome)> {
        self.decided.iter().map(|(id, at)| (*id, &self.outcomes[*at]))
    }
}

/// Every partition that the segments name.
pub(crate) fn partitions_named(segments: &[SegmentFacts]) -> Vec<TopicPartition> {
    let sections = segments.iter().flat_map(|segment| &segment.sections);
    let mut named: Vec<TopicPartition> = sections.map(SectionFacts::topic_partition).collect();
    named.sort_unstable();
    named.dedup();
    named
}

/// Decides segments in order. `now_ms` is the store's clock.
pub(crate) fn decide_commit(
    segments: &[SegmentFacts],
    mut rows: CommitRows,
    now_ms: i64,
) -> CommitWrites {
    let mut writes = CommitWrites::default();
    let mut changed = BTreeSet::new();
    for segment in segments {
        let decided_now = writes.decided.get(&segment.id).map(|at| &writes.outcomes[*at]);
        if let Some(outcome) = rows.decided.get(&segment.id).or(decided_now) {
            writes.outcomes.push(outcome.clone());
            continue;
        }
        let outcome = decide_segment(segment, &mut rows, &mut writes, &mut changed, now_ms);
        writes.decided.insert(segment.id, writes.outcomes.len());
        writes.outcomes.push(outcome);
    }
    let partitions = rows.partitions.into_iter();
    writes.partitions = partitions.filter(|(named, _)| changed.contains(named)).collect();
    for (_, row) in &mut writes.partitions {
        row.spilled = row.producers.spill();
    }
    writes
}

fn decide_segment(
    segment: &SegmentFacts,
    rows: &mut CommitRows,
    writes: &mut CommitWrites,
    changed: &mut BTreeSet<TopicPartition>,
    now_ms: i64,
) -> SegmentOutcome {
    let mut object =
        NewObject { key: segment.key.clone(), size: segment.size, extents: Vec::new() };
    let mut outcomes = Vec::with_capacity(segment.sections.len());
    for section in &segment.sections {
        let partition = section.topic_partition();
        let Some(row) = rows.partitions.get_mut(&partition) else {
            let refused = BatchOutcome::Refused(Refusal::UnknownPartition);
            let batches = vec![refused; section.batches.len()];
            outcomes.push(SectionOutcome { batches, state: None });
            continue;
        };
        let extents_before = object.extents.len();
        let runs = ExtentRuns::new(partition, &mut object.extents);
        let transactions =
            Transactions { known: &mut rows.transactions, writes: &mut writes.transactions };
        let mut decision = SectionDecision { partition, now_ms, row, runs, transactions };
        let mut batches = Vec::with_capacity(section.batches.len());
        for batch in &section.batches {
            batches.push(decision.decide(batch));
        }
        if object.extents.len() > extents_before {
            row.state.version += 1;
            row.settle_stable_offset();
            changed.insert(partition);
        }
        outcomes.push(SectionOutcome { batches, state: Some(row.state) });
    }
    writes.objects.push(object);
    SegmentOutcome::Committed(outcomes)
}

impl CommitPartition {
    /// Sets the last stable offset after a change of offsets or of open transactions. Below the
    /// log start nothing waits for a transaction.
    pub(crate) fn settle_stable_offset(&mut self) {
        let (start, end) = (self.state.log_start_offset, self.state.high_watermark);
        let open = self.producers.earliest_open();
        self.state.last_stable_offset = open.map_or(end, |first| first.max(start));
    }
}

/// The transactional ids of a commit.
struct Transactions<'a> {
    known: &'a mut BTreeMap<Arc<str>, TransactionRow>,
    writes: &'a mut BTreeMap<Arc<str>, TransactionRow>,
}

/// One section while its batches are decided.
struct SectionDecision<'a> {
    partition: TopicPartition,
    now_ms: i64,
    row: &'a mut CommitPartition,
    runs: ExtentRuns<'a>,
    transactions: Transactions<'a>,
}

impl SectionDecision<'_> {
    fn decide(&mut self, batch: &BatchFacts) -> BatchOutcome {
        if let Some(producer) = &batch.producer {
            if let Err(refusal) = self.admit(batch.transaction.as_ref(), producer) {
                return BatchOutcome::Refused(refusal);
            }
            let known = self.row.producers.get(producer.id);
            match check_producer(known, producer, batch.transaction.as_ref()) {
                Verdict::Accept if self.opens_too_many(batch, known) => {
                    return BatchOutcome::Refused(Refusal::TooManyOpenTransactions);
                }
                Verdict::Accept => self.remember(batch, producer),
                Verdict::Refuse(refusal) => return BatchOutcome::Refused(refusal),
                Verdict::Duplicate(written) => {
                    return BatchOutcome::Duplicate {
                        base_offset: written.base_offset,
                        max_timestamp_ms: written.max_timestamp_ms,
                    };
                }
            }
        }
        let base_offset = self.row.state.high_watermark;
        self.runs.accept(batch, base_offset);
        let state = &mut self.row.state;
        state.high_watermark = base_offset + i64::from(batch.record_count);
        state.bytes += u64::from(batch.length);
        BatchOutcome::Accepted { base_offset }
    }

    /// Lets a batch of a transaction in, and its partition into the transaction where it may join.
    fn admit(
        &mut self,
        transaction: Option<&TransactionBatch>,
        producer: &ProducerBatch,
    ) -> Result<(), Refusal> {
        let Some(transaction) = transaction else { return Ok(()) };
        if is_open(self.row.producers.get(producer.id), producer) {
            return Ok(());
        }
        let row = self.transactions.known.get_mut(&transaction.id);
        let row = row.ok_or(Refusal::UnknownTransaction)?;
        match row.admit(self.partition, producer, transaction.joins, self.now_ms)? {
            Admission::AsItIs => {}
            Admission::Joined => {
                self.transactions.writes.insert(transaction.id.clone(), row.clone());
            }
        }
        Ok(())
    }

    /// Whether the batch would open a transaction in a partition that has as many as it may.
    fn opens_too_many(&self, batch: &BatchFacts, known: Option<&ProducerState>) -> bool {
        batch.transaction.is_some()
            && known.is_none_or(|known| known.transaction_start.is_none())
            && self.row.producers.open_count() >= OPEN_TRANSACTIONS_MAX
    }

    fn remember(&mut self, batch: &BatchFacts, producer: &ProducerBatch) {
        let base_offset = self.row.state.high_watermark;
        let producers = &mut self.row.producers;
        let mut known = producers.take(producer.id).unwrap_or_else(|| ProducerState {
            id: producer.id,
            epoch: producer.epoch,
            batches: Vec::with_capacity(1),
            transaction_start: None,
            last_written_ms: self.now_ms,
        });
        if known.epoch != producer.epoch {
            known.epoch = producer.epoch;
            known.batches.clear();
        }
        if known.batches.len() == REMEMBERED_BATCHES_MAX {
            known.batches.remove(0);
        }
        known.batches.push(RememberedBatch {
            first_sequence: producer.first_sequence,
            last_sequence: producer.last_sequence,
            base_offset,
            last_offset: base_offset + i64::from(batch.record_count) - 1,
            max_timestamp_ms: batch.max_timestamp_ms,
        });
        if batch.transaction.is_some() && known.transaction_start.is_none() {
            known.transaction_start = Some(base_offset);
        }
        known.last_written_ms = self.now_ms;
        producers.put_newest(known);
    }
}

/// What becomes of a batch of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Duplicate(RememberedBatch),
    Refuse(Refusal),
}

/// Whether the batch's producer has a transaction of the batch's epoch open.
fn is_open(known: Option<&ProducerState>, batch: &ProducerBatch) -> bool {
    known.is_some_and(|known| known.transaction_start.is_some() && known.epoch == batch.epoch)
}

/// Kafka's rules, in Kafka's order: duplicate, epoch, sequence, transaction.
fn check_producer(
    known: Option<&ProducerState>,
    batch: &ProducerBatch,
    transaction: Option<&TransactionBatch>,
) -> Verdict {
    let Some(known) = known else {
        // A transaction of KIP-890's second part begins every epoch, and so every sequence anew.
        let must_begin = transaction.is_some_and(|transaction| transaction.joins);
        let follows = batch.lost_sequence.is_some_and(|lost| is_behind(batch.first_sequence, lost));
        return match (must_begin && batch.first_sequence != 0) || follows {
            true => Verdict::Refuse(Refusal::OutOfOrderSequence),
            false => Verdict::Accept,
        };
    };
    if batch.epoch < known.epoch {
        return Verdict::Refuse(Refusal::StaleProducerEpoch);
    }
    let refusal = if batch.epoch > known.epoch {
        (batch.first_sequence != 0).then_some(Refusal::OutOfOrderSequence)
    } else {
        let same = |remembered: &&RememberedBatch| {
            remembered.first_sequence == batch.first_sequence
                && remembered.last_sequence == batch.last_sequence
        };
        if let Some(written) = known.batches.iter().find(same) {
            return Verdict::Duplicate(*written);
        }
        check_sequence(known, batch)
    };
    if let Some(refusal) = refusal {
        return Verdict::Refuse(refusal);
    }
    if known.transaction_start.is_some() && transaction.is_none() {
        return Verdict::Refuse(Refusal::InvalidTransactionState);
    }
    Verdict::Accept
}

/// Whether the batch follows the producer's last one in its epoch.
fn check_sequence(known: &ProducerState, batch: &ProducerBatch) -> Option<Refusal> {
    // Without batches the epoch came from a marker, after which sequences begin again.
    let expected = known.batches.last().map_or(0, |last| next_sequence(last.last_sequence));
    if batch.first_sequence == expected {
        return None;
    }
    let is_forgotten = known.batches.len() == REMEMBERED_BATCHES_MAX
        && known.batches.first().is_some_and(|oldest| lies_before(batch, oldest));
    Some(if is_forgotten { Refusal::ForgottenDuplicate } else { Refusal::OutOfOrderSequence })
}

fn next_sequence(sequence: i32) -> i32 {
    sequence.checked_add(1).unwrap_or(0)
}

/// True where the batch's last sequence is before the remembered one's first, on the circle.
fn lies_before(batch: &ProducerBatch, remembered: &RememberedBatch) -> bool {
    is_behind(remembered.first_sequence, batch.last_sequence)
}

/// True where a sequence comes after another, on the circle.
pub fn is_behind(sequence: i32, other: i32) -> bool {
    let distance = (i64::from(sequence) - i64::from(other)).rem_euclid(SEQUENCE_MODULUS);
    distance > 0 && distance < SEQUENCE_MODULUS / 2
}
