//! The log as the rest of the broker sees it: append, fetch, and what is known of a partition's
//! ends.

use crate::append::{AppendBatch, Observer, Ticket};
use crate::blocks::{BlockCache, CacheStats};
use crate::commit::{Committer, Progress};
use crate::compaction::Boundaries;
use crate::cut::{CutPolicy, CutRules};
use crate::loads::load_budget;
use crate::open_segment::AppendRequest;
use crate::partitions::{Partitions, Waiter};
use crate::read::{FetchError, FetchFrom, Fetched, Looked, Reader, TimedOffset};
use crate::together::LogRange;
use crate::upload::Uploader;
use crate::writer::Writer;
use floe_env::{Env, Error, ErrorKind, Lane, Result, Shutdown, Task};
use floe_metadata::Backend;
use floe_metadata::facts::Fence;
use floe_metadata::rows::{Extent, ExtentPage, PartitionState};
use floe_store::ObjectStore;
use kfs::{BrokerEpoch, BrokerId, ClusterId, SegmentId, TopicPartition};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

/// Requests that wait for the writer at most; their bytes are bounded by
/// [`LogConfig::pending_bytes_max`].
const REQUESTS_WAITING_MAX: usize = 1024;
/// The unit in which pending bytes are counted.
const PENDING_UNIT_BYTES: usize = 1024;

/// How a log works.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The cluster, which names the root of all keys.
    pub cluster: ClusterId,
    /// This broker.
    pub broker: BrokerId,
    /// Its registration.
    pub epoch: BrokerEpoch,
    /// Proof of its registration.
    pub fence: Fence,
    /// When segments are cut.
    pub cut: CutRules,
    /// Uploads in flight at most.
    pub uploads_max: usize,
    /// An upload that takes longer is given up.
    pub upload_timeout: Duration,
    /// Bytes that are taken in and not yet answered at most; producers wait beyond that.
    pub pending_bytes_max: usize,
    /// Bytes of the cache of extents.
    pub cache_bytes: usize,
    /// Bytes that one batch may decompress to.
    pub decompressed_bytes_max: usize,
}

/// The log; cheap to clone.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    config: LogConfig,
    requests: mpsc::Sender<AppendRequest>,
    pending: Arc<Semaphore>,
    pending_units: usize,
    reader: Reader,
    tasks: Mutex<Vec<Task<()>>>,
    progress: Arc<Progress>,
    /// Merges that this registration has begun.
    merges: AtomicU64,
    boundaries: Boundaries,
}

impl Log {
    /// Starts the write path. It ends some time after `shutdown`, with everything answered that was
    /// taken in.
    pub fn start(
        env: &Env,
        config: &LogConfig,
        store: Arc<dyn ObjectStore>,
        metadata: Arc<dyn Backend>,
        observer: Arc<dyn Observer>,
        shutdown: Shutdown,
    ) -> Self {
        let root = config.cluster.to_string();
        let partitions = Arc::new(Partitions::default());
        let cache = BlockCache::new(env.clone(), config.cache_bytes);
        let progress = Arc::new(Progress::default());
        let (requests, waiting_requests) = mpsc::channel(REQUESTS_WAITING_MAX);
        let (commits, waiting_commits) = mpsc::channel(config.uploads_max);
        let writer = Writer {
            env: env.clone(),
            cluster: config.cluster,
            broker: config.broker,
            epoch: config.epoch,
            root: root.clone(),
            policy: CutPolicy::new(config.cut, env.monotonic()),
            uploader: Uploader::new(env.clone(), store.clone(), config.upload_timeout),
            upload_slots: Arc::new(Semaphore::new(config.uploads_max)),
            commits,
            progress: progress.clone(),
            observer: observer.clone(),
            next_counter: 0,
        };
        let committer = Committer {
            env: env.clone(),
            root: root.clone(),
            store: store.clone(),
            metadata: metadata.clone(),
            fence: config.fence.clone(),
            partitions: partitions.clone(),
            cache: cache.clone(),
            observer,
            progress: progress.clone(),
            lost: parking_lot::Mutex::default(),
        };
        let tasks = vec![
            env.spawn("log writer", Lane::Foreground, writer.run(waiting_requests, shutdown)),
            env.spawn("log committer", Lane::Foreground, committer.run(waiting_commits)),
        ];
        let pending_units = (config.pending_bytes_max / PENDING_UNIT_BYTES).max(1);
        let reader = Reader {
            env: env.clone(),
            root: root.into(),
            store,
            metadata,
            partitions,
            loading: load_budget(config.cache_bytes, cache.memory()),
            cache,
            decompressed_bytes_max: config.decompressed_bytes_max,
        };
        Self(Arc::new(Inner {
            config: config.clone(),
            requests,
            pending: Arc::new(Semaphore::new(pending_units)),
            pending_units,
            reader,
            tasks: Mutex::new(tasks),
            progress,
            merges: AtomicU64::new(0),
            boundaries: Boundaries::default(),
        }))
    }

