//! The bridge reads up to a cut that the metadata store gave, whatever this broker's log knows.

use super::BridgeLog;
use floe_env::simulated::Node;
use floe_env::{Env, ErrorKind, Shutdown, ShutdownTrigger, shutdown_signal};
use floe_iceberg_bridge::LogReader;
use floe_log::{AppendBatch, CutRules, Log, LogConfig, NoObserver, Pace};
use floe_metadata::brokers::BrokerAddress;
use floe_metadata::rows::{ProducerBatch, TransactionBatch};
use floe_metadata::topics::TopicCreation;
use floe_metadata::transactions::{Ending, TransactionRow, TransactionState};
use floe_metadata::{MetadataStore, ModelBackend};
use floe_store::MemoryStore;
use kfs::{
    BatchBuilder, BrokerId, ClusterId, NewRecord, PartitionIndex, ProducerEpoch, ProducerId,
    TimestampType, TopicPartition,
};
use std::sync::Arc;
use std::time::Duration;

struct Rig {
    env: Env,
    objects: MemoryStore,
    model: Arc<ModelBackend>,
    metadata: MetadataStore,
    partition: TopicPartition,
    shutdown: (ShutdownTrigger, Shutdown),
}

impl Rig {
    async fn new() -> Self {
        let env = Env::simulated(Node::new(1));
        let model = Arc::new(ModelBackend::new(env.clone()));
        let metadata = MetadataStore::new(model.clone(), env.clone());
        let made = metadata.create_topic("t", 1, 1, Default::default()).await.unwrap();
        let TopicCreation::Created(topic) = made else { panic!("the topic is new") };
        let partition = TopicPartition { topic: topic.id, partition: PartitionIndex(0) };
        let (objects, shutdown) = (MemoryStore::new(), shutdown_signal());
        Self { env, objects, model, metadata, partition, shutdown }
    }

    async fn log(&self, id: i32) -> Log {
        let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
        let registered = self.metadata.register_broker(BrokerId(id), &address, 30_000).await;
        let registration = registered.unwrap();
        let flush_interval = Duration::from_millis(50);
        let config = LogConfig {
            cluster: ClusterId(uuid::Uuid::from_u128(1)),
            broker: BrokerId(id),
            epoch: registration.epoch,
            fence: registration.fence,
            cut: CutRules { segment_bytes: 1 << 20, flush_interval, pace: Pace::GroupCommit },
            uploads_max: 4,
            upload_timeout: Duration::from_secs(5),
            pending_bytes_max: 8 << 20,
            cache_bytes: 8 << 20,
            decompressed_bytes_max: 1 << 20,
        };
        let (objects, backend) = (Arc::new(self.objects.clone()), self.metadata.backend().clone());
        let shutdown = self.shutdown.1.clone();
        Log::start(&self.env, &config, objects, backend, Arc::new(NoObserver), shutdown)
    }

    async fn append(&self, log: &Log) {
        self.append_of(log, None).await;
    }

