//! Transactions as readers see them: control batches that are made when they are read, the last
//! stable offset, aborted lists; and the same after merging, from objects alone.

use crate::rig::{Rig, batch, young_ms};
use bytes::Bytes;
use floe_log::{AppendBatch, FetchFrom, Log, MergeRules};
use floe_metadata::rows::{MarkerOutcome, ProducerBatch, TransactionBatch};
use floe_metadata::transactions::{Ending, TransactionRow, TransactionState};
use floe_store::ObjectStore;
use kfs::{
    BatchBuilder, ControlRecord, Marker, NewRecord, ProducerEpoch, ProducerId, TimestampType,
    TopicPartition,
};

/// A producer with a transactional id, which raises its epoch with every end.
pub(crate) struct Producer {
    pub(crate) id: ProducerId,
    pub(crate) name: String,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
}

impl Producer {
    pub(crate) async fn new(rig: &Rig, id: i64) -> Self {
        let name = format!("t{id}");
        let row = TransactionRow::new(ProducerId(id), 60_000, 0);
        rig.metadata.put_transaction(&name, None, &row).await.expect("a new id");
        Self { id: ProducerId(id), name, epoch: 0, sequence: 0 }
    }

    fn batch(&mut self, partition: TopicPartition, values: &[&str]) -> AppendBatch {
        let epoch = ProducerEpoch(self.epoch);
        let mut builder =
            BatchBuilder::new().producer(self.id, epoch, self.sequence).transactional();
        for value in values {
            let value = Some(value.as_bytes());
            let record = NewRecord { timestamp_ms: young_ms(), key: None, value, headers: &[] };
            builder.push(&record).expect("a small record");
        }
        let first_sequence = self.sequence;
        self.sequence += values.len() as i32;
        AppendBatch {
            bytes: builder.build().expect("a batch"),
            producer: Some(ProducerBatch {
                id: self.id,
                epoch,
                first_sequence,
                last_sequence: self.sequence - 1,
                lost_sequence: None,
            }),
            transaction: Some(TransactionBatch { id: self.name.as_str().into(), joins: true }),
            ..batch(partition, young_ms(), values)
        }
    }

    pub(crate) async fn end(&mut self, rig: &Rig, commit: bool) {
        let known = rig.metadata.transaction(&self.name).await.expect("read").expect("it is there");
        let epoch = ProducerEpoch(known.row.epoch.0 + 1);
        let after = TransactionRow {
            epoch,
            state: TransactionState::CompleteCommit,
            partitions: Default::default(),
            ..known.row.clone()
        };
        let ending = Ending { commit, producer: self.id, epoch };
        let created = |_| TimestampType::CreateTime;
        let ended = rig.metadata.end_transaction(&known, &after, ending, created).await;
        for (partition, outcome) in ended.expect("end").expect("nobody else changes it") {
            let MarkerOutcome::Written { marker, state } = outcome else { panic!("{outcome:?}") };
            rig.broker.log.ended(partition, state, marker);
        }
        (self.epoch, self.sequence) = (epoch.0, 0);
    }
}

/// Batches as text: values, or what a marker says.
fn described(slices: &[Bytes]) -> Vec<String> {
    let mut found = Vec::new();
    for batch in slices.iter().flat_map(|slice| kfs::batches(slice)) {
        let batch = batch.expect("whole batches");
        batch.verify_crc().expect("crc");
        let records = batch.records(1 << 20).expect("records");
        for record in records.iter() {
            let record = record.expect("a record");
            let at = batch.header.base_offset + i64::from(record.offset_delta);
            let text = match ControlRecord::parse(&record) {
                _ if !batch.header.is_control() => {
                    String::from_utf8_lossy(record.value.expect("a value")).into_owned()
                }
                ControlRecord::End { marker: Marker::Commit, .. } => "COMMIT".to_owned(),
                ControlRecord::End { marker: Marker::Abort, .. } => "ABORT".to_owned(),
                ControlRecord::Other => panic!("another control record"),
            };
            found.push(format!("{at} {text}"));
        }
    }
    found
}

/// What a reader of everything sees.
pub(crate) async fn all(log: &Log, partition: TopicPartition) -> Vec<String> {
    let from = FetchFrom { partition, offset: 0, bytes_max: 1 << 20, committed_only: false };
    described(&log.fetch(from).await.expect("fetch").records)
}

/// What a reader of committed records sees, and which transactions it is told were aborted.
pub(crate) async fn committed(
    log: &Log,
    partition: TopicPartition,
    offset: i64,
) -> (Vec<String>, Vec<i64>) {
    let from = FetchFrom { partition, offset, bytes_max: 1 << 20, committed_only: true };
    let fetched = log.fetch(from).await.expect("fetch");
    let aborted = fetched.aborted.iter().map(|one| one.first_offset).collect();
    (described(&fetched.records), aborted)
}

