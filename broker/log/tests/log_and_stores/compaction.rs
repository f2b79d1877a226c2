//! Compaction over a log and its stores: what readers see, beside merging and retention, and when
//! things change or end meanwhile.

use crate::keyed::{self, Pair, keyed, newest, rules, seen, terms};
use crate::rig::{AllCompacted, PAST_THE_GRACE_MS, Rig, young_ms};
use floe_log::{
    CompactionRules, CompactionTerms, FetchFrom, MergeRules, RetentionTerms, TableHold,
};
use floe_metadata::compaction::CompactionMark;
use floe_metadata::rows::Place;
use futures::FutureExt;
use kfs::{BatchHeader, OffsetMode};
use parking_lot::Mutex;
use std::sync::Arc;

const NO_HOLD: TableHold = TableHold { time_ms: 0, bytes: 0 };

/// 60 segments of five records each over twelve keys, some of them tombstones.
async fn fill(rig: &Rig) {
    for at in 0..60u64 {
        let key = |of: u64| format!("k{}", (at * 7 + of * 5) % 12);
        let value = |of: u64| (!(at + of).is_multiple_of(9)).then(|| format!("v{at}-{of}"));
        let pairs: Vec<_> = (0..5).map(|of| (key(of), value(of))).collect();
        let pairs: Vec<Pair<'_>> =
            pairs.iter().map(|(key, value)| (Some(&key[..]), value.as_deref())).collect();
        rig.append_all(vec![keyed(rig.partition(0), young_ms() + at as i64, &pairs)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_record_of_each_key_is_left_for_every_reader() {
    let mut rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig).await;
    let before = seen(&rig.broker.log, partition, 0).await;
    let compactor = rig.compactor(terms(), rules());
    let done = compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!((done.passes, done.replacements, done.conflicts), (1, 1, 0));
    assert_eq!(compactor.counts(), done);
    let expected = newest(&before);
    let after = seen(&rig.broker.log, partition, 0).await;
    assert_eq!(done.records_removed as usize, before.len() - after.len());
    assert_eq!(after, expected);
    // From every offset a reader gets what is at or behind it, and every time is found.
    let end = before.len() as i64;
    for offset in 0..end {
        let rest = seen(&rig.broker.log, partition, offset).await;
        let behind: Vec<_> = expected.iter().filter(|one| one.0 >= offset).cloned().collect();
        assert_eq!(rest, behind, "from {offset}");
        let wanted = young_ms() + offset / 5;
        let found = rig.broker.log.offset_by_time(partition, wanted, false).await.expect("search");
        let first = expected.iter().find(|one| one.1 >= wanted);
        assert_eq!(found.flatten().map(|found| found.offset), first.map(|one| one.0));
    }
    let newest = rig.broker.log.offset_of_max_timestamp(partition, true).await.expect("search");
    let first = expected.iter().find(|one| one.1 == young_ms() + 59).map(|one| one.0);
    assert_eq!(newest.flatten().map(|found| found.offset), first);
    // A reader that has nothing in memory sees the same.
    rig.restart().await;
    assert_eq!(seen(&rig.broker.log, partition, 0).await, expected);
    // A second pass has nothing to do.
    let done = rig.compactor(terms(), rules()).round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!((done.passes, done.bytes_read), (0, 0), "the mark is in the metadata store");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_an_object_that_can_be_read_by_itself() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig).await;
    let before = seen(&rig.broker.log, partition, 0).await;
    let rules = CompactionRules { extent_bytes_max: 200, ..rules() };
    rig.compactor(terms(), rules).round(&rig.broker.shutdown).await.expect("a round");
    let extents = rig.extents(partition).await;
    assert!(extents.len() > 1, "readers load a part of the object");
    assert_eq!(rig.objects(partition).await.len(), 1);
    let covered: Vec<_> = extents.iter().map(|one| (one.base_offset, one.last_offset)).collect();
    assert_eq!((covered[0].0, covered[covered.len() - 1].1), (0, before.len() as i64 - 1));
    assert!(covered.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "no gaps: {covered:?}");
    let object = rig.object(&crate::rig::key(&extents[0]));
    let bytes = floe_store::ObjectStore::get(&*rig.store, &object).await.unwrap().unwrap();
    let read = |range: std::ops::Range<u64>| {
        Ok::<_, ()>(bytes.slice(range.start as usize..range.end as usize))
    };
    let section = kfs::open(bytes.len() as u64, read).expect("a whole object").sections.remove(0);
    assert_eq!(section.offsets.mode(), OffsetMode::Absolute);
    assert_eq!(section.record_count as usize, newest(&before).len());
    let horizon_ms = rig.env.now_ms() + terms().delete_retention_ms;
    assert_eq!(section.delete_horizon_ms, Some(horizon_ms), "there are tombstones");
    // Of those that the sources came from, all are dead.
    rig.pass(PAST_THE_GRACE_MS).await;
    rig.cleaner().round().await.expect("clean");
    assert_eq!(rig.stored().await, 1);
    assert_eq!(seen(&rig.broker.log, partition, 0).await, newest(&before));
}

/// Case 169: tombstones that are kept for ever, or dropped at once.
#[tokio::test(start_paused = true)]
async fn tombstones_go_after_delete_retention_even_if_nothing_more_is_written() {
    let rig = Rig::new().await;
    let (partition, compactor) = (rig.partition(0), rig.compactor(terms(), rules()));
    let pairs: [Pair<'_>; 3] = [(Some("a"), Some("1")), (Some("a"), None), (Some("b"), Some("1"))];
    rig.append_all(vec![keyed(partition, young_ms(), &pairs)]).await;
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    let left = seen(&rig.broker.log, partition, 0).await;
    assert_eq!(left.iter().map(|one| one.0).collect::<Vec<_>>(), [1, 2]);
    rig.pass(terms().delete_retention_ms - 1).await;
    assert_eq!(compactor.round(&rig.broker.shutdown).await.expect("a round").passes, 0);
    rig.pass(1).await;
    assert_eq!(compactor.round(&rig.broker.shutdown).await.expect("a round").passes, 1);
    assert_eq!(seen(&rig.broker.log, partition, 0).await, left[1..]);
    rig.pass(terms().delete_retention_ms * 9).await;
    assert_eq!(compactor.round(&rig.broker.shutdown).await.expect("a round").passes, 0);
}

/// Case 152: a fetch at an offset that compaction has taken.
#[tokio::test(start_paused = true)]
async fn a_fetch_in_a_hole_finds_the_next_record_with_its_own_headers() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    rig.append_all(vec![keyed(partition, young_ms(), &[(Some("a"), Some("1"))])]).await;
    rig.append_all(vec![keyed(partition, young_ms(), &[(Some("a"), Some("2"))])]).await;
    rig.compactor(terms(), rules()).round(&rig.broker.shutdown).await.expect("a round");
    let found = seen(&rig.broker.log, partition, 0).await;
    assert_eq!(found.len(), 1);
    let (offset, _, _, value, header) = &found[0];
    assert_eq!((*offset, value.as_deref(), header.as_str()), (1, Some("2"), "h2"));
}

/// Cases 151 and 152: whoever reads in a hole at the end must be told where it ends.
#[tokio::test(start_paused = true)]
async fn a_hole_at_the_end_has_a_batch_that_says_where_it_ends() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    rig.append_all(vec![keyed(partition, young_ms(), &[(Some("a"), Some("1"))])]).await;
    for _ in 0..3 {
        rig.append(partition, young_ms(), &["without a key", "and another"]).await;
    }
    rig.compactor(terms(), rules()).round(&rig.broker.shutdown).await.expect("a round");
    for offset in 1..7 {
        let from =
            FetchFrom { partition, offset, bytes_max: 1 << 20, committed_only: offset % 2 == 0 };
        let records = rig.broker.log.fetch(from).await.expect("fetch").records;
        let header = BatchHeader::parse(&records[0]).expect("an empty batch");
        assert_eq!((header.record_count, header.last_offset()), (0, 6), "from {offset}");
    }
    let extents = rig.extents(partition).await;
    assert!(extents.iter().all(|extent| extent.place != Place::Hole));
    // More is written: it is not needed any longer.
    rig.append_all(vec![keyed(partition, young_ms(), &[(Some("b"), Some("1"))])]).await;
    rig.compactor(terms(), rules()).round(&rig.broker.shutdown).await.expect("a round");
    let found = seen(&rig.broker.log, partition, 1).await;
    assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), [7]);
}

