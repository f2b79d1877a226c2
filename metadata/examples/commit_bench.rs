//! How long one commit takes: one segment with a section for each of 1, 10, 1,000 and 10,000
//! partitions (one idempotent batch each), on partitions that have a history. And how long it takes
//! to list a partition's extents beside many fresh segments, in a process that has just started and
//! in one that knows them. SQLite in a temporary folder, and PostgreSQL where `FLOE_TEST_POSTGRES`
//! has an address.
//!
//! `cargo run --release -p floe-metadata --example commit_bench`

use floe_env::Env;
use floe_metadata::brokers::{BrokerAddress, Registration};
use floe_metadata::facts::{Change, PartitionChange};
use floe_metadata::postgres::PostgresOptions;
use floe_metadata::rows::SegmentFacts;
use floe_metadata::suite::{idempotent, segment};
use floe_metadata::{Backend, MetadataStore, PostgresBackend, SqliteBackend};
use kfs::{BrokerId, PartitionIndex, ProducerId, TopicId, TopicPartition};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECTIONS: [i32; 4] = [1, 10, 1_000, 10_000];
/// Extents that each partition has before it is measured.
const HISTORY_EXTENTS: u64 = 20;
/// Commits measured; the median is printed.
const MEASURED: u64 = 40;
const LEASE_MS: i64 = 60_000;
/// Of the reads that are measured: fresh segments, and sections in each.
const FRESH_SEGMENTS: u64 = 1_000;
const FRESH_SECTIONS: i32 = 100;
const READS: usize = 1_000;

#[tokio::main]
async fn main() -> floe_env::Result<()> {
    let env = Env::current();
    let directory = tempfile::tempdir().expect("a temporary folder can be made");
    let path = directory.path().join("meta.db");
    let open = async || open_sqlite(&env, &path).await;
    measure(&env, "SQLite", open().await?).await?;
    let partitions = fill(&env, open().await?).await?;
    measure_reads(&env, "SQLite", open().await?, &partitions).await?;
    match std::env::var("FLOE_TEST_POSTGRES") {
        Ok(url) => {
            let separator = if url.contains('?') { '&' } else { '?' };
            let schema = format!("bench_{}", env.uuid().simple());
            let options = PostgresOptions::parse(&format!("{url}{separator}schema={schema}"))?;
            let open = async || {
                let options = options.clone().shared();
                PostgresBackend::open(&env, options).await.map(|one| Arc::new(one) as _)
            };
            measure(&env, "PostgreSQL", open().await?).await?;
            let partitions = fill(&env, open().await?).await?;
            measure_reads(&env, "PostgreSQL", open().await?, &partitions).await?;
        }
        Err(_) => println!("FLOE_TEST_POSTGRES is not set: no PostgreSQL"),
    }
    Ok(())
}

/// Opens the file as soon as the threads of an earlier backend have let go of it.
async fn open_sqlite(env: &Env, path: &Path) -> floe_env::Result<Arc<dyn Backend>> {
    loop {
        match SqliteBackend::open(env, path).await {
            Ok(backend) => return Ok(Arc::new(backend)),
            Err(error) if error.message().contains("in use") => {
                env.sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn measure(env: &Env, name: &str, backend: Arc<dyn Backend>) -> floe_env::Result<()> {
    let store = MetadataStore::new(backend, env.clone());
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    let broker = store.register_broker(BrokerId(1), &address, LEASE_MS).await?;
    let mut counter = 0;
    for sections in SECTIONS {
        let partitions = create(env, &store, sections).await?;
        let mut times = Vec::new();
        for commit in 0..HISTORY_EXTENTS + MEASURED {
            let segment = one_segment(&broker, counter, &partitions, commit as i32);
            counter += 1;
            let began = env.monotonic();
            store.commit_segments(&broker.fence, &[segment]).await?;
            if commit >= HISTORY_EXTENTS {
                times.push(began.elapsed());
            }
        }
        let (least, median, most) = spread(times);
        print!("{name}: {sections:>6} sections: median {median:>8.2?}");
        println!(" (least {least:.2?}, most {most:.2?})");
    }
    Ok(())
}

/// Commits the fresh segments that reads are measured beside.
async fn fill(env: &Env, backend: Arc<dyn Backend>) -> floe_env::Result<Vec<TopicPartition>> {
    let store = MetadataStore::new(backend, env.clone());
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    let broker = store.register_broker(BrokerId(2), &address, LEASE_MS).await?;
    let partitions = create(env, &store, FRESH_SECTIONS).await?;
    let segments: Vec<SegmentFacts> = (0..FRESH_SEGMENTS)
        .map(|counter| one_segment(&broker, counter, &partitions, counter as i32))
        .collect();
    for some in segments.chunks(50) {
        store.commit_segments(&broker.fence, some).await?;
    }
    Ok(partitions)
}

async fn measure_reads(
    env: &Env,
    name: &str,
    backend: Arc<dyn Backend>,
    partitions: &[TopicPartition],
) -> floe_env::Result<()> {
    let mut times = Vec::new();
    for read in 0..=READS {
        let began = env.monotonic();
        let offset = (read as u64 * 7919 % FRESH_SEGMENTS) as i64;
        let partition = partitions[read % partitions.len()];
        let page = backend.extents(partition, offset, 64).await?.expect("it exists");
        assert_eq!(page.extents.first().expect("it has extents").base_offset, offset);
        times.push(began.elapsed());
    }
    let first = times.remove(0);
    let (least, median, most) = spread(times);
    print!("{name}: 64 extents beside {FRESH_SEGMENTS} fresh segments of {FRESH_SECTIONS}: ");
    println!("first {first:.2?}, then median {median:.2?} (least {least:.2?}, most {most:.2?})");
    Ok(())
}

async fn create(
    env: &Env,
    store: &MetadataStore,
    count: i32,
) -> floe_env::Result<Vec<TopicPartition>> {
    let topic = TopicId(env.uuid());
    let partitions: Vec<TopicPartition> = (0..count)
        .map(|index| TopicPartition { topic, partition: PartitionIndex(index) })
        .collect();
    let created = partitions.iter().copied().map(PartitionChange::Create).collect();
    let change = Change { partitions: created, ..Change::default() };
    store.backend().change(&change).await?;
    Ok(partitions)
}

fn one_segment(
    broker: &Registration,
    counter: u64,
    partitions: &[TopicPartition],
    sequence: i32,
) -> SegmentFacts {
    let batch = idempotent(ProducerId(1), 0, sequence, 1);
    let sections = partitions.iter().map(|partition| (*partition, vec![batch.clone()]));
    segment(broker, counter, sections.collect())
}

fn spread(mut times: Vec<Duration>) -> (Duration, Duration, Duration) {
    times.sort();
    (times[0], times[times.len() / 2], times[times.len() - 1])
}