    /// One record, of a transaction where a producer is given.
    async fn append_of(&self, log: &Log, producer: Option<ProducerBatch>) {
        let mut builder = BatchBuilder::new();
        if let Some(of) = &producer {
            builder = builder.producer(of.id, of.epoch, of.first_sequence).transactional();
        }
        let record = NewRecord { timestamp_ms: 5, key: None, value: Some(b"v"), headers: &[] };
        builder.push(&record).unwrap();
        let batch = AppendBatch {
            partition: self.partition,
            topic_name: "t".into(),
            bytes: builder.build().unwrap(),
            record_count: 1,
            max_timestamp_ms: 5,
            timestamp_type: TimestampType::CreateTime,
            transaction: producer.map(|of| self.transaction(of.id)),
            producer,
        };
        let results = log.append(vec![batch]).await.unwrap().outcome().await.unwrap();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    fn transaction(&self, producer: ProducerId) -> TransactionBatch {
        TransactionBatch { id: format!("t{producer}").into(), joins: true }
    }

    /// A transaction of two records, which ends in one way or the other.
    async fn transact(&self, log: &Log, id: i64, commit: bool) {
        let (id, epoch) = (ProducerId(id), ProducerEpoch(0));
        let name = self.transaction(id).id;
        let row = TransactionRow::new(id, 60_000, 0);
        self.metadata.put_transaction(&name, None, &row).await.unwrap();
        for sequence in 0..2 {
            let (first_sequence, last_sequence) = (sequence, sequence);
            let lost_sequence = None;
            let batch = ProducerBatch { id, epoch, first_sequence, last_sequence, lost_sequence };
            self.append_of(log, Some(batch)).await;
        }
        let known = self.metadata.transaction(&name).await.unwrap().unwrap();
        let after = TransactionRow {
            state: TransactionState::CompleteAbort,
            partitions: Default::default(),
            ..known.row.clone()
        };
        let ending = Ending { commit, producer: id, epoch };
        let created = |_| TimestampType::CreateTime;
        let ended = self.metadata.end_transaction(&known, &after, ending, created).await;
        assert_eq!(ended.unwrap().unwrap().len(), 1);
    }
}

/// The offsets of all records that a reader is given from an offset on, until the end.
async fn given(reader: &BridgeLog, partition: TopicPartition, from: i64) -> Vec<i64> {
    let end = reader.cut(partition.topic).await.unwrap().unwrap()[0].last_stable_offset;
    let (mut next, mut offsets) = (from, Vec::new());
    while next < end {
        let read = reader.read(partition, next, end, 1).await.unwrap();
        assert!(read.next_offset > next);
        for batch in read.batches.iter().flat_map(|run| kfs::batches(run)) {
            let header = batch.unwrap().header;
            assert!(!header.is_control());
            offsets.extend(header.base_offset..=header.last_offset());
        }
        next = read.next_offset;
    }
    offsets
}

#[tokio::test(start_paused = true)]
async fn markers_and_aborted_records_are_passed() {
    let rig = Rig::new().await;
    let log = rig.log(1).await;
    rig.append(&log).await;
    rig.transact(&log, 7, false).await;
    rig.append(&log).await;
    rig.transact(&log, 8, true).await;
    rig.transact(&log, 9, false).await;
    let reader = BridgeLog { log, metadata: rig.metadata.clone() };
    // 0 | 1 2 and a marker | 4 | 5 6 and a marker | 8 9 and a marker
    assert_eq!(given(&reader, rig.partition, 0).await, [0, 4, 5, 6]);
    assert_eq!(given(&reader, rig.partition, 2).await, [4, 5, 6]);
    assert_eq!(given(&reader, rig.partition, 8).await, [] as [i64; 0], "nothing, and the end");
}

/// Found by seeds 0 and 11 of the simulation: a commit that is in the metadata store, and whose
/// answer this broker does not have yet, was passed over, and its records never got into the table.
#[tokio::test(start_paused = true)]
async fn records_that_the_log_does_not_know_of_yet_are_read() {
    let rig = Rig::new().await;
    let (writer, other) = (rig.log(1).await, rig.log(2).await);
    rig.append(&writer).await;
    assert_eq!(other.state(rig.partition).await.unwrap().unwrap().high_watermark, 1);
    rig.append(&writer).await;
    assert_eq!(other.known_state(rig.partition).unwrap().high_watermark, 1);
    let reader = BridgeLog { log: other, metadata: rig.metadata.clone() };
    let cut = reader.cut(rig.partition.topic).await.unwrap().unwrap();
    assert_eq!(cut[0].last_stable_offset, 2);
    let read = reader.read(rig.partition, 1, 2, 1 << 20).await.unwrap();
    assert_eq!((read.batches.len(), read.next_offset), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_nobody_knows_is_not_passed_over() {
    let rig = Rig::new().await;
    let log = rig.log(1).await;
    rig.append(&log).await;
    let reader = BridgeLog { log, metadata: rig.metadata.clone() };
    let refused = reader.read(rig.partition, 1, 2, 1 << 20).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Retry);
}

/// A transaction is in a cut as a whole.
#[tokio::test(start_paused = true)]
async fn a_topic_is_cut_at_one_moment_however_many_partitions_it_has() {
    let rig = Rig::new().await;
    let log = rig.log(1).await;
    let reader = BridgeLog { log, metadata: rig.metadata.clone() };
    let mut topics = vec![(rig.partition.topic, 1)];
    for (name, count) in [("many", 2500), ("some", 600), ("others", 600)] {
        let made = rig.metadata.create_topic(name, count, 1, Default::default()).await.unwrap();
        let TopicCreation::Created(topic) = made else { panic!("the topic is new") };
        topics.push((topic.id, count));
    }
    let reads = rig.model.state_reads();
    let cuts = reader.cuts(&topics).await.unwrap();
    let counts: Vec<usize> = cuts.iter().map(|cut| cut.as_ref().unwrap().len()).collect();
    assert_eq!(counts, [1, 2500, 600, 600]);
    assert_eq!(rig.model.state_reads() - reads, 4, "none of them by two");
    let reads = rig.model.state_reads();
    assert_eq!(reader.cut(topics[1].0).await.unwrap().unwrap().len(), 2500);
    assert_eq!(rig.model.state_reads() - reads, 1);
}

#[tokio::test(start_paused = true)]
async fn cuts_of_many_topics_are_each_their_own() {
    let rig = Rig::new().await;
    let log = rig.log(1).await;
    rig.append(&log).await;
    let reader = BridgeLog { log, metadata: rig.metadata.clone() };
    let made = rig.metadata.create_topic("u", 2, 1, Default::default()).await.unwrap();
    let TopicCreation::Created(other) = made else { panic!("the topic is new") };
    let gone = kfs::TopicId(uuid::Uuid::from_u128(77));
    let asked = [(other.id, 2), (gone, 3), (rig.partition.topic, 1)];
    let cuts = reader.cuts(&asked).await.unwrap();
    let ends = |cut: &Option<Vec<floe_iceberg_bridge::PartitionCut>>| {
        let ends = cut.as_ref()?.iter().map(|ends| ends.last_stable_offset);
        Some(ends.collect::<Vec<i64>>())
    };
    let found: Vec<_> = cuts.iter().map(ends).collect();
    assert_eq!(found, [Some(vec![0, 0]), None, Some(vec![1])]);
    assert_eq!(cuts[2], reader.cut(rig.partition.topic).await.unwrap());
    assert_eq!(reader.cut(gone).await.unwrap(), None);
}
