//! The log over a memory store and the in-memory metadata model.

use crate::rig::{Rig, batch};
use floe_log::{AppendBatch, AppendError, AppendResult, FetchError, FetchFrom};
use floe_metadata::rows::{ProducerBatch, Refusal};
use kfs::{PartitionIndex, ProducerEpoch, ProducerId, TopicId, TopicPartition};

/// What the log decides of each batch.
async fn append(rig: &Rig, batches: Vec<AppendBatch>) -> Vec<AppendResult> {
    let ticket = rig.broker.log.append(batches).await.expect("the rig works");
    ticket.outcome().await.expect("the log decides")
}

/// All records from `offset`, each with its offset.
async fn values(rig: &Rig, partition: TopicPartition, offset: i64) -> Vec<(i64, String)> {
    let found = crate::rig::fetch(&rig.broker.log, partition, offset, 1 << 20).await;
    found.into_iter().map(|(at, _, value)| (at, value)).collect()
}

fn from_producer(mut batch: AppendBatch, first_sequence: i32) -> AppendBatch {
    batch.producer = Some(ProducerBatch {
        id: ProducerId(9),
        epoch: ProducerEpoch(0),
        first_sequence,
        last_sequence: first_sequence + batch.record_count as i32 - 1,
        lost_sequence: None,
    });
    batch
}

