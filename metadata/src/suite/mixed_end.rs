//! What must hold at the end of a history in which merges, unpacking and moves of log starts ran
//! beside commits, whatever their order was.

use super::serial_order::{Answer, Call, Record};
use super::*;
use crate::rows::Place;
use std::collections::BTreeSet;

/// Panics unless every offset was given once, the extents follow one another from the log start to
/// the high watermark, and exactly the objects that they name are alive.
pub(super) async fn check(
    context: &Context,
    partitions: &[TopicPartition],
    records: &[Record],
    states: &[Option<PartitionState>],
) {
    let mut named = BTreeSet::new();
    for (partition, state) in partitions.iter().zip(states) {
        let state = state.unwrap();
        let mut next_offset = 0;
        for (base_offset, records) in given(records, *partition) {
            assert_eq!(base_offset, next_offset, "offsets of {partition}");
            next_offset += i64::from(records);
        }
        assert_eq!(next_offset, state.high_watermark, "{partition}");
        let asked = records.iter().map(|record| match (&record.call, &record.answer) {
            (Call::Advance(of, _), Answer::State(seen)) if of == partition => seen.log_start_offset,
            _ => 0,
        });
        assert_eq!(state.log_start_offset, asked.max().unwrap_or(0), "{partition}");
        let page = context.store.extents(*partition, 0, usize::MAX).await.unwrap().unwrap();
        let (mut next_offset, mut bytes) = (None, 0);
        for extent in &page.extents {
            assert!(next_offset.is_none_or(|next| next == extent.base_offset), "{page:?}");
            next_offset = Some(extent.last_offset + 1);
            bytes += extent.bytes();
            if let Place::Range { key, .. } = &extent.place {
                named.insert(key.clone());
            }
        }
        assert!(next_offset.is_none_or(|next| next == state.high_watermark), "{page:?}");
        let first = page.extents.first().map_or(state.high_watermark, |first| first.base_offset);
        assert!(first <= state.log_start_offset || first == state.high_watermark, "{page:?}");
        assert_eq!(state.bytes, bytes, "{partition}");
    }
    let keys: Vec<String> = named.iter().cloned().collect();
    let known = context.store.known_objects(&keys).await.unwrap();
    assert!(known.iter().all(|is_known| *is_known), "objects of extents are forgotten");
    let dead = context.store.dead_objects(i64::MAX, usize::MAX).await.unwrap();
    let alive_and_dead: Vec<_> = dead.iter().filter(|one| named.contains(&one.key)).collect();
    assert!(alive_and_dead.is_empty(), "{alive_and_dead:?}");
}

/// First offset and records of each batch that a partition took, by offset.
fn given(records: &[Record], partition: TopicPartition) -> Vec<(i64, u32)> {
    let mut given = Vec::new();
    for record in records {
        let (Call::Commit(segment), Answer::Outcome(SegmentOutcome::Committed(outcomes))) =
            (&record.call, &record.answer)
        else {
            continue;
        };
        for (section, outcome) in segment.sections.iter().zip(outcomes) {
            if section.topic_partition() != partition {
                continue;
            }
            for (batch, outcome) in section.batches.iter().zip(&outcome.batches) {
                if let BatchOutcome::Accepted { base_offset } = outcome {
                    given.push((*base_offset, batch.record_count));
                }
            }
        }
    }
    given.sort_unstable();
    given
}
