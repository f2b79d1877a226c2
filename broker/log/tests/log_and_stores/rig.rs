//! A log on a memory store and the metadata model, with a clock that tests set.

use async_trait::async_trait;
use bytes::Bytes;
use floe_env::simulated::{Node, SIMULATION_START_MS};
use floe_env::{Env, Error, Result, Shutdown, ShutdownTrigger, shutdown_signal};
use floe_log::merge::MergeRound;
use floe_log::{
    AppendBatch, CleanRules, Cleaner, CompactionPolicy, CompactionRules, CompactionTerms,
    Compactor, CutRules, FetchFrom, Log, LogConfig, MergeRules, Merger, NoObserver, Pace,
    Retention, RetentionPolicy, RetentionRules, RetentionTerms, TableHold,
};
use floe_metadata::brokers::BrokerAddress;
use floe_metadata::rows::{Extent, Place};
use floe_metadata::topics::{Topic, TopicCreation};
use floe_metadata::{MetadataStore, ModelBackend};
use floe_store::{MemoryStore, ObjectStore, PutOutcome, StoreLayer};
use kfs::{
    BatchBuilder, BrokerId, ClusterId, NewRecord, PartitionIndex, TimestampType, TopicId,
    TopicPartition,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// More than the grace of dead objects, ms.
pub(crate) const PAST_THE_GRACE_MS: i64 = 3_600_001;

/// The broker that caches nothing.
pub(crate) const NO_CACHE_ID: i32 = 2;

pub(crate) struct Rig {
    pub(crate) node: Node,
    pub(crate) env: Env,
    pub(crate) store: Arc<HookedStore>,
    pub(crate) model: Arc<ModelBackend>,
    pub(crate) metadata: MetadataStore,
    pub(crate) topic: TopicId,
    pub(crate) other_topic: TopicId,
    pub(crate) broker: Broker,
}

/// A started log.
pub(crate) struct Broker {
    pub(crate) log: Log,
    pub(crate) trigger: ShutdownTrigger,
    pub(crate) shutdown: Shutdown,
    pub(crate) epoch: i64,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::seeded(1).await
    }

    /// With this seed for what is random.
    pub(crate) async fn seeded(seed: u64) -> Self {
        let node = Node::new(seed);
        let env = Env::simulated(node.clone());
        let model = Arc::new(ModelBackend::new(env.clone()));
        let metadata = MetadataStore::new(model.clone(), env.clone());
        let store = Arc::new(HookedStore::default());
        let mut topics = Vec::new();
        for name in ["t", "u"] {
            let created = metadata.create_topic(name, 2, 1, BTreeMap::new()).await.expect("create");
            let TopicCreation::Created(topic) = created else { panic!("the topic is new") };
            topics.push(topic.id);
        }
        let broker = start(&env, &store, &metadata, 1).await;
        let (topic, other_topic) = (topics[0], topics[1]);
        Self { node, env, store, model, metadata, topic, other_topic, broker }
    }

    /// Another broker on the same stores.
    pub(crate) async fn start(&self, id: i32) -> Broker {
        start(&self.env, &self.store, &self.metadata, id).await
    }

    /// Ends the log and starts the same broker again on the same stores.
    pub(crate) async fn restart(&mut self) {
        self.broker.trigger.trigger();
        self.broker.log.drained().await;
        self.broker = self.start(1).await;
    }

    /// Moves the clock of everything here forward.
    pub(crate) async fn pass(&self, ms: i64) {
        self.node.set_clock_ms(self.env.now_ms() + ms);
    }

    pub(crate) fn partition(&self, index: i32) -> TopicPartition {
        TopicPartition { topic: self.topic, partition: PartitionIndex(index) }
    }

    pub(crate) fn merger(&self, rules: MergeRules) -> Merger {
        Merger::new(&self.env, &self.broker.log, self.metadata.clone(), rules)
    }

    pub(crate) fn cleaner(&self) -> Cleaner {
        let rules = CleanRules::default();
        Cleaner::new(&self.env, &self.broker.log, self.metadata.clone(), rules)
    }

    /// Retention of all topics by these terms, whose tables have progress as decimal numbers.
    pub(crate) fn retention(&self, terms: RetentionTerms, hold: TableHold) -> Retention {
        let rules = RetentionRules { pause: Duration::from_secs(1), hold };
        let (log, metadata) = (&self.broker.log, self.metadata.clone());
        Retention::new(&self.env, log, metadata, Arc::new(SameTerms(terms)), rules)
    }

    /// Compaction of all topics by these terms, whose tables have progress as decimal numbers.
    pub(crate) fn compactor(&self, terms: CompactionTerms, rules: CompactionRules) -> Compactor {
        self.compactor_of(&self.broker.log, terms, rules)
    }

    /// The same of another broker.
    pub(crate) fn compactor_of(
        &self,
        log: &Log,
        terms: CompactionTerms,
        rules: CompactionRules,
    ) -> Compactor {
        let policy = Arc::new(AllCompacted(Mutex::new(Some(terms))));
        Compactor::new(&self.env, log, self.metadata.clone(), policy, rules)
    }

    /// Compaction of all topics by terms that the test changes.
    pub(crate) fn compactor_by(
        &self,
        policy: &Arc<AllCompacted>,
        rules: CompactionRules,
    ) -> Compactor {
        let (log, metadata) = (&self.broker.log, self.metadata.clone());
        Compactor::new(&self.env, log, metadata, policy.clone(), rules)
    }

    /// Merges until nothing is left to do.
    pub(crate) async fn merge_all(&self, merger: &Merger) -> MergeRound {
        let mut all = MergeRound::default();
        for _ in 0..100 {
            let round = merger.round(&self.broker.shutdown).await.expect("merge");
            if round.merges == 0 {
                return all;
            }
            all.merges += round.merges;
            all.sources += round.sources;
            all.bytes += round.bytes;
        }
        panic!("merging never ends");
    }

    /// One segment with one batch of these values, the first one at this time.
    pub(crate) async fn append(&self, partition: TopicPartition, at_ms: i64, values: &[&str]) {
        self.append_all(vec![batch(partition, at_ms, values)]).await;
    }

    /// One segment.
    pub(crate) async fn append_all(&self, batches: Vec<AppendBatch>) {
        let ticket = self.broker.log.append(batches).await.expect("append");
        let results = ticket.outcome().await.expect("the log decides");
        assert!(results.iter().all(std::result::Result::is_ok), "{results:?}");
    }

    pub(crate) async fn extents(&self, partition: TopicPartition) -> Vec<Extent> {
        let page = self.metadata.extents(partition, 0, 100_000).await.expect("extents");
        page.expect("the partition exists").extents
    }

    /// The keys of the extents' objects.
    pub(crate) async fn objects(&self, partition: TopicPartition) -> Vec<String> {
        let extents = self.extents(partition).await;
        let mut keys: Vec<String> = extents.iter().map(key).collect();
        keys.dedup();
        keys
    }

    /// How many objects there are.
    pub(crate) async fn stored(&self) -> usize {
        self.store.list("", None, 100_000).await.expect("list").len()
    }

    /// The key in the store of a key in an extent.
    pub(crate) fn object(&self, key: &str) -> String {
        format!("{}/{key}", cluster())
    }
}

