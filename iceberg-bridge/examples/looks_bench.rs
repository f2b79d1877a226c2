//! What looks leave behind, in simulated time, over stores in memory.
//!
//!     cargo run --release -p floe-iceberg-bridge --example looks_bench -- looks [LOOKS]
//!     cargo run --release -p floe-iceberg-bridge --example looks_bench -- hour [TABLES]
//!
//! `looks`: one table, `LOOKS` looks with a new record each and the upkeep beside them: how long a
//! look that commits and a load take in the end beside the first hundred, and how large the table's
//! metadata becomes. `hour`: `TABLES` tables with a record a second and a look a minute: files of
//! each after the hour, and a quarter of an hour later, and the memory of a bridge that has loaded
//! them.
//!
//! One thread. Durations are what it was on a core for, and have no store in them; all else is
//! simulated. Prints one object of JSON.

use bytes::Bytes;
use floe_env::simulated::Node;
use floe_env::{Env, Error, Result};
use floe_iceberg_bridge::commit::LoadedTable;
use floe_iceberg_bridge::memory_log::MemoryLog;
use floe_iceberg_bridge::{Bridge, BridgeConfig};
use floe_metadata::topics::TopicCreation;
use floe_metadata::{MetadataStore, ModelBackend};
use floe_store::{MemoryStore, ObjectStore};
use kfs::{BatchBuilder, ClusterId, NewRecord, PartitionIndex, TopicId, TopicPartition};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

const LOOKS: usize = 20_000;
const TABLES: usize = 100;
/// Looks at either end that are compared.
const COMPARED: usize = 100;
/// Between two looks: a table commits once a second at most.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Looks between two readings of the metadata's size.
const SIZE_EVERY: usize = 250;
const HOUR_SECONDS: usize = 3600;
const QUIET_SECONDS: usize = 900;
const SECONDS_PER_MINUTE: usize = 60;
const MADE_HERE: &str = "stores in memory do not fail";

/// Stores, log and clock of a broker that does not end.
struct World {
    env: Env,
    store: MemoryStore,
    metadata: MetadataStore,
    log: Arc<MemoryLog>,
    cluster: ClusterId,
}

impl World {
    fn new() -> Self {
        let env = Env::simulated(Node::new(1));
        let metadata = MetadataStore::new(Arc::new(ModelBackend::new(env.clone())), env.clone());
        let cluster = ClusterId(env.uuid());
        Self { env, store: MemoryStore::new(), metadata, log: Arc::default(), cluster }
    }

    async fn topic(&self, name: &str) -> Result<TopicId> {
        let made = self.metadata.create_topic(name, 1, 1, Default::default()).await?;
        let TopicCreation::Created(topic) = made else { panic!("topic {name} exists") };
        self.log.add_topic(topic.id, 1);
        Ok(topic.id)
    }

    fn bridge(&self) -> Bridge {
        let config = BridgeConfig::new(self.cluster);
        let store = Arc::new(self.store.clone());
        Bridge::new(self.env.clone(), config, store, self.metadata.clone(), self.log.clone())
    }

    /// Appends a batch of one JSON record.
    fn append(&self, topic: TopicId, number: usize) -> Result<()> {
        let value = format!(
            "{{\"id\":{number},\"name\":\"customer {}\",\"price\":{}.25,\"paid\":{}}}",
            number % 1000,
            number % 97,
            number.is_multiple_of(3)
        );
        let timestamp_ms = self.env.now_ms();
        let value = Some(value.as_bytes());
        let mut builder = BatchBuilder::new();
        let record = NewRecord { timestamp_ms, key: Some(b"key"), value, headers: &[] };
        builder.push(&record).expect("a record made here");
        let batch = builder.build().expect("a batch made here");
        let place = TopicPartition { topic, partition: PartitionIndex(0) };
        self.log.append(place, &batch).map(|_| ())
    }
}

async fn look(bridge: &Bridge, name: &str) -> Result<Arc<LoadedTable>> {
    let answer = bridge.look(name).await?.expect("the table is made by its first look");
    assert_eq!(answer.behind, None, "{name}");
    Ok(answer.table)
}

/// A table as the catalog answers it: the metadata is sent in the pieces that it has.
fn body(table: &LoadedTable) -> Vec<Bytes> {
    let location = json!({ "metadata-location": table.pointer.metadata_location, "config": {} });
    let begin = Bytes::from(serde_json::to_vec(&location).expect(MADE_HERE));
    let pieces = table.metadata_json_pieces().iter().cloned();
    std::iter::once(begin).chain(pieces).collect()
}

fn bytes(pieces: &[Bytes]) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

/// What this thread has been on a core for. The file stays open: to open it takes longer than a
/// load.
struct OnCore(File);

impl OnCore {
    fn new() -> Self {
        Self(File::open("/proc/thread-self/schedstat").expect("Linux"))
    }

