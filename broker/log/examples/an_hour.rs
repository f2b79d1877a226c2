//! What an hour of 1,000 one-record produces a second leaves: objects and rows of a partition, what
//! merging cost, and how fast a reader catches up, beside the same records written in full
//! segments. Time is simulated while it is written, with PUTs of 20 ms and the budget of a remote
//! store, or with PUTs of 1 ms and group commit; reading is measured in real time, from memory,
//! without a cache. And what a fetch costs in a log of 10 GiB beside one of 1 GiB. And what merging
//! adds to the requests of a remote store that is written at 1 MiB a second.
//!
//! `an_hour written [SECONDS] | fetch [GIB_EXTENTS] | requests [SECONDS]` prints JSON;
//! `benches/run hour fetch_cost` runs the first two.

use async_trait::async_trait;
use bytes::Bytes;
use floe_env::simulated::Node;
use floe_env::{Env, Error, Result, Shutdown, shutdown_signal};
use floe_log::{
    AppendBatch, BudgetRules, CleanRules, Cleaner, CutRules, FetchFrom, LOCAL_GRACE, Log,
    LogConfig, MergeRules, Merger, NoObserver, Pace, REMOTE_BYTES_MIN,
};
use floe_metadata::brokers::BrokerAddress;
use floe_metadata::rows::{Extent, Place};
use floe_metadata::topics::TopicCreation;
use floe_metadata::{Backend, MetadataStore, ModelBackend, SqliteBackend};
use floe_store::{Counted, MemoryStore, ObjectMeta, ObjectStore, PutOutcome};
use futures::stream::{FuturesUnordered, StreamExt};
use kfs::{
    BatchBuilder, BrokerId, ClusterId, NewRecord, PartitionIndex, TimestampType, TopicId,
    TopicPartition,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const PARTITIONS: i32 = 16;
const PRODUCES_PER_SECOND: u64 = 1_000;
const DEFAULT_SECONDS: u64 = 3_600;
const VALUE_BYTES: usize = 100;
const FETCH_BYTES: usize = 1 << 20;
const SEGMENT_BYTES: u64 = 8 << 20;
/// Extents that one question brings.
const PAGE: usize = 10_000;
/// Fetches of one record that are measured in a log of some size.
const FETCHES: u64 = 20_480;
const GIB_EXTENTS: u64 = 1_024;
/// Seconds in which 1 MiB a second is a GiB, and the bytes of a value of which a thousand are that,
/// with what a batch of one record has beside it.
const GIB_SECONDS: u64 = 1_024;
const MIB_VALUE_BYTES: usize = 977;

/// Stores that outlive the runtimes that write and read them.
struct Stores {
    objects: Arc<dyn ObjectStore>,
    metadata: MetadataStore,
    topic: TopicId,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let question = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|text| text.parse::<u64>().ok());
    let found = match question.as_str() {
        "written" => written(count.unwrap_or(DEFAULT_SECONDS).max(1))?,
        "fetch" => fetches(count.unwrap_or(GIB_EXTENTS).max(2))?,
        "requests" => simulated(true, requests(count.unwrap_or(GIB_SECONDS).max(1)))?,
        _ => {
            let usage =
                "usage: an_hour written [SECONDS] | fetch [GIB_EXTENTS] | requests [SECONDS]";
            return Err(Error::invalid(usage));
        }
    };
    println!("{found}");
    Ok(())
}

/// For each kind of store what writing left and how fast it is read, beside full segments.
fn written(seconds: u64) -> Result<Value> {
    let budget = Pace::Budgeted(BudgetRules { puts_per_second: 4, saved_seconds: 30 });
    let stores = [("remote store", budget, 20), ("local disk", Pace::GroupCommit, 1)];
    let mut found = Vec::new();
    for (name, pace, put_ms) in stores {
        let count = seconds * PRODUCES_PER_SECOND;
        let mut sides = Vec::new();
        for (seconds, per_second) in [(seconds, PRODUCES_PER_SECOND), (1, count)] {
            let writing = write(pace, put_ms, seconds, per_second, VALUE_BYTES);
            let (stores, mut left) = simulated(true, writing)?;
            let bytes_per_second = simulated(false, catch_up(&stores))?;
            left["catch_up_mb_per_s"] = json!(bytes_per_second / 1e6);
            sides.push(left);
        }
        found.push(json!({"store": name, "seconds": seconds, "hour": sides[0], "full": sides[1]}));
    }
    Ok(json!(found))
}