/// What is empty says of no time that it has it, and nothing is kept for it.
#[tokio::test(start_paused = true)]
async fn the_newest_time_is_of_a_record_that_is_there() {
    let rig = Rig::new().await;
    let (partition, compactor) = (rig.partition(0), rig.compactor(terms(), rules()));
    rig.append_all(vec![keyed(partition, young_ms(), &[(Some("a"), Some("1"))])]).await;
    rig.append_all(vec![keyed(partition, young_ms() + 9, &[(Some("b"), None)])]).await;
    let newest = async || {
        let found = rig.broker.log.offset_of_max_timestamp(partition, false).await;
        found.expect("search").flatten().map(|found| (found.offset, found.timestamp_ms))
    };
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!(newest().await, Some((1, young_ms() + 9)));
    rig.pass(terms().delete_retention_ms).await;
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!(seen(&rig.broker.log, partition, 0).await.len(), 1);
    assert_eq!(newest().await, Some((0, young_ms())));
}

#[tokio::test(start_paused = true)]
async fn what_the_topics_table_has_not_read_stays() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig).await;
    let before = seen(&rig.broker.log, partition, 0).await;
    let with_table = CompactionTerms { has_table: true, ..terms() };
    let compactor = rig.compactor(with_table, rules());
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!(seen(&rig.broker.log, partition, 0).await, before);
    assert_eq!(compactor.waiting().get(&partition), Some(&0));
    // Up to within the 20th segment.
    rig.metadata.set_table_progress(rig.topic, Some("97".into())).await.expect("progress");
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    let after = seen(&rig.broker.log, partition, 0).await;
    let (read, unread) = before.split_at(95);
    assert_eq!(after, [newest(read), unread.to_vec()].concat());
    assert_eq!(compactor.waiting().get(&partition), Some(&97));
    rig.metadata.set_table_progress(rig.topic, Some("300".into())).await.expect("progress");
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!(seen(&rig.broker.log, partition, 0).await, newest(&before));
    assert!(compactor.waiting().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_progress_that_nobody_can_read_holds_its_own_topic_and_no_other() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let other = kfs::TopicPartition { topic: rig.other_topic, ..partition };
    for value in ["1", "2"] {
        let pairs = [(Some("a"), Some(value))];
        let batches = [partition, other].map(|partition| keyed(partition, young_ms(), &pairs));
        rig.append_all(batches.into()).await;
    }
    rig.metadata.set_table_progress(rig.topic, Some("2".into())).await.expect("progress");
    rig.metadata.set_table_progress(rig.other_topic, Some("?".into())).await.expect("progress");
    let with_table = CompactionTerms { has_table: true, ..terms() };
    let compactor = rig.compactor(with_table, rules());
    let done = compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!((done.passes, done.records_removed), (1, 1));
    assert_eq!(seen(&rig.broker.log, partition, 0).await.len(), 1);
    assert_eq!(seen(&rig.broker.log, other, 0).await.len(), 2);
    assert_eq!(compactor.waiting().get(&other), Some(&0));
}

