//! Cases of extents and of the objects that they name.

use super::*;
use crate::rows::{Place, Replacement};
use floe_env::ErrorKind;
use kfs::OffsetMode;

/// A partition with one segment for each of these batches.
async fn filled(context: &Context, batches: Vec<BatchFacts>) -> (Registration, TopicPartition) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    for batch in batches {
        context.append(&broker, partition, vec![batch]).await;
    }
    (broker, partition)
}

pub(super) fn key_of(extent: &Extent) -> String {
    match &extent.place {
        Place::Range { key, .. } => key.clone(),
        other => panic!("{other:?} is no range"),
    }
}

/// One extent that stands for others, in an object of its own.
pub(super) fn merged(sources: &[Extent], key: &str) -> Extent {
    Extent {
        base_offset: sources[0].base_offset,
        last_offset: sources[sources.len() - 1].last_offset,
        place: Place::Range { key: key.to_owned(), position: 64, length: 77 },
        offset_mode: OffsetMode::Absolute,
        max_timestamp_ms: 1000,
        timestamp_type: TimestampType::CreateTime,
        has_transactional: false,
    }
}

pub(super) async fn dead_keys(context: &Context) -> Vec<String> {
    let dead = context.store.dead_objects(i64::MAX, usize::MAX).await.unwrap();
    dead.into_iter().map(|object| object.key).collect()
}

pub(super) async fn paging(context: &Context) {
    let (_, partition) = filled(context, (0..10).map(|_| plain(10)).collect()).await;
    let page = |offset, limit| context.store.extents(partition, offset, limit);
    let bases = |page: crate::rows::ExtentPage| -> Vec<i64> {
        page.extents.iter().map(|extent| extent.base_offset).collect()
    };
    assert_eq!(bases(page(0, 3).await.unwrap().unwrap()), [0, 10, 20]);
    assert_eq!(bases(page(29, 2).await.unwrap().unwrap()), [20, 30]);
    assert_eq!(bases(page(30, 1).await.unwrap().unwrap()), [30]);
    assert_eq!(bases(page(95, 100).await.unwrap().unwrap()), [90]);
    assert!(bases(page(100, 100).await.unwrap().unwrap()).is_empty());
    assert_eq!(bases(page(-5, 1).await.unwrap().unwrap()), [0]);
    assert_eq!(page(0, 0).await.unwrap().unwrap().state.high_watermark, 100);
    let mut missing = partition;
    missing.partition.0 += 1;
    assert_eq!(context.store.extents(missing, 0, 1).await.unwrap(), None);
}

pub(super) async fn log_start_moves_forward_only(context: &Context) {
    let (_, partition) = filled(context, (0..4).map(|_| plain(10)).collect()).await;
    let advance = |offset| context.store.advance_log_start(partition, offset);
    let state = advance(15).await.unwrap().unwrap();
    assert_eq!((state.log_start_offset, state.version, state.bytes), (15, 5, 300));
    assert_eq!(advance(15).await.unwrap(), Some(state));
    assert_eq!(advance(3).await.unwrap(), Some(state));
    assert_eq!(context.state(partition).await, Some(state));
    let extents = context.all_extents(partition).await;
    assert_eq!(extents.iter().map(|e| e.base_offset).collect::<Vec<_>>(), [10, 20, 30]);
    let state = advance(i64::MAX).await.unwrap().unwrap();
    assert_eq!((state.log_start_offset, state.high_watermark, state.bytes), (40, 40, 0));
    assert_eq!(context.all_extents(partition).await, []);
    let mut missing = partition;
    missing.partition.0 += 1;
    assert_eq!(context.store.advance_log_start(missing, 1).await.unwrap(), None);
}

