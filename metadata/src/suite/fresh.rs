//! Cases of fresh extents: merged and unpacked in parts, beside commits, at every border. A caller
//! sees no difference between what is packed and what has a row of its own.

use super::extents::{dead_keys, key_of, merged};
use super::*;
use crate::rows::{FreshBounds, Replacement};

const NONE_KEPT: FreshBounds = FreshBounds { segments: 0, extents: 0 };

/// Unpacks everything.
async fn unpack_all(context: &Context) {
    while context.store.unpack_fresh(NONE_KEPT).await.unwrap() > 0 {}
}

/// Swaps extents for one in an object of its own; answers it.
async fn merge(
    context: &Context,
    broker: &Registration,
    partition: TopicPartition,
    sources: &[Extent],
) -> Extent {
    let key = format!("log/fresh-{}-{}", context.number, context.unique());
    let new = merged(sources, &key);
    let replacement = Replacement {
        partition,
        sources: sources.to_vec(),
        replacement: vec![new.clone()],
        object_size: 200,
        joins_object: false,
        forgotten_aborts: Vec::new(),
    };
    let outcome = context.store.replace_extents(&broker.fence, &replacement).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::Applied);
    new
}

/// Segments with one batch of ten records for each of these partitions.
async fn commit_many(
    context: &Context,
    broker: &Registration,
    partitions: &[TopicPartition],
    count: u64,
) -> Vec<SegmentFacts> {
    let mut segments = Vec::new();
    for _ in 0..count {
        let sections = partitions.iter().map(|partition| (*partition, vec![plain(10)]));
        let one = segment(broker, context.unique(), sections.collect());
        context.commit(broker, &one).await;
        segments.push(one);
    }
    segments
}

pub(super) async fn a_segment_is_merged_partition_by_partition(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(3).await);
    let segments = commit_many(context, &broker, &partitions, 4).await;
    let keys: Vec<String> = segments.iter().map(|segment| segment.key.clone()).collect();
    let mut dead = 0;
    for (at, partition) in partitions.iter().enumerate() {
        let before = context.all_extents(*partition).await;
        let others = context.all_extents(partitions[(at + 1) % 3]).await;
        let version = context.state(*partition).await.unwrap().version;
        let new = merge(context, &broker, *partition, &before[..3]).await;
        assert_eq!(context.all_extents(*partition).await, [new, before[3].clone()]);
        assert_eq!(context.state(*partition).await.unwrap().version, version + 1);
        assert_eq!(context.all_extents(partitions[(at + 1) % 3]).await, others);
        let now_dead = dead_keys(context).await;
        dead = keys.iter().filter(|key| now_dead.contains(key)).count();
        assert_eq!(dead, if at == 2 { 3 } else { 0 });
    }
    assert_eq!(dead, 3, "gone with the last partition");
    assert_eq!(context.store.known_objects(&keys).await.unwrap(), [true; 4]);
    // Commits go on behind, and a later merge takes merged and fresh ones together.
    commit_many(context, &broker, &partitions, 2).await;
    let before = context.all_extents(partitions[1]).await;
    assert_eq!(before.len(), 4);
    let new = merge(context, &broker, partitions[1], &before[..3]).await;
    assert_eq!(context.all_extents(partitions[1]).await, [new, before[3].clone()]);
}

pub(super) async fn what_a_merge_leaves_out_stays_where_it_is(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let segments = commit_many(context, &broker, &[partition], 6).await;
    let before = context.all_extents(partition).await;
    let new = merge(context, &broker, partition, &before[2..4]).await;
    let expected: Vec<Extent> =
        before[..2].iter().chain([&new]).chain(&before[4..]).cloned().collect();
    assert_eq!(context.all_extents(partition).await, expected);
    let dead = dead_keys(context).await;
    let is_dead: Vec<bool> = segments.iter().map(|one| dead.contains(&one.key)).collect();
    assert_eq!(is_dead, [false, false, true, true, false, false]);
    // Those before it can be merged as well, and those behind it.
    merge(context, &broker, partition, &expected[..2]).await;
    let all = context.all_extents(partition).await;
    let last = merge(context, &broker, partition, &all).await;
    assert_eq!(context.all_extents(partition).await, [last]);
    assert_eq!(context.state(partition).await.unwrap().bytes, 77);
    let dead = dead_keys(context).await;
    assert!(segments.iter().all(|one| dead.contains(&one.key)));
}