    /// Takes validated batches in, in the order of the calls that returned. Waits while too much is
    /// pending. The ticket gives one result a batch once they are durable and visible.
    ///
    /// Errors: `Unavailable` while the log shuts down.
    pub async fn append(&self, batches: Vec<AppendBatch>) -> Result<Ticket> {
        let bytes: usize = batches.iter().map(|batch| batch.bytes.len()).sum();
        let units = bytes.div_ceil(PENDING_UNIT_BYTES).clamp(1, self.0.pending_units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let pending = self.0.pending.clone().acquire_many_owned(units).await;
        let memory = pending.expect("the pending budget is never closed");
        let (reply, outcome) = oneshot::channel();
        let request = AppendRequest { batches, reply, memory };
        let sent = self.0.requests.send(request).await;
        sent.map_err(|_| Error::unavailable("the broker is shutting down"))?;
        Ok(Ticket(outcome))
    }

    /// Bytes that are taken in and not yet answered.
    pub fn pending_bytes(&self) -> usize {
        let free = self.0.pending.available_permits();
        self.0.pending_units.saturating_sub(free) * PENDING_UNIT_BYTES
    }

    /// Starts to load what fetches are about to want; waits for nothing. Called with all partitions
    /// of a request before the first is read, so that they are loaded together.
    pub fn read_ahead(&self, wanted: impl IntoIterator<Item = FetchFrom>) {
        self.0.reader.read_ahead(wanted);
    }

    /// Tells what a fetch would find, without reading: for whoever takes memory only where there
    /// are records.
    ///
    /// Errors: those of [`Log::fetch`].
    pub async fn look(&self, from: FetchFrom) -> Result<Looked, FetchError> {
        self.0.reader.look(from).await
    }

    /// Loads what is not cached of these ranges, with one read for all that lie next to each other
    /// in one object, and waits for it; as far as there is room ([`Log::together_bytes_max`]).
    ///
    /// Errors: whatever the metadata store answers. What cannot be read is left to `fetch`.
    pub async fn load_together(&self, ranges: &[LogRange]) -> Result<()> {
        self.0.reader.load_together(ranges).await
    }

    /// Bytes that [`Log::load_together`] loads at most.
    pub fn together_bytes_max(&self) -> usize {
        self.0.reader.together_bytes_max()
    }

    /// Reads from one partition.
    pub async fn fetch(&self, from: FetchFrom) -> Result<Fetched, FetchError> {
        self.0.reader.fetch(from).await
    }

    /// A waiter for news of these partitions. Make it before fetching, so that nothing between is
    /// missed.
    pub fn waiter(&self, partitions: &[TopicPartition]) -> Waiter {
        self.0.reader.partitions.waiter(partitions)
    }

    /// The newest state that this broker has seen, without asking the store.
    pub fn known_state(&self, partition: TopicPartition) -> Option<PartitionState> {
        self.0.reader.partitions.state(partition)
    }

    /// Takes in the ends of a partition as a change of this broker's has left them, so that waiting
    /// fetches see it.
    pub fn observe(&self, partition: TopicPartition, state: PartitionState) {
        self.0.reader.partitions.observe(partition, state);
    }

    /// Takes in the end of a transaction in a partition: its marker, and the partition's ends then.
    pub fn ended(&self, partition: TopicPartition, state: PartitionState, marker: Extent) {
        self.0.reader.partitions.committed(partition, state, vec![marker]);
    }

    /// The partition's ends as the store has them now. `None` if there is no such partition.
    pub async fn state(&self, partition: TopicPartition) -> Result<Option<PartitionState>> {
        self.0.reader.state(partition).await
    }

    /// The first record at or after a time. The outer `None`: no such partition.
    pub async fn offset_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
        committed_only: bool,
    ) -> Result<Option<Option<TimedOffset>>> {
        self.0.reader.offset_by_time(partition, timestamp_ms, committed_only).await
    }