pub(super) async fn search_by_time(context: &Context) {
    let batches = vec![at(100, 1), at(300, 1), at(200, 1), at(300, 1), at(-1, 1)];
    let (_, partition) = filled(context, batches).await;
    let find = async |timestamp| {
        let found = context.store.extent_by_time(partition, timestamp).await.unwrap().unwrap();
        assert_eq!(found.0.high_watermark, 5);
        found.1.map(|extent| extent.base_offset)
    };
    assert_eq!(find(50).await, Some(0));
    assert_eq!(find(101).await, Some(1));
    assert_eq!(find(300).await, Some(1));
    assert_eq!(find(301).await, None);
    let newest = async || {
        let found = context.store.extent_of_max_timestamp(partition).await.unwrap().unwrap();
        found.1.map(|extent| extent.base_offset)
    };
    assert_eq!(newest().await, Some(1));
    context.store.advance_log_start(partition, 2).await.unwrap();
    assert_eq!(find(50).await, Some(2));
    assert_eq!(newest().await, Some(3));
    context.store.advance_log_start(partition, 5).await.unwrap();
    assert_eq!((find(0).await, newest().await), (None, None));
    let mut missing = partition;
    missing.partition.0 += 1;
    assert_eq!(context.store.extent_by_time(missing, 0).await.unwrap(), None);
    assert_eq!(context.store.extent_of_max_timestamp(missing).await.unwrap(), None);
}

pub(super) async fn replacement(context: &Context) {
    let (broker, partition) = filled(context, (0..4).map(|_| plain(10)).collect()).await;
    let before = context.all_extents(partition).await;
    let sources = before[1..3].to_vec();
    let new = merged(&sources, &format!("log/merged-{}", context.number));
    let change = Replacement {
        partition,
        sources: sources.clone(),
        replacement: vec![new.clone()],
        object_size: 200,
        joins_object: false,
        forgotten_aborts: Vec::new(),
    };
    let outcome = context.store.replace_extents(&broker.fence, &change).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::Applied);
    let expected = [before[0].clone(), new.clone(), before[3].clone()];
    assert_eq!(context.all_extents(partition).await, expected);
    let state = context.state(partition).await.unwrap();
    assert_eq!((state.version, state.bytes, state.high_watermark), (5, 277, 40));
    let dead = dead_keys(context).await;
    assert!(sources.iter().all(|source| dead.contains(&key_of(source))));
    assert_eq!(context.store.known_objects(&[key_of(&new)]).await.unwrap(), [true]);
    // A second time its sources are gone.
    let outcome = context.store.replace_extents(&broker.fence, &change).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::Rejected);
    context.register(broker.id).await;
    let error = context.store.replace_extents(&broker.fence, &change).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

/// An object of several partitions: one replacement names it first and the others join it, for as
/// long as it lives. It dies with the last extent of all of them.
pub(super) async fn replacements_that_share_an_object(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(4).await);
    let sections = partitions.iter().map(|partition| (*partition, vec![plain(1)]));
    for number in 0..2 {
        context.commit(&broker, &segment(&broker, number, sections.clone().collect())).await;
    }
    let key = format!("log/shared-{}", context.number);
    let replace = async |partition: TopicPartition, key: &str, joins_object: bool| {
        let sources = context.all_extents(partition).await;
        let change = Replacement {
            partition,
            replacement: vec![merged(&sources, key)],
            sources,
            object_size: 400,
            joins_object,
            forgotten_aborts: Vec::new(),
        };
        context.store.replace_extents(&broker.fence, &change).await.unwrap()
    };
    let is_known = async || context.store.known_objects(std::slice::from_ref(&key)).await.unwrap();
    let is_dead = async || dead_keys(context).await.contains(&key);
    // Nothing to join: nobody has named it yet.
    let before = context.all_extents(partitions[0]).await;
    assert_eq!(replace(partitions[0], &key, true).await, ChangeOutcome::Rejected);
    assert_eq!((context.all_extents(partitions[0]).await, is_known().await), (before, vec![false]));
    assert_eq!(replace(partitions[0], &key, false).await, ChangeOutcome::Applied);
    assert_eq!(replace(partitions[1], &key, true).await, ChangeOutcome::Applied);
    context.drop_partition(partitions[0]).await;
    assert!(!is_dead().await, "another partition has extents there");
    assert_eq!(replace(partitions[2], &key, true).await, ChangeOutcome::Applied);
    for partition in [partitions[1], partitions[2]] {
        assert!(!is_dead().await);
        context.store.advance_log_start(partition, 2).await.unwrap();
    }
    assert!(is_dead().await, "the last one is gone");
    // It may be deleted at any moment, and then it is not known any more: neither is joined.
    for is_known_still in [true, false] {
        let before = context.all_extents(partitions[3]).await;
        let version = context.state(partitions[3]).await.unwrap().version;
        assert_eq!(is_known().await, [is_known_still]);
        assert_eq!(replace(partitions[3], &key, true).await, ChangeOutcome::Rejected);
        assert_eq!(context.all_extents(partitions[3]).await, before);
        assert_eq!(context.state(partitions[3]).await.unwrap().version, version);
        context.store.forget_objects(std::slice::from_ref(&key)).await.unwrap();
    }
}

