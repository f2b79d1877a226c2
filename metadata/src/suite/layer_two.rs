//! Cases of what stands once above every backend.

use super::*;
use crate::compaction::CompactionMark;
use crate::deletion::DeletionStop;
use crate::groups::{CommittedOffset, group_check};
use crate::retention::WrittenMark;
use crate::topics::{Topic, TopicChange, TopicCreation};
use floe_env::ErrorKind;
use kfs::ClusterId;
use std::collections::{BTreeMap, BTreeSet};

pub(super) async fn cluster_identity(context: &Context) {
    let id = ClusterId(Uuid::from_u128(7));
    assert_eq!(context.store.cluster_id().await.unwrap(), None);
    assert_eq!(context.store.incarnation().await.unwrap(), None);
    assert_eq!(context.store.initialise_cluster(id).await.unwrap(), id);
    let other = ClusterId(Uuid::from_u128(8));
    assert_eq!(context.store.initialise_cluster(other).await.unwrap(), id);
    assert_eq!(context.store.cluster_id().await.unwrap(), Some(id));
    assert!(context.store.incarnation().await.unwrap().is_some());
}

async fn created(context: &Context, name: &str, partitions: i32) -> Topic {
    match context.store.create_topic(name, partitions, 1, BTreeMap::new()).await.unwrap() {
        TopicCreation::Created(topic) => topic,
        TopicCreation::AlreadyExists(topic) => panic!("{topic:?} was there"),
    }
}

