//! Serves sample tables over a directory, to be queried by real engines: `serve_sample FOLDER
//! PORT`.
//!
//! Beside the catalog at `/iceberg`, `POST /produce/{count}` appends records to the topic
//! `Sample.Orders`, and `POST /stop` ends the program. Everything but the log is what the product
//! has.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use bytes::Bytes;
use floe_env::{Env, Error, Result, shutdown_signal};
use floe_iceberg_bridge::memory_log::MemoryLog;
use floe_iceberg_bridge::{Bridge, BridgeConfig, catalog};
use floe_metadata::{MetadataStore, ModelBackend};
use floe_store::DirectoryStore;
use kfs::TopicPartition;
use kfs::{BatchBuilder, ClusterId, Codec, HeaderRef, NewRecord, PartitionIndex, TopicId};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const PARTITIONS: i32 = 3;
const RECORDS_PER_BATCH: i64 = 100;
/// 2026-11-30T00:00:00Z.
const FIRST_TIMESTAMP_MS: i64 = 1_795_996_800_000;
const TIMESTAMP_STEP_MS: i64 = 60_000;

#[derive(Clone)]
struct Sample {
    log: Arc<MemoryLog>,
    topic: TopicId,
    produced: Arc<AtomicI64>,
}

impl Sample {
    /// Record `n`: no key where `n` is a multiple of 3, no value where it is one of 5, `n % 3`
    /// headers.
    fn produce(&self, count: i64) -> Result<()> {
        let first = self.produced.fetch_add(count, Ordering::SeqCst);
        let mut at = first;
        while at < first + count {
            let end = (at + RECORDS_PER_BATCH).min(first + count);
            let batch = batch(at..end)?;
            let index = PartitionIndex(i32::try_from((at / RECORDS_PER_BATCH) % 3).unwrap_or(0));
            self.log.append(TopicPartition { topic: self.topic, partition: index }, &batch)?;
            at = end;
        }
        Ok(())
    }
}

fn batch(numbers: std::ops::Range<i64>) -> Result<Bytes> {
    let mut builder = BatchBuilder::new().codec(Codec::Zstd, None);
    for n in numbers {
        let (key, value) = (format!("key-{n}"), format!("value-{n}"));
        let all: [HeaderRef<'_>; 2] = [(b"trace", Some(b"abc")), (b"empty", None)];
        let timestamp_ms = match n {
            7 => -1,
            8 => i64::MAX,
            _ => FIRST_TIMESTAMP_MS + n * TIMESTAMP_STEP_MS,
        };
        let record = NewRecord {
            timestamp_ms,
            key: (n % 3 != 0).then_some(key.as_bytes()),
            value: (n % 5 != 0).then_some(value.as_bytes()),
            headers: &all[..usize::try_from(n % 3).unwrap_or(0)],
        };
        builder.push(&record).map_err(|error| Error::bug("a sample").with_source(error))?;
    }
    builder.build().map_err(|error| Error::bug("a sample").with_source(error))
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: serve_sample FOLDER PORT";
    let folder = arguments.next().ok_or(usage)?;
    let port: u16 = arguments.next().ok_or(usage)?.parse()?;
    let env = Env::current();
    let backend = Arc::new(ModelBackend::new(env.clone()));
    let metadata = MetadataStore::new(backend, env.clone());
    let created = metadata.create_topic("Sample.Orders", PARTITIONS, 1, Default::default()).await?;
    let floe_metadata::topics::TopicCreation::Created(topic) = created else {
        return Err("the topic exists".into());
    };
    let log = Arc::new(MemoryLog::default());
    log.add_topic(topic.id, usize::try_from(PARTITIONS)?);
    let store = Arc::new(DirectoryStore::open(env.clone(), folder.as_ref(), false).await?);
    let config = BridgeConfig::new(ClusterId(env.uuid()));
    let bridge = Bridge::new(env, config, store, metadata, log.clone());
    let (trigger, shutdown) = shutdown_signal();
    let job = bridge.start(shutdown.clone());
    let sample = Sample { log, topic: topic.id, produced: Arc::default() };
    sample.produce(1000)?;
    let trigger = Arc::new(trigger);
    let produce = |State(sample): State<Sample>, Path(count): Path<i64>| async move {
        sample.produce(count).map_err(|error| error.to_string())
    };
    let routes = Router::new()
        .route("/produce/{count}", post(produce))
        .with_state(sample)
        .route("/stop", post(move || async move { trigger.trigger() }))
        .merge(catalog::router(bridge));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("serving http://127.0.0.1:{port}/iceberg");
    let stopping = async move { shutdown.wait().await };
    axum::serve(listener, routes).with_graceful_shutdown(stopping).await?;
    job.join().await;
    Ok(())
}