pub(super) async fn replacement_of_changed_sources(context: &Context) {
    let (broker, partition) = filled(context, (0..4).map(|_| plain(10)).collect()).await;
    let sources = context.all_extents(partition).await;
    let key = format!("log/late-{}", context.number);
    let change = |sources: &[Extent]| Replacement {
        partition,
        sources: sources.to_vec(),
        replacement: vec![merged(sources, &key)],
        object_size: 200,
        joins_object: false,
        forgotten_aborts: Vec::new(),
    };
    let fence = &broker.fence;
    let replace =
        |change: Replacement| async move { context.store.replace_extents(fence, &change).await };
    let mut other = sources.clone();
    other[1].max_timestamp_ms += 1;
    assert_eq!(replace(change(&other)).await.unwrap(), ChangeOutcome::Rejected);
    let mut gap = change(&sources);
    gap.sources.remove(1);
    assert_eq!(replace(gap).await.unwrap_err().kind(), ErrorKind::Invalid);
    let mut beyond = change(&sources);
    beyond.forgotten_aborts.push(sources[3].last_offset + 1);
    assert_eq!(replace(beyond).await.unwrap_err().kind(), ErrorKind::Invalid);
    let mut longer = change(&sources);
    longer.replacement[0].last_offset += 1;
    assert_eq!(replace(longer).await.unwrap_err().kind(), ErrorKind::Invalid);
    let mut missing = change(&sources);
    missing.partition.partition.0 += 1;
    assert_eq!(replace(missing).await.unwrap(), ChangeOutcome::Rejected);
    context.store.advance_log_start(partition, 10).await.unwrap();
    assert_eq!(replace(change(&sources)).await.unwrap(), ChangeOutcome::Rejected);
    assert_eq!(context.store.known_objects(std::slice::from_ref(&key)).await.unwrap(), [false]);
    assert_eq!(replace(change(&sources[1..])).await.unwrap(), ChangeOutcome::Applied);
}

pub(super) async fn objects_die_with_their_last_extent(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(2).await);
    let shared =
        segment(&broker, 0, vec![(partitions[0], vec![plain(1)]), (partitions[1], vec![plain(1)])]);
    let before_ms = context.store.now_ms().await.unwrap();
    context.commit(&broker, &shared).await;
    context.store.advance_log_start(partitions[0], 1).await.unwrap();
    assert!(!dead_keys(context).await.contains(&shared.key));
    context.store.advance_log_start(partitions[1], 1).await.unwrap();
    let dead = context.store.dead_objects(i64::MAX, usize::MAX).await.unwrap();
    let mine = dead.iter().find(|object| object.key == shared.key).unwrap();
    assert_eq!(mine.size, shared.size);
    assert!(mine.dead_since_ms >= before_ms);
    assert!(dead.is_sorted_by_key(|object| object.dead_since_ms));
    assert_eq!(context.store.dead_objects(i64::MAX, 1).await.unwrap().len(), 1);
    let earlier = context.store.dead_objects(mine.dead_since_ms, usize::MAX).await.unwrap();
    assert!(!earlier.contains(mine));
    // A segment of which nothing was accepted is dead at once.
    let nobody = TopicPartition { topic: context.fresh_topic(), partition: PartitionIndex(0) };
    let refused = segment(&broker, 1, vec![(nobody, vec![plain(1)])]);
    context.commit(&broker, &refused).await;
    assert!(dead_keys(context).await.contains(&refused.key));
    let gone = [shared.key.clone(), refused.key.clone()];
    context.store.forget_objects(&gone).await.unwrap();
    assert_eq!(context.store.known_objects(&gone).await.unwrap(), [false, false]);
}