#[tokio::test(start_paused = true)]
async fn readers_of_committed_records_stop_within_a_segment() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let mut producer = Producer::new(&rig, 7).await;
    // One segment, one extent, one block: the transaction begins in its middle.
    let plain = |value| batch(partition, young_ms(), &[value]);
    let within = producer.batch(partition, &["b", "c"]);
    rig.append_all(vec![plain("a"), within, plain("d")]).await;
    assert_eq!(rig.extents(partition).await.len(), 1);
    let log = &rig.broker.log;
    assert_eq!(all(log, partition).await, ["0 a", "1 b", "2 c", "3 d"]);
    assert_eq!(committed(log, partition, 0).await, (vec!["0 a".to_owned()], vec![]));
    assert_eq!(committed(log, partition, 2).await, (vec![], vec![]));
    producer.end(&rig, true).await;
    let whole = ["0 a", "1 b", "2 c", "3 d", "4 COMMIT"].map(str::to_owned).to_vec();
    assert_eq!(committed(log, partition, 0).await, (whole, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_reader_is_woken_by_the_end() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let mut producer = Producer::new(&rig, 7).await;
    let begins = producer.batch(partition, &["a"]);
    rig.append_all(vec![begins]).await;
    let waiter = rig.broker.log.waiter(&[partition]);
    producer.end(&rig, false).await;
    waiter.news().await;
    let (records, aborted) = committed(&rig.broker.log, partition, 0).await;
    assert_eq!((records.len(), aborted), (2, vec![0]));
}

#[tokio::test(start_paused = true)]
async fn who_follows_asks_for_aborted_transactions_only_where_there_are_any() {
    let mut rig = Rig::new().await;
    let partition = rig.partition(0);
    let mut producer = Producer::new(&rig, 7).await;
    let log = rig.broker.log.clone();
    for round in 0..5 {
        let begins = producer.batch(partition, &["a"]);
        rig.append_all(vec![begins]).await;
        producer.end(&rig, true).await;
        let (records, aborted) = committed(&log, partition, 2 * round).await;
        assert_eq!((records.len(), aborted), (2, vec![]), "round {round}");
    }
    assert_eq!(committed(&log, partition, 0).await.0.len(), 10);
    assert_eq!(rig.model.aborted_reads(), 0);
    let begins = producer.batch(partition, &["b"]);
    rig.append_all(vec![begins]).await;
    producer.end(&rig, false).await;
    let state_reads = rig.model.state_reads();
    assert_eq!(committed(&log, partition, 0).await.1, [10]);
    assert_eq!((rig.model.aborted_reads(), rig.model.state_reads()), (1, state_reads));
    // Behind the abort all is committed again, and before it the list is not needed either.
    assert_eq!(committed(&log, partition, 12).await.1, [0i64; 0]);
    assert_eq!(rig.model.aborted_reads(), 1);
    // Whoever has seen nothing of it asks.
    rig.broker = rig.start(2).await;
    assert_eq!(committed(&rig.broker.log, partition, 0).await.1, [10]);
}

/// Two producers by turns; the first's transactions are aborted, every other one of the second's.
async fn fill(rig: &Rig, rounds: usize) {
    let partition = rig.partition(0);
    let (mut one, mut two) = (Producer::new(rig, 7).await, Producer::new(rig, 8).await);
    for round in 0..rounds {
        let first = one.batch(partition, &[&format!("x{round}")]);
        let second = two.batch(partition, &[&format!("y{round}")]);
        rig.append_all(vec![first, batch(partition, young_ms(), &["p"])]).await;
        rig.append_all(vec![second]).await;
        two.end(rig, round % 2 == 0).await;
        one.end(rig, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn merged_objects_have_control_batches_and_aborted_lists() {
    let mut rig = Rig::new().await;
    fill(&rig, 12).await;
    let partition = rig.partition(0);
    let log = rig.broker.log.clone();
    let (before, told) = (all(&log, partition).await, committed(&log, partition, 0).await);
    assert_eq!(before.iter().filter(|text| text.ends_with("COMMIT")).count(), 6);
    assert_eq!(before.iter().filter(|text| text.ends_with("ABORT")).count(), 18);
    assert_eq!(told.1.len(), 18);
    let reads = rig.store.reads();
    let done = rig.merge_all(&rig.merger(MergeRules::default())).await;
    assert!(done.merges > 0);
    assert_eq!(all(&log, partition).await, before);
    assert_eq!(committed(&log, partition, 0).await, told);
    assert_eq!(rig.store.reads(), reads, "markers do not push their neighbours out of the cache");
    // A broker that has nothing in memory reads the same from the object.
    rig.broker = rig.start(2).await;
    assert_eq!(all(&rig.broker.log, partition).await, before);
    assert_eq!(committed(&rig.broker.log, partition, 0).await, told);
    // And so does whoever has nothing but the object.
    let objects = rig.objects(partition).await;
    assert_eq!(objects.len(), 1);
    let object = rig.object(&objects[0]);
    let bytes = rig.store.get(&object).await.expect("get").expect("it is there");
    let read = |range: std::ops::Range<u64>| {
        Ok::<_, std::convert::Infallible>(bytes.slice(range.start as usize..range.end as usize))
    };
    let footer = kfs::open(bytes.len() as u64, read).expect("a segment");
    let section = &footer.sections[0];
    assert!(section.has_control && section.has_transactional);
    let firsts: Vec<i64> = section.aborted.iter().map(|one| one.first_offset).collect();
    assert_eq!(firsts, told.1);
    assert!(section.aborted.is_sorted_by_key(|one| one.last_offset));
}

#[tokio::test(start_paused = true)]
async fn nothing_of_an_open_transaction_is_merged() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    fill(&rig, 4).await;
    let stable = rig.broker.log.state(partition).await.expect("read").expect("there");
    let mut open = Producer::new(&rig, 9).await;
    let begins = open.batch(partition, &["open"]);
    rig.append_all(vec![begins]).await;
    fill_plain(&rig, 20).await;
    rig.merge_all(&rig.merger(MergeRules::default())).await;
    let extents = rig.extents(partition).await;
    assert!(extents.len() > 20, "what is not stable stays as it is");
    let merged = extents[0].last_offset;
    assert!(merged < stable.high_watermark);
    open.end(&rig, true).await;
    rig.merge_all(&rig.merger(MergeRules::default())).await;
    assert!(rig.extents(partition).await.len() < extents.len());
}

async fn fill_plain(rig: &Rig, count: usize) {
    for _ in 0..count {
        rig.append(rig.partition(0), young_ms(), &["plain"]).await;
    }
}