fn base_offsets(results: &[AppendResult]) -> Vec<i64> {
    results.iter().map(|result| result.as_ref().expect("accepted").base_offset).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_acknowledged_can_be_read_at_its_offset_from_cache_and_from_the_store() {
    let mut rig = Rig::new().await;
    let (first, second) = (rig.partition(0), rig.partition(1));
    let results = append(
        &rig,
        vec![batch(first, 0, &["a", "b"]), batch(second, 0, &["x"]), batch(first, 0, &["c"])],
    )
    .await;
    assert_eq!(base_offsets(&results), vec![0, 0, 2]);
    assert_eq!(base_offsets(&append(&rig, vec![batch(first, 0, &["d"])]).await), vec![3]);
    let expected: Vec<(i64, String)> =
        (0..4).zip(["a", "b", "c", "d"]).map(|(at, value)| (at, value.to_owned())).collect();
    for _ in 0..2 {
        assert_eq!(values(&rig, first, 0).await, expected);
        assert_eq!(values(&rig, first, 3).await, expected[3..]);
        assert_eq!(values(&rig, second, 0).await, vec![(0, "x".to_owned())]);
        assert_eq!(values(&rig, first, 4).await, vec![]);
        rig.restart().await;
    }
    // The last restart has left an empty cache, which only the store can fill.
    let before = (rig.broker.log.cache_stats().misses, rig.store.reads());
    assert_eq!(before.0, 0);
    assert_eq!(values(&rig, first, 0).await, expected);
    assert!(rig.broker.log.cache_stats().misses > 0 && rig.store.reads() > before.1);
}

/// The second batch of a new producer was on its way when the segment of its first was given up.
#[tokio::test(start_paused = true)]
async fn a_first_batch_that_was_lost_is_not_overtaken() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let first = from_producer(batch(partition, 0, &["a"]), 0);
    let next = from_producer(batch(partition, 0, &["b"]), 1);
    rig.store.refuse_puts(true);
    let lost = append(&rig, vec![first.clone()]).await;
    assert!(matches!(lost[0], Err(AppendError::Retry(_))), "{lost:?}");
    rig.store.refuse_puts(false);
    let early = append(&rig, vec![next.clone()]).await;
    let Err(AppendError::Refused { refusal, .. }) = &early[0] else { panic!("{early:?}") };
    assert_eq!(*refusal, Refusal::OutOfOrderSequence);
    assert_eq!(base_offsets(&append(&rig, vec![first, next]).await), vec![0, 1]);
    let expected = [(0, "a".to_owned()), (1, "b".to_owned())];
    assert_eq!(values(&rig, partition, 0).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_fails_no_other_and_is_never_read() {
    let mut rig = Rig::new().await;
    let partition = rig.partition(0);
    let results = append(
        &rig,
        vec![
            from_producer(batch(partition, 0, &["a"]), 0),
            from_producer(batch(partition, 0, &["lost"]), 7),
            from_producer(batch(partition, 0, &["b"]), 1),
            from_producer(batch(partition, 0, &["a"]), 0),
        ],
    )
    .await;
    assert_eq!(results[0].as_ref().expect("the rig works").base_offset, 0);
    let refused =
        AppendError::Refused { refusal: Refusal::OutOfOrderSequence, log_start_offset: Some(0) };
    assert_eq!(results[1], Err(refused));
    assert_eq!(results[2].as_ref().expect("the rig works").base_offset, 1);
    let duplicate = results[3].as_ref().expect("the rig works");
    assert_eq!((duplicate.base_offset, duplicate.duplicate_timestamp_ms), (0, Some(0)));
    for _ in 0..2 {
        let read = values(&rig, partition, 0).await;
        assert_eq!(read, vec![(0, "a".to_owned()), (1, "b".to_owned())]);
        rig.restart().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_is_refused_and_the_others_go_on() {
    let rig = Rig::new().await;
    let gone =
        TopicPartition { topic: TopicId(uuid::Uuid::from_u128(404)), partition: PartitionIndex(0) };
    let results =
        append(&rig, vec![batch(gone, 0, &["x"]), batch(rig.partition(0), 0, &["a"])]).await;
    let refusal = Refusal::UnknownPartition;
    assert_eq!(results[0], Err(AppendError::Refused { refusal, log_start_offset: None }));
    assert_eq!(results[1].as_ref().expect("the rig works").base_offset, 0);
}

/// A segment that the metadata store refuses for good once held up every later one.
#[tokio::test(start_paused = true)]
async fn what_the_metadata_store_refuses_holds_nothing_back() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let mut impossible = from_producer(batch(partition, 0, &["x"]), 0);
    impossible.producer =
        impossible.producer.map(|producer| ProducerBatch { epoch: ProducerEpoch(-7), ..producer });
    let mut tickets = Vec::new();
    for append in [batch(partition, 0, &["a"]), impossible, batch(partition, 0, &["b"])] {
        tickets.push(rig.broker.log.append(vec![append]).await.expect("taken in"));
        tokio::task::yield_now().await;
    }
    let mut refused = 0;
    for ticket in tickets {
        let results = ticket.outcome().await.expect("the log decides");
        refused += usize::from(matches!(results[0], Err(AppendError::Retry(_))));
    }
    assert!(refused >= 1, "the impossible batch is told so");
    let results = append(&rig, vec![batch(partition, 0, &["c"])]).await;
    assert!(results[0].is_ok(), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn offsets_outside_the_log_are_told_from_its_end() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    append(&rig, vec![batch(partition, 0, &["a", "b", "c"])]).await;
    let fetch = |offset| {
        let from = FetchFrom { partition, offset, bytes_max: 100, committed_only: false };
        rig.broker.log.fetch(from)
    };
    assert!(fetch(3).await.expect("the rig works").records.is_empty());
    assert!(matches!(fetch(4).await, Err(FetchError::OffsetOutOfRange(_))));
    assert!(matches!(fetch(-1).await, Err(FetchError::OffsetOutOfRange(_))));
    rig.broker.log.advance_log_start(partition, 2).await.expect("the rig works");
    assert!(matches!(fetch(1).await, Err(FetchError::OffsetOutOfRange(_))));
    assert_eq!(values(&rig, partition, 2).await, vec![(2, "c".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_gives_whole_batches_up_to_its_limit_and_the_first_one_whatever_its_size() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let long = "x".repeat(1000);
    for _ in 0..5 {
        append(&rig, vec![batch(partition, 0, &[&long])]).await;
    }
    let read = async |bytes_max| {
        let from = FetchFrom { partition, offset: 1, bytes_max, committed_only: false };
        let fetched = rig.broker.log.fetch(from).await.expect("the rig works");
        let batches = fetched.records.iter().flat_map(|slice| kfs::batches(slice));
        batches.map(|batch| batch.expect("the rig works").header.base_offset).collect::<Vec<_>>()
    };
    assert_eq!(read(0).await, vec![1]);
    assert_eq!(read(1).await, vec![1]);
    assert_eq!(read(2500).await, vec![1, 2]);
    assert_eq!(read(1 << 20).await, vec![1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn records_are_found_by_time_and_never_below_the_log_start() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    append(&rig, vec![batch(partition, 2, &["a"]), batch(partition, 4, &["b"])]).await;
    append(&rig, vec![batch(partition, 6, &["c"]), batch(partition, 8, &["d"])]).await;
    let at = async |timestamp| {
        let found = rig
            .broker
            .log
            .offset_by_time(partition, timestamp, false)
            .await
            .expect("the rig works");
        found.expect("the partition exists").map(|found| (found.offset, found.timestamp_ms))
    };
    assert_eq!(at(3).await, Some((1, 4)));
    assert_eq!(at(0).await, Some((0, 2)));
    assert_eq!(at(8).await, Some((3, 8)));
    assert_eq!(at(9).await, None);
    rig.broker.log.advance_log_start(partition, 2).await.expect("the rig works");
    assert_eq!(at(0).await, Some((2, 6)));
    let newest = rig
        .broker
        .log
        .offset_of_max_timestamp(partition, false)
        .await
        .expect("the rig works")
        .expect("the rig works");
    assert_eq!(newest.map(|found| found.offset), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_wakes_when_records_become_visible() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let waiter = rig.broker.log.waiter(&[partition]);
    append(&rig, vec![batch(partition, 0, &["a"])]).await;
    waiter.news().await;
    assert_eq!(values(&rig, partition, 0).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn everything_taken_in_before_a_shutdown_is_answered() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let mut tickets = Vec::new();
    for _ in 0..100 {
        tickets.push(
            rig.broker.log.append(vec![batch(partition, 0, &["a"])]).await.expect("the rig works"),
        );
    }
    rig.broker.trigger.trigger();
    for (expected, ticket) in tickets.into_iter().enumerate() {
        let results = ticket.outcome().await.expect("answered");
        assert_eq!(base_offsets(&results), vec![expected as i64]);
    }
    rig.broker.log.drained().await;
    assert!(rig.broker.log.append(vec![batch(partition, 0, &["late"])]).await.is_err());
}