pub(super) async fn dropped_partition_frees_its_objects(context: &Context) {
    let (broker, partition) = filled(context, vec![plain(1), plain(1)]).await;
    let keys: Vec<String> = context.all_extents(partition).await.iter().map(key_of).collect();
    // A living object is not forgotten.
    context.store.forget_objects(&keys).await.unwrap();
    assert_eq!(context.store.known_objects(&keys).await.unwrap(), [true, true]);
    context.drop_partition(partition).await;
    assert_eq!(context.state(partition).await, None);
    assert_eq!(context.store.extents(partition, 0, 1).await.unwrap(), None);
    let dead = dead_keys(context).await;
    assert!(keys.iter().all(|key| dead.contains(key)));
    context.drop_partition(partition).await;
    let outcome = context.append(&broker, partition, vec![plain(1)]).await;
    assert_eq!(outcome, [BatchOutcome::Refused(crate::rows::Refusal::UnknownPartition)]);
}

pub(super) async fn dead_objects_are_not_revived(context: &Context) {
    let (broker, partition) = filled(context, vec![plain(1), plain(1), plain(1)]).await;
    let extents = context.all_extents(partition).await;
    context.store.advance_log_start(partition, 1).await.unwrap();
    let change = Replacement {
        partition,
        sources: extents[1..].to_vec(),
        replacement: vec![merged(&extents[1..], &key_of(&extents[0]))],
        object_size: 200,
        joins_object: false,
        forgotten_aborts: Vec::new(),
    };
    let error = context.store.replace_extents(&broker.fence, &change).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(context.all_extents(partition).await, extents[1..]);
    // Also not by a segment of the same key; and nothing of that call stays.
    let mut again = segment(&broker, 9000, vec![(partition, vec![plain(1)])]);
    again.key = key_of(&extents[0]);
    let other = segment(&broker, 9001, vec![(partition, vec![plain(1)])]);
    let both = [other, again];
    let error = context.store.commit_segments(&broker.fence, &both).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(context.all_extents(partition).await, extents[1..]);
    assert_eq!(context.store.segment_outcome(both[0].id).await.unwrap(), None);
}

pub(super) async fn markers_and_holes_come_back(context: &Context) {
    let (broker, partition) = filled(context, vec![plain(1), plain(9), plain(2)]).await;
    let sources = context.all_extents(partition).await;
    let marker = Place::Marker {
        producer: ProducerId(5),
        epoch: ProducerEpoch(2),
        commit: true,
        coordinator_epoch: 4,
        timestamp_ms: 99,
    };
    let key = format!("log/kept-{}", context.number);
    let mut kept = merged(&sources[2..], &key);
    kept.timestamp_type = TimestampType::LogAppendTime;
    kept.has_transactional = true;
    let replacement = vec![
        Extent { place: marker, ..sources[0].clone() },
        Extent { place: Place::Hole, ..sources[1].clone() },
        kept,
    ];
    let change = Replacement {
        partition,
        sources,
        replacement,
        object_size: 200,
        joins_object: false,
        forgotten_aborts: Vec::new(),
    };
    let outcome = context.store.replace_extents(&broker.fence, &change).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::Applied);
    assert_eq!(context.all_extents(partition).await, change.replacement);
    assert_eq!(context.state(partition).await.unwrap().bytes, 77);
    // They have no object to free.
    context.store.advance_log_start(partition, 12).await.unwrap();
    assert!(dead_keys(context).await.contains(&key));
}