pub(super) async fn topics(context: &Context) {
    let name = format!("orders/{}%", context.number);
    let before = context.store.topics_revision().await.unwrap();
    assert_eq!(context.store.topic_by_name(&name).await.unwrap(), None);
    let topic = created(context, &name, 3).await;
    assert!(context.store.topics_revision().await.unwrap() > before);
    assert_eq!(context.store.topic_by_name(&name).await.unwrap(), Some(topic.clone()));
    assert_eq!(context.store.topic_by_id(topic.id).await.unwrap(), Some(topic.clone()));
    assert!(context.store.topics().await.unwrap().contains(&topic));
    let again = context.store.create_topic(&name, 9, 1, BTreeMap::new()).await.unwrap();
    assert_eq!(again, TopicCreation::AlreadyExists(topic.clone()));
    let last = TopicPartition { topic: topic.id, partition: PartitionIndex(2) };
    assert_eq!(context.state(last).await, Some(PartitionState::default()));
    // Many at once, two of them of the same name.
    let names = (0..6).map(|number| format!("{name}-{}", number / 2)).collect::<Vec<_>>();
    let creations =
        names.iter().map(|name| context.store.create_topic(name, 1, 1, BTreeMap::new()));
    let creations = futures::future::join_all(creations).await;
    let made = creations.into_iter().map(Result::unwrap);
    assert_eq!(made.filter(|made| matches!(made, TopicCreation::Created(_))).count(), 3);
    let revision = context.store.topics_revision().await.unwrap();
    assert_eq!(revision, before + 4);
    assert!(context.store.delete_topic(topic.id).await.unwrap());
    assert!(!context.store.delete_topic(topic.id).await.unwrap());
    assert_eq!(context.store.topics_revision().await.unwrap(), revision + 1);
    assert_eq!(context.store.topic_by_name(&name).await.unwrap(), None);
    assert_eq!(context.state(last).await, None);
    let error = context.store.create_topic("x", 0, 1, BTreeMap::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

pub(super) async fn topics_made_anew(context: &Context) {
    let (id, name) = (context.fresh_topic(), format!("lost/{}", context.number));
    let store = &context.store;
    let before = store.topics_revision().await.unwrap();
    let made = store.recreate_topic(id, &name, &[7, 0]).await.unwrap();
    let TopicCreation::Created(topic) = made else { panic!("it is there: {made:?}") };
    assert_eq!((topic.id, topic.partition_count), (id, 2));
    assert_eq!(store.topic_by_name(&name).await.unwrap(), Some(topic.clone()));
    assert!(store.topics_revision().await.unwrap() > before);
    let ends = async |index| {
        let partition = TopicPartition { topic: id, partition: PartitionIndex(index) };
        let state = context.state(partition).await.unwrap();
        (state.log_start_offset, state.high_watermark)
    };
    assert_eq!((ends(0).await, ends(1).await), ((7, 7), (0, 0)));
    let again = store.recreate_topic(id, "other", &[7]).await.unwrap();
    assert_eq!(again, TopicCreation::AlreadyExists(topic.clone()), "its id is taken");
    let again = store.recreate_topic(context.fresh_topic(), &name, &[7]).await.unwrap();
    assert_eq!(again, TopicCreation::AlreadyExists(topic), "its name is taken");
    let error = store.recreate_topic(context.fresh_topic(), "none", &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

pub(super) async fn topic_configs_and_partitions(context: &Context) {
    let topic = created(context, &format!("configs-{}", context.number), 2).await;
    let configs = BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())]);
    let set = |expected, configs| context.store.set_topic_configs(topic.id, expected, configs);
    let none = BTreeMap::new();
    let changed = set(&none, configs.clone()).await.unwrap();
    let expected = Topic { configs: configs.clone(), ..topic.clone() };
    assert_eq!(changed, TopicChange::Changed(expected.clone()));
    assert_eq!(set(&none, none.clone()).await.unwrap(), TopicChange::Refused(expected.clone()));
    assert_eq!(context.store.topic_by_id(topic.id).await.unwrap(), Some(expected.clone()));
    let grown = Topic { partition_count: 4, ..expected };
    let outcome = context.store.create_partitions(topic.id, 4).await.unwrap();
    assert_eq!(outcome, TopicChange::Changed(grown.clone()));
    for count in [4, 3] {
        let outcome = context.store.create_partitions(topic.id, count).await.unwrap();
        assert_eq!(outcome, TopicChange::Refused(grown.clone()));
    }
    let all: Vec<TopicPartition> = (0..5)
        .map(|index| TopicPartition { topic: topic.id, partition: PartitionIndex(index) })
        .collect();
    let states = context.store.partition_states(&all).await.unwrap();
    assert_eq!(states.iter().filter(|state| state.is_some()).count(), 4);
    assert!(context.store.delete_topic(topic.id).await.unwrap());
    let states = context.store.partition_states(&all).await.unwrap();
    assert!(states.iter().all(Option::is_none));
    let outcome = context.store.create_partitions(topic.id, 9).await.unwrap();
    assert_eq!(outcome, TopicChange::NoSuchTopic);
    assert_eq!(set(&none, none.clone()).await.unwrap(), TopicChange::NoSuchTopic);
}

pub(super) async fn brokers_and_epochs(context: &Context) {
    let first = context.broker().await;
    let second = context.register(first.id).await;
    assert!(second.epoch > first.epoch);
    let address =
        BrokerAddress { host: "b.example".to_owned(), port: 9093, zone: Some("z".to_owned()) };
    let renew =
        |registration, lease| context.store.renew_broker_lease(registration, &address, lease);
    let error = renew(&first, 5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let now_ms = context.store.now_ms().await.unwrap();
    renew(&second, 60_000).await.unwrap();
    let listed = async || {
        let brokers = context.store.brokers().await.unwrap();
        brokers.into_iter().find(|broker| broker.id == first.id)
    };
    let broker = listed().await.unwrap();
    assert_eq!((broker.epoch, &broker.address), (second.epoch, &address));
    assert!(broker.lease_until_ms >= now_ms + 60_000);
    let epochs = async || {
        let epochs = context.store.broker_epochs().await.unwrap();
        epochs.into_iter().find(|epochs| epochs.id == first.id).unwrap()
    };
    assert!(epochs().await.is_closed(first.epoch));
    assert!(!epochs().await.is_closed(second.epoch));
    let error = context.store.deregister_broker(&first).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    context.store.deregister_broker(&second).await.unwrap();
    assert!(epochs().await.is_closed(second.epoch));
    assert_eq!(listed().await, None);
    let third = context.register(first.id).await;
    assert!(third.epoch > second.epoch);
    // Several starts at once: every epoch once, one of them open.
    let starts = futures::future::join_all((0..5).map(|_| context.register(first.id))).await;
    let distinct: BTreeSet<BrokerEpoch> = starts.iter().map(|start| start.epoch).collect();
    assert_eq!(distinct.len(), 5);
    let last = *distinct.last().unwrap();
    assert_eq!((epochs().await.last, epochs().await.is_open), (last, true));
}

pub(super) async fn producer_ids_are_unique(context: &Context) {
    let blocks = (1..8).map(|count| context.store.allocate_producer_ids(count));
    let blocks = futures::future::join_all(blocks).await;
    let ids: Vec<i64> = blocks.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(ids.len(), (1..8).sum::<usize>());
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    for wrong in [0, u32::MAX] {
        let error = context.store.allocate_producer_ids(wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

pub(super) async fn groups(context: &Context) {
    use ChangeOutcome::{Applied, Rejected};
    let group = format!("g/{}", context.number);
    let record = |text: &'static str| Bytes::from_static(text.as_bytes());
    let put = |expected, next| context.store.put_group(&group, expected, next);
    assert_eq!(put(Some(record("0")), record("1")).await.unwrap(), Rejected);
    assert_eq!(put(None, record("1")).await.unwrap(), Applied);
    assert_eq!(put(None, record("2")).await.unwrap(), Rejected);
    assert_eq!(put(Some(record("1")), record("2")).await.unwrap(), Applied);
    assert_eq!(context.store.group(&group).await.unwrap(), Some(record("2")));
    let listed = context.store.groups().await.unwrap();
    let whole = (group.clone(), record("2"));
    assert!(listed.contains(&whole));
    assert!(context.store.groups_after(None, usize::MAX).await.unwrap().contains(&whole));
    assert_eq!(context.store.groups_after(None, 1).await.unwrap().len(), 1);
    assert!(!context.store.groups_after(Some(&group), usize::MAX).await.unwrap().contains(&whole));
    fences_hold_for_groups(context, &group).await;
    let delete = |expected| context.store.delete_group(&group, expected);
    assert_eq!(delete(Some(record("1"))).await.unwrap(), Rejected);
    assert_eq!(delete(Some(record("2"))).await.unwrap(), Applied);
    assert_eq!(context.store.group(&group).await.unwrap(), None);
}

/// A record that holds "2" and stays.
async fn fences_hold_for_groups(context: &Context, group: &str) {
    let record = || Some(Bytes::from_static(b"2"));
    let broker = context.broker().await;
    let store = context.store.fenced_by(broker.fence.clone());
    let put = || store.put_group(group, record(), Bytes::from_static(b"2"));
    assert_eq!(put().await.unwrap(), ChangeOutcome::Applied);
    context.register(broker.id).await;
    assert_eq!(put().await.unwrap_err().kind(), ErrorKind::Fenced);
    let deleted = store.delete_group(group, record()).await.unwrap_err();
    assert_eq!(deleted.kind(), ErrorKind::Fenced);
}

pub(super) async fn group_offsets(context: &Context) {
    use ChangeOutcome::{Applied, Rejected};
    let group = format!("offsets-{}", context.number);
    let partitions = context.partitions(11).await;
    let offset = |offset| CommittedOffset {
        offset,
        leader_epoch: -1,
        metadata: "nöte\u{0}".to_owned(),
        commit_ms: 5,
        expires_ms: (offset > 9).then_some(offset),
    };
    let record = Bytes::from_static(b"member");
    context.store.put_group(&group, None, record.clone()).await.unwrap();
    let all: Vec<_> = partitions.iter().map(|p| (*p, offset(i64::from(p.partition.0)))).collect();
    let commit = |offsets, check| context.store.commit_offsets(&group, offsets, check);
    let stale = Some(group_check(&group, None));
    assert_eq!(commit(&all, stale.clone()).await.unwrap(), Rejected);
    assert_eq!(context.store.offsets(&group).await.unwrap(), BTreeMap::new());
    let fence = Some(group_check(&group, Some(record.clone())));
    assert_eq!(commit(&all, fence.clone()).await.unwrap(), Applied);
    assert_eq!(context.store.offsets(&group).await.unwrap(), all.iter().cloned().collect());
    let newer = [(partitions[10], offset(99))];
    assert_eq!(commit(&newer, None).await.unwrap(), Applied);
    let mut missing = partitions[0];
    missing.partition.0 = 77;
    let some = [missing, partitions[10], partitions[0]];
    let read = context.store.offsets_of(&group, &some).await.unwrap();
    assert_eq!(read, [None, Some(offset(99)), Some(offset(0))]);
    let delete = |check| context.store.delete_offsets(&group, &partitions[..2], check);
    assert_eq!(delete(stale).await.unwrap(), Rejected);
    assert_eq!(delete(fence).await.unwrap(), Applied);
    assert_eq!(context.store.offsets(&group).await.unwrap().len(), 9);
    let other = format!("offsets-{}0", context.number);
    context.store.commit_offsets(&other, &newer, None).await.unwrap();
    let named = context.store.groups_with_offsets().await.unwrap();
    assert!(named.contains(&group) && named.contains(&other));
    assert_eq!(context.store.delete_group(&group, Some(record)).await.unwrap(), Applied);
    assert_eq!(context.store.offsets(&group).await.unwrap(), BTreeMap::new());
    assert_eq!(context.store.offsets(&other).await.unwrap().len(), 1);
}

pub(super) async fn table_progress(context: &Context) {
    let topic = context.fresh_topic();
    let progress = Bytes::from_static(b"\x00\xff");
    context.store.set_table_progress(topic, Some(progress.clone())).await.unwrap();
    assert_eq!(context.store.table_progress(topic).await.unwrap(), Some(progress.clone()));
    let both = context.store.table_progress_of(&[context.fresh_topic(), topic]).await.unwrap();
    assert_eq!(both, [None, Some(progress)]);
    context.store.set_table_progress(topic, None).await.unwrap();
    assert_eq!(context.store.table_progress(topic).await.unwrap(), None);
}

pub(super) async fn written_marks(context: &Context) {
    let store = &context.store;
    let topic = context.fresh_topic();
    let at = |index| TopicPartition { topic, partition: PartitionIndex(index) };
    let own = async || {
        let all = store.written_marks().await.unwrap().into_iter();
        all.filter(|(partition, _)| partition.topic == topic).collect::<Vec<_>>()
    };
    let (one, other) =
        (WrittenMark { end: 7, since_ms: -1 }, WrittenMark { end: i64::MAX, since_ms: 5 });
    assert!(one.covers(6) && !one.covers(7));
    store.set_written_mark(at(0), Some(one)).await.unwrap();
    store.set_written_mark(at(11), Some(one)).await.unwrap();
    store.set_written_mark(at(0), Some(other)).await.unwrap();
    assert_eq!(own().await, [(at(0), other), (at(11), one)]);
    store.set_written_mark(at(0), None).await.unwrap();
    store.set_written_mark(at(3), None).await.unwrap();
    assert_eq!(own().await, [(at(11), one)]);
}

pub(super) async fn compaction_marks(context: &Context) {
    let store = &context.store;
    let topic = context.fresh_topic();
    let at = |index| TopicPartition { topic, partition: PartitionIndex(index) };
    let own = async || {
        let all = store.compaction_marks().await.unwrap().into_iter();
        all.filter(|(partition, _)| partition.topic == topic).collect::<Vec<_>>()
    };
    let one = CompactionMark { clean_until: 7, at_ms: 5, horizon_ms: None };
    let other = CompactionMark { clean_until: i64::MAX, at_ms: -1, horizon_ms: Some(9) };
    store.set_compaction_mark(at(0), Some(one)).await.unwrap();
    store.set_compaction_mark(at(11), Some(one)).await.unwrap();
    store.set_compaction_mark(at(0), Some(other)).await.unwrap();
    assert_eq!(own().await, [(at(0), other), (at(11), one)]);
    store.set_compaction_mark(at(0), None).await.unwrap();
    store.set_compaction_mark(at(3), None).await.unwrap();
    assert_eq!(own().await, [(at(11), one)]);
}

pub(super) async fn new_incarnation(context: &Context) {
    context.store.initialise_cluster(ClusterId(Uuid::from_u128(7))).await.unwrap();
    let broker = context.broker().await;
    let ids = context.store.allocate_producer_ids(1).await.unwrap();
    let previous = context.store.incarnation().await.unwrap().unwrap();
    let next = Uuid::from_u128(99);
    let begin = |previous, next| context.store.begin_incarnation(previous, (next, 1), "restored");
    assert_eq!(begin(next, previous).await.unwrap(), ChangeOutcome::Rejected);
    assert_eq!(context.store.deletion_stop().await.unwrap(), None);
    assert_eq!(begin(previous, next).await.unwrap(), ChangeOutcome::Applied);
    assert_eq!(context.store.incarnation().await.unwrap(), Some(next));
    let id = context.fresh_topic();
    let nobody = TopicPartition { topic: id, partition: PartitionIndex(0) };
    let late = segment(&broker, 0, vec![(nobody, vec![plain(1)])]);
    let error = context.store.commit_segments(&broker.fence, &[late]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let again = context.register(broker.id).await;
    assert!(again.epoch.0 > broker.epoch.0 + 1_000_000);
    let later = context.store.allocate_producer_ids(1).await.unwrap();
    assert!(later.start > ids.end + 1_000_000_000);
    let stop = context.store.deletion_stop().await.unwrap().unwrap();
    assert_eq!(stop.reason, "restored");
    let other = DeletionStop { reason: "another".to_owned(), ..stop.clone() };
    let allow = |stop| context.store.allow_deletion(stop);
    assert_eq!(allow(&other).await.unwrap(), ChangeOutcome::Rejected);
    assert_eq!(allow(&stop).await.unwrap(), ChangeOutcome::Applied);
    assert_eq!(context.store.deletion_stop().await.unwrap(), None);
    assert_eq!(allow(&stop).await.unwrap(), ChangeOutcome::Rejected);
    // A later one leaps further, from wherever it begins: past all that came before it.
    let last = (Uuid::from_u128(100), 2);
    let begun = context.store.begin_incarnation(next, last, "restored").await.unwrap();
    assert_eq!(begun, ChangeOutcome::Applied);
    let latest = context.register(broker.id).await;
    assert!(latest.epoch.0 > again.epoch.0 + 2_000_000);
    let beyond = (Uuid::from_u128(101), 22);
    let error = context.store.begin_incarnation(last.0, beyond, "restored").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    let stop = context.store.deletion_stop().await.unwrap().unwrap();
    assert_eq!(context.store.allow_deletion(&stop).await.unwrap(), ChangeOutcome::Applied);
}