/// All topics keep the same.
struct SameTerms(RetentionTerms);

impl RetentionPolicy for SameTerms {
    fn terms(&self, _topic: &Topic) -> RetentionTerms {
        self.0
    }

    fn table_ends(&self, progress: &[u8]) -> Result<Vec<i64>> {
        let text = std::str::from_utf8(progress).expect("a test wrote it");
        let end = |end: &str| end.parse().map_err(|_| Error::corrupt("a table's progress"));
        text.split(',').map(end).collect()
    }
}

/// All topics are compacted in the same way, or none is.
pub(crate) struct AllCompacted(pub(crate) Mutex<Option<CompactionTerms>>);

impl CompactionPolicy for AllCompacted {
    fn terms(&self, _topic: &Topic) -> Option<CompactionTerms> {
        *self.0.lock()
    }

    fn table_ends(&self, progress: &[u8]) -> Result<Vec<i64>> {
        SameTerms(RetentionTerms::default()).table_ends(progress)
    }
}

pub(crate) fn key(extent: &Extent) -> String {
    let Place::Range { key, .. } = &extent.place else { panic!("not a range") };
    key.clone()
}

pub(crate) fn cluster() -> ClusterId {
    ClusterId(uuid::Uuid::from_u128(1))
}

async fn start(env: &Env, store: &Arc<HookedStore>, metadata: &MetadataStore, id: i32) -> Broker {
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    let registration =
        metadata.register_broker(BrokerId(id), &address, 30_000).await.expect("register");
    let epoch = registration.epoch.0;
    let config = LogConfig {
        cluster: cluster(),
        broker: BrokerId(id),
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
        cache_bytes: if id == NO_CACHE_ID { 0 } else { 8 << 20 },
        decompressed_bytes_max: 1 << 20,
    };
    let (trigger, shutdown) = shutdown_signal();
    let objects: Arc<dyn ObjectStore> = store.clone();
    let backend = metadata.backend().clone();
    let log = Log::start(env, &config, objects, backend, Arc::new(NoObserver), shutdown.clone());
    Broker { log, trigger, shutdown, epoch }
}

