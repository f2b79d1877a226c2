//! Merging: the same records before and after, few objects, and nothing lost when things change
//! meanwhile.

use crate::rig::{PAST_THE_GRACE_MS, Rig, batch, fetch, key, young_ms};
use floe_log::{Log, MergeRules};
use floe_metadata::rows::{Extent, Place};
use futures::FutureExt;
use kfs::{OffsetMode, TopicPartition};

/// Everything that a client can see of a partition: fetches of several sizes from every offset, and
/// searches for every time.
pub(crate) async fn seen(log: &Log, partition: TopicPartition, start: i64) -> Vec<String> {
    let mut seen = Vec::new();
    let all = fetch(log, partition, start, 1 << 20).await;
    for (offset, timestamp_ms, _) in &all {
        for bytes_max in [0, 250, 1 << 20] {
            let fetched = fetch(log, partition, *offset, bytes_max).await;
            assert_eq!(fetched[..], all[(offset - start) as usize..][..fetched.len()]);
            assert!(!fetched.is_empty());
            if bytes_max == 1 << 20 {
                assert_eq!(fetched.last(), all.last());
            }
        }
        for wanted in [timestamp_ms - 1, *timestamp_ms] {
            let found = log.offset_by_time(partition, wanted, false).await.expect("search");
            seen.push(format!("{wanted}: {found:?}"));
        }
    }
    let newest = log.offset_of_max_timestamp(partition, true).await.expect("search");
    seen.push(format!("{newest:?}"));
    seen.push(format!("{all:?}"));
    seen
}

