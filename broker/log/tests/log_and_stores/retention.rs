//! Retention: what is over goes by age and by size, with its objects in the end, and nothing else.

use crate::rig::{PAST_THE_GRACE_MS, Rig, batch, fetch, young_ms};
use bytes::Bytes;
use floe_env::ErrorKind;
use floe_log::{
    AppendBatch, FetchError, FetchFrom, Kept, MergeRules, Retention, RetentionCounts,
    RetentionTerms, TableHold,
};
use floe_metadata::rows::{ProducerBatch, TransactionBatch};
use floe_metadata::transactions::TransactionRow;
use kfs::{ProducerEpoch, ProducerId, TopicPartition};

const HOUR_MS: i64 = 3_600_000;
const HOLD: TableHold = TableHold { time_ms: HOUR_MS, bytes: 1 << 20 };

fn by_time(time_ms: i64) -> RetentionTerms {
    RetentionTerms { time_ms: Some(time_ms), ..RetentionTerms::default() }
}

fn by_size(bytes: u64) -> RetentionTerms {
    RetentionTerms { bytes: Some(bytes), ..RetentionTerms::default() }
}

async fn round(rig: &Rig, retention: &Retention) -> RetentionCounts {
    retention.round(&rig.broker.shutdown).await.expect("a round")
}

async fn log_start(rig: &Rig, partition: TopicPartition) -> i64 {
    let state = rig.broker.log.state(partition).await.expect("state");
    state.expect("the partition exists").log_start_offset
}

