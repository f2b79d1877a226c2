//! What a round of retention costs with many partitions: the first one after a start, one where
//! nothing is due, and one where every partition loses an extent. Time and calls of the metadata
//! store alone: SQLite in a temporary folder, and PostgreSQL where `FLOE_TEST_POSTGRES` is set.
//! Objects are in memory, and retention asks nothing of them.
//!
//! `scripts/with-servers cargo run -p floe-log --example retention_round [-- PARTITIONS]`

use floe_env::{Env, Error, Result, shutdown_signal};
use floe_log::{
    AppendBatch, CutRules, Log, LogConfig, NoObserver, Pace, Retention, RetentionPolicy,
    RetentionRules, RetentionTerms, TableHold,
};
use floe_metadata::brokers::BrokerAddress;
use floe_metadata::postgres::PostgresOptions;
use floe_metadata::topics::{Topic, TopicCreation};
use floe_metadata::{Backend, MetadataStore, PostgresBackend, SqliteBackend};
use floe_store::MemoryStore;
use kfs::{
    BatchBuilder, BrokerId, ClusterId, NewRecord, PartitionIndex, TimestampType, TopicId,
    TopicPartition,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const PARTITIONS: i32 = 10_000;
const PARTITIONS_PER_TOPIC: i32 = 10;
/// Segments, each with a record of every partition.
const SEGMENTS: i64 = 4;
const HOUR_MS: i64 = 3_600_000;
/// A day ago: each segment's records are an hour younger than the last one's.
const OLDEST_MS: i64 = 24 * HOUR_MS;

/// All topics keep records for so long, ms.
struct For(i64);

impl RetentionPolicy for For {
    fn terms(&self, _topic: &Topic) -> RetentionTerms {
        RetentionTerms { time_ms: Some(self.0), bytes: None, has_table: true }
    }

    fn table_ends(&self, _progress: &[u8]) -> Result<Vec<i64>> {
        Err(Error::bug("no table has any progress here"))
    }
}

fn main() -> Result<()> {
    let partitions = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let partitions: i32 = partitions.unwrap_or(PARTITIONS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async move {
        let env = Env::current();
        let folder = tempfile::tempdir()
            .map_err(|error| Error::unavailable("a folder").with_source(error))?;
        let path = folder.path().join("metadata.sqlite");
        let sqlite: Arc<dyn Backend> = Arc::new(SqliteBackend::open(&env, &path).await?);
        measure("SQLite", &env, sqlite, partitions).await?;
        let Ok(url) = std::env::var("FLOE_TEST_POSTGRES") else {
            println!("FLOE_TEST_POSTGRES is not set: no PostgreSQL");
            return Ok(());
        };
        let separator = if url.contains('?') { '&' } else { '?' };
        let schema = format!("rounds_{}", env.uuid().simple());
        let options = PostgresOptions::parse(&format!("{url}{separator}schema={schema}"))?;
        let postgres: Arc<dyn Backend> = Arc::new(PostgresBackend::open(&env, options).await?);
        measure("PostgreSQL", &env, postgres, partitions).await
    })
}

async fn measure(name: &str, env: &Env, backend: Arc<dyn Backend>, partitions: i32) -> Result<()> {
    let metadata = MetadataStore::new(backend, env.clone());
    let mut topics = Vec::new();
    for number in 0..partitions / PARTITIONS_PER_TOPIC {
        let (name, configs) = (format!("t{number}"), BTreeMap::new());
        let made = metadata.create_topic(&name, PARTITIONS_PER_TOPIC, 1, configs).await?;
        let TopicCreation::Created(topic) = made else { panic!("the topic is new") };
        topics.push(topic.id);
    }
    let (trigger, shutdown) = shutdown_signal();
    let log = start(env, &metadata).await?;
    for segment in 0..SEGMENTS {
        let at_ms = metadata.now_ms().await? - OLDEST_MS + segment * HOUR_MS;
        let ticket = log.append(segment_of(&topics, at_ms)).await?;
        assert!(
            ticket.outcome().await.expect("the log decides").iter().all(std::result::Result::is_ok)
        );
    }
    let hold = TableHold { time_ms: 0, bytes: 0 };
    let rules = RetentionRules { pause: Duration::from_secs(300), hold };
    let retention = |time_ms| {
        let policy = Arc::new(For(time_ms));
        Retention::new(env, &log, metadata.clone(), policy, rules)
    };
    let (week, hours) = (retention(7 * OLDEST_MS), retention(OLDEST_MS - HOUR_MS / 2));
    for (what, retention) in [
        ("the first round after a start", &week),
        ("a round where nothing is due", &week),
        ("a round where every partition loses an extent", &hours),
        ("the one behind it", &hours),
    ] {
        let began = env.monotonic();
        let done = retention.round(&shutdown).await?;
        let took = env.monotonic() - began;
        println!(
            "{name}, {partitions} partitions, {what}: {took:.2?}, half of it rest; {} looks, {} moves",
            done.looks, done.moves
        );
    }
    drop(trigger);
    Ok(())
}

async fn start(env: &Env, metadata: &MetadataStore) -> Result<Log> {
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    let registration = metadata.register_broker(BrokerId(1), &address, 1_000_000_000).await?;
    let config = LogConfig {
        cluster: ClusterId(uuid::Uuid::from_u128(1)),
        broker: BrokerId(1),
        epoch: registration.epoch,
        fence: registration.fence,
        cut: CutRules {
            segment_bytes: 8 << 20,
            flush_interval: Duration::from_millis(10),
            pace: Pace::GroupCommit,
        },
        uploads_max: 4,
        upload_timeout: Duration::from_secs(10),
        pending_bytes_max: 64 << 20,
        cache_bytes: 64 << 20,
        decompressed_bytes_max: 1 << 20,
    };
    let (trigger, shutdown) = shutdown_signal();
    // The log is used until the process ends.
    std::mem::forget(trigger);
    let (objects, backend) = (Arc::new(MemoryStore::new()), metadata.backend().clone());
    Ok(Log::start(env, &config, objects, backend, Arc::new(NoObserver), shutdown))
}

/// One record of every partition.
fn segment_of(topics: &[TopicId], at_ms: i64) -> Vec<AppendBatch> {
    let mut builder = BatchBuilder::new();
    let record = NewRecord { timestamp_ms: at_ms, key: None, value: Some(b"value"), headers: &[] };
    builder.push(&record).expect("a small record");
    let bytes = builder.build().expect("a batch");
    let of_topic = |topic: &TopicId| {
        let topic = *topic;
        (0..PARTITIONS_PER_TOPIC).map(move |index| (topic, PartitionIndex(index)))
    };
    let all = topics.iter().flat_map(of_topic);
    let batch = |(topic, partition)| AppendBatch {
        partition: TopicPartition { topic, partition },
        topic_name: "t".into(),
        bytes: bytes.clone(),
        record_count: 1,
        max_timestamp_ms: at_ms,
        timestamp_type: TimestampType::CreateTime,
        producer: None,
        transaction: None,
    };
    all.map(batch).collect()
}