pub(super) async fn sections_with_refused_batches_are_merged_in_parts(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let refused = idempotent(context.producer(), 0, 0, 1);
    let again = || BatchFacts { ..refused.clone() };
    let batches = vec![plain(1), again(), again(), plain(2), again(), plain(3)];
    let segment = segment(&broker, context.unique(), vec![(partition, batches)]);
    context.commit(&broker, &segment).await;
    let before = context.all_extents(partition).await;
    assert_eq!(before.len(), 3);
    let new = merge(context, &broker, partition, &before[1..2]).await;
    assert_eq!(
        context.all_extents(partition).await,
        [&before[0], &new, &before[2]].map(Extent::clone)
    );
    assert!(!dead_keys(context).await.contains(&segment.key));
    unpack_all(context).await;
    context.store.advance_log_start(partition, i64::MAX).await.unwrap();
    assert!(dead_keys(context).await.contains(&segment.key));
}

pub(super) async fn merges_beside_commits(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(4).await);
    let commits = async {
        for _ in 0..40 {
            commit_many(context, &broker, &partitions, 1).await;
        }
    };
    let merges = async {
        let mut done = 0;
        while done < 30 {
            let partition = partitions[done % 4];
            let page = context.store.extents(partition, 0, 1000).await.unwrap().unwrap();
            let next = page.extents.last().map_or(0, |last| last.last_offset + 1);
            assert_eq!(next, page.state.high_watermark, "a page has all of its moment");
            if page.extents.len() > 2 {
                merge(context, &broker, partition, &page.extents[1..]).await;
                done += 1;
            } else {
                tokio::task::yield_now().await;
            }
            if done % 7 == 0 {
                let kept = FreshBounds { segments: 3, extents: 1000 };
                context.store.unpack_fresh(kept).await.unwrap();
            }
            if page.state.high_watermark == 400 {
                break;
            }
        }
    };
    futures::join!(commits, merges);
    for partition in partitions {
        let mut next = 0;
        for extent in context.all_extents(partition).await {
            assert_eq!(extent.base_offset, next);
            next = extent.last_offset + 1;
        }
        assert_eq!(next, 400);
    }
}

pub(super) async fn log_start_inside_a_fresh_extent(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(2).await);
    let partition = partitions[0];
    let segments = commit_many(context, &broker, &partitions, 4).await;
    let before = context.all_extents(partition).await;
    let state = context.store.advance_log_start(partition, 15).await.unwrap().unwrap();
    assert_eq!((state.log_start_offset, state.bytes), (15, 300));
    assert_eq!(context.all_extents(partition).await, before[1..]);
    let page = context.store.extents(partition, 12, 1).await.unwrap().unwrap();
    assert_eq!(page.extents, before[1..2], "an extent is served whole");
    context.store.advance_log_start(partitions[1], 40).await.unwrap();
    let dead = dead_keys(context).await;
    let is_dead: Vec<bool> = segments.iter().map(|one| dead.contains(&one.key)).collect();
    assert_eq!(is_dead, [true, false, false, false]);
    // The one that holds the log start is merged, or unpacked, whole.
    let new = merge(context, &broker, partition, &before[1..3]).await;
    assert_eq!(context.all_extents(partition).await, [new.clone(), before[3].clone()]);
    let state = context.store.advance_log_start(partition, 35).await.unwrap().unwrap();
    assert_eq!(state.bytes, 100);
    unpack_all(context).await;
    assert_eq!(context.all_extents(partition).await, before[3..]);
    let state = context.store.advance_log_start(partition, 40).await.unwrap().unwrap();
    assert_eq!(state.bytes, 0);
    let dead = dead_keys(context).await;
    assert!(segments.iter().all(|one| dead.contains(&one.key)));
    assert!(dead.contains(&key_of(&new)));
}

