//! Compaction of transactions: what was aborted goes, markers after it, and no reader is ever told
//! of a transaction whose marker it will not find.

use crate::keyed::{Pair, keyed, rules, terms};
use crate::rig::{Rig, young_ms};
use crate::transactions::{Producer, all, committed};
use floe_log::{AppendBatch, Compactor, FetchFrom, Log, MergeRules};
use floe_metadata::rows::{ProducerBatch, TransactionBatch};
use kfs::{BatchBuilder, BatchHeader, NewRecord, ProducerEpoch, ProducerId, TopicPartition};

/// Longer than any horizon here, ms.
const PAST_HORIZONS_MS: i64 = 30_000_000;

/// A batch of the producer's transaction.
fn of(producer: &mut Producer, partition: TopicPartition, pairs: &[Pair<'_>]) -> AppendBatch {
    let epoch = ProducerEpoch(producer.epoch);
    let mut builder =
        BatchBuilder::new().producer(producer.id, epoch, producer.sequence).transactional();
    for (key, value) in pairs {
        let (key, value) = (key.map(str::as_bytes), value.map(str::as_bytes));
        let record = NewRecord { timestamp_ms: young_ms(), key, value, headers: &[] };
        builder.push(&record).expect("a small record");
    }
    let first_sequence = producer.sequence;
    producer.sequence += pairs.len() as i32;
    AppendBatch {
        bytes: builder.build().expect("a batch"),
        producer: Some(ProducerBatch {
            id: producer.id,
            epoch,
            first_sequence,
            last_sequence: producer.sequence - 1,
            lost_sequence: None,
        }),
        transaction: Some(TransactionBatch { id: producer.name.as_str().into(), joins: true }),
        ..keyed(partition, young_ms(), pairs)
    }
}

async fn transact(rig: &Rig, producer: &mut Producer, pairs: &[Pair<'_>], commit: bool) {
    let batch = of(producer, rig.partition(0), pairs);
    rig.append_all(vec![batch]).await;
    producer.end(rig, commit).await;
}

async fn passes(rig: &Rig, compactor: &Compactor) -> u64 {
    compactor.round(&rig.broker.shutdown).await.expect("a round").passes
}

/// Something new, so that there is a reason for a pass.
async fn more(rig: &Rig, value: &str) {
    let pairs = [(Some("more"), Some(value))];
    rig.append_all(vec![keyed(rig.partition(0), young_ms(), &pairs)]).await;
}

/// The values that a consumer of committed records keeps, as Kafka's own filters them: a producer
/// whose transaction it was told of is ignored until its abort's marker.
async fn kept(log: &Log, partition: TopicPartition) -> Vec<String> {
    let from = FetchFrom { partition, offset: 0, bytes_max: 1 << 20, committed_only: true };
    let fetched = log.fetch(from).await.expect("fetch");
    let mut told = fetched.aborted.clone();
    told.sort_by_key(|aborted| aborted.first_offset);
    let mut told = told.into_iter().peekable();
    let (mut ignored, mut kept) = (Vec::new(), Vec::new());
    for batch in fetched.records.iter().flat_map(|slice| kfs::batches(slice)) {
        let batch = batch.expect("whole batches");
        let header = batch.header;
        while let Some(one) = told.next_if(|one| one.first_offset <= header.last_offset()) {
            ignored.push(one.producer.0);
        }
        let records = batch.records(1 << 20).expect("records");
        let has_records = records.iter().next().is_some();
        if header.is_control() {
            ignored.retain(|producer| *producer != header.producer_id || !has_records);
        } else if !(header.is_transactional() && ignored.contains(&header.producer_id)) {
            for record in records.iter() {
                let value = record.expect("a record").value.unwrap_or_default();
                kept.push(String::from_utf8_lossy(value).into_owned());
            }
        }
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn aborted_records_go_at_once_and_their_marker_after_its_horizon() {
    let mut rig = Rig::new().await;
    let (partition, compactor) = (rig.partition(0), rig.compactor(terms(), rules()));
    let mut producer = Producer::new(&rig, 7).await;
    transact(&rig, &mut producer, &[(Some("a"), Some("1"))], true).await;
    transact(&rig, &mut producer, &[(Some("a"), Some("aborted"))], false).await;
    transact(&rig, &mut producer, &[(Some("b"), Some("2"))], true).await;
    transact(&rig, &mut producer, &[(Some("b"), Some("3"))], true).await;
    assert_eq!(kept(&rig.broker.log, partition).await, ["1", "2", "3"]);
    assert_eq!(passes(&rig, &compactor).await, 1);
    let left = ["0 1", "1 COMMIT", "3 ABORT", "5 COMMIT", "6 3", "7 COMMIT"];
    assert_eq!(all(&rig.broker.log, partition).await, left);
    assert_eq!(committed(&rig.broker.log, partition, 0).await.1, [2]);
    assert_eq!(kept(&rig.broker.log, partition).await, ["1", "3"]);
    // The next pass finds that the markers end nothing any more, a later one that it was long ago.
    more(&rig, "4").await;
    assert_eq!(passes(&rig, &compactor).await, 1);
    assert_eq!(all(&rig.broker.log, partition).await.len(), left.len() + 1);
    rig.pass(PAST_HORIZONS_MS).await;
    assert_eq!(passes(&rig, &compactor).await, 1);
    let left = ["0 1", "1 COMMIT", "6 3", "7 COMMIT", "8 4"];
    assert_eq!(all(&rig.broker.log, partition).await, left);
    assert_eq!(committed(&rig.broker.log, partition, 0).await.1, [0i64; 0]);
    assert_eq!(kept(&rig.broker.log, partition).await, ["1", "3", "4"]);
    rig.restart().await;
    assert_eq!(kept(&rig.broker.log, partition).await, ["1", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_behind_the_last_stable_offset_is_compacted() {
    let rig = Rig::new().await;
    let (partition, compactor) = (rig.partition(0), rig.compactor(terms(), rules()));
    more(&rig, "1").await;
    more(&rig, "2").await;
    let mut open = Producer::new(&rig, 9).await;
    let begins = of(&mut open, partition, &[(Some("more"), Some("open"))]);
    rig.append_all(vec![begins]).await;
    more(&rig, "3").await;
    more(&rig, "4").await;
    assert_eq!(passes(&rig, &compactor).await, 1);
    assert_eq!(all(&rig.broker.log, partition).await, ["1 2", "2 open", "3 3", "4 4"]);
    assert_eq!(passes(&rig, &compactor).await, 0);
    open.end(&rig, false).await;
    assert_eq!(passes(&rig, &compactor).await, 1);
    assert_eq!(all(&rig.broker.log, partition).await, ["4 4", "5 ABORT"]);
    assert_eq!(kept(&rig.broker.log, partition).await, ["4"]);
}

/// A record of an idempotent producer that has written nothing before.
fn idempotent(partition: TopicPartition, producer: i64, pairs: &[Pair<'_>]) -> AppendBatch {
    let (id, epoch) = (ProducerId(producer), ProducerEpoch(0));
    let mut builder = BatchBuilder::new().producer(id, epoch, 0);
    for (key, value) in pairs {
        let (key, value) = (key.map(str::as_bytes), value.map(str::as_bytes));
        builder.push(&NewRecord { key, value, ..NewRecord::default() }).expect("a small record");
    }
    let last_sequence = pairs.len() as i32 - 1;
    let (first_sequence, lost_sequence) = (0, None);
    AppendBatch {
        bytes: builder.build().expect("a batch"),
        producer: Some(ProducerBatch { id, epoch, first_sequence, last_sequence, lost_sequence }),
        ..keyed(partition, young_ms(), pairs)
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_batch_of_a_producer_stays_until_the_producer_is_forgotten() {
    let rig = Rig::new().await;
    let (partition, compactor) = (rig.partition(0), rig.compactor(terms(), rules()));
    let from = FetchFrom { partition, offset: 0, bytes_max: 1 << 20, committed_only: false };
    let first = async || {
        let fetched = rig.broker.log.fetch(from).await.expect("fetch");
        BatchHeader::parse(&fetched.records[0]).expect("a batch")
    };
    rig.append_all(vec![idempotent(partition, 7, &[(Some("more"), Some("x"))])]).await;
    more(&rig, "1").await;
    assert_eq!(passes(&rig, &compactor).await, 1);
    let header = first().await;
    assert_eq!((header.record_count, header.producer_id, header.base_sequence), (0, 7, 0));
    assert_eq!(all(&rig.broker.log, partition).await, ["1 1"]);
    rig.metadata.expire_producers(partition, i64::MAX).await.expect("expire");
    more(&rig, "2").await;
    assert_eq!(passes(&rig, &compactor).await, 1);
    assert_eq!(first().await.base_offset, 2);
}

#[tokio::test(start_paused = true)]
async fn merged_transactions_are_compacted_as_others_are() {
    let rig = Rig::new().await;
    let (partition, compactor) = (rig.partition(0), rig.compactor(terms(), rules()));
    let (mut one, mut two) = (Producer::new(&rig, 7).await, Producer::new(&rig, 8).await);
    let merger = rig.merger(MergeRules::default());
    for round in 0..30 {
        let value = format!("{round}");
        let pairs = [(Some("a"), Some(&value[..])), (Some("b"), Some(&value[..]))];
        let (first, second) =
            (of(&mut one, partition, &pairs), of(&mut two, partition, &pairs[1..]));
        rig.append_all(vec![first, second]).await;
        two.end(&rig, round % 3 != 0).await;
        one.end(&rig, round % 2 == 0).await;
        if round % 7 == 0 {
            rig.merge_all(&merger).await;
        }
        if round % 10 == 9 {
            passes(&rig, &compactor).await;
        }
    }
    more(&rig, "end").await;
    for _ in 0..3 {
        passes(&rig, &compactor).await;
        rig.merge_all(&merger).await;
        rig.pass(PAST_HORIZONS_MS).await;
    }
    // Round 28 is the last whose first producer committed, 29 of the second.
    assert_eq!(kept(&rig.broker.log, partition).await, ["28", "29", "end"]);
    assert!(all(&rig.broker.log, partition).await.len() < 10, "few markers are left");
}
