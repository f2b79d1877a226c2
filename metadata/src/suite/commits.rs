//! Cases of segments: what is decided, once, and by whom.

use super::*;
use crate::rows::{Place, Refusal};
use floe_env::ErrorKind;

fn refused(refusal: Refusal) -> BatchOutcome {
    BatchOutcome::Refused(refusal)
}

/// Commits a segment of one section twice: the second time nothing changes. Gives what became of
/// its batches.
async fn twice(
    context: &Context,
    broker: &Registration,
    partition: TopicPartition,
    batches: Vec<BatchFacts>,
) -> Vec<BatchOutcome> {
    let sent = segment(broker, context.unique(), vec![(partition, batches)]);
    let first = context.commit(broker, &sent).await;
    let (state, extents) = (context.state(partition).await, context.all_extents(partition).await);
    assert_eq!(context.commit(broker, &sent).await, first, "a replay answers what was decided");
    assert_eq!(context.state(partition).await, state, "and changes nothing");
    assert_eq!(context.all_extents(partition).await, extents);
    first.into_iter().flat_map(|section| section.batches).collect()
}

pub(super) async fn refused_batch_splits_a_section(context: &Context) {
    let (broker, partition, id) =
        (context.broker().await, context.partition().await, context.producer());
    let batches = vec![
        plain(2),
        idempotent(id, 0, 0, 3),
        idempotent(id, 0, 7, 1),
        plain(1),
        idempotent(id, 0, 3, 2),
    ];
    let outcomes = twice(context, &broker, partition, batches).await;
    let expected =
        [accepted(0), accepted(2), refused(Refusal::OutOfOrderSequence), accepted(5), accepted(6)];
    assert_eq!(outcomes, expected);
    let state = context.state(partition).await.unwrap();
    assert_eq!((state.high_watermark, state.last_stable_offset, state.bytes), (8, 8, 400));
    let extents = context.all_extents(partition).await;
    let spans = extents.iter().map(|extent| (extent.base_offset, extent.last_offset));
    assert_eq!(spans.collect::<Vec<_>>(), [(0, 4), (5, 7)]);
    let Place::Range { position, length, .. } = &extents[1].place else {
        panic!("a fresh extent lies in an object");
    };
    assert_eq!((*position, *length), (300, 200));
}

pub(super) async fn duplicate_within_and_across_segments(context: &Context) {
    let (one, other) = (context.broker().await, context.broker().await);
    let (partition, id) = (context.partition().await, context.producer());
    let first = idempotent(id, 0, 0, 2);
    let next = idempotent(id, 0, 2, 1);
    let doubled = vec![first.clone(), first.clone(), next.clone()];
    let outcomes = twice(context, &one, partition, doubled).await;
    assert_eq!(outcomes, [accepted(0), duplicate(0), accepted(2)]);
    let again = vec![first, next, idempotent(id, 0, 3, 1)];
    let outcomes = twice(context, &other, partition, again).await;
    assert_eq!(outcomes, [duplicate(0), duplicate(2), accepted(3)]);
    assert_eq!(context.state(partition).await.unwrap().high_watermark, 4);
}

pub(super) async fn recreated_topic_refuses_old_batches(context: &Context) {
    let broker = context.broker().await;
    let name = format!("recreated-{}", context.number);
    let create = || context.store.create_topic(&name, 2, 1, Default::default());
    let crate::topics::TopicCreation::Created(old) = create().await.unwrap() else {
        panic!("the name was free");
    };
    let old_partition = TopicPartition { topic: old.id, partition: PartitionIndex(1) };
    let uploaded = segment(&broker, 0, vec![(old_partition, vec![plain(1), plain(1)])]);
    assert!(context.store.delete_topic(old.id).await.unwrap());
    let crate::topics::TopicCreation::Created(new) = create().await.unwrap() else {
        panic!("the name is free again");
    };
    assert_ne!(new.id, old.id);
    let outcome = context.commit(&broker, &uploaded).await.remove(0);
    assert_eq!(outcome.batches, [refused(Refusal::UnknownPartition); 2]);
    assert_eq!(outcome.state, None);
    let new_partition = TopicPartition { topic: new.id, partition: PartitionIndex(1) };
    assert_eq!(context.state(new_partition).await, Some(PartitionState::default()));
    assert!(context.store.delete_topic(new.id).await.unwrap());
    assert_eq!(context.commit(&broker, &uploaded).await.remove(0), outcome);
}