#[tokio::test(start_paused = true)]
async fn merging_goes_on_beside_it_and_joins_nothing_clean_to_what_is_dirty() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let merger = rig.merger(MergeRules::default());
    let half = CompactionTerms { dirty_ratio_min: 0.5, ..terms() };
    let compactor = rig.compactor(half, rules());
    let mut all = Vec::new();
    for round in 0..6 {
        fill(&rig).await;
        all = newest(&[all, seen(&rig.broker.log, partition, round * 300).await].concat());
        rig.merge_all(&merger).await;
        compactor.round(&rig.broker.shutdown).await.expect("a round");
        rig.merge_all(&merger).await;
        let after = seen(&rig.broker.log, partition, 0).await;
        assert_eq!(newest(&after), all, "round {round}");
    }
    let passes = compactor.counts().passes;
    // All is clean, so a little more is no reason for a pass, merged or not.
    rig.append_all(vec![keyed(partition, young_ms(), &[(Some("k1"), Some("x"))])]).await;
    rig.pass(PAST_THE_GRACE_MS).await;
    rig.merge_all(&merger).await;
    let done = compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!((done.passes, compactor.counts().passes), (0, passes));
}

#[tokio::test(start_paused = true)]
async fn extents_that_are_merged_during_a_pass_end_it_and_nothing_is_lost() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig).await;
    let before = seen(&rig.broker.log, partition, 0).await;
    // Another broker's merger knows nothing of this one's passes.
    let other = rig.start(2).await;
    let rules_of_merger = MergeRules::default();
    let merger = floe_log::Merger::new(&rig.env, &other.log, rig.metadata.clone(), rules_of_merger);
    let shutdown = other.shutdown.clone();
    let merge = async move { assert_eq!(merger.round(&shutdown).await.unwrap().merges, 1) };
    rig.store.after_next_put(merge.boxed());
    let compactor = rig.compactor(terms(), rules());
    let done = compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert_eq!((done.passes, done.replacements, done.conflicts), (0, 0, 1));
    assert_eq!(seen(&rig.broker.log, partition, 0).await, before);
    assert_eq!(compactor.round(&rig.broker.shutdown).await.expect("a round").passes, 1);
    assert_eq!(seen(&rig.broker.log, partition, 0).await, newest(&before));
}