    /// The first record with the greatest timestamp. The outer `None`: no such partition.
    pub async fn offset_of_max_timestamp(
        &self,
        partition: TopicPartition,
        committed_only: bool,
    ) -> Result<Option<Option<TimedOffset>>> {
        self.0.reader.offset_of_max_timestamp(partition, committed_only).await
    }

    /// Moves the log start forward. `None` if there is no such partition.
    pub async fn advance_log_start(
        &self,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        let reader = &self.0.reader;
        let fence = Some(&self.0.config.fence);
        let state = reader.metadata.advance_log_start(fence, partition, offset).await;
        if state.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced) {
            self.fence();
        }
        Ok(state?.map(|state| reader.partitions.observe(partition, state)))
    }

    /// Extents from the one that holds `offset`, as the store has them now.
    pub async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        self.0.reader.metadata.extents(partition, offset, limit).await
    }

    /// The batches of one extent, with absolute offsets.
    pub async fn extent_batches(
        &self,
        partition: TopicPartition,
        extent: &Extent,
    ) -> Result<Vec<bytes::Bytes>> {
        let blocks = self.0.reader.blocks(partition, extent).await?;
        Ok(blocks.iter().map(|block| block.bytes.clone()).collect())
    }

    /// Forgets a partition whose topic was deleted, and wakes those that wait for it.
    pub fn forget(&self, partition: TopicPartition) {
        self.0.reader.partitions.forget(partition);
    }

    /// What the cache has done.
    pub fn cache_stats(&self) -> CacheStats {
        self.0.reader.cache.stats()
    }

    /// True once another broker has taken this one's place: nothing can be written any more.
    pub fn is_fenced(&self) -> bool {
        self.0.progress.is_fenced()
    }

    /// Tells the log that another broker has taken this one's place: a change of this broker's has
    /// been refused for its fence.
    pub fn fence(&self) {
        self.0.progress.fence();
    }

    /// Waits until another broker has taken this one's place.
    pub async fn fenced(&self) {
        self.0.progress.fenced().await;
    }

    pub(crate) fn config(&self) -> &LogConfig {
        &self.0.config
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.0.reader
    }

    /// Where compaction is and has been.
    pub(crate) fn boundaries(&self) -> &Boundaries {
        &self.0.boundaries
    }

    /// Names a merge or a compaction, for its object's key.
    pub(crate) fn next_merge_id(&self) -> SegmentId {
        self.own_id(self.0.merges.fetch_add(1, Ordering::Relaxed))
    }

    /// The last segment of this registration that is answered together with all before it.
    pub(crate) fn answered_up_to(&self) -> Option<SegmentId> {
        self.0.progress.answered_up_to().map(|counter| self.own_id(counter))
    }

    fn own_id(&self, counter: u64) -> SegmentId {
        SegmentId { broker: self.0.config.broker, epoch: self.0.config.epoch, counter }
    }

    /// Waits until the write path has ended after a shutdown, with everything answered.
    pub async fn drained(&self) {
        for task in self.0.tasks.lock().await.drain(..) {
            // A cancelled task has ended as well.
            let _ = task.await;
        }
    }
}
