//! Two brokers that both hold a registration, on one store: producers that go from one to the
//! other, the same batch sent to both, gaps, merges and cleaning by both, and deletions by either.
//! Whatever the order, the log is one: each record once, in its producer's order, the same read
//! from both.

use crate::rig::{Broker, Rig, batch, fetch, young_ms};
use floe_log::{AppendBatch, AppendError, AppendResult, FetchError, FetchFrom, MergeRules, Merger};
use floe_metadata::rows::{ProducerBatch, Refusal};
use futures::future::join_all;
use kfs::{ProducerEpoch, ProducerId, TopicPartition};
use std::collections::BTreeMap;

const SEEDS: u64 = 24;
const ROUNDS: u32 = 40;
const PRODUCERS: i64 = 4;
const OTHER_BROKER_ID: i32 = 3;

/// What was seen, so that a run in which something never happened fails.
#[derive(Debug, Default)]
struct Seen {
    accepted: u32,
    duplicates_across: u32,
    gaps_refused: u32,
    merges: usize,
    deletions: u32,
}

/// A producer: where its sequence is, and the values that were accepted, with their offsets.
#[derive(Default)]
struct Producer {
    next_sequence: i32,
    accepted: Vec<(i64, String)>,
}

fn of_producer(batch: AppendBatch, id: i64, first_sequence: i32) -> AppendBatch {
    let last_sequence = first_sequence + batch.record_count as i32 - 1;
    let (id, epoch) = (ProducerId(id), ProducerEpoch(0));
    AppendBatch {
        producer: Some(ProducerBatch {
            id,
            epoch,
            first_sequence,
            last_sequence,
            lost_sequence: None,
        }),
        ..batch
    }
}

async fn send(broker: &Broker, batch: AppendBatch) -> AppendResult {
    let ticket = broker.log.append(vec![batch]).await.expect("the log runs");
    ticket.outcome().await.expect("the log decides").remove(0)
}

/// One round: each producer sends its next batch to one of both or to both at once.
async fn round(
    (rig, brokers): (&Rig, [&Broker; 2]),
    partition: TopicPartition,
    producers: &mut BTreeMap<i64, Producer>,
    seen: &mut Seen,
) {
    let mut sent = Vec::new();
    for (id, producer) in producers.iter() {
        let count = 1 + (rig.env.random_u64() % 3) as i32;
        let values: Vec<String> =
            (0..count).map(|at| format!("{id}/{}", producer.next_sequence + at)).collect();
        let text: Vec<&str> = values.iter().map(String::as_str).collect();
        let made = batch(partition, young_ms(), &text);
        let choice = rig.env.random_u64();
        let broker = brokers[(choice % 2) as usize];
        let again = (choice % 3 == 0).then(|| brokers[(choice % 2 == 0) as usize]);
        let first = of_producer(made.clone(), *id, producer.next_sequence);
        let gap = (choice % 7 == 0).then(|| of_producer(made, *id, producer.next_sequence + 1000));
        sent.push(async move {
            let answers = match again {
                Some(other) => join_all([send(broker, first.clone()), send(other, first)]).await,
                None => vec![send(broker, first).await],
            };
            let refused = match gap {
                Some(gap) => Some(send(broker, gap).await),
                None => None,
            };
            (*id, count, values, answers, refused)
        });
    }
    for (id, count, values, answers, refused) in join_all(sent).await {
        let offsets: Vec<i64> =
            answers.iter().map(|one| one.as_ref().expect("accepted").base_offset).collect();
        let duplicates =
            answers.iter().flatten().filter(|one| one.duplicate_timestamp_ms.is_some());
        assert_eq!(duplicates.count() + 1, answers.len(), "accepted once: {answers:?}");
        assert!(offsets.iter().all(|offset| *offset == offsets[0]), "{offsets:?}");
        seen.accepted += 1;
        seen.duplicates_across += (answers.len() - 1) as u32;
        if let Some(refused) = refused {
            let is_gap = matches!(
                refused,
                Err(AppendError::Refused { refusal: Refusal::OutOfOrderSequence, .. })
            );
            assert!(is_gap, "{refused:?}");
            seen.gaps_refused += 1;
        }
        let producer = producers.get_mut(&id).expect("it sent");
        producer.next_sequence += count;
        producer.accepted.extend((offsets[0]..).zip(values));
    }
}

/// All values from an offset on, each with its offset. A broker answers up to the end that it
/// knows, and asks the store for what is beyond: so it is asked until nothing comes.
async fn read_all(broker: &Broker, partition: TopicPartition, from: i64) -> Vec<(i64, String)> {
    let mut all: Vec<(i64, String)> = Vec::new();
    loop {
        let next = all.last().map_or(from, |(offset, _)| offset + 1);
        let found = fetch(&broker.log, partition, next, 8 << 20).await;
        if found.is_empty() {
            return all;
        }
        all.extend(found.into_iter().map(|(offset, _, value)| (offset, value)));
    }
}