#[tokio::test(start_paused = true)]
async fn a_log_start_that_moves_during_a_pass_ends_it() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig).await;
    let before = seen(&rig.broker.log, partition, 0).await;
    let log = rig.broker.log.clone();
    let advance = async move {
        log.advance_log_start(partition, 12).await.unwrap();
    };
    rig.store.after_next_put(advance.boxed());
    let compactor = rig.compactor(terms(), rules());
    assert_eq!(compactor.round(&rig.broker.shutdown).await.expect("a round").conflicts, 1);
    assert_eq!(seen(&rig.broker.log, partition, 12).await, before[12..]);
    assert_eq!(compactor.round(&rig.broker.shutdown).await.expect("a round").passes, 1);
    let left: Vec<_> = newest(&before).into_iter().filter(|one| one.0 >= 12).collect();
    assert_eq!(seen(&rig.broker.log, partition, 12).await, left);
}

#[tokio::test(start_paused = true)]
async fn retention_and_compaction_of_one_topic_go_side_by_side() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig).await;
    let before = seen(&rig.broker.log, partition, 0).await;
    rig.compactor(terms(), CompactionRules { extent_bytes_max: 200, ..rules() })
        .round(&rig.broker.shutdown)
        .await
        .expect("a round");
    // The oldest half of the times is over.
    rig.node.set_clock_ms(young_ms() + 1_030);
    let by_time = RetentionTerms { time_ms: Some(1_000), ..RetentionTerms::default() };
    let retention = rig.retention(by_time, NO_HOLD);
    retention.round(&rig.broker.shutdown).await.expect("retention");
    let start = rig.broker.log.state(partition).await.unwrap().unwrap().log_start_offset;
    let left: Vec<_> = newest(&before).into_iter().filter(|one| one.0 >= start).collect();
    assert!(left.iter().all(|one| one.1 >= young_ms()) && start < 300);
    assert_eq!(seen(&rig.broker.log, partition, start).await, left);
    rig.node.set_clock_ms(young_ms() + 10_000);
    retention.round(&rig.broker.shutdown).await.expect("retention");
    let state = rig.broker.log.state(partition).await.unwrap().unwrap();
    assert_eq!((state.log_start_offset, state.bytes), (300, 0), "offsets go on");
}

/// Who asks for records to be kept must not lose them to a pass that began before.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_topics_configs_ends_a_pass_before_it_takes_more() {
    let (had, off) = (terms(), None);
    let table = Some(CompactionTerms { has_table: true, ..had });
    let lag = Some(CompactionTerms { lag_ms_min: 1 << 40, ..had });
    for changed in [off, table, lag] {
        let rig = Rig::new().await;
        let partitions = [rig.partition(0), rig.partition(1)];
        fill(&rig).await;
        for value in ["1", "2"] {
            let pairs = [(Some("a"), Some(value))];
            rig.append_all(vec![keyed(partitions[1], young_ms(), &pairs)]).await;
        }
        let all = async || {
            let log = &rig.broker.log;
            [seen(log, partitions[0], 0).await, seen(log, partitions[1], 0).await]
        };
        let (before, stored) = (all().await, rig.stored().await);
        let policy = Arc::new(AllCompacted(Mutex::new(Some(had))));
        let compactor = rig.compactor_by(&policy, rules());
        let of_hook = policy.clone();
        rig.store.after_next_put(Box::pin(async move { *of_hook.0.lock() = changed }));
        let done = compactor.round(&rig.broker.shutdown).await.expect("a round");
        assert_eq!((done.passes, done.conflicts, done.replacements), (0, 1, 0), "{changed:?}");
        assert_eq!(all().await, before, "nor of partitions that the round had yet to visit");
        assert_eq!(rig.stored().await, stored, "what was put for it is gone");
        *policy.0.lock() = Some(had);
        let done = compactor.round(&rig.broker.shutdown).await.expect("a round");
        assert_eq!((done.passes, done.conflicts), (2, 0));
    }
}