/// Microseconds of a fetch in a log of `gib_extents` extents, and in one of ten times as many.
fn fetches(gib_extents: u64) -> Result<Value> {
    let small = simulated(false, fetch_cost(gib_extents))?;
    let large = simulated(false, fetch_cost(10 * gib_extents))?;
    let kinds = ["reading on", "at random"].into_iter().zip(small.into_iter().zip(large));
    let found = kinds.map(|(kind, (small, large))| {
        json!({"kind": kind, "small_us": small * 1e6, "large_us": large * 1e6})
    });
    Ok(found.collect())
}

/// What writing 1 MiB a second takes of a remote store, and what merging adds to it, for each GiB:
/// while it is written, and until what is left is merged too.
async fn requests(seconds: u64) -> Result<Value> {
    let pace = Pace::Budgeted(BudgetRules { puts_per_second: 4, saved_seconds: 0 });
    let (_, left) = write(pace, 20, seconds, PRODUCES_PER_SECOND, MIB_VALUE_BYTES).await?;
    let gib = seconds as f64 / GIB_SECONDS as f64;
    let per_gib = |name: &str| left[name].as_f64().unwrap_or_default() / gib;
    Ok(json!({
        "seconds": seconds,
        "per_gib": {
            "segments": per_gib("segments"),
            "merge_puts": per_gib("puts") - per_gib("segments"),
            "merge_gets": per_gib("gets"),
            "merge_puts_later": per_gib("puts_later") - per_gib("segments"),
            "merge_gets_later": per_gib("gets_later"),
            "bytes_put": per_gib("bytes_put") / (1u64 << 30) as f64,
            "bytes_put_later": per_gib("bytes_put_later") / (1u64 << 30) as f64,
        },
        "rows": left["rows"], "objects": left["objects"], "packed_rows": left["packed_rows"],
        "rows_later": left["rows_later"], "objects_later": left["objects_later"],
    }))
}

/// Runs on one thread, whose time is paused or real.
fn simulated<T>(paused: bool, work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(paused)
        .build()
        .expect("a runtime starts");
    runtime.block_on(work)
}

/// Writes for some seconds, merging and cleaning beside it; returns what is there in the end.
async fn write(
    pace: Pace,
    put_ms: u64,
    seconds: u64,
    per_second: u64,
    value_bytes: usize,
) -> Result<(Stores, Value)> {
    let env = Env::simulated(Node::new(1));
    let put_takes = Duration::from_millis(put_ms);
    let slow = SlowStore { env: env.clone(), inner: MemoryStore::default(), put_takes };
    let counted = Counted::new(env.clone(), Arc::new(slow));
    let counters = counted.counters();
    let backend = Arc::new(ModelBackend::new(env.clone()));
    let stores = stores(&env, Arc::new(counted), backend).await?;
    let (log, shutdown) = start(&env, &stores, pace).await?;
    let (mut merge, mut clean) = (MergeRules::default(), CleanRules::default());
    match pace {
        Pace::GroupCommit => clean.grace = LOCAL_GRACE,
        Pace::Budgeted(_) => merge.bytes_min = REMOTE_BYTES_MIN,
    }
    let merger = Merger::new(&env, &log, stores.metadata.clone(), merge);
    let cleaner = Cleaner::new(&env, &log, stores.metadata.clone(), clean);
    let jobs = [merger.start(shutdown.clone()), cleaner.start(shutdown)];
    let mut waiting = FuturesUnordered::new();
    for number in 0..seconds * per_second {
        let batch = batch(&env, &stores, number, value_bytes);
        waiting.push(log.append(vec![batch]).await?.outcome());
        if number % per_second.div_ceil(1_000) == 0 && per_second <= PRODUCES_PER_SECOND {
            env.sleep(Duration::from_millis(1)).await;
        }
        while let Some(Some(done)) = futures::FutureExt::now_or_never(waiting.next()) {
            assert!(
                done.expect("the log decides").iter().all(std::result::Result::is_ok),
                "every record is accepted"
            );
        }
    }
    while let Some(done) = waiting.next().await {
        assert!(
            done.expect("the log decides").iter().all(std::result::Result::is_ok),
            "every record is accepted"
        );
    }
    let requests = counters.snapshot();
    let left = shape(&stores).await?;
    // What is left to merge is merged in the rounds after the last write.
    env.sleep(Duration::from_secs(700)).await;
    let (later, requests_later) = (shape(&stores).await?, counters.snapshot());
    // Fresh segments are kept for an hour after they are dead, and longer than this runs.
    let segments = stores.objects.list("", None, usize::MAX).await?;
    let segments = segments.iter().filter(|object| object.key.contains("/wal/")).count();
    drop(jobs);
    let left = json!({
        "produces": seconds * per_second,
        "puts": requests.put.requests, "gets": requests.get.requests,
        "segments": segments, "bytes_put": requests.put.volume,
        "puts_later": requests_later.put.requests, "gets_later": requests_later.get.requests,
        "bytes_put_later": requests_later.put.volume,
        "rows": left.rows, "objects": left.objects, "packed_rows": left.packed_rows,
        "rows_later": later.rows, "objects_later": later.objects,
        "packed_rows_later": later.packed_rows,
    });
    Ok((stores, left))
}