pub(super) async fn replay_changes_nothing(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(2).await);
    let id = context.producer();
    let one = segment(
        &broker,
        0,
        vec![(partitions[0], vec![plain(5)]), (partitions[1], vec![idempotent(id, 0, 0, 1)])],
    );
    let first = context.commit(&broker, &one).await;
    context.append(&broker, partitions[0], vec![plain(1)]).await;
    let before = context.store.partition_states(&partitions).await.unwrap();
    assert_eq!(context.commit(&broker, &one).await, first);
    let stored = context.store.segment_outcome(one.id).await.unwrap();
    assert_eq!(stored, Some(SegmentOutcome::Committed(first.clone())));
    // With a new one in the same call, and twice.
    let two = segment(&broker, 1000, vec![(partitions[0], vec![plain(1)])]);
    let together = [one.clone(), two.clone(), one.clone(), two.clone()];
    let outcomes = context.store.commit_segments(&broker.fence, &together).await.unwrap();
    assert_eq!(outcomes[0], SegmentOutcome::Committed(first.clone()));
    assert_eq!(outcomes[2], outcomes[0]);
    assert_eq!(outcomes[1], outcomes[3]);
    let after = context.store.partition_states(&partitions).await.unwrap();
    assert_eq!(after[0].unwrap().high_watermark, before[0].unwrap().high_watermark + 1);
    assert_eq!(after[1], before[1]);
}

