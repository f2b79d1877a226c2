//! Batches of idempotent producers that did not get into the log although their producers may send
//! them again: of segments that were abandoned, and those that were not let into a transaction.
//!
//! A partition that knows nothing of a producer takes its first batch with any sequence, because
//! what it knew may have expired. So when the very first one was lost, the next one, which is on
//! its way already, would be taken in its place, and the first one refused for ever. Who commits
//! therefore says with each batch what of its producer was lost before (`ProducerBatch`).

use floe_env::{HashMap, Instant};
use floe_metadata::is_behind;
use floe_metadata::rows::{BatchFacts, BatchOutcome, ProducerBatch, SegmentFacts};
use kfs::{ProducerEpoch, ProducerId, TopicPartition};
use std::collections::VecDeque;
use std::time::Duration;

/// Producers, each on one partition, that are remembered at most.
const REMEMBERED_MAX: usize = 10_000;
/// For so long: clients send a batch again for two minutes (`delivery.timeout.ms`).
const REMEMBERED_FOR: Duration = Duration::from_secs(120);

type Key = (TopicPartition, ProducerId);

#[derive(Clone, Copy, Debug)]
struct Lost {
    epoch: ProducerEpoch,
    /// Of the first batch that was lost.
    first_sequence: i32,
    /// Which note this is.
    number: u64,
}

/// What was lost, by partition and producer.
#[derive(Debug, Default)]
pub(crate) struct LostBatches {
    lost: HashMap<Key, Lost>,
    /// All notes, the oldest first, with when they were made; a newer one may have taken its place.
    notes: VecDeque<(Instant, Key, u64)>,
    next_number: u64,
}

impl LostBatches {
    /// Says with each batch of a segment what of its producer was lost before.
    pub(crate) fn mark(&mut self, segment: &mut SegmentFacts, now: Instant) {
        self.forget_old(now);
        if self.lost.is_empty() {
            return;
        }
        for section in &mut segment.sections {
            let partition = section.topic_partition();
            for producer in section.batches.iter_mut().filter_map(|batch| batch.producer.as_mut()) {
                let lost = self.lost.get(&(partition, producer.id));
                let lost = lost.filter(|lost| lost.epoch == producer.epoch);
                producer.lost_sequence = lost.map(|lost| lost.first_sequence);
            }
        }
    }

    /// Notes what became of a partition's batches.
    pub(crate) fn decided(
        &mut self,
        partition: TopicPartition,
        batches: &[BatchFacts],
        outcomes: &[BatchOutcome],
        now: Instant,
    ) {
        for (batch, outcome) in batches.iter().zip(outcomes) {
            let Some(producer) = &batch.producer else { continue };
            match outcome {
                BatchOutcome::Refused(refusal) if refusal.is_of_transaction() => {
                    self.note(partition, producer, now);
                }
                BatchOutcome::Refused(_) => {}
                // From now on the partition knows what comes next.
                BatchOutcome::Accepted { .. } | BatchOutcome::Duplicate { .. } => {
                    self.lost.remove(&(partition, producer.id));
                }
            }
        }
    }

    /// Notes that nothing of a segment is in the log.
    pub(crate) fn abandoned(&mut self, segment: &SegmentFacts, now: Instant) {
        for section in &segment.sections {
            let partition = section.topic_partition();
            let producers = section.batches.iter().filter_map(|batch| batch.producer.as_ref());
            producers.for_each(|producer| self.note(partition, producer, now));
        }
    }