/// All records from `offset`, each with its offset and time; what a fetch of `bytes_max` gives.
pub(crate) async fn fetch(
    log: &Log,
    partition: TopicPartition,
    offset: i64,
    bytes_max: usize,
) -> Vec<(i64, i64, String)> {
    let from = FetchFrom { partition, offset, bytes_max, committed_only: false };
    let fetched = log.fetch(from).await.expect("fetch");
    let mut found = Vec::new();
    for slice in fetched.records {
        for batch in kfs::batches(&slice) {
            let batch = batch.expect("whole batches");
            batch.verify_crc().expect("crc");
            assert_eq!(batch.header.partition_leader_epoch, 0);
            for record in batch.records(1 << 20).expect("records").iter() {
                let record = record.expect("a record");
                let value = String::from_utf8_lossy(record.value.expect("a value")).into_owned();
                let at = batch.header.base_offset + i64::from(record.offset_delta);
                found.push((at, batch.header.record_timestamp_ms(record.timestamp_delta), value));
            }
        }
    }
    found.retain(|(at, ..)| *at >= offset);
    found
}

pub(crate) fn batch(partition: TopicPartition, at_ms: i64, values: &[&str]) -> AppendBatch {
    let mut builder = BatchBuilder::new();
    for (at, value) in values.iter().enumerate() {
        let record = NewRecord {
            timestamp_ms: at_ms + at as i64,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        builder.push(&record).expect("a small record");
    }
    AppendBatch {
        partition,
        topic_name: "t".into(),
        bytes: builder.build().expect("a batch"),
        record_count: values.len() as u32,
        max_timestamp_ms: at_ms + values.len() as i64 - 1,
        timestamp_type: TimestampType::CreateTime,
        producer: None,
        transaction: None,
    }
}

/// A time at which records are young.
pub(crate) fn young_ms() -> i64 {
    SIMULATION_START_MS + 1_000
}

type Hook = futures::future::BoxFuture<'static, ()>;

/// A memory store in which something may happen after an object was put, and reads may take time.
#[derive(Default)]
pub(crate) struct HookedStore {
    inner: MemoryStore,
    after_put: Mutex<Option<Hook>>,
    read_takes: Mutex<Duration>,
    reads: AtomicUsize,
    cut_off: Mutex<Option<(String, u64)>>,
    refuses_puts: AtomicBool,
    puts_wait: AtomicBool,
}

impl HookedStore {
    /// This happens once, after the next put.
    pub(crate) fn after_next_put(&self, hook: Hook) {
        *self.after_put.lock() = Some(hook);
    }

    /// From now on each read of a range takes so long.
    pub(crate) fn reads_take(&self, duration: Duration) {
        *self.read_takes.lock() = duration;
    }

    /// From now on an object's bytes from here on are missing.
    pub(crate) fn cut_off(&self, key: String, at: u64) {
        *self.cut_off.lock() = Some((key, at));
    }

    /// From now on puts fail, or do so no more.
    pub(crate) fn refuse_puts(&self, refuses: bool) {
        self.refuses_puts.store(refuses, Ordering::Relaxed);
    }

    /// From now on whoever puts waits once before the object is there, and once after.
    pub(crate) fn puts_wait(&self) {
        self.puts_wait.store(true, Ordering::Relaxed);
    }

    /// Reads of ranges so far.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl StoreLayer for HookedStore {
    fn inner(&self) -> &dyn ObjectStore {
        &self.inner
    }

    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        if self.refuses_puts.load(Ordering::Relaxed) {
            return Err(Error::unavailable("no puts now"));
        }
        let waits = self.puts_wait.load(Ordering::Relaxed);
        if waits {
            tokio::task::yield_now().await;
        }
        let outcome = self.inner.put(key, parts).await?;
        if waits {
            tokio::task::yield_now().await;
        }
        let hook = self.after_put.lock().take();
        if let Some(hook) = hook {
            hook.await;
        }
        Ok(outcome)
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let takes = *self.read_takes.lock();
        if !takes.is_zero() {
            Env::current().sleep(takes).await;
        }
        if self.cut_off.lock().as_ref().is_some_and(|(cut, at)| cut == key && range.end > *at) {
            return Err(Error::invalid(format!("{key} ends before {}", range.end)));
        }
        self.inner.get_range(key, range).await
    }
}