/// Both brokers read the same: what was accepted, from the log start on.
async fn compare(
    brokers: [&Broker; 2],
    partition: TopicPartition,
    producers: &BTreeMap<i64, Producer>,
    log_start: i64,
) {
    let accepted = producers.values().flat_map(|producer| producer.accepted.iter().cloned());
    let mut expected: Vec<(i64, String)> =
        accepted.filter(|(offset, _)| *offset >= log_start).collect();
    expected.sort();
    for broker in brokers {
        assert_eq!(read_all(broker, partition, log_start).await, expected);
    }
    let dense = (log_start..).zip(&expected).all(|(offset, found)| offset == found.0);
    assert!(dense, "{expected:?}");
}

async fn run(seed: u64, seen: &mut Seen) {
    let rig = Rig::seeded(seed).await;
    let other = rig.start(OTHER_BROKER_ID).await;
    let brokers = [&rig.broker, &other];
    let partition = rig.partition(0);
    let mut producers: BTreeMap<i64, Producer> =
        (0..PRODUCERS).map(|id| (id, Producer::default())).collect();
    let rules = MergeRules { pieces_min: 3, ..MergeRules::default() };
    let mergers =
        brokers.map(|broker| Merger::new(&rig.env, &broker.log, rig.metadata.clone(), rules));
    let mut log_start = 0;
    for number in 0..ROUNDS {
        round((&rig, brokers), partition, &mut producers, seen).await;
        let at = (rig.env.random_u64() % 2) as usize;
        if rig.env.random_u64() % 4 == 0 {
            // Both at once: what one has replaced the other must not take.
            let merges = mergers.iter().zip(brokers);
            let merges = merges.map(|(merger, broker)| merger.round(&broker.shutdown));
            for merged in join_all(merges).await {
                seen.merges += merged.expect("a merge that loses is no error").merges;
            }
        }
        if rig.env.random_u64() % 6 == 0 {
            let state = brokers[at].log.advance_log_start(partition, i64::from(number)).await;
            let state = state.expect("it holds a registration").expect("the partition is there");
            assert!(state.log_start_offset >= log_start, "the log start never goes back");
            log_start = state.log_start_offset;
            seen.deletions += 1;
        }
        if number % 8 == 7 {
            compare(brokers, partition, &producers, log_start).await;
        }
    }
    compare(brokers, partition, &producers, log_start).await;
}

#[tokio::test(start_paused = true)]
async fn two_brokers_write_one_log() {
    let mut seen = Seen::default();
    for seed in 0..SEEDS {
        run(seed, &mut seen).await;
    }
    println!("{seen:?}");
    let Seen { accepted, duplicates_across, gaps_refused, merges, deletions } = seen;
    assert!(accepted > 0 && duplicates_across > 0 && gaps_refused > 0 && deletions > 0);
    assert!(merges > 0, "nothing was ever merged");
}

/// A registration that was given up writes nothing any more, and its sister goes on.
#[tokio::test(start_paused = true)]
async fn a_registration_that_is_closed_leaves_the_other_one_alone() {
    let rig = Rig::new().await;
    let other = rig.start(OTHER_BROKER_ID).await;
    let partition = rig.partition(0);
    let value = |text: &str| batch(partition, young_ms(), &[text]);
    assert_eq!(send(&other, value("a")).await.expect("accepted").base_offset, 0);
    let replaced = rig.start(OTHER_BROKER_ID).await;
    let refused = send(&other, value("late")).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    let error = other.log.advance_log_start(partition, 1).await.expect_err("it is replaced");
    assert_eq!(error.kind(), floe_env::ErrorKind::Fenced);
    assert_eq!(send(&rig.broker, value("b")).await.expect("accepted").base_offset, 1);
    assert_eq!(send(&replaced, value("c")).await.expect("accepted").base_offset, 2);
    for broker in [&rig.broker, &replaced] {
        let values = read_all(broker, partition, 0).await;
        let values: Vec<String> = values.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, ["a", "b", "c"]);
    }
}

/// A broker that has not heard of it yet tells that records are gone, and gives no later ones.
#[tokio::test(start_paused = true)]
async fn below_a_log_start_that_another_broker_moved_nothing_is_read() {
    let rig = Rig::new().await;
    let other = rig.start(OTHER_BROKER_ID).await;
    let partition = rig.partition(0);
    for _ in 0..6 {
        send(&rig.broker, batch(partition, young_ms(), &["a"])).await.expect("accepted");
    }
    let known = other.log.state(partition).await.expect("the store").expect("the partition");
    assert_eq!((known.log_start_offset, known.high_watermark), (0, 6));
    rig.broker.log.advance_log_start(partition, 4).await.expect("it holds a registration");
    let from = FetchFrom { partition, offset: 1, bytes_max: 1 << 20, committed_only: false };
    let told = other.log.fetch(from).await;
    let Err(FetchError::OffsetOutOfRange(state)) = told else { panic!("{told:?}") };
    assert_eq!((state.log_start_offset, state.high_watermark), (4, 6));
    let fetched = other.log.fetch(FetchFrom { offset: 4, ..from }).await.expect("it is there");
    assert_eq!((fetched.end, fetched.records.is_empty()), (6, false));
}
