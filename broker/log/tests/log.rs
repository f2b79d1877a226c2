//! The log over a memory store and the in-memory metadata model.

use bytes::Bytes;
use floe_env::{Env, ShutdownTrigger, shutdown_signal};
use floe_log::{
    AppendBatch, AppendError, AppendResult, CutRules, FetchError, FetchFrom, Log, LogConfig,
    NoObserver, Pace,
};
use floe_metadata::brokers::BrokerAddress;
use floe_metadata::rows::{ProducerBatch, Refusal};
use floe_metadata::topics::TopicCreation;
use floe_metadata::{Backend, MetadataStore, ModelBackend};
use floe_store::{MemoryStore, ObjectStore};
use kfs::{
    BatchBuilder, BrokerId, ClusterId, NewRecord, PartitionIndex, ProducerEpoch, ProducerId,
    TimestampType, TopicId, TopicPartition,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

struct Rig {
    env: Env,
    store: Arc<MemoryStore>,
    metadata: MetadataStore,
    topic: TopicId,
    log: Log,
    trigger: ShutdownTrigger,
}

impl Rig {
    async fn new() -> Self {
        let env = Env::current();
        let store = Arc::new(MemoryStore::new());
        let backend: Arc<dyn Backend> = Arc::new(ModelBackend::new(env.clone()));
        let metadata = MetadataStore::new(backend, env.clone());
        let created =
            metadata.create_topic("t", 2, 1, BTreeMap::new()).await.expect("the rig works");
        let TopicCreation::Created(topic) = created else { panic!("the topic is new") };
        let (log, trigger) = start(&env, &store, &metadata).await;
        Self { env, store, metadata, topic: topic.id, log, trigger }
    }

    /// Ends the log and starts another broker's on the same stores.
    async fn restart(&mut self) {
        self.trigger.trigger();
        self.log.drained().await;
        (self.log, self.trigger) = start(&self.env, &self.store, &self.metadata).await;
    }

    fn partition(&self, index: i32) -> TopicPartition {
        TopicPartition { topic: self.topic, partition: PartitionIndex(index) }
    }

    async fn append(&self, batches: Vec<AppendBatch>) -> Vec<AppendResult> {
        let ticket = self.log.append(batches).await.expect("the rig works");
        ticket.outcome().await.expect("the log decides")
    }

    async fn values(&self, partition: TopicPartition, offset: i64) -> Vec<(i64, String)> {
        let from = FetchFrom { partition, offset, bytes_max: 1 << 20, committed_only: false };
        let fetched = self.log.fetch(from).await.expect("fetch");
        let mut values = Vec::new();
        for slice in fetched.records {
            for batch in kfs::batches(&slice) {
                let batch = batch.expect("whole batches");
                batch.verify_crc().expect("crc");
                for record in batch.records(1 << 20).expect("the rig works").iter() {
                    let record = record.expect("the rig works");
                    let value =
                        String::from_utf8_lossy(record.value.expect("the rig works")).into_owned();
                    values.push((batch.header.base_offset + i64::from(record.offset_delta), value));
                }
            }
        }
        values.retain(|(at, _)| *at >= offset);
        values
    }
}

async fn start(
    env: &Env,
    store: &Arc<MemoryStore>,
    metadata: &MetadataStore,
) -> (Log, ShutdownTrigger) {
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    let registration =
        metadata.register_broker(BrokerId(1), &address, 30_000).await.expect("the rig works");
    let config = LogConfig {
        cluster: ClusterId(uuid::Uuid::from_u128(1)),
        broker: BrokerId(1),
        epoch: registration.epoch,
        fence: registration.fence,
        cut: CutRules {
            segment_bytes: 1 << 20,
            flush_interval: Duration::from_millis(50),
            pace: Pace::GroupCommit,
        },
        uploads_max: 4,
        upload_timeout: Duration::from_secs(5),
        pending_bytes_max: 8 << 20,
        cache_bytes: 8 << 20,
        decompressed_bytes_max: 1 << 20,
    };
    let (trigger, shutdown) = shutdown_signal();
    let objects: Arc<dyn ObjectStore> = store.clone();
    let backend = metadata.backend().clone();
    (Log::start(env, &config, objects, backend, Arc::new(NoObserver), shutdown), trigger)
}

fn batch(partition: TopicPartition, timestamp_ms: i64, values: &[&str]) -> AppendBatch {
    let mut builder = BatchBuilder::new();
    for (at, value) in values.iter().enumerate() {
        let record = NewRecord {
            timestamp_ms: timestamp_ms + at as i64,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        builder.push(&record).expect("the rig works");
    }
    let bytes: Bytes = builder.build().expect("the rig works");
    AppendBatch {
        partition,
        topic_name: "t".into(),
        bytes,
        record_count: values.len() as u32,
        max_timestamp_ms: timestamp_ms + values.len() as i64 - 1,
        timestamp_type: TimestampType::CreateTime,
        producer: None,
        transactional: false,
    }
}

fn from_producer(mut batch: AppendBatch, first_sequence: i32) -> AppendBatch {
    batch.producer = Some(ProducerBatch {
        id: ProducerId(9),
        epoch: ProducerEpoch(0),
        first_sequence,
        last_sequence: first_sequence + batch.record_count as i32 - 1,
    });
    batch
}

fn base_offsets(results: &[AppendResult]) -> Vec<i64> {
    results.iter().map(|result| result.as_ref().expect("accepted").base_offset).collect()
}

#[tokio::test]
async fn what_is_acknowledged_can_be_read_at_its_offset_from_cache_and_from_the_store() {
    let mut rig = Rig::new().await;
    let (first, second) = (rig.partition(0), rig.partition(1));
    let results = rig
        .append(vec![
            batch(first, 0, &["a", "b"]),
            batch(second, 0, &["x"]),
            batch(first, 0, &["c"]),
        ])
        .await;
    assert_eq!(base_offsets(&results), vec![0, 0, 2]);
    assert_eq!(base_offsets(&rig.append(vec![batch(first, 0, &["d"])]).await), vec![3]);
    let expected: Vec<(i64, String)> =
        (0..4).zip(["a", "b", "c", "d"]).map(|(at, value)| (at, value.to_owned())).collect();
    for _ in 0..2 {
        assert_eq!(rig.values(first, 0).await, expected);
        assert_eq!(rig.values(first, 3).await, expected[3..]);
        assert_eq!(rig.values(second, 0).await, vec![(0, "x".to_owned())]);
        assert_eq!(rig.values(first, 4).await, vec![]);
        rig.restart().await;
    }
    assert!(rig.log.cache_stats().misses > 0 || rig.values(first, 0).await == expected);
}

#[tokio::test]
async fn a_refused_batch_fails_no_other_and_is_never_read() {
    let mut rig = Rig::new().await;
    let partition = rig.partition(0);
    let results = rig
        .append(vec![
            from_producer(batch(partition, 0, &["a"]), 0),
            from_producer(batch(partition, 0, &["lost"]), 7),
            from_producer(batch(partition, 0, &["b"]), 1),
            from_producer(batch(partition, 0, &["a"]), 0),
        ])
        .await;
    assert_eq!(results[0].as_ref().expect("the rig works").base_offset, 0);
    let refused =
        AppendError::Refused { refusal: Refusal::OutOfOrderSequence, log_start_offset: Some(0) };
    assert_eq!(results[1], Err(refused));
    assert_eq!(results[2].as_ref().expect("the rig works").base_offset, 1);
    let duplicate = results[3].as_ref().expect("the rig works");
    assert_eq!((duplicate.base_offset, duplicate.duplicate_timestamp_ms), (0, Some(0)));
    for _ in 0..2 {
        let read = rig.values(partition, 0).await;
        assert_eq!(read, vec![(0, "a".to_owned()), (1, "b".to_owned())]);
        rig.restart().await;
    }
}

#[tokio::test]
async fn a_deleted_topic_is_refused_and_the_others_go_on() {
    let rig = Rig::new().await;
    let gone =
        TopicPartition { topic: TopicId(uuid::Uuid::from_u128(404)), partition: PartitionIndex(0) };
    let results =
        rig.append(vec![batch(gone, 0, &["x"]), batch(rig.partition(0), 0, &["a"])]).await;
    let refusal = Refusal::UnknownPartition;
    assert_eq!(results[0], Err(AppendError::Refused { refusal, log_start_offset: None }));
    assert_eq!(results[1].as_ref().expect("the rig works").base_offset, 0);
}

/// A segment that the metadata store refuses for good once held up every later one.
#[tokio::test]
async fn what_the_metadata_store_refuses_holds_nothing_back() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let mut impossible = from_producer(batch(partition, 0, &["x"]), 0);
    impossible.producer =
        impossible.producer.map(|producer| ProducerBatch { epoch: ProducerEpoch(-7), ..producer });
    let mut tickets = Vec::new();
    for append in [batch(partition, 0, &["a"]), impossible, batch(partition, 0, &["b"])] {
        tickets.push(rig.log.append(vec![append]).await.expect("taken in"));
        tokio::task::yield_now().await;
    }
    let mut refused = 0;
    for ticket in tickets {
        let results = ticket.outcome().await.expect("the log decides");
        refused += usize::from(matches!(results[0], Err(AppendError::Retry(_))));
    }
    assert!(refused >= 1, "the impossible batch is told so");
    let results = rig.append(vec![batch(partition, 0, &["c"])]).await;
    assert!(results[0].is_ok(), "{results:?}");
}

#[tokio::test]
async fn offsets_outside_the_log_are_told_from_its_end() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    rig.append(vec![batch(partition, 0, &["a", "b", "c"])]).await;
    let fetch = |offset| {
        let from = FetchFrom { partition, offset, bytes_max: 100, committed_only: false };
        rig.log.fetch(from)
    };
    assert!(fetch(3).await.expect("the rig works").records.is_empty());
    assert!(matches!(fetch(4).await, Err(FetchError::OffsetOutOfRange)));
    assert!(matches!(fetch(-1).await, Err(FetchError::OffsetOutOfRange)));
    rig.log.advance_log_start(partition, 2).await.expect("the rig works");
    assert!(matches!(fetch(1).await, Err(FetchError::OffsetOutOfRange)));
    assert_eq!(rig.values(partition, 2).await, vec![(2, "c".to_owned())]);
}