    fn now(&self) -> Duration {
        let mut buffer = [0; 64];
        let length = self.0.read_at(&mut buffer, 0).expect("Linux");
        let text = std::str::from_utf8(&buffer[..length]).unwrap_or_default();
        let nanoseconds = text.split(' ').next().and_then(|text| text.parse().ok());
        Duration::from_nanos(nanoseconds.expect("a number"))
    }
}

fn mean_ms(durations: &[Duration]) -> f64 {
    let total: Duration = durations.iter().sum();
    total.as_secs_f64() * 1000.0 / durations.len().max(1) as f64
}

fn median_ms(durations: &[Duration]) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    mean_ms(&sorted[sorted.len() / 2..][..1])
}

async fn many_looks(looks: usize) -> Result<Value> {
    let world = World::new();
    let (topic, bridge) = (world.topic("looked_at").await?, world.bridge());
    let (mut commits, mut loads) = (Vec::new(), Vec::new());
    let (mut largest_file, mut largest_json) = (0, 0);
    let on_core = OnCore::new();
    for number in 0..looks {
        world.append(topic, number)?;
        let began = on_core.now();
        look(&bridge, "looked_at").await?;
        let committed = on_core.now();
        commits.push(committed - began);
        let table = look(&bridge, "looked_at").await?;
        let answer = body(&table);
        loads.push(on_core.now() - committed);
        let json_bytes = bytes(table.metadata_json_pieces());
        assert!(bytes(&answer) > json_bytes);
        if number % SIZE_EVERY == 0 || number + 1 == looks {
            let key = table.place.key_of(&table.pointer.metadata_location)?;
            let file = world.store.get(&key).await?.expect(MADE_HERE);
            largest_file = largest_file.max(file.len());
            largest_json = largest_json.max(json_bytes);
        }
        bridge.keep_up().await?;
        world.env.sleep(LOOK_PAUSE).await;
    }
    let table = look(&bridge, "looked_at").await?;
    let compared = COMPARED.min(looks);
    // The very first makes the table.
    let (first_commits, last_commits) = (&commits[1..compared], &commits[looks - compared..]);
    let (first_loads, last_loads) = (&loads[1..compared], &loads[looks - compared..]);
    Ok(json!({
        "looks": looks,
        "first_commit_ms": median_ms(first_commits),
        "last_commit_ms": median_ms(last_commits),
        // With what no look waits for: files of snapshots that go are found and deleted.
        "first_commit_mean_ms": mean_ms(first_commits),
        "last_commit_mean_ms": mean_ms(last_commits),
        "first_load_ms": mean_ms(first_loads),
        "last_load_ms": mean_ms(last_loads),
        "metadata_file_kib": largest_file as f64 / 1024.0,
        "metadata_json_kib": largest_json as f64 / 1024.0,
        "snapshots": table.metadata.snapshots().len(),
        "manifests": table.manifests.len(),
        "data_files": table.total("total-data-files"),
    }))
}

async fn an_hour(tables: usize) -> Result<Value> {
    let world = World::new();
    let bridge = world.bridge();
    let names: Vec<String> = (0..tables).map(|table| format!("table_{table}")).collect();
    let mut topics = Vec::new();
    for name in &names {
        topics.push(world.topic(name).await?);
    }
    for second in 0..HOUR_SECONDS {
        for topic in &topics {
            world.append(*topic, second)?;
        }
        // Each table at its own second of the minute.
        let due = names.iter().skip(second % SECONDS_PER_MINUTE).step_by(SECONDS_PER_MINUTE);
        for name in due {
            look(&bridge, name).await?;
        }
        bridge.keep_up().await?;
        world.env.sleep(Duration::from_secs(1)).await;
    }
    let after_the_hour = most_files(&bridge);
    for _ in 0..QUIET_SECONDS {
        bridge.keep_up().await?;
        world.env.sleep(Duration::from_secs(1)).await;
    }
    let after_a_quarter = most_files(&bridge);
    let before = resident_bytes();
    let other = world.bridge();
    for name in &names {
        other.newest(name).await?;
    }
    let bytes_per_table = resident_bytes().saturating_sub(before) / tables.max(1) as u64;
    Ok(json!({
        "tables": tables,
        "files_after_the_hour": after_the_hour,
        "files_a_quarter_later": after_a_quarter,
        "memory_kib_per_table": bytes_per_table as f64 / 1024.0,
    }))
}

/// The most data files of a table; all are below their target.
fn most_files(bridge: &Bridge) -> u64 {
    bridge.statuses().iter().map(|status| status.files).max().unwrap_or(0)
}

/// `VmRSS`, which counts in KiB.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let question = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|text| text.parse::<usize>().ok());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime starts");
    let found = runtime.block_on(async {
        match question.as_str() {
            "looks" => many_looks(count.unwrap_or(LOOKS).max(2)).await,
            "hour" => an_hour(count.unwrap_or(TABLES).max(1)).await,
            _ => Err(Error::invalid("usage: looks_bench looks [LOOKS] | hour [TABLES]")),
        }
    })?;
    println!("{found}");
    Ok(())
}
