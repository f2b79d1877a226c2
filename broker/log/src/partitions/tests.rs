use super::*;
use floe_metadata::rows::Place;
use futures::FutureExt;
use kfs::{OffsetMode, PartitionIndex, TimestampType, TopicId};

fn partition() -> TopicPartition {
    let topic = TopicId(uuid::Uuid::from_u128(7));
    TopicPartition { topic, partition: PartitionIndex(0) }
}

fn state(version: u64, high_watermark: i64) -> PartitionState {
    PartitionState {
        version,
        log_start_offset: 0,
        high_watermark,
        last_stable_offset: high_watermark,
        bytes: 0,
    }
}

fn extent(base_offset: i64, last_offset: i64) -> Extent {
    Extent {
        base_offset,
        last_offset,
        place: Place::Hole,
        offset_mode: OffsetMode::Relative,
        max_timestamp_ms: 0,
        timestamp_type: TimestampType::CreateTime,
        has_transactional: false,
    }
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let partitions = Partitions::default();
    partitions.observe(partition(), state(5, 50));
    assert_eq!(partitions.observe(partition(), state(4, 40)).high_watermark, 50);
    partitions.committed(partition(), state(3, 30), Vec::new());
    assert_eq!(partitions.state(partition()).map(|state| state.high_watermark), Some(50));
}

#[test]
fn the_window_finds_an_extent_by_any_of_its_offsets_and_only_those() {
    let partitions = Partitions::default();
    partitions.committed(partition(), state(1, 20), vec![extent(5, 9), extent(10, 19)]);
    let bases = |offset| -> Vec<i64> {
        let found = partitions.extents(partition(), offset, 9);
        found.iter().map(|extent| extent.base_offset).collect()
    };
    assert_eq!(bases(4), Vec::<i64>::new());
    assert_eq!(bases(5), vec![5, 10]);
    assert_eq!(bases(9), vec![5, 10]);
    assert_eq!(bases(19), vec![10]);
    assert_eq!(bases(20), Vec::<i64>::new());
}

#[test]
fn a_gap_between_extents_empties_the_window_so_that_none_is_skipped() {
    let partitions = Partitions::default();
    partitions.committed(partition(), state(1, 10), vec![extent(0, 9)]);
    partitions.committed(partition(), state(3, 30), vec![extent(20, 29)]);
    assert!(partitions.extents(partition(), 0, 9).is_empty());
    assert_eq!(partitions.extents(partition(), 20, 9).len(), 1);
}

#[test]
fn a_page_that_the_window_already_holds_does_not_shorten_it() {
    let partitions = Partitions::default();
    partitions.committed(partition(), state(1, 20), vec![extent(0, 9), extent(10, 19)]);
    partitions.remember(partition(), &[extent(0, 9).into()]);
    assert_eq!(partitions.extents(partition(), 0, 9).len(), 2);
}

#[test]
fn news_between_making_a_waiter_and_waiting_is_not_missed() {
    let partitions = Partitions::default();
    let waiter = partitions.waiter(&[partition()]);
    partitions.observe(partition(), state(1, 1));
    assert!(waiter.news().now_or_never().is_some());
    partitions.observe(partition(), state(1, 1));
    assert!(waiter.news().now_or_never().is_none());
}
