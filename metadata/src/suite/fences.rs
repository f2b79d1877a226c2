//! Closed epochs: nothing that clients or readers can see is changed by a broker whose registration
//! has been replaced or given up.

use super::*;
use crate::compaction::CompactionMark;
use crate::facts::{Check, Expect, Fence};
use crate::groups::CommittedOffset;
use crate::retention::WrittenMark;
use crate::topics::{Topic, TopicCreation};
use floe_env::{ErrorKind, Result};
use std::collections::BTreeMap;

/// What a broker may change, each as a call.
async fn change_everything(store: &MetadataStore, topic: &Topic, other: &str) -> Vec<Result<()>> {
    let partition = TopicPartition { topic: topic.id, partition: PartitionIndex(0) };
    let configs = BTreeMap::from([("retention.ms".to_owned(), "7".to_owned())]);
    let offset = CommittedOffset {
        offset: 1,
        leader_epoch: -1,
        metadata: String::new(),
        commit_ms: 5,
        expires_ms: None,
    };
    let mark = CompactionMark { clean_until: 1, at_ms: 1, horizon_ms: None };
    let mut answers = vec![
        store.create_topic(other, 1, 1, BTreeMap::new()).await.map(drop),
        store.create_partitions(topic.id, 9).await.map(drop),
        store.set_topic_configs(topic.id, &BTreeMap::new(), configs).await.map(drop),
        store.advance_log_start(partition, 1).await.map(drop),
        store.expire_producers(partition, i64::MAX).await.map(drop),
        store.put_group(other, None, Bytes::from_static(b"member")).await.map(drop),
        store.commit_offsets(other, &[(partition, offset)], None).await.map(drop),
        store.delete_offsets(other, &[partition], None).await.map(drop),
        store.set_table_progress(topic.id, Some(Bytes::from_static(b"7"))).await.map(drop),
        store.set_written_mark(partition, Some(WrittenMark { end: 1, since_ms: 1 })).await,
        store.set_compaction_mark(partition, Some(mark)).await,
        store.allocate_producer_ids(1).await.map(drop),
    ];
    answers.push(store.delete_topic(topic.id).await.map(drop));
    answers
}

/// What all of it would have changed.
async fn everything(store: &MetadataStore, topic: &Topic, other: &str) -> String {
    let partition = TopicPartition { topic: topic.id, partition: PartitionIndex(0) };
    let parts = (
        store.topic_by_id(topic.id).await.unwrap(),
        store.topic_by_name(other).await.unwrap(),
        store.topics_revision().await.unwrap(),
        store.partition_states(&[partition]).await.unwrap(),
        store.producers(partition).await.unwrap().len(),
        store.group(other).await.unwrap(),
        store.offsets(other).await.unwrap(),
        store.table_progress(topic.id).await.unwrap(),
        store.written_marks().await.unwrap().get(&partition).copied(),
        store.compaction_marks().await.unwrap().get(&partition).copied(),
    );
    format!("{parts:?}")
}

pub(super) async fn closed_epochs_change_nothing(context: &Context) {
    let (name, other) = (format!("f-{}", context.number), format!("other-{}", context.number));
    let made = context.store.create_topic(&name, 2, 1, BTreeMap::new()).await.unwrap();
    let TopicCreation::Created(topic) = made else { panic!("{name} exists") };
    let partition = TopicPartition { topic: topic.id, partition: PartitionIndex(0) };
    let old = context.broker().await;
    let batch = idempotent(context.producer(), 0, 0, 3);
    assert_eq!(context.append(&old, partition, vec![batch]).await, [accepted(0)]);
    let before = everything(&context.store, &topic, &other).await;
    let new = context.register(old.id).await;
    let replaced = context.store.fenced_by(old.fence.clone());
    for (at, answer) in change_everything(&replaced, &topic, &other).await.into_iter().enumerate() {
        let kind = answer.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::Fenced), "call {at} of a broker that was replaced");
    }
    assert_eq!(everything(&context.store, &topic, &other).await, before);
    let open = context.store.fenced_by(new.fence.clone());
    for (at, answer) in change_everything(&open, &topic, &other).await.into_iter().enumerate() {
        assert!(answer.is_ok(), "call {at}: {answer:?}");
    }
    assert_eq!(context.store.topic_by_id(topic.id).await.unwrap(), None);
    open.deregister_broker(&new).await.unwrap();
    let error = open.allocate_producer_ids(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

/// A fence may hold because a fact is not there, and it comes before any check.
pub(super) async fn fences_of_absent_facts(context: &Context) {
    let (role, key) = (context.key("role"), context.key("value"));
    let partition = context.partition().await;
    let broker = context.broker().await;
    context.append(&broker, partition, vec![plain(3)]).await;
    let absent = |key: &FactKey| Check { key: key.clone(), expect: Expect::Absent };
    let fence = Fence(absent(&role));
    let change = Change {
        checks: vec![absent(&key)],
        writes: vec![Write::Put(key.clone(), Bytes::from_static(b"1"))],
        fence: Some(fence.clone()),
        ..Change::default()
    };
    let backend = context.store.backend();
    assert_eq!(backend.change(&change).await.unwrap(), ChangeOutcome::Applied);
    assert_eq!(backend.change(&change).await.unwrap(), ChangeOutcome::Rejected);
    let advance = |offset| backend.advance_log_start(Some(&fence), partition, offset);
    assert_eq!(advance(1).await.unwrap().unwrap().log_start_offset, 1);
    backend.expire_producers(Some(&fence), partition, 0).await.unwrap();
    assert_eq!(backend.get(std::slice::from_ref(&role)).await.unwrap(), [None]);
    context.put(&role, "taken").await;
    assert_eq!(backend.change(&change).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(advance(2).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(context.state(partition).await.unwrap().log_start_offset, 1);
}
