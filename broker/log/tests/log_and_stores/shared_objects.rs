//! Merged objects that several partitions share, where each PUT has a price: what happens to one of
//! the partitions is nothing to the others, and the object stays for as long as any needs it.

use crate::keyed::terms;
use crate::merge::{fill, seen};
use crate::rig::{PAST_THE_GRACE_MS, Rig, fetch, key};
use floe_log::MergeRules;
use floe_log::merge::MergeRound;
use floe_metadata::rows::{Extent, Place};
use floe_store::ObjectStore;
use futures::FutureExt;
use futures::future::BoxFuture;
use kfs::TopicPartition;

/// 64 pieces of a partition are merged, all of them small.
const PRICED: u64 = 1 << 20;

fn priced() -> MergeRules {
    MergeRules { bytes_min: PRICED, ..MergeRules::default() }
}

/// Partition 1 has the fewest bytes, and the last one is of another topic.
fn partitions(rig: &Rig) -> [TopicPartition; 3] {
    let other = TopicPartition { topic: rig.other_topic, ..rig.partition(0) };
    [rig.partition(0), rig.partition(1), other]
}

/// 80 segments of three partitions.
async fn filled() -> Rig {
    let rig = Rig::new().await;
    fill(&rig).await;
    fill(&rig).await;
    rig
}

async fn round(rig: &Rig) -> MergeRound {
    rig.merger(priced()).round(&rig.broker.shutdown).await.expect("a round")
}

/// Merged objects in the store, by their keys below the cluster's root.
async fn objects(rig: &Rig) -> Vec<String> {
    let stored = rig.store.list(&rig.object("log"), None, 100).await.expect("list");
    let root = rig.object("");
    stored.iter().map(|object| object.key.strip_prefix(&root).expect("ours").to_owned()).collect()
}

/// Is the partition's log one extent in this object?
async fn is_in(rig: &Rig, partition: TopicPartition, object: &str) -> bool {
    let extents = rig.extents(partition).await;
    extents.len() == 1 && key(&extents[0]) == object
}

/// The only object that a round makes, when something happens after its put.
async fn merged_while(rig: &Rig, hook: BoxFuture<'static, ()>) -> String {
    rig.store.after_next_put(hook);
    assert_eq!(round(rig).await.merges, 1);
    let objects = objects(rig).await;
    assert_eq!(objects.len(), 1, "{objects:?}");
    objects[0].clone()
}

#[tokio::test(start_paused = true)]
async fn partitions_of_several_topics_share_an_object_and_clients_see_no_difference() {
    let mut rig = filled().await;
    let mut before = Vec::new();
    for partition in partitions(&rig) {
        before.push(seen(&rig.broker.log, partition, 0).await);
    }
    let puts = rig.stored().await;
    let done = round(&rig).await;
    assert_eq!((done.merges, done.sources), (1, 240));
    assert_eq!(rig.stored().await, puts + 1);
    let object = objects(&rig).await.remove(0);
    for (partition, before) in partitions(&rig).iter().zip(&before) {
        assert!(is_in(&rig, *partition, &object).await);
        assert_eq!(&seen(&rig.broker.log, *partition, 0).await, before);
    }
    assert_eq!(rig.store.reads(), 0, "what was cached stays cached under its new names");
    assert_eq!(round(&rig).await, MergeRound::default(), "nothing is left to do");
    // It is readable by itself: a section a partition, where its extents are.
    let bytes = rig.store.get(&rig.object(&object)).await.unwrap().unwrap();
    let read = |range: std::ops::Range<u64>| {
        Ok::<_, ()>(bytes.slice(range.start as usize..range.end as usize))
    };
    let sections = kfs::open(bytes.len() as u64, read).expect("a whole object").sections;
    assert_eq!(sections.len(), 3);
    let mut by_id = partitions(&rig);
    by_id.sort();
    for (section, partition) in sections.iter().zip(by_id) {
        assert_eq!((section.topic, section.partition), (partition.topic, partition.partition));
        let [Extent { place: Place::Range { position, length, .. }, .. }] =
            &rig.extents(partition).await[..]
        else {
            panic!("one extent");
        };
        assert_eq!((section.position, section.length), (*position, *length));
    }
    // A reader that has nothing in memory sees the same.
    rig.broker = rig.start(2).await;
    for (partition, before) in partitions(&rig).iter().zip(&before) {
        assert_eq!(&seen(&rig.broker.log, *partition, 0).await, before);
    }
}

/// The sections of a fresh segment that several partitions merge come with one read.
#[tokio::test(start_paused = true)]
async fn sources_of_several_partitions_are_read_together() {
    let mut rig = filled().await;
    rig.broker = rig.start(2).await;
    let done = round(&rig).await;
    assert_eq!((done.merges, done.sources), (1, 240));
    assert_eq!(rig.store.reads(), 80, "one for each segment");
}