pub(super) async fn search_by_time_across_the_border(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    for timestamp_ms in [100, 300, 200, 500, 400, 500, 100] {
        context.append(&broker, partition, vec![at(timestamp_ms, 1)]).await;
    }
    let find = async |timestamp_ms| {
        let found = context.store.extent_by_time(partition, timestamp_ms).await.unwrap();
        found.unwrap().1.map(|extent| extent.base_offset)
    };
    let newest = async || {
        let found = context.store.extent_of_max_timestamp(partition).await.unwrap();
        found.unwrap().1.map(|extent| extent.base_offset)
    };
    let before = context.all_extents(partition).await;
    let change = |sources: &[Extent], max_timestamp_ms| {
        let key = format!("log/timed-{}-{max_timestamp_ms}", context.number);
        let new = Extent { max_timestamp_ms, ..merged(sources, &key) };
        Replacement {
            partition,
            sources: sources.to_vec(),
            replacement: vec![new],
            object_size: 200,
            joins_object: false,
            forgotten_aborts: Vec::new(),
        }
    };
    for (merged_count, max_timestamp_ms) in [(0, 0), (3, 300), (5, 500)] {
        if merged_count > 0 {
            let sources = context.all_extents(partition).await;
            let end = sources.iter().position(|one| one.last_offset >= merged_count - 1).unwrap();
            let change = change(&sources[..=end], max_timestamp_ms);
            context.store.replace_extents(&broker.fence, &change).await.unwrap();
        }
        let first = |offset: i64| Some(if offset < merged_count { 0 } else { offset });
        assert_eq!(find(50).await, Some(0));
        assert_eq!(find(150).await, first(1));
        assert_eq!(find(301).await, first(3));
        assert_eq!(find(501).await, None);
        assert_eq!(newest().await, first(3));
    }
    context.store.advance_log_start(partition, 5).await.unwrap();
    assert_eq!((find(50).await, find(150).await, newest().await), (Some(5), Some(5), Some(5)));
    assert_eq!(context.all_extents(partition).await, before[5..]);
}

pub(super) async fn a_deleted_topic_inside_a_fresh_segment(context: &Context) {
    let (broker, kept) = (context.broker().await, context.partition().await);
    let deleted = context.partitions(3).await;
    let all: Vec<TopicPartition> = deleted.iter().copied().chain([kept]).collect();
    let segments = commit_many(context, &broker, &all, 3).await;
    let sources = context.all_extents(deleted[0]).await;
    merge(context, &broker, deleted[0], &sources[..2]).await;
    context.store.advance_log_start(deleted[1], 15).await.unwrap();
    let before = context.all_extents(kept).await;
    for partition in &deleted {
        context.drop_partition(*partition).await;
    }
    let dead = dead_keys(context).await;
    assert!(segments.iter().all(|one| !dead.contains(&one.key)));
    assert_eq!(context.all_extents(kept).await, before);
    unpack_all(context).await;
    assert_eq!(context.all_extents(kept).await, before);
    context.drop_partition(kept).await;
    let dead = dead_keys(context).await;
    assert!(segments.iter().all(|one| dead.contains(&one.key)));
}

pub(super) async fn unpacking_changes_nothing_but_rows(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(5).await);
    let segments = commit_many(context, &broker, &partitions, 6).await;
    context.store.advance_log_start(partitions[0], 25).await.unwrap();
    let sources = context.all_extents(partitions[1]).await;
    merge(context, &broker, partitions[1], &sources[..4]).await;
    let mut before = Vec::new();
    for partition in &partitions {
        before.push((context.state(*partition).await, context.all_extents(*partition).await));
    }
    let dead = dead_keys(context).await;
    for segments in [5, 3, 0] {
        let kept = FreshBounds { segments, extents: usize::MAX };
        while context.store.unpack_fresh(kept).await.unwrap() > 0 {}
        for (partition, before) in partitions.iter().zip(&before) {
            let now = (context.state(*partition).await, context.all_extents(*partition).await);
            assert_eq!(&now, before);
        }
    }
    assert_eq!(dead_keys(context).await, dead);
    assert_eq!(context.store.unpack_fresh(NONE_KEPT).await.unwrap(), 0);
    let batches = vec![plain(10)];
    assert_eq!(context.append(&broker, partitions[2], batches).await, [accepted(60)]);
    assert_eq!(context.all_extents(partitions[2]).await.len(), 7);
    for partition in &partitions {
        context.store.advance_log_start(*partition, i64::MAX).await.unwrap();
    }
    let dead = dead_keys(context).await;
    assert!(segments.iter().all(|one| dead.contains(&one.key)));
}