    fn note(&mut self, partition: TopicPartition, producer: &ProducerBatch, now: Instant) {
        let key = (partition, producer.id);
        let (epoch, first_sequence) = (producer.epoch, producer.first_sequence);
        // What a zombie sends takes no newer note's place.
        let is_noted = |lost: &Lost| {
            let is_behind = is_behind(first_sequence, lost.first_sequence);
            lost.epoch > epoch || (lost.epoch == epoch && is_behind)
        };
        if self.lost.get(&key).is_some_and(is_noted) {
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.lost.insert(key, Lost { epoch, first_sequence, number });
        self.notes.push_back((now, key, number));
        self.forget_old(now);
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((at, key, number)) = self.notes.front().copied()
            && (self.notes.len() > REMEMBERED_MAX || now.duration_since(at) > REMEMBERED_FOR)
        {
            self.notes.pop_front();
            if self.lost.get(&key).is_some_and(|lost| lost.number == number) {
                self.lost.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_metadata::rows::{Refusal, SectionFacts};
    use kfs::{BrokerEpoch, BrokerId, PartitionIndex, SegmentId, TimestampType, TopicId};
    use uuid::Uuid;

    fn partition(index: i32) -> TopicPartition {
        TopicPartition { topic: TopicId(Uuid::nil()), partition: PartitionIndex(index) }
    }

    fn batch(producer: i64, epoch: i16, first_sequence: i32) -> BatchFacts {
        BatchFacts {
            position: 0,
            length: 1,
            record_count: 1,
            max_timestamp_ms: 0,
            timestamp_type: TimestampType::CreateTime,
            producer: Some(ProducerBatch {
                id: ProducerId(producer),
                epoch: ProducerEpoch(epoch),
                first_sequence,
                last_sequence: first_sequence,
                lost_sequence: None,
            }),
            transaction: None,
        }
    }

    fn segment(batches: Vec<BatchFacts>) -> SegmentFacts {
        let TopicPartition { topic, partition } = partition(0);
        SegmentFacts {
            id: SegmentId { broker: BrokerId(1), epoch: BrokerEpoch(1), counter: 0 },
            key: "k".to_owned(),
            size: 1,
            sections: vec![SectionFacts { topic, partition, batches }],
        }
    }

    /// What is said of the producer's batch with this epoch and sequence.
    fn said(lost: &mut LostBatches, epoch: i16, sequence: i32, now: Instant) -> Option<i32> {
        let mut segment = segment(vec![batch(1, epoch, sequence)]);
        lost.mark(&mut segment, now);
        segment.sections[0].batches[0].producer.as_ref().and_then(|one| one.lost_sequence)
    }

    #[tokio::test]
    async fn the_first_one_lost_is_said_until_a_batch_gets_in() {
        let (mut lost, now) = (LostBatches::default(), floe_env::Env::current().monotonic());
        lost.abandoned(&segment(vec![batch(1, 3, 7), batch(1, 3, 8)]), now);
        assert_eq!(said(&mut lost, 3, 9, now), Some(7));
        assert_eq!(said(&mut lost, 4, 0, now), None, "another epoch begins anew");
        let refused = [BatchOutcome::Refused(Refusal::OutOfOrderSequence)];
        lost.decided(partition(0), &[batch(1, 3, 9)], &refused, now);
        let refused = [BatchOutcome::Refused(Refusal::NotInTransaction)];
        lost.decided(partition(0), &[batch(1, 3, 5)], &refused, now);
        assert_eq!(said(&mut lost, 3, 9, now), Some(5), "the earlier one");
        lost.abandoned(&segment(vec![batch(1, 2, 0)]), now);
        assert_eq!(said(&mut lost, 3, 9, now), Some(5), "of a zombie");
        let accepted = [BatchOutcome::Accepted { base_offset: 0 }];
        lost.decided(partition(1), &[batch(1, 3, 5)], &accepted, now);
        lost.decided(partition(0), &[batch(2, 3, 5)], &accepted, now);
        assert_eq!(said(&mut lost, 3, 9, now), Some(5));
        lost.decided(partition(0), &[batch(1, 3, 5)], &accepted, now);
        assert_eq!(said(&mut lost, 3, 9, now), None);
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let (mut lost, now) = (LostBatches::default(), floe_env::Env::current().monotonic());
        for producer in 1..=REMEMBERED_MAX as i64 + 1 {
            lost.abandoned(&segment(vec![batch(producer, 0, 7)]), now);
        }
        assert_eq!((lost.lost.len(), lost.notes.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert_eq!(said(&mut lost, 0, 9, now), None, "the oldest is forgotten");
        // Lost again and again, it is noted once.
        for _ in 0..3 {
            lost.abandoned(&segment(vec![batch(5, 0, 8)]), now);
        }
        assert_eq!(lost.notes.len(), REMEMBERED_MAX);
        let later = now + REMEMBERED_FOR + Duration::from_millis(1);
        assert_eq!(said(&mut lost, 0, 9, later), None);
        assert_eq!((lost.lost.len(), lost.notes.len()), (0, 0));
    }
}
