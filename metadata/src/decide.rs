//! The pure heart of a commit, shared by every backend: from the rows as they are and the segments
//! that ask to be committed, the rows as they become and the answers. No IO, no clock.
//!
//! A batch is decided by Kafka's rules for idempotent producers (`check_producer`), in the order of
//! arrival; what an earlier batch of the same call changed is seen by the later ones. Accepted
//! batches that touch in the object share an extent.

#[cfg(test)]
mod tests;

use crate::rows::{
    BatchFacts, BatchOutcome, Extent, PartitionState, Place, ProducerBatch, ProducerState, Refusal,
    RememberedBatch, SectionFacts, SectionOutcome, SegmentFacts, SegmentOutcome,
};
use kfs::{OffsetMode, ProducerId, SegmentId, TopicPartition};
use std::collections::BTreeMap;

/// How many batches of a producer a partition remembers, as in Kafka.
pub const REMEMBERED_BATCHES_MAX: usize = 5;

/// Sequences are modulo 2^31.
const SEQUENCE_MODULUS: i64 = 1 << 31;

/// The producers of some partitions.
pub(crate) type Producers = BTreeMap<(TopicPartition, ProducerId), ProducerState>;

/// The rows that a commit reads, locked until it ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitRows {
    /// What was decided before, of the segments asked for.
    pub(crate) decided: BTreeMap<SegmentId, SegmentOutcome>,
    /// The partitions that exist.
    pub(crate) partitions: BTreeMap<TopicPartition, PartitionState>,
    /// What they remember of the producers that occur.
    pub(crate) producers: Producers,
}

/// A segment's object that becomes known with its extents.
#[derive(Clone, Debug)]
pub(crate) struct NewObject {
    /// Its key.
    pub(crate) key: String,
    /// Its size, bytes.
    pub(crate) size: u64,
    /// Its extents.
    pub(crate) extents: Vec<(TopicPartition, Extent)>,
}

impl NewObject {
    /// Bytes that its extents name.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.extents.iter().map(|(_, extent)| extent.bytes()).sum()
    }
}

/// The rows that a commit writes, and what it answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitWrites {
    /// One answer a segment, in the order asked.
    pub(crate) outcomes: Vec<SegmentOutcome>,
    /// Outcomes that are new.
    pub(crate) decided: Vec<(SegmentId, SegmentOutcome)>,
    /// Partitions that changed.
    pub(crate) partitions: BTreeMap<TopicPartition, PartitionState>,
    /// Producers that changed.
    pub(crate) producers: Producers,
    /// Objects that are new.
    pub(crate) objects: Vec<NewObject>,
}

/// Every partition that the segments name.
pub(crate) fn partitions_named(segments: &[SegmentFacts]) -> Vec<TopicPartition> {
    let sections = segments.iter().flat_map(|segment| &segment.sections);
    let mut named: Vec<TopicPartition> = sections.map(SectionFacts::topic_partition).collect();
    named.sort_unstable();
    named.dedup();
    named
}

/// Every producer of every partition that the segments name.
pub(crate) fn producers_named(segments: &[SegmentFacts]) -> Vec<(TopicPartition, ProducerId)> {
    let mut named = Vec::new();
    for section in segments.iter().flat_map(|segment| &segment.sections) {
        let producers = section.batches.iter().filter_map(|batch| batch.producer);
        named.extend(producers.map(|producer| (section.topic_partition(), producer.id)));
    }
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
    for segment in segments {
        if let Some(outcome) = rows.decided.get(&segment.id) {
            writes.outcomes.push(outcome.clone());
            continue;
        }
        let outcome = decide_segment(segment, &mut rows, &mut writes, now_ms);
        rows.decided.insert(segment.id, outcome.clone());
        writes.decided.push((segment.id, outcome.clone()));
        writes.outcomes.push(outcome);
    }
    writes
}

