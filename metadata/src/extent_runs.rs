//! Which extents a commit makes of a section: runs of accepted batches that touch in the object and
//! whose timestamps are of one type. The commit writes them, and the broker that asked for it makes
//! the same of its answer, so that its readers need not ask.

use crate::fresh::FreshExtent;
use crate::rows::{BatchFacts, BatchOutcome, Extent};
use kfs::TopicPartition;

/// Collects the extents of one section.
#[derive(Debug)]
pub(crate) struct ExtentRuns<'a> {
    partition: TopicPartition,
    extents: &'a mut Vec<(TopicPartition, FreshExtent)>,
    /// Where the last run ends in the object, bytes; `None` before the first.
    end: Option<u64>,
}

impl<'a> ExtentRuns<'a> {
    /// Adds the section's extents to those of its object.
    pub(crate) fn new(
        partition: TopicPartition,
        extents: &'a mut Vec<(TopicPartition, FreshExtent)>,
    ) -> Self {
        Self { partition, extents, end: None }
    }

    /// Adds an accepted batch.
    pub(crate) fn accept(&mut self, batch: &BatchFacts, base_offset: i64) {
        let last_offset = base_offset + i64::from(batch.record_count) - 1;
        let touches = self.end == Some(batch.position);
        self.end = Some(batch.position + u64::from(batch.length));
        if let Some((_, extent)) = self.extents.last_mut()
            && touches
            && extent.timestamp_type == batch.timestamp_type
        {
            extent.length += u64::from(batch.length);
            extent.last_offset = last_offset;
            extent.max_timestamp_ms = extent.max_timestamp_ms.max(batch.max_timestamp_ms);
            extent.has_transactional |= batch.transaction.is_some();
            return;
        }
        let extent = FreshExtent {
            base_offset,
            last_offset,
            position: batch.position,
            length: u64::from(batch.length),
            max_timestamp_ms: batch.max_timestamp_ms,
            timestamp_type: batch.timestamp_type,
            has_transactional: batch.transaction.is_some(),
        };
        self.extents.push((self.partition, extent));
    }
}

/// The extents that a commit has made of a section of this object, from what became of its batches.
pub fn accepted_extents(
    object: &str,
    partition: TopicPartition,
    batches: &[BatchFacts],
    outcomes: &[BatchOutcome],
) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut runs = ExtentRuns::new(partition, &mut extents);
    for (batch, outcome) in batches.iter().zip(outcomes) {
        if let BatchOutcome::Accepted { base_offset } = *outcome {
            runs.accept(batch, base_offset);
        }
    }
    extents.iter().map(|(_, extent)| extent.in_object(object)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Place, Refusal};
    use kfs::{PartitionIndex, TimestampType, TopicId};
    use uuid::Uuid;

    fn batch(position: u64, length: u32, record_count: u32) -> BatchFacts {
        BatchFacts {
            position,
            length,
            record_count,
            max_timestamp_ms: position.cast_signed(),
            timestamp_type: TimestampType::CreateTime,
            producer: None,
            transaction: None,
        }
    }

    fn accepted(base_offset: i64) -> BatchOutcome {
        BatchOutcome::Accepted { base_offset }
    }

    fn extents(batches: &[BatchFacts], outcomes: &[BatchOutcome]) -> Vec<Extent> {
        let topic = TopicId(Uuid::from_u128(1));
        let partition = TopicPartition { topic, partition: PartitionIndex(0) };
        accepted_extents("key", partition, batches, outcomes)
    }

    fn ranges(extents: &[Extent]) -> Vec<(i64, i64, u64, u64)> {
        let range = |extent: &Extent| match extent.place {
            Place::Range { position, length, .. } => {
                (extent.base_offset, extent.last_offset, position, length)
            }
            _ => panic!("a fresh extent is a range"),
        };
        extents.iter().map(range).collect()
    }

    #[test]
    fn accepted_batches_that_touch_are_one_extent() {
        let batches = [batch(32, 10, 2), batch(42, 20, 3)];
        let extents = extents(&batches, &[accepted(7), accepted(9)]);
        assert_eq!(ranges(&extents), vec![(7, 11, 32, 30)]);
        assert_eq!(extents[0].max_timestamp_ms, 42);
    }

    #[test]
    fn no_extent_covers_a_refused_or_duplicate_batch() {
        let batches = [batch(32, 10, 1), batch(42, 10, 1), batch(52, 10, 1), batch(62, 10, 1)];
        let outcomes = [
            accepted(0),
            BatchOutcome::Refused(Refusal::OutOfOrderSequence),
            accepted(1),
            BatchOutcome::Duplicate { base_offset: 0, max_timestamp_ms: 0 },
        ];
        assert_eq!(ranges(&extents(&batches, &outcomes)), vec![(0, 0, 32, 10), (1, 1, 52, 10)]);
    }

    #[test]
    fn timestamps_of_another_type_begin_another_extent() {
        let appended =
            BatchFacts { timestamp_type: TimestampType::LogAppendTime, ..batch(42, 10, 1) };
        let batches = [batch(32, 10, 1), appended];
        let extents = extents(&batches, &[accepted(0), accepted(1)]);
        assert_eq!(ranges(&extents), vec![(0, 0, 32, 10), (1, 1, 42, 10)]);
    }
}