#[tokio::test(start_paused = true)]
async fn the_object_stays_until_the_last_partition_lets_go_of_it() {
    let rig = filled().await;
    let [first, second, other] = partitions(&rig);
    let kept = fetch(&rig.broker.log, second, 0, 1 << 20).await;
    round(&rig).await;
    let object = objects(&rig).await;
    rig.metadata.delete_topic(other.topic).await.unwrap();
    rig.metadata.advance_log_start(first, i64::MAX).await.unwrap();
    rig.pass(PAST_THE_GRACE_MS).await;
    assert_eq!(rig.cleaner().round().await.unwrap().dead, 80, "the fresh segments");
    assert_eq!(objects(&rig).await, object);
    assert_eq!(fetch(&rig.start(2).await.log, second, 0, 1 << 20).await, kept);
    rig.metadata.advance_log_start(second, i64::MAX).await.unwrap();
    rig.pass(PAST_THE_GRACE_MS).await;
    assert_eq!(rig.cleaner().round().await.unwrap().dead, 1);
    assert_eq!(rig.stored().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_deleted_meanwhile_does_not_spoil_the_other_partitions_merge() {
    for deletes_first in [true, false] {
        let rig = filled().await;
        let [first, second, other] = partitions(&rig);
        let deleted = if deletes_first { first.topic } else { other.topic };
        let metadata = rig.metadata.clone();
        let hook = async move {
            metadata.delete_topic(deleted).await.unwrap();
        };
        let object = merged_while(&rig, hook.boxed()).await;
        let left = if deletes_first { vec![other] } else { vec![first, second] };
        for partition in left {
            assert!(is_in(&rig, partition, &object).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_changes_meanwhile_keeps_what_it_has_and_the_others_are_merged() {
    for changes in 0..3 {
        let rig = filled().await;
        let partition = partitions(&rig)[changes];
        let before = rig.extents(partition).await;
        let metadata = rig.metadata.clone();
        let end = before[0].last_offset + 1;
        let hook = async move {
            metadata.advance_log_start(partition, end).await.unwrap();
        };
        rig.store.after_next_put(hook.boxed());
        let merger = rig.merger(priced());
        let done = merger.round(&rig.broker.shutdown).await.expect("a round");
        // What it is now is merged in the same round, in an object of its own.
        assert_eq!((done.merges, done.sources), (2, 160 + 79));
        let shared = rig.objects(partitions(&rig)[(changes + 1) % 3]).await.remove(0);
        assert!(is_in(&rig, partitions(&rig)[(changes + 2) % 3], &shared).await);
        assert!(!is_in(&rig, partition, &shared).await);
        assert_eq!(rig.extents(partition).await[0].base_offset, end);
        assert_eq!(objects(&rig).await.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_no_partition_wants_any_more_is_deleted_at_once() {
    let rig = filled().await;
    let (metadata, topics) = (rig.metadata.clone(), [rig.topic, rig.other_topic]);
    let hook = async move {
        for topic in topics {
            metadata.delete_topic(topic).await.unwrap();
        }
    };
    rig.store.after_next_put(hook.boxed());
    assert_eq!(round(&rig).await, MergeRound::default());
    assert_eq!(objects(&rig).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_ends_between_put_and_swap_leaves_an_orphan_that_goes() {
    let mut rig = filled().await;
    let mut before = Vec::new();
    for partition in partitions(&rig) {
        before.push(rig.extents(partition).await);
    }
    let metadata = rig.metadata.clone();
    let address = floe_metadata::brokers::BrokerAddress {
        host: "localhost".to_owned(),
        port: 9092,
        zone: None,
    };
    let hook = async move {
        metadata.register_broker(kfs::BrokerId(1), &address, 30_000).await.unwrap();
    };
    rig.store.after_next_put(hook.boxed());
    let error = rig.merger(priced()).round(&rig.broker.shutdown).await.unwrap_err();
    assert_eq!(error.kind(), floe_env::ErrorKind::Fenced);
    assert_eq!(objects(&rig).await.len(), 1, "it was put");
    rig.broker = rig.start(1).await;
    for (partition, before) in partitions(&rig).iter().zip(&before) {
        assert_eq!(&rig.extents(*partition).await, before);
    }
    assert_eq!(rig.cleaner().round().await.unwrap().orphans, 1);
    assert_eq!(objects(&rig).await, Vec::<String>::new());
    assert_eq!(round(&rig).await.sources, 240);
}

/// Its merge fails, round after round; the others' go on without it.
#[tokio::test(start_paused = true)]
async fn a_partition_that_cannot_be_read_does_not_hold_back_the_others() {
    let mut rig = filled().await;
    // The end of a segment is gone, and so what its last partition has there.
    let mut places = Vec::new();
    for partition in partitions(&rig) {
        let Place::Range { key, position, .. } = rig.extents(partition).await.remove(0).place
        else {
            panic!("a range")
        };
        places.push((position, partition, key));
    }
    places.sort();
    let [(_, first, _), (_, second, _), (position, other, key)] = &places[..] else {
        panic!("three")
    };
    let (first, second, other) = (*first, *second, *other);
    rig.store.cut_off(rig.object(key), *position);
    rig.broker = rig.start(2).await;
    let merger = rig.merger(priced());
    let error = merger.round(&rig.broker.shutdown).await.unwrap_err();
    assert!(error.to_string().contains(&format!("merging {other}")), "{error}");
    for partition in [first, second] {
        assert_eq!(rig.extents(partition).await.len(), 1);
    }
    assert_eq!(rig.extents(other).await.len(), 80);
    // From then on it shares with nobody, and nobody's merge is begun in vain.
    fill(&rig).await;
    fill(&rig).await;
    let before = objects(&rig).await.len();
    merger.round(&rig.broker.shutdown).await.unwrap_err();
    assert_eq!(objects(&rig).await.len(), before + 1);
    let shared = rig.objects(first).await.pop().expect("an object");
    assert_eq!(rig.objects(second).await.last(), Some(&shared));
}

/// What compaction takes out must not stay because others have records in the same object.
#[tokio::test(start_paused = true)]
async fn compacted_topics_share_with_nobody() {
    let rig = filled().await;
    // It waits for the table.
    let terms = floe_log::CompactionTerms { has_table: true, ..terms() };
    let compactor = rig.compactor(terms, floe_log::CompactionRules::default());
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!(round(&rig).await.merges, 3);
    for partition in partitions(&rig) {
        assert_eq!(rig.objects(partition).await.len(), 1);
    }
}