pub(super) async fn many_partitions_are_unpacked_in_turns(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(600).await);
    let segments = commit_many(context, &broker, &partitions, 2).await;
    let before = context.all_extents(partitions[599]).await;
    unpack_all(context).await;
    assert_eq!(context.all_extents(partitions[599]).await, before);
    let drops = partitions.iter().copied().map(PartitionChange::Drop).collect();
    let change = Change { partitions: drops, ..Change::default() };
    commit_many(context, &broker, &partitions, 1).await;
    context.store.backend().change(&change).await.unwrap();
    let dead = dead_keys(context).await;
    assert!(segments.iter().all(|one| dead.contains(&one.key)));
}

pub(super) async fn many_producers_spill_and_are_remembered(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let ids: Vec<ProducerId> = (0..30).map(|_| context.producer()).collect();
    for round in 0..3 {
        for some in ids.chunks(10) {
            let batches = some.iter().map(|id| idempotent(*id, 0, round, 1)).collect();
            let outcomes = context.append(&broker, partition, batches).await;
            assert!(outcomes.iter().all(|one| matches!(one, BatchOutcome::Accepted { .. })));
        }
    }
    let known = context.store.producers(partition).await.unwrap();
    assert_eq!(known.iter().map(|producer| producer.id).collect::<Vec<_>>(), ids);
    assert!(known.iter().all(|producer| producer.batches.len() == 3));
    // Each is found, wherever it is, and none is forgotten by looking.
    for id in &ids {
        let again = vec![idempotent(*id, 0, 1, 1), idempotent(*id, 0, 5, 1)];
        let outcomes = context.append(&broker, partition, again).await;
        assert!(matches!(outcomes[0], BatchOutcome::Duplicate { .. }));
        let out_of_order = crate::rows::Refusal::OutOfOrderSequence;
        assert_eq!(outcomes[1], BatchOutcome::Refused(out_of_order));
    }
    assert_eq!(context.store.producers(partition).await.unwrap(), known);
    assert_eq!(context.store.expire_producers(partition, i64::MAX).await.unwrap(), 30);
    assert_eq!(context.store.producers(partition).await.unwrap(), []);
    let outcomes = context.append(&broker, partition, vec![idempotent(ids[3], 0, 9, 1)]).await;
    assert_eq!(outcomes, [accepted(90)]);
}

pub(super) async fn outcomes_of_closed_registrations_are_forgotten(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let one = segment(&broker, 0, vec![(partition, vec![plain(1)])]);
    let two = segment(&broker, 1, vec![(partition, vec![plain(1)])]);
    for segment in [&one, &two] {
        context.commit(&broker, segment).await;
    }
    context.store.forget_outcomes(&broker.fence, one.id).await.unwrap();
    let next = context.register(broker.id).await;
    let own = segment(&next, 0, vec![(partition, vec![plain(1)])]);
    let outcome = context.commit(&next, &own).await;
    context.store.forget_registrations(broker.id, broker.epoch).await.unwrap();
    for id in [one.id, two.id] {
        assert_eq!(context.store.segment_outcome(id).await.unwrap(), None);
        let error = context.store.abandon_segment(&broker.fence, id).await.unwrap_err();
        assert_eq!(error.kind(), floe_env::ErrorKind::Fenced);
    }
    assert_eq!(context.commit(&next, &own).await, outcome);
    assert_eq!(context.state(partition).await.unwrap().high_watermark, 3);
}