/// 40 segments, in each some records of three partitions; times go back and forth.
pub(crate) async fn fill(rig: &Rig) {
    for at in 0..40i64 {
        let time = young_ms() + (at * 7) % 11 * 10;
        let (first, second) = (format!("a{at}"), format!("b{at}").repeat(20));
        let mut batches = vec![
            batch(rig.partition(0), time, &[&first, &second]),
            batch(rig.partition(1), time, &[&second]),
            batch(rig.partition(0), time + 3, &["x"]),
        ];
        let other = TopicPartition { topic: rig.other_topic, ..rig.partition(0) };
        batches.push(floe_log::AppendBatch {
            topic_name: "u".into(),
            ..batch(other, time, &[&first])
        });
        rig.append_all(batches).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_clients_see_is_the_same_before_and_after() {
    let mut rig = Rig::new().await;
    fill(&rig).await;
    let other = TopicPartition { topic: rig.other_topic, ..rig.partition(0) };
    let partitions = [rig.partition(0), rig.partition(1), other];
    let mut before = Vec::new();
    for partition in partitions {
        before.push(seen(&rig.broker.log, partition, 0).await);
    }
    let rules = MergeRules { extent_bytes_max: 1_000, ..MergeRules::default() };
    let done = rig.merge_all(&rig.merger(rules)).await;
    assert_eq!((done.merges, done.sources), (3, 120));
    for (partition, before) in partitions.iter().zip(&before) {
        assert_eq!(rig.objects(*partition).await.len(), 1);
        assert_eq!(&seen(&rig.broker.log, *partition, 0).await, before);
    }
    assert!(rig.extents(partitions[0]).await.len() > 1, "readers load a part of the object");
    assert_eq!(rig.store.reads(), 0, "what was cached stays cached under its new names");
    // A reader that has nothing in memory sees the same.
    rig.broker = rig.start(2).await;
    for (partition, before) in partitions.iter().zip(&before) {
        assert_eq!(&seen(&rig.broker.log, *partition, 0).await, before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_merged_object_is_of_one_partition_and_readable_by_itself() {
    let rig = Rig::new().await;
    fill(&rig).await;
    rig.merge_all(&rig.merger(MergeRules::default())).await;
    for partition in [rig.partition(0), rig.partition(1)] {
        let extents = rig.extents(partition).await;
        let [Extent { place: Place::Range { key, position, length }, .. }] = &extents[..] else {
            panic!("one extent: {extents:?}");
        };
        assert_eq!(extents[0].offset_mode, OffsetMode::Absolute);
        assert!(key.contains(&format!("/{}/{}/", partition.topic, partition.partition)), "{key}");
        assert!(key.contains("/00000000000000000000-1-1-"), "{key}");
        let object = rig.object(key);
        let bytes = floe_store::ObjectStore::get(&*rig.store, &object).await.unwrap().unwrap();
        let read = |range: std::ops::Range<u64>| {
            Ok::<_, ()>(bytes.slice(range.start as usize..range.end as usize))
        };
        let sections = kfs::open(bytes.len() as u64, read).expect("a whole object").sections;
        assert_eq!(sections.len(), 1);
        assert_eq!(
            (sections[0].topic, sections[0].partition),
            (partition.topic, partition.partition)
        );
        assert_eq!((sections[0].position, sections[0].length), (*position, *length));
        let body = &bytes[*position as usize..(position + length) as usize];
        let mut next_offset = 0;
        for batch in kfs::batches(body) {
            let batch = batch.expect("whole batches");
            batch.verify_crc().expect("crc");
            assert_eq!(batch.header.base_offset, next_offset);
            next_offset = batch.header.last_offset() + 1;
        }
        assert_eq!(next_offset, extents[0].last_offset + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn two_thousand_small_segments_become_few_rows_and_few_objects() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let merger = rig.merger(MergeRules::default());
    let mut rewritten = 0;
    for at in 0..2_000 {
        rig.append(partition, young_ms(), &["value"]).await;
        if at % 50 == 0 {
            rewritten += rig.merge_all(&merger).await.bytes;
        }
    }
    rewritten += rig.merge_all(&merger).await.bytes;
    let extents = rig.extents(partition).await;
    assert!(extents.len() <= 64, "{} extents", extents.len());
    assert_eq!(fetch(&rig.broker.log, partition, 0, 1 << 20).await.len(), 2_000);
    let bytes: u64 = extents.iter().map(Extent::bytes).sum();
    // 50 at once make the first object 50 times as large; each further merge 4 times: log4(40) < 3.
    assert!(rewritten <= bytes * 4, "{rewritten} bytes rewritten of {bytes}");
    // Nobody writes any more: what is left becomes one object, or nearly.
    rig.pass(PAST_THE_GRACE_MS).await;
    rig.merge_all(&merger).await;
    assert!(rig.extents(partition).await.len() <= 8);
    rig.pass(PAST_THE_GRACE_MS).await;
    rig.cleaner().round().await.unwrap();
    assert!(rig.stored().await <= 8, "{} objects", rig.stored().await);
    assert_eq!(fetch(&rig.broker.log, partition, 0, 1 << 20).await.len(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn extents_that_change_meanwhile_are_not_swapped_and_nothing_is_lost() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    for at in 0..9 {
        rig.append(partition, young_ms(), &[&format!("v{at}")]).await;
    }
    let before = rig.extents(partition).await;
    let metadata = rig.metadata.clone();
    let moved = async move {
        metadata.advance_log_start(partition, 2).await.unwrap();
    };
    rig.store.after_next_put(moved.boxed());
    let merger = rig.merger(MergeRules { pieces_min: 9, ..MergeRules::default() });
    let round = merger.round(&rig.broker.shutdown).await.unwrap();
    assert_eq!(round.merges, 0);
    assert_eq!(rig.extents(partition).await, before[2..]);
    assert_eq!(rig.stored().await, 9, "the object that nobody names is gone");
    let read = fetch(&rig.broker.log, partition, 2, 1 << 20).await;
    assert_eq!(read.len(), 7);
    // The next round merges what is there then.
    let merger = rig.merger(MergeRules { pieces_min: 7, ..MergeRules::default() });
    assert_eq!(rig.merge_all(&merger).await.sources, 7);
    assert_eq!(fetch(&rig.broker.log, partition, 2, 1 << 20).await, read);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_broker_swaps_nothing() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    for _ in 0..8 {
        rig.append(partition, young_ms(), &["v"]).await;
    }
    let before = rig.extents(partition).await;
    let successor = rig.start(1).await;
    let error = rig.merger(MergeRules::default()).round(&rig.broker.shutdown).await.unwrap_err();
    assert_eq!(error.kind(), floe_env::ErrorKind::Fenced);
    assert_eq!(rig.extents(partition).await, before);
    assert_eq!(fetch(&successor.log, partition, 0, 1 << 20).await.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn readers_with_old_extents_go_on_within_the_grace_and_look_again_after_it() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    for at in 0..16 {
        rig.append(partition, young_ms(), &[&format!("v{at}")]).await;
    }
    // This one caches no bytes: it reads the objects of the extents that it remembers.
    let reader = rig.start(2).await;
    let before = fetch(&reader.log, partition, 0, 1 << 20).await;
    let old: Vec<String> = rig.extents(partition).await.iter().map(key).collect();
    rig.merge_all(&rig.merger(MergeRules::default())).await;
    let cleaner = rig.cleaner();
    assert_eq!(cleaner.round().await.unwrap().dead, 0);
    assert_eq!(fetch(&reader.log, partition, 0, 1 << 20).await, before);
    rig.pass(PAST_THE_GRACE_MS).await;
    assert_eq!(cleaner.round().await.unwrap().dead, old.len());
    for key in &old {
        let head = floe_store::ObjectStore::head(&*rig.store, &rig.object(key)).await.unwrap();
        assert_eq!(head, None);
    }
    assert_eq!(fetch(&reader.log, partition, 0, 1 << 20).await, before);
}

#[tokio::test(start_paused = true)]
async fn an_idle_partition_is_looked_at_again_when_it_changes_or_ages() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let merger = rig.merger(MergeRules::default());
    for _ in 0..4 {
        rig.append(partition, young_ms(), &["v"]).await;
    }
    assert_eq!(rig.merge_all(&merger).await.merges, 0);
    for _ in 0..4 {
        rig.append(partition, young_ms(), &["v"]).await;
    }
    assert_eq!(rig.merge_all(&merger).await.sources, 8);
    for _ in 0..3 {
        rig.append(partition, young_ms(), &["v"]).await;
    }
    assert_eq!(rig.merge_all(&merger).await.merges, 0);
    rig.pass(PAST_THE_GRACE_MS).await;
    assert_eq!(rig.merge_all(&merger).await.sources, 3);
    assert_eq!(rig.extents(partition).await.len(), 2);
}

/// Sources that lie side by side in one object come with one read.
#[tokio::test(start_paused = true)]
async fn sources_are_read_together_where_they_lie_together() {
    let mut rig = Rig::new().await;
    fill(&rig).await;
    let rules = MergeRules { extent_bytes_max: 1_000, ..MergeRules::default() };
    rig.merge_all(&rig.merger(rules)).await;
    let first = rig.extents(rig.partition(1)).await.len();
    assert!(first > 4, "{first} extents of the first object");
    for _ in 0..4 {
        fill(&rig).await;
        rig.merge_all(&rig.merger(rules)).await;
        if rig.objects(rig.partition(1)).await.len() > 1 {
            break;
        }
    }
    // What a broker that has nothing in memory merges next.
    rig.broker = rig.start(2).await;
    rig.pass(floe_log::merge::AGE_MS + 100_000).await;
    let before = rig.store.reads();
    let sources: usize = rig.extents(rig.partition(1)).await.len();
    let done = rig.merge_all(&rig.merger(rules)).await;
    assert!(done.merges > 0 && done.sources > sources / 2, "{done:?} of {sources}");
    let reads = rig.store.reads() - before;
    assert!(reads * 4 < done.sources, "{reads} reads for {} sources", done.sources);
}