/// A crash between any two steps: the pass is cut before and after each put, and so before each
/// swap.
#[tokio::test(start_paused = true)]
async fn a_crash_between_any_two_steps_leaves_what_the_next_pass_goes_on_with() {
    let mut was_swapped = 0;
    for cut in 0..24 {
        let rig = Rig::new().await;
        let partition = rig.partition(0);
        fill(&rig).await;
        let before = seen(&rig.broker.log, partition, 0).await;
        let small = CompactionRules { object_bytes_max: 60, ..rules() };
        let compactor = rig.compactor(terms(), small);
        rig.store.puts_wait();
        let is_done = keyed::poll_times(compactor.round(&rig.broker.shutdown), cut).await;
        drop(compactor);
        assert_eq!(newest(&seen(&rig.broker.log, partition, 0).await), newest(&before));
        was_swapped += usize::from(!is_done && rig.extents(partition).await.len() < 60);
        let other = rig.start(2).await;
        let again = rig.compactor_of(&other.log, terms(), small);
        again.round(&other.shutdown).await.expect("a round");
        assert_eq!(seen(&other.log, partition, 0).await, newest(&before), "cut at {cut}");
        // What the first had put and did not swap goes with its registration.
        rig.pass(PAST_THE_GRACE_MS).await;
        let cleaner =
            floe_log::Cleaner::new(&rig.env, &other.log, rig.metadata.clone(), Default::default());
        cleaner.round().await.expect("clean");
    }
    assert!(was_swapped > 5, "some passes were cut in the middle: {was_swapped}");
}

#[tokio::test(start_paused = true)]
async fn two_compactors_of_one_log_do_no_harm() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let other = rig.start(2).await;
    let one = rig.compactor(terms(), CompactionRules { object_bytes_max: 300, ..rules() });
    let two = rig.compactor_of(&other.log, terms(), rules());
    let mut all = Vec::new();
    for round in 0..4 {
        fill(&rig).await;
        all = newest(&[all, seen(&rig.broker.log, partition, round * 300).await].concat());
        let (first, second) =
            tokio::join!(one.round(&rig.broker.shutdown), two.round(&other.shutdown));
        first.and(second).expect("neither fails");
        one.round(&rig.broker.shutdown).await.expect("a round");
        assert_eq!(seen(&rig.broker.log, partition, 0).await, all, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_registration_compacts_nothing() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig).await;
    let before = seen(&rig.broker.log, partition, 0).await;
    let _successor = rig.start(1).await;
    let error = rig.compactor(terms(), rules()).round(&rig.broker.shutdown).await.unwrap_err();
    assert_eq!(error.kind(), floe_env::ErrorKind::Fenced);
    assert_eq!(seen(&rig.broker.log, partition, 0).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_mark_of_a_topic_that_is_gone_is_removed() {
    let rig = Rig::new().await;
    fill(&rig).await;
    let compactor = rig.compactor(terms(), rules());
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    let marks = rig.metadata.compaction_marks().await.unwrap();
    let mark = CompactionMark {
        clean_until: 300,
        at_ms: rig.env.now_ms(),
        horizon_ms: Some(rig.env.now_ms() + terms().delete_retention_ms),
    };
    assert_eq!(marks.get(&rig.partition(0)), Some(&mark));
    rig.metadata.delete_topic(rig.topic).await.unwrap();
    compactor.round(&rig.broker.shutdown).await.expect("a round");
    assert!(rig.metadata.compaction_marks().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn more_keys_than_there_is_room_for_take_several_passes() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig).await;
    let before = seen(&rig.broker.log, partition, 0).await;
    let any = CompactionTerms { dirty_ratio_min: 0.0, ..terms() };
    let compactor = rig.compactor(any, CompactionRules { key_bytes_max: 8 * 24, ..rules() });
    let mut passes = 0;
    while compactor.round(&rig.broker.shutdown).await.expect("a round").passes > 0 {
        passes += 1;
        assert_eq!(newest(&seen(&rig.broker.log, partition, 0).await), newest(&before));
        assert!(passes < 60, "each pass gets further");
    }
    assert!(passes > 5, "{passes} passes");
    assert_eq!(seen(&rig.broker.log, partition, 0).await, newest(&before));
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_extent_fails_its_partition_and_no_other() {
    let rig = Rig::new().await;
    fill(&rig).await;
    let other = rig.partition(1);
    for value in ["1", "2"] {
        rig.append_all(vec![keyed(other, young_ms(), &[(Some("a"), Some(value))])]).await;
    }
    let broken = rig.start(crate::rig::NO_CACHE_ID).await;
    let first = &rig.extents(rig.partition(0)).await[7];
    rig.store.cut_off(rig.object(&crate::rig::key(first)), 40);
    let compactor = rig.compactor_of(&broken.log, terms(), rules());
    let error = compactor.round(&broken.shutdown).await.unwrap_err();
    assert!(error.to_string().contains("compacting"), "{error}");
    assert_eq!(compactor.counts().passes, 1);
    assert_eq!(seen(&broken.log, other, 0).await.len(), 1);
}