/// So many segments of one record each, a second apart.
async fn seconds(rig: &Rig, partition: TopicPartition, count: i64) {
    for at in 0..count {
        rig.append(partition, young_ms() + at * 1000, &["a value"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn records_go_by_their_age_and_offsets_go_on() {
    let rig = Rig::new().await;
    let (partition, other) = (rig.partition(0), rig.partition(1));
    seconds(&rig, partition, 5).await;
    rig.append(other, young_ms() + HOUR_MS, &["late"]).await;
    let retention = rig.retention(by_time(HOUR_MS), HOLD);
    let done = round(&rig, &retention).await;
    assert_eq!((done.moves, done.looks), (0, 2), "each partition with records is looked at once");
    assert_eq!(round(&rig, &retention).await.looks, 0, "nothing is due");
    // The third record is an hour old then, and not older.
    rig.node.set_clock_ms(young_ms() + 2000 + HOUR_MS);
    let done = round(&rig, &retention).await;
    assert_eq!((done.moves, done.extents, done.looks), (1, 2, 1));
    assert_eq!((log_start(&rig, partition).await, log_start(&rig, other).await), (2, 0));
    let from = FetchFrom { partition, offset: 1, bytes_max: 9999, committed_only: false };
    let refused = rig.broker.log.fetch(from).await.expect_err("it is gone");
    assert!(matches!(refused, FetchError::OffsetOutOfRange(_)), "{refused:?}");
    assert_eq!(fetch(&rig.broker.log, partition, 2, 9999).await.len(), 3);
    let found = rig.broker.log.offset_by_time(partition, 0, false).await.unwrap().unwrap();
    assert_eq!(found.expect("there are records").offset, 2);
    // All of it goes, the newest extent too, which was never merged.
    rig.node.set_clock_ms(young_ms() + 4001 + HOUR_MS);
    assert_eq!(round(&rig, &retention).await.extents, 3);
    assert_eq!(log_start(&rig, partition).await, 5);
    let found = rig.broker.log.offset_by_time(partition, 0, false).await.unwrap().unwrap();
    assert_eq!(found, None);
    rig.append(partition, young_ms() + 2 * HOUR_MS, &["next"]).await;
    assert_eq!(fetch(&rig.broker.log, partition, 5, 9999).await.len(), 1);
    assert_eq!(retention.counts().extents, 5);
}

#[tokio::test(start_paused = true)]
async fn records_go_by_size_and_their_objects_after_the_grace() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    seconds(&rig, partition, 6).await;
    let one = rig.extents(partition).await[0].bytes();
    let exact = rig.retention(by_size(4 * one), HOLD);
    let done = round(&rig, &exact).await;
    assert_eq!((done.extents, done.bytes_by_size, done.bytes_by_time), (2, 2 * one, 0));
    let less = rig.retention(by_size(4 * one - 1), HOLD);
    assert_eq!(round(&rig, &less).await.moves, 0, "less than asked would stay");
    let state = rig.broker.log.state(partition).await.unwrap().unwrap();
    assert_eq!((state.log_start_offset, state.bytes), (2, 4 * one));
    let cleaner = rig.cleaner();
    assert_eq!(cleaner.round().await.unwrap().dead, 0);
    assert_eq!(rig.stored().await, 6);
    rig.pass(PAST_THE_GRACE_MS).await;
    assert_eq!(cleaner.round().await.unwrap().dead, 2);
    assert_eq!(rig.stored().await, 4);
}

#[tokio::test(start_paused = true)]
async fn merged_extents_go_like_fresh_ones() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    seconds(&rig, partition, 16).await;
    let one = rig.extents(partition).await[0].bytes();
    let rules = MergeRules { pieces_min: 8, extent_bytes_max: 2 * one, ..MergeRules::default() };
    rig.merge_all(&rig.merger(rules)).await;
    seconds(&rig, partition, 1).await;
    let extents = rig.extents(partition).await;
    assert!(extents.len() < 17 && extents[0].last_offset > 0, "{extents:?}");
    rig.node.set_clock_ms(extents[1].max_timestamp_ms + HOUR_MS + 1);
    let retention = rig.retention(by_time(HOUR_MS), HOLD);
    assert_eq!(round(&rig, &retention).await.extents, 2);
    assert_eq!(log_start(&rig, partition).await, extents[1].last_offset + 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_log_goes_page_by_page() {
    let rig = Rig::new().await;
    let partition = rig.partition(1);
    seconds(&rig, partition, 700).await;
    rig.pass(2 * HOUR_MS).await;
    let done = round(&rig, &rig.retention(by_time(HOUR_MS), HOLD)).await;
    assert_eq!((done.extents, done.moves), (700, 3), "16, 512 and the rest");
    assert_eq!(log_start(&rig, partition).await, 700);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_time_counts_at_once() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    seconds(&rig, partition, 3).await;
    rig.node.set_clock_ms(young_ms() + 10_000);
    assert_eq!(round(&rig, &rig.retention(by_time(HOUR_MS), HOLD)).await.moves, 0);
    assert_eq!(round(&rig, &rig.retention(by_time(5_000), HOLD)).await.extents, 3);
}

#[tokio::test(start_paused = true)]
async fn what_the_table_lacks_is_held_and_then_passed() {
    let rig = Rig::new().await;
    let partition = rig.partition(1);
    seconds(&rig, partition, 4).await;
    rig.node.set_clock_ms(young_ms() + 5_000 + HOUR_MS);
    let terms = RetentionTerms { has_table: true, ..by_time(1_000) };
    let hold = TableHold { time_ms: 2 * HOUR_MS, bytes: 0 };
    let retention = rig.retention(terms, hold);
    assert_eq!(round(&rig, &retention).await.moves, 0, "no table has said how far it is");
    assert_eq!(retention.why_kept(partition), Some(Kept::ForTable(0)));
    assert_eq!(round(&rig, &retention).await.looks, 0, "it is known what waits");
    assert_eq!(retention.why_kept(partition), Some(Kept::ForTable(0)));
    let progress = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    rig.metadata.set_table_progress(rig.topic, progress("9,2")).await.unwrap();
    let done = round(&rig, &retention).await;
    assert_eq!((done.extents, done.lacked_by_table), (2, 0));
    assert_eq!(retention.kept(), [(partition, Kept::ForTable(2))].into());
    rig.pass(2 * HOUR_MS + 1).await;
    let done = round(&rig, &retention).await;
    assert_eq!((done.extents, done.lacked_by_table), (2, 2));
    assert_eq!(retention.counts().lacked_by_table, 2);
    assert!(retention.kept().is_empty());
}

/// A backfill: its records' time is over before they come, and their table has yet to read them.
#[tokio::test(start_paused = true)]
async fn what_was_old_when_it_came_is_held_for_its_table_all_the_same() {
    let mut rig = Rig::new().await;
    let partition = rig.partition(0);
    rig.node.set_clock_ms(young_ms() + 1000 * HOUR_MS);
    seconds(&rig, partition, 2).await;
    let terms = RetentionTerms { has_table: true, ..by_time(HOUR_MS) };
    let hold = TableHold { time_ms: 2 * HOUR_MS, bytes: 0 };
    assert_eq!(round(&rig, &rig.retention(terms, hold)).await.moves, 0);
    assert_eq!(round(&rig, &rig.retention(by_time(2000 * HOUR_MS), hold)).await.moves, 0);
    rig.pass(HOUR_MS).await;
    // What comes later has its own time, and a start of the broker changes nothing.
    seconds(&rig, partition, 2).await;
    rig.restart().await;
    let retention = rig.retention(terms, hold);
    rig.pass(HOUR_MS - 1).await;
    assert_eq!(round(&rig, &retention).await.moves, 0);
    rig.pass(2).await;
    assert_eq!(round(&rig, &retention).await.lacked_by_table, 2, "the table is not waited for");
    assert_eq!(retention.why_kept(partition), Some(Kept::ForTable(0)));
    let progress = Some(Bytes::from_static(b"4"));
    rig.metadata.set_table_progress(rig.topic, progress).await.unwrap();
    let done = round(&rig, &retention).await;
    assert_eq!((done.extents, done.lacked_by_table), (2, 0), "the table has them");
}

#[tokio::test(start_paused = true)]
async fn a_progress_that_cannot_be_read_keeps_its_own_records_and_no_others() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let other = TopicPartition { topic: rig.other_topic, ..partition };
    for partition in [partition, other] {
        seconds(&rig, partition, 2).await;
    }
    rig.node.set_clock_ms(young_ms() + 5_000 + HOUR_MS);
    let progress = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    rig.metadata.set_table_progress(rig.topic, progress("what?")).await.unwrap();
    rig.metadata.set_table_progress(rig.other_topic, progress("2,0")).await.unwrap();
    let terms = RetentionTerms { has_table: true, ..by_time(1_000) };
    let hold = TableHold { time_ms: 2 * HOUR_MS, bytes: 0 };
    let retention = rig.retention(terms, hold);
    assert_eq!(round(&rig, &retention).await.extents, 2);
    assert_eq!((log_start(&rig, partition).await, log_start(&rig, other).await), (0, 2));
    rig.pass(2 * HOUR_MS + 1).await;
    assert_eq!(round(&rig, &retention).await.lacked_by_table, 2, "and those not for ever");
}

#[tokio::test(start_paused = true)]
async fn a_timestamp_in_the_future_keeps_the_log_and_is_told() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let future_ms = young_ms() + 1000 * HOUR_MS;
    rig.append(partition, future_ms, &["from tomorrow"]).await;
    seconds(&rig, partition, 2).await;
    rig.pass(10 * HOUR_MS).await;
    let retention = rig.retention(by_time(HOUR_MS), HOLD);
    assert_eq!(round(&rig, &retention).await.moves, 0);
    assert_eq!(retention.kept(), [(partition, Kept::Future(future_ms))].into());
    rig.node.set_clock_ms(future_ms + HOUR_MS + 1);
    assert_eq!(round(&rig, &retention).await.extents, 3);
    assert!(retention.kept().is_empty());
}

#[tokio::test(start_paused = true)]
async fn records_without_a_timestamp_go_that_long_after_they_were_seen() {
    let mut rig = Rig::new().await;
    let partition = rig.partition(0);
    let untimed = || AppendBatch { max_timestamp_ms: -1, ..batch(partition, -1, &["v"]) };
    rig.append_all(vec![untimed()]).await;
    let retention = rig.retention(by_time(HOUR_MS), HOLD);
    assert_eq!(round(&rig, &retention).await.moves, 0);
    let marks = rig.metadata.written_marks().await.unwrap();
    assert_eq!(marks.get(&partition).map(|mark| mark.end), Some(1));
    rig.append_all(vec![untimed()]).await;
    rig.pass(HOUR_MS - 60_000).await;
    // It is known to the next broker too.
    rig.restart().await;
    let retention = rig.retention(by_time(HOUR_MS), HOLD);
    assert_eq!(round(&rig, &retention).await.moves, 0);
    rig.pass(120_000).await;
    assert_eq!(round(&rig, &retention).await.extents, 1, "the second one came later");
    assert_eq!(log_start(&rig, partition).await, 1);
    rig.pass(HOUR_MS + 60_000).await;
    assert_eq!(round(&rig, &retention).await.extents, 1);
    assert!(rig.metadata.written_marks().await.unwrap().is_empty(), "nobody needs it any more");
}

#[tokio::test(start_paused = true)]
async fn an_open_transaction_keeps_its_records() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    seconds(&rig, partition, 1).await;
    let id = ProducerId(7);
    rig.metadata.put_transaction("t7", None, &TransactionRow::new(id, 60_000, 0)).await.unwrap();
    let producer = ProducerBatch {
        id,
        epoch: ProducerEpoch(0),
        first_sequence: 0,
        last_sequence: 0,
        lost_sequence: None,
    };
    let transaction = TransactionBatch { id: "t7".into(), joins: true };
    rig.append_all(vec![AppendBatch {
        producer: Some(producer),
        transaction: Some(transaction),
        ..batch(partition, young_ms(), &["open"])
    }])
    .await;
    rig.pass(2 * HOUR_MS).await;
    let retention = rig.retention(by_time(HOUR_MS), HOLD);
    assert_eq!(round(&rig, &retention).await.extents, 1);
    assert_eq!(round(&rig, &retention).await.extents, 0);
    assert_eq!(log_start(&rig, partition).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_was_replaced_moves_nothing() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    seconds(&rig, partition, 2).await;
    rig.pass(2 * HOUR_MS).await;
    let retention = rig.retention(by_time(HOUR_MS), HOLD);
    let _successor = rig.start(1).await;
    let refused = retention.round(&rig.broker.shutdown).await.expect_err("it is replaced");
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    assert!(rig.broker.log.is_fenced());
    assert_eq!(log_start(&rig, partition).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_log_start_inside_an_extent_is_no_obstacle() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    rig.append(partition, young_ms(), &["a", "b", "c"]).await;
    rig.append(partition, young_ms() + HOUR_MS, &["d"]).await;
    rig.broker.log.advance_log_start(partition, 1).await.unwrap();
    let retention = rig.retention(by_time(HOUR_MS), HOLD);
    rig.node.set_clock_ms(young_ms() + HOUR_MS + 2);
    assert_eq!(round(&rig, &retention).await.moves, 0, "its newest record is not older yet");
    rig.node.set_clock_ms(young_ms() + HOUR_MS + 3);
    assert_eq!(round(&rig, &retention).await.extents, 1);
    assert_eq!(log_start(&rig, partition).await, 3);
}
