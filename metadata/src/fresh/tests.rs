use super::*;
use kfs::{PartitionIndex, TopicId};
use uuid::Uuid;

const ONE: TopicPartition =
    TopicPartition { topic: TopicId(Uuid::from_u128(1)), partition: PartitionIndex(0) };
const OTHER: TopicPartition =
    TopicPartition { topic: TopicId(Uuid::from_u128(1)), partition: PartitionIndex(1) };

fn extent(base_offset: i64, last_offset: i64) -> FreshExtent {
    FreshExtent {
        base_offset,
        last_offset,
        position: 0,
        length: 10,
        max_timestamp_ms: base_offset,
        timestamp_type: TimestampType::CreateTime,
        has_transactional: false,
    }
}

fn segment(object: i64, extents: &[(TopicPartition, i64, i64)]) -> FreshSegment {
    let extents = extents.iter().map(|(partition, base, last)| (*partition, extent(*base, *last)));
    FreshSegment { object, key: format!("wal/{object}").into(), extents: extents.collect() }
}

fn wanted(range: Range<i64>, limit: usize) -> Vec<Wanted> {
    vec![Wanted { partition: ONE, range, limit, markers: Vec::new() }]
}

/// The base offsets and objects that are found in the index alone.
fn found(index: &FreshIndex, range: Range<i64>, limit: usize) -> Option<Vec<(i64, i64)>> {
    let mut search = Search::new(index, wanted(range, limit));
    let is_complete = search.is_complete();
    let placed = search.into_found().pop().unwrap_or_default();
    is_complete.then(|| placed.iter().map(|one| (one.extent.base_offset, one.object)).collect())
}

#[test]
fn extents_are_found_by_any_offset_whatever_the_order_of_segments() {
    let index = FreshIndex::default();
    index.insert(&segment(3, &[(ONE, 6, 9), (OTHER, 0, 0)]));
    index.insert(&segment(1, &[(ONE, 0, 1), (ONE, 2, 2)]));
    index.insert(&segment(2, &[(ONE, 3, 5)]));
    assert_eq!(found(&index, 0..10, 9), Some(vec![(0, 1), (2, 1), (3, 2), (6, 3)]));
    assert_eq!(found(&index, 4..10, 9), Some(vec![(3, 2), (6, 3)]));
    assert_eq!(found(&index, 1..10, 2), Some(vec![(0, 1), (2, 1)]));
    assert_eq!(found(&index, 3..4, 9), Some(vec![(3, 2)]));
    assert_eq!(found(&index, 9..10, 9), Some(vec![(6, 3)]));
    assert_eq!(found(&index, 10..10, 9), Some(vec![]));
    assert_eq!(found(&index, 0..10, 0), Some(vec![]));
}

#[test]
fn a_gap_says_that_a_segment_is_missing_and_only_where_it_matters() {
    let index = FreshIndex::default();
    index.insert(&segment(1, &[(ONE, 0, 1)]));
    index.insert(&segment(3, &[(ONE, 4, 5)]));
    assert_eq!(found(&index, 0..6, 1), Some(vec![(0, 1)]));
    assert_eq!(found(&index, 0..2, 9), Some(vec![(0, 1)]));
    assert_eq!(found(&index, 5..6, 9), Some(vec![(4, 3)]));
    for range in [0..6, 0..3, 2..3, 3..6, 5..7, 6..7] {
        assert_eq!(found(&index, range.clone(), 9), None, "{range:?}");
    }
    let mut search = Search::new(&index, wanted(0..6, 9));
    search.show(&segment(4, &[(OTHER, 2, 3)]));
    assert!(!search.is_complete());
    // What is known already is shown again and changes nothing.
    search.show(&segment(3, &[(ONE, 4, 5)]));
    search.show(&segment(2, &[(ONE, 2, 3)]));
    assert!(search.is_complete());
    let objects: Vec<i64> = search.into_found()[0].iter().map(|one| one.object).collect();
    assert_eq!(objects, [1, 2, 3]);
    assert_eq!(found(&index, 0..6, 9), None, "a search shows nothing to the index");
}

#[test]
fn what_is_no_longer_fresh_is_forgotten_with_its_segments() {
    let index = FreshIndex::default();
    index.insert(&segment(1, &[(ONE, 0, 1), (OTHER, 0, 1)]));
    index.insert(&segment(2, &[(ONE, 2, 5)]));
    index.insert(&segment(2, &[(ONE, 2, 5)]));
    index.forget_below(ONE, 4);
    assert_eq!(index.known(), BTreeSet::from([1, 2]));
    assert_eq!(found(&index, 4..6, 9), Some(vec![(2, 2)]));
    assert_eq!(found(&index, 0..6, 9), None);
    index.forget_below(ONE, 6);
    assert_eq!(index.known(), BTreeSet::from([1]));
    index.forget_below(OTHER, 6);
    let remembered = index.remembered.lock();
    assert!(remembered.partitions.is_empty() && remembered.segments.is_empty());
    assert_eq!(remembered.extents, 0);
}

#[test]
fn a_full_index_begins_anew_and_a_search_is_right_all_the_same() {
    let index = FreshIndex::with_extents_max(2);
    index.insert(&segment(1, &[(ONE, 0, 0), (ONE, 1, 1)]));
    index.insert(&segment(2, &[(ONE, 2, 2)]));
    assert_eq!(index.known(), BTreeSet::from([2]));
    let too_large = segment(3, &[(ONE, 3, 3), (ONE, 4, 4), (ONE, 5, 5)]);
    index.insert(&too_large);
    assert_eq!(index.known(), BTreeSet::from([2]));
    let mut search = Search::new(&index, wanted(0..6, 9));
    search.show(&segment(1, &[(ONE, 0, 0), (ONE, 1, 1)]));
    search.show(&too_large);
    assert!(search.is_complete());
}

#[test]
fn the_first_of_the_newest_extents_is_the_newest() {
    let placed = |base_offset, max_timestamp_ms| Placed {
        object: 1,
        key: "k".into(),
        extent: FreshExtent { max_timestamp_ms, ..extent(base_offset, base_offset) },
    };
    let fresh = [placed(5, 3), placed(6, 9), placed(7, 9)];
    let base = |found: Option<Extent>| found.map(|extent| extent.base_offset);
    assert_eq!(base(first_at_time(&fresh, 4)), Some(6));
    assert_eq!(base(first_at_time(&fresh, 10)), None);
    assert_eq!(base(newest(None, &fresh)), Some(6));
    assert_eq!(base(newest(Some(placed(1, 9).to_extent()), &fresh)), Some(1));
    assert_eq!(base(newest(Some(placed(1, 8).to_extent()), &fresh)), Some(6));
    assert_eq!(base(newest(Some(placed(1, 8).to_extent()), &[])), Some(1));
    assert_eq!(base(newest(None, &[])), None);
}