pub(super) async fn closed_epoch_is_fenced(context: &Context) {
    let (old, partition) = (context.broker().await, context.partition().await);
    context.append(&old, partition, vec![plain(1)]).await;
    let new = context.register(old.id).await;
    assert!(new.epoch > old.epoch);
    let late = segment(&old, 500, vec![(partition, vec![plain(1)])]);
    let one = std::slice::from_ref(&late);
    let error = context.store.commit_segments(&old.fence, one).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(context.store.segment_outcome(late.id).await.unwrap(), None);
    let error = context.store.abandon_segment(&old.fence, late.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let error = context.store.forget_outcomes(&old.fence, late.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    context.append(&new, partition, vec![plain(1)]).await;
    context.store.deregister_broker(&new).await.unwrap();
    let late = segment(&new, 500, vec![(partition, vec![plain(1)])]);
    let error = context.store.commit_segments(&new.fence, &[late]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(context.state(partition).await.unwrap().high_watermark, 2);
}

pub(super) async fn abandoned_is_never_committed(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let late = segment(&broker, 3, vec![(partition, vec![plain(1)])]);
    for _ in 0..2 {
        let outcome = context.store.abandon_segment(&broker.fence, late.id).await.unwrap();
        assert_eq!(outcome, SegmentOutcome::Abandoned);
    }
    let good = segment(&broker, 4, vec![(partition, vec![plain(1)])]);
    let both = [late.clone(), good];
    let outcomes = context.store.commit_segments(&broker.fence, &both).await.unwrap();
    assert_eq!(outcomes[0], SegmentOutcome::Abandoned);
    assert_eq!(sections(outcomes[1].clone())[0].batches, [accepted(0)]);
    assert_eq!(context.store.known_objects(&[late.key]).await.unwrap(), [false]);
}

pub(super) async fn committed_is_not_abandoned(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let one = segment(&broker, 0, vec![(partition, vec![plain(1)])]);
    let outcome = context.commit(&broker, &one).await;
    let answer = context.store.abandon_segment(&broker.fence, one.id).await.unwrap();
    assert_eq!(answer, SegmentOutcome::Committed(outcome));
    assert_eq!(context.store.known_objects(&[one.key]).await.unwrap(), [true]);
}

pub(super) async fn commit_races_abandon(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let mut committed = 0;
    for counter in 0..20 {
        let one = segment(&broker, counter, vec![(partition, vec![plain(1)])]);
        let commit = context.store.commit_segments(&broker.fence, std::slice::from_ref(&one));
        let again = context.store.commit_segments(&broker.fence, std::slice::from_ref(&one));
        let abandon = context.store.abandon_segment(&broker.fence, one.id);
        let (commit, abandon, again) = futures::join!(commit, abandon, again);
        let commit = commit.unwrap().remove(0);
        assert_eq!(commit, abandon.unwrap());
        assert_eq!(commit, again.unwrap().remove(0));
        committed += i64::from(commit != SegmentOutcome::Abandoned);
    }
    assert_eq!(context.state(partition).await.unwrap().high_watermark, committed);
}

pub(super) async fn forgotten_outcomes_stay_decided(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let segments: Vec<SegmentFacts> = (0..4)
        .map(|counter| segment(&broker, counter, vec![(partition, vec![plain(1)])]))
        .collect();
    context.store.abandon_segment(&broker.fence, segments[0].id).await.unwrap();
    context.store.commit_segments(&broker.fence, &segments[1..3]).await.unwrap();
    context.store.forget_outcomes(&broker.fence, segments[1].id).await.unwrap();
    // Going back is no harm.
    context.store.forget_outcomes(&broker.fence, segments[0].id).await.unwrap();
    for gone in &segments[..2] {
        let one = std::slice::from_ref(gone);
        let error = context.store.commit_segments(&broker.fence, one).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let error = context.store.abandon_segment(&broker.fence, gone.id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let error = context.store.segment_outcome(gone.id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(context.store.segment_outcome(segments[2].id).await.unwrap().is_some());
    assert_eq!(context.commit(&broker, &segments[3]).await[0].batches, [accepted(2)]);
    let other = context.broker().await;
    let same_counter = segment(&other, 0, vec![(partition, vec![plain(1)])]);
    assert_eq!(context.commit(&other, &same_counter).await[0].batches, [accepted(3)]);
}

pub(super) async fn partitions_and_their_order(context: &Context) {
    let broker = context.broker().await;
    let (one, two) = (context.partitions(3).await, context.partitions(2).await);
    let missing = TopicPartition { topic: one[0].topic, partition: PartitionIndex(3) };
    let order = [two[1], one[2], missing, one[0], two[0], one[1]];
    let sections = order.iter().enumerate();
    let sections = sections.map(|(at, partition)| (*partition, vec![plain(at as u32 + 1)]));
    let outcomes = context.commit(&broker, &segment(&broker, 0, sections.collect())).await;
    let states = context.store.partition_states(&order).await.unwrap();
    for (at, (outcome, state)) in outcomes.iter().zip(states).enumerate() {
        assert_eq!(outcome.state, state);
        if order[at] == missing {
            assert_eq!(outcome.batches, [refused(Refusal::UnknownPartition)]);
            assert_eq!(state, None);
        } else {
            assert_eq!(outcome.batches, [accepted(0)]);
            let state = state.unwrap();
            assert_eq!((state.version, state.high_watermark), (1, at as i64 + 1));
        }
    }
    assert_eq!(context.store.partition_states(&[]).await.unwrap(), []);
    // One after the other, beyond the end, and twice.
    let runs = [one[0], one[1], one[2], missing, two[0], two[1], one[1], one[2], one[1]];
    let states = context.store.partition_states(&runs).await.unwrap();
    for (partition, state) in runs.iter().zip(states) {
        assert_eq!(context.store.partition_states(&[*partition]).await.unwrap(), [state]);
        assert_eq!(state.is_none(), *partition == missing);
    }
}

pub(super) async fn wrong_input_is_refused(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let good = segment(&broker, 0, vec![(partition, vec![plain(1), plain(1)])]);
    let mut twice = good.clone();
    twice.sections.push(twice.sections[0].clone());
    let mut gap = good.clone();
    gap.sections[0].batches[1].position += 1;
    let mut empty = good.clone();
    empty.sections[0].batches[0].record_count = 0;
    let mut beyond = good.clone();
    beyond.size = 150;
    let mut counter = good.clone();
    counter.id.counter = u64::MAX;
    let mut transactional = good.clone();
    transactional.sections[0].batches[0].transaction = in_transaction("t", true);
    for wrong in [twice, gap, empty, beyond, counter, transactional] {
        let both = [good.clone(), wrong];
        let error = context.store.commit_segments(&broker.fence, &both).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(context.store.commit_segments(&broker.fence, &[]).await.unwrap(), []);
    assert_eq!(context.state(partition).await.unwrap(), PartitionState::default());
}

pub(super) async fn producers_are_remembered(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let (one, two) = (context.producer(), context.producer());
    for sequence in 0..7 {
        let batches = vec![idempotent(one, 0, sequence, 1)];
        context.append(&broker, partition, batches).await;
    }
    let again = (0..8).map(|sequence| idempotent(one, 0, sequence, 1)).collect();
    let outcomes = context.append(&broker, partition, again).await;
    assert_eq!(outcomes[..2], [refused(Refusal::ForgottenDuplicate); 2]);
    let remembered: Vec<BatchOutcome> = (2..7).map(duplicate).collect();
    assert_eq!(outcomes[2..7], remembered);
    assert_eq!(outcomes[7], accepted(7));
    let newer = vec![idempotent(two, 3, 10, 2), idempotent(two, 2, 12, 1)];
    let outcomes = context.append(&broker, partition, newer).await;
    assert_eq!(outcomes, [accepted(8), refused(Refusal::StaleProducerEpoch)]);
    let known = context.store.producers(partition).await.unwrap();
    assert_eq!(known.iter().map(|producer| producer.id).collect::<Vec<_>>(), [one, two]);
    assert_eq!(known[0].batches.len(), crate::REMEMBERED_BATCHES_MAX);
    assert_eq!(known[0].batches[4].base_offset, 7);
    assert_eq!((known[1].epoch, known[1].batches[0].last_offset), (ProducerEpoch(3), 9));
    // DeleteRecords keeps them, the partition's end does not.
    context.store.advance_log_start(partition, 10).await.unwrap();
    assert_eq!(context.store.producers(partition).await.unwrap(), known);
    context.drop_partition(partition).await;
    assert_eq!(context.store.producers(partition).await.unwrap(), []);
}

pub(super) async fn producers_expire(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(2).await);
    let (idle, open) = (context.producer(), context.producer());
    let mut begins = idempotent(open, 0, 0, 1);
    begins.transaction = in_transaction(&context.transaction(open).await, true);
    for partition in &partitions {
        let batches = vec![idempotent(idle, 0, 0, 1), begins.clone()];
        context.append(&broker, *partition, batches).await;
    }
    let expire = |before_ms| context.store.expire_producers(partitions[0], before_ms);
    let written_ms = context.store.producers(partitions[0]).await.unwrap()[0].last_written_ms;
    assert_eq!(expire(written_ms).await.unwrap(), 0);
    assert_eq!(expire(written_ms + 1).await.unwrap(), 1);
    assert_eq!(expire(i64::MAX).await.unwrap(), 0);
    let left = context.store.producers(partitions[0]).await.unwrap();
    assert_eq!(left.iter().map(|producer| producer.id).collect::<Vec<_>>(), [open]);
    assert_eq!(context.store.producers(partitions[1]).await.unwrap().len(), 2);
    // Forgotten, it may go on anywhere.
    let outcomes = context.append(&broker, partitions[0], vec![idempotent(idle, 0, 9, 1)]).await;
    assert_eq!(outcomes, [accepted(2)]);
    let mut missing = partitions[0];
    missing.partition.0 = 9;
    assert_eq!(context.store.expire_producers(missing, i64::MAX).await.unwrap(), 0);
}

pub(super) async fn open_transaction_holds_the_stable_offset(context: &Context) {
    let (broker, partition, id) =
        (context.broker().await, context.partition().await, context.producer());
    let mut begins = idempotent(id, 0, 0, 1);
    begins.transaction = in_transaction(&context.transaction(id).await, true);
    let outcomes = context.append(&broker, partition, vec![plain(2), begins, plain(1)]).await;
    assert_eq!(outcomes, [accepted(0), accepted(2), accepted(3)]);
    let state = context.state(partition).await.unwrap();
    assert_eq!((state.last_stable_offset, state.high_watermark), (2, 4));
    let outside = vec![idempotent(id, 0, 1, 1), plain(1)];
    let outcomes = context.append(&broker, partition, outside).await;
    assert_eq!(outcomes, [refused(Refusal::InvalidTransactionState), accepted(4)]);
    assert_eq!(context.state(partition).await.unwrap().last_stable_offset, 2);
    let known = context.store.producers(partition).await.unwrap();
    assert_eq!(known[0].transaction_start, Some(2));
    assert!(context.all_extents(partition).await[0].has_transactional);
    assert_eq!(context.store.aborted(partition, 0, i64::MAX).await.unwrap(), []);
}

pub(super) async fn many_segments_commit_together(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(50).await);
    let id = context.producer();
    let segments: Vec<SegmentFacts> = (0..10)
        .map(|counter| {
            let batch = |_| vec![idempotent(id, 0, counter as i32, 1), plain(1)];
            let sections = partitions.iter().map(|partition| (*partition, batch(partition)));
            segment(&broker, counter, sections.collect())
        })
        .collect();
    let outcomes = context.store.commit_segments(&broker.fence, &segments).await.unwrap();
    for (counter, outcome) in outcomes.into_iter().enumerate() {
        let base = counter as i64 * 2;
        for section in sections(outcome) {
            assert_eq!(section.batches, [accepted(base), accepted(base + 1)]);
            assert_eq!(section.state.unwrap().version, counter as u64 + 1);
        }
    }
    for partition in partitions {
        assert_eq!(context.all_extents(partition).await.len(), 10);
        assert_eq!(context.state(partition).await.unwrap().bytes, 2000);
    }
}

pub(super) async fn dropped_calls_are_whole(context: &Context) {
    let (broker, partitions) = (context.broker().await, context.partitions(2).await);
    let mut committed = 0;
    for counter in 0..40 {
        let sections = partitions.iter().map(|partition| (*partition, vec![plain(1)]));
        let one = segment(&broker, counter, sections.collect());
        let segments = std::slice::from_ref(&one);
        let mut call = Box::pin(context.store.commit_segments(&broker.fence, segments));
        for _ in 0..counter {
            if futures::poll!(&mut call).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
        let outcome = context.store.abandon_segment(&broker.fence, one.id).await.unwrap();
        committed += i64::from(outcome != SegmentOutcome::Abandoned);
    }
    for state in context.store.partition_states(&partitions).await.unwrap() {
        assert_eq!(state.unwrap().high_watermark, committed);
    }
}