/// What a log consists of.
struct Shape {
    /// The most extents of a partition that have rows of their own.
    rows: usize,
    /// The most objects that hold a partition's records.
    objects: usize,
    /// Segments whose sections share one row.
    packed_rows: usize,
}

async fn shape(stores: &Stores) -> Result<Shape> {
    let (mut rows, mut objects, mut packed) = (0, 0, BTreeSet::new());
    for partition in partitions(stores.topic) {
        let (mut own_rows, mut own_objects) = (0, BTreeSet::new());
        for extent in extents(stores, partition).await? {
            let Place::Range { key, .. } = extent.place else { continue };
            if key.starts_with("log/") {
                own_rows += 1;
            } else {
                packed.insert(key.clone());
            }
            own_objects.insert(key);
        }
        rows = rows.max(own_rows);
        objects = objects.max(own_objects.len());
    }
    Ok(Shape { rows, objects, packed_rows: packed.len() })
}

async fn extents(stores: &Stores, partition: TopicPartition) -> Result<Vec<Extent>> {
    let mut all: Vec<Extent> = Vec::new();
    loop {
        let from = all.last().map_or(0, |extent| extent.last_offset + 1);
        let page = stores.metadata.extents(partition, from, PAGE).await?;
        let page = page.map(|page| page.extents).unwrap_or_default();
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Bytes a second of reading all partitions from their starts.
async fn catch_up(stores: &Stores) -> Result<f64> {
    let env = Env::current();
    let (log, _) = start(&env, stores, Pace::GroupCommit).await?;
    let began = env.monotonic();
    let mut bytes = 0;
    for partition in partitions(stores.topic) {
        let mut offset = 0;
        loop {
            let from =
                FetchFrom { partition, offset, bytes_max: FETCH_BYTES, committed_only: false };
            let fetched = log.fetch(from).await.expect("the log is there");
            let Some(last) = fetched.records.last() else { break };
            bytes += fetched.bytes();
            let header = kfs::batches(last).last().expect("a batch").expect("whole").header;
            offset = header.last_offset() + 1;
        }
    }
    Ok(bytes as f64 / (env.monotonic() - began).as_secs_f64())
}

fn partitions(topic: TopicId) -> impl Iterator<Item = TopicPartition> {
    (0..PARTITIONS).map(move |index| TopicPartition { topic, partition: PartitionIndex(index) })
}

async fn stores(
    env: &Env,
    objects: Arc<dyn ObjectStore>,
    backend: Arc<dyn Backend>,
) -> Result<Stores> {
    let metadata = MetadataStore::new(backend, env.clone());
    let created = metadata.create_topic("t", PARTITIONS, 1, BTreeMap::new()).await?;
    let TopicCreation::Created(topic) = created else { panic!("the topic is new") };
    Ok(Stores { objects, metadata, topic: topic.id })
}

async fn start(env: &Env, stores: &Stores, pace: Pace) -> Result<(Log, Shutdown)> {
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    let lease_ms = 1_000_000_000;
    let registration = stores.metadata.register_broker(BrokerId(1), &address, lease_ms).await?;
    let config = LogConfig {
        cluster: ClusterId(uuid::Uuid::from_u128(1)),
        broker: BrokerId(1),
        epoch: registration.epoch,
        fence: registration.fence,
        cut: CutRules {
            segment_bytes: SEGMENT_BYTES,
            flush_interval: Duration::from_millis(250),
            pace,
        },
        uploads_max: 4,
        upload_timeout: Duration::from_secs(10),
        pending_bytes_max: 64 << 20,
        cache_bytes: 128 << 20,
        decompressed_bytes_max: 1 << 20,
    };
    let (trigger, shutdown) = shutdown_signal();
    // The log is used until the process ends.
    std::mem::forget(trigger);
    let (objects, backend) = (stores.objects.clone(), stores.metadata.backend().clone());
    let log = Log::start(env, &config, objects, backend, Arc::new(NoObserver), shutdown.clone());
    Ok((log, shutdown))
}

fn batch(env: &Env, stores: &Stores, number: u64, value_bytes: usize) -> AppendBatch {
    let mut builder = BatchBuilder::new();
    let at_ms = env.now_ms();
    let value = vec![number as u8; value_bytes];
    let record = NewRecord { timestamp_ms: at_ms, key: None, value: Some(&value), headers: &[] };
    builder.push(&record).expect("a small record");
    let partition = PartitionIndex((number % PARTITIONS as u64) as i32);
    AppendBatch {
        partition: TopicPartition { topic: stores.topic, partition },
        topic_name: "t".into(),
        bytes: builder.build().expect("a batch"),
        record_count: 1,
        max_timestamp_ms: at_ms,
        timestamp_type: TimestampType::CreateTime,
        producer: None,
        transaction: None,
    }
}

/// Seconds of a fetch of one record, reading on and at a random place, on SQLite, in a log of one
/// partition whose merged extents are of one batch each: as many rows as there are MiB in a log of
/// that size.
async fn fetch_cost(extent_count: u64) -> Result<[f64; 2]> {
    let env = Env::current();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backend = SqliteBackend::open(&env, &folder.path().join("meta.db")).await?;
    let stores = stores(&env, Arc::new(MemoryStore::default()), Arc::new(backend)).await?;
    let (log, shutdown) = start(&env, &stores, Pace::GroupCommit).await?;
    let numbers: Vec<u64> = (0..extent_count).collect();
    for numbers in numbers.chunks(1_000) {
        for number in numbers {
            let batch = batch(&env, &stores, number * PARTITIONS as u64, VALUE_BYTES);
            log.append(vec![batch]).await?.outcome().await.expect("the log decides");
        }
        let rules = MergeRules { extent_bytes_max: 1, pieces_min: 2, ..MergeRules::default() };
        Merger::new(&env, &log, stores.metadata.clone(), rules).round(&shutdown).await?;
    }
    let partition = TopicPartition { topic: stores.topic, partition: PartitionIndex(0) };
    let fetch = async |offset: u64| {
        let offset = (offset % extent_count) as i64;
        let from = FetchFrom { partition, offset, bytes_max: 1, committed_only: false };
        let fetched = log.fetch(from).await.expect("the log is there");
        assert!(!fetched.records.is_empty(), "a record is there");
    };
    let mut seconds = [0.0; 2];
    for (kind, stride) in [1, 0x9E37_79B9_7F4A_7C15_u64].into_iter().enumerate() {
        let began = env.monotonic();
        for at in 0..FETCHES {
            fetch(at.wrapping_mul(stride)).await;
        }
        seconds[kind] = (env.monotonic() - began).as_secs_f64() / FETCHES as f64;
    }
    Ok(seconds)
}

/// A memory store whose PUTs take time.
struct SlowStore {
    env: Env,
    inner: MemoryStore,
    put_takes: Duration,
}

#[async_trait]
impl ObjectStore for SlowStore {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        self.env.sleep(self.put_takes).await;
        self.inner.put(key, parts).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.inner.get_range(key, range).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        self.inner.get(key).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.inner.head(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        self.inner.list(prefix, after, limit).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        self.inner.delete(keys).await
    }

    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }
}