fn decide_segment(
    segment: &SegmentFacts,
    rows: &mut CommitRows,
    writes: &mut CommitWrites,
    now_ms: i64,
) -> SegmentOutcome {
    let mut object =
        NewObject { key: segment.key.clone(), size: segment.size, extents: Vec::new() };
    let mut outcomes = Vec::with_capacity(segment.sections.len());
    for section in &segment.sections {
        let partition = section.topic_partition();
        let Some(state) = rows.partitions.get_mut(&partition) else {
            let refused = BatchOutcome::Refused(Refusal::UnknownPartition);
            let batches = vec![refused; section.batches.len()];
            outcomes.push(SectionOutcome { batches, state: None });
            continue;
        };
        let mut decision = SectionDecision {
            key: &segment.key,
            partition,
            now_ms,
            state,
            producers: &mut rows.producers,
            changed_producers: &mut writes.producers,
            extents: Vec::new(),
        };
        let batches = section.batches.iter().map(|batch| decision.decide(batch)).collect();
        let extents = decision.extents;
        if !extents.is_empty() {
            state.version += 1;
            writes.partitions.insert(partition, *state);
        }
        outcomes.push(SectionOutcome { batches, state: Some(*state) });
        object.extents.extend(extents.into_iter().map(|extent| (partition, extent)));
    }
    writes.objects.push(object);
    SegmentOutcome::Committed(outcomes)
}

/// One section while its batches are decided.
struct SectionDecision<'a> {
    key: &'a str,
    partition: TopicPartition,
    now_ms: i64,
    state: &'a mut PartitionState,
    producers: &'a mut Producers,
    changed_producers: &'a mut Producers,
    extents: Vec<Extent>,
}

impl SectionDecision<'_> {
    fn decide(&mut self, batch: &BatchFacts) -> BatchOutcome {
        if let Some(producer) = &batch.producer {
            let known = self.producers.get(&(self.partition, producer.id));
            match check_producer(known, producer, batch.transactional) {
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
        let base_offset = self.state.high_watermark;
        self.place(batch, base_offset);
        let next_offset = base_offset + i64::from(batch.record_count);
        let has_open_transaction =
            batch.transactional || self.state.last_stable_offset < base_offset;
        if !has_open_transaction {
            self.state.last_stable_offset = next_offset;
        }
        self.state.high_watermark = next_offset;
        self.state.bytes += u64::from(batch.length);
        BatchOutcome::Accepted { base_offset }
    }

    fn remember(&mut self, batch: &BatchFacts, producer: &ProducerBatch) {
        let key = (self.partition, producer.id);
        let base_offset = self.state.high_watermark;
        let known = self.producers.entry(key).or_insert_with(|| ProducerState {
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
        if batch.transactional && known.transaction_start.is_none() {
            known.transaction_start = Some(base_offset);
        }
        known.last_written_ms = self.now_ms;
        self.changed_producers.insert(key, known.clone());
    }

    /// Adds the batch to the extent that it touches, or begins another.
    fn place(&mut self, batch: &BatchFacts, base_offset: i64) {
        let last_offset = base_offset + i64::from(batch.record_count) - 1;
        if let Some(extent) = self.extents.last_mut()
            && extent.timestamp_type == batch.timestamp_type
            && let Place::Range { position, length, .. } = &mut extent.place
            && *position + *length == batch.position
        {
            *length += u64::from(batch.length);
            extent.last_offset = last_offset;
            extent.max_timestamp_ms = extent.max_timestamp_ms.max(batch.max_timestamp_ms);
            extent.has_transactional |= batch.transactional;
            return;
        }
        self.extents.push(Extent {
            base_offset,
            last_offset,
            place: Place::Range {
                key: self.key.to_owned(),
                position: batch.position,
                length: u64::from(batch.length),
            },
            offset_mode: OffsetMode::Relative,
            max_timestamp_ms: batch.max_timestamp_ms,
            timestamp_type: batch.timestamp_type,
            has_transactional: batch.transactional,
        });
    }
}

/// What becomes of a batch of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Duplicate(RememberedBatch),
    Refuse(Refusal),
}

/// Kafka's rules, in Kafka's order: duplicate, epoch, sequence, transaction.
fn check_producer(
    known: Option<&ProducerState>,
    batch: &ProducerBatch,
    transactional: bool,
) -> Verdict {
    let Some(known) = known else {
        return Verdict::Accept;
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
    if known.transaction_start.is_some() && !transactional {
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
    let distance = i64::from(remembered.first_sequence) - i64::from(batch.last_sequence);
    let distance = distance.rem_euclid(SEQUENCE_MODULUS);
    distance > 0 && distance < SEQUENCE_MODULUS / 2
}