#[tokio::test]
async fn a_fetch_gives_whole_batches_up_to_its_limit_and_the_first_one_whatever_its_size() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let long = "x".repeat(1000);
    for _ in 0..5 {
        rig.append(vec![batch(partition, 0, &[&long])]).await;
    }
    let read = async |bytes_max| {
        let from = FetchFrom { partition, offset: 1, bytes_max, committed_only: false };
        let fetched = rig.log.fetch(from).await.expect("the rig works");
        let batches = fetched.records.iter().flat_map(|slice| kfs::batches(slice));
        batches.map(|batch| batch.expect("the rig works").header.base_offset).collect::<Vec<_>>()
    };
    assert_eq!(read(0).await, vec![1]);
    assert_eq!(read(1).await, vec![1]);
    assert_eq!(read(2500).await, vec![1, 2]);
    assert_eq!(read(1 << 20).await, vec![1, 2, 3, 4]);
}

#[tokio::test]
async fn records_are_found_by_time_and_never_below_the_log_start() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    rig.append(vec![batch(partition, 2, &["a"]), batch(partition, 4, &["b"])]).await;
    rig.append(vec![batch(partition, 6, &["c"]), batch(partition, 8, &["d"])]).await;
    let at = async |timestamp| {
        let found =
            rig.log.offset_by_time(partition, timestamp, false).await.expect("the rig works");
        found.expect("the partition exists").map(|found| (found.offset, found.timestamp_ms))
    };
    assert_eq!(at(3).await, Some((1, 4)));
    assert_eq!(at(0).await, Some((0, 2)));
    assert_eq!(at(8).await, Some((3, 8)));
    assert_eq!(at(9).await, None);
    rig.log.advance_log_start(partition, 2).await.expect("the rig works");
    assert_eq!(at(0).await, Some((2, 6)));
    let newest = rig
        .log
        .offset_of_max_timestamp(partition, false)
        .await
        .expect("the rig works")
        .expect("the rig works");
    assert_eq!(newest.map(|found| found.offset), Some(3));
}

#[tokio::test]
async fn a_waiter_wakes_when_records_become_visible() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let waiter = rig.log.waiter(&[partition]);
    rig.append(vec![batch(partition, 0, &["a"])]).await;
    waiter.news().await;
    assert_eq!(rig.values(partition, 0).await.len(), 1);
}

#[tokio::test]
async fn everything_taken_in_before_a_shutdown_is_answered() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let mut tickets = Vec::new();
    for _ in 0..100 {
        tickets
            .push(rig.log.append(vec![batch(partition, 0, &["a"])]).await.expect("the rig works"));
    }
    rig.trigger.trigger();
    for (expected, ticket) in tickets.into_iter().enumerate() {
        let results = ticket.outcome().await.expect("answered");
        assert_eq!(base_offsets(&results), vec![expected as i64]);
    }
    rig.log.drained().await;
    assert!(rig.log.append(vec![batch(partition, 0, &["late"])]).await.is_err());
}
