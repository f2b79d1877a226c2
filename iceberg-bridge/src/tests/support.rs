//! What the tests share: a world of stores that outlives nodes, faults, and a reader of whole
//! tables.

use crate::commit::LoadedTable;
use crate::commit::tests_support::table_files;
use crate::log_reader::{LogRange, LogRead, LogReader, PartitionCut};
use crate::memory_log::MemoryLog;
use crate::pointer::{FactPointers, PointerMove, RemovedTable, TablePointer, TablePointers};
use crate::{Bridge, BridgeConfig};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::simulated::Node;
use floe_env::{Env, Error, Result};
use floe_metadata::facts::{Change, ChangeOutcome};
use floe_metadata::topics::TopicCreation;
use floe_metadata::{MetadataStore, ModelBackend};
use floe_store::{MemoryStore, ObjectStore, PutOutcome, StoreLayer};
use futures::FutureExt;
use kfs::{BatchBuilder, ClusterId, NewRecord, PartitionIndex, TopicId, TopicPartition};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use uuid::Uuid;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It works.
    None,
    /// It has no effect, and says so.
    Refused,
    /// It works, and its answer is lost.
    AnswerLost,
    /// It has no effect, and nobody knows.
    NeverArrived,
}

/// Faults of the next calls; none once they are used up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<Mutex<VecDeque<Fault>>>);

impl Faults {
    pub(crate) fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        *self.0.lock() = faults.into_iter().collect();
    }

    fn next(&self) -> Fault {
        self.0.lock().pop_front().unwrap_or(Fault::None)
    }

    /// For a call without effect, which only works or does not.
    fn refuse(&self) -> Result<()> {
        match self.next() {
            Fault::None => Ok(()),
            _ => Err(Error::unavailable("planned")),
        }
    }

    /// Every call is pending before it has its effect and after it, so that a node can die at
    /// either point.
    async fn around<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::task::yield_now().await;
        let answer = match self.next() {
            Fault::None => call.await,
            Fault::Refused => Err(Error::unavailable("planned")),
            Fault::NeverArrived => Err(Error::unknown_outcome("planned")),
            Fault::AnswerLost => {
                call.await?;
                Err(Error::unknown_outcome("planned"))
            }
        };
        tokio::task::yield_now().await;
        answer
    }
}

/// A store in memory whose puts fail as planned.
#[derive(Clone, Default)]
pub(crate) struct FaultStore {
    pub(crate) objects: MemoryStore,
    pub(crate) put_faults: Faults,
    puts: Arc<Mutex<u64>>,
}

impl FaultStore {
    pub(crate) fn puts(&self) -> u64 {
        *self.puts.lock()
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
        let all = self.objects.list("", None, usize::MAX).await.unwrap();
        all.into_iter().map(|object| object.key).collect()
    }
}

#[async_trait]
impl StoreLayer for FaultStore {
    fn inner(&self) -> &dyn ObjectStore {
        &self.objects
    }

    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        *self.puts.lock() += 1;
        self.put_faults.around(self.objects.put(key, parts)).await
    }
}

/// Pointers whose moves fail as planned.
#[derive(Clone)]
pub(crate) struct FaultPointers {
    inner: Arc<FactPointers>,
    pub(crate) faults: Faults,
    /// Of reading a pointer.
    pub(crate) read_faults: Faults,
    /// So many next reads of a topic's pointer are of before it was made.
    pub(crate) unseen: Arc<AtomicU32>,
}

#[async_trait]
impl TablePointers for FaultPointers {
    async fn by_topic(&self, topic: TopicId) -> Result<Option<TablePointer>> {
        let unseen = self.unseen.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        self.read_faults.refuse()?;
        Ok(self.inner.by_topic(topic).await?.filter(|_| unseen.is_err()))
    }

    async fn by_name(&self, namespace: &str, name: &str) -> Result<Option<TablePointer>> {
        self.read_faults.refuse()?;
        self.inner.by_name(namespace, name).await
    }

    async fn list(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TablePointer>> {
        self.inner.list(namespace, after, limit).await
    }

    async fn create(&self, pointer: &TablePointer) -> Result<ChangeOutcome> {
        self.faults.around(self.inner.create(pointer)).await
    }

    async fn swap(&self, old: &TablePointer, new: &TablePointer) -> Result<ChangeOutcome> {
        self.faults.around(self.inner.swap(old, new)).await
    }

    async fn move_all(&self, moves: &[PointerMove], also: Change) -> Result<ChangeOutcome> {
        self.faults.around(self.inner.move_all(moves, also)).await
    }

    async fn remove(&self, old: &TablePointer) -> Result<ChangeOutcome> {
        self.faults.around(self.inner.remove(old)).await
    }

    async fn removed(&self, limit: usize) -> Result<Vec<RemovedTable>> {
        self.inner.removed(limit).await
    }

    async fn is_removed(&self, topic: Option<TopicId>, table: Uuid) -> Result<bool> {
        self.inner.is_removed(topic, table).await
    }

    async fn is_taken(&self, table: Uuid) -> Result<bool> {
        self.inner.is_taken(table).await
    }

    async fn forget(&self, table: &RemovedTable) -> Result<()> {
        self.faults.around(self.inner.forget(table)).await
    }

    async fn may_delete(&self) -> Result<bool> {
        self.inner.may_delete().await
    }
}

/// A log on top of the world's, for tests that change a call or two.
#[async_trait]
pub(crate) trait LogLayer: Send + Sync + 'static {
    /// Where calls go.
    fn inner(&self) -> &MemoryLog;

    /// Comes before each cut, and may fail in its place.
    async fn before_cut(&self) -> Result<()> {
        Ok(())
    }

    /// Comes before each read, and may fail in its place.
    async fn before_read(&self, _partition: TopicPartition) -> Result<()> {
        Ok(())
    }

    /// See [`LogReader::load_together`].
    async fn load_together(&self, ranges: &[LogRange]) -> Result<()> {
        self.inner().load_together(ranges).await
    }

    /// See [`LogReader::together_bytes_max`].
    fn together_bytes_max(&self) -> Option<usize> {
        self.inner().together_bytes_max()
    }
}

#[async_trait]
impl<Layer: LogLayer> LogReader for Layer {
    async fn cut(&self, topic: TopicId) -> Result<Option<Vec<PartitionCut>>> {
        self.before_cut().await?;
        self.inner().cut(topic).await
    }

    async fn cuts_at_once(
        &self,
        topics: &[(TopicId, i32)],
    ) -> Result<Vec<Option<Vec<PartitionCut>>>> {
        self.before_cut().await?;
        self.inner().cuts_at_once(topics).await
    }

    async fn read(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
        bytes_max: usize,
    ) -> Result<LogRead> {
        self.before_read(partition).await?;
        self.inner().read(partition, from, until, bytes_max).await
    }

    async fn load_together(&self, ranges: &[LogRange]) -> Result<()> {
        LogLayer::load_together(self, ranges).await
    }

    fn together_bytes_max(&self) -> Option<usize> {
        LogLayer::together_bytes_max(self)
    }
}

/// A log whose every read takes a second.
struct SlowLog {
    inner: Arc<MemoryLog>,
    env: Env,
}

#[async_trait]
impl LogLayer for SlowLog {
    fn inner(&self) -> &MemoryLog {
        &self.inner
    }

    async fn before_read(&self, _partition: TopicPartition) -> Result<()> {
        self.env.sleep(Duration::from_secs(1)).await;
        Ok(())
    }
}

/// Stores and log: what is left when a node dies.
pub(crate) struct World {
    pub(crate) store: FaultStore,
    pub(crate) pointers: FaultPointers,
    pub(crate) metadata: MetadataStore,
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) cluster: ClusterId,
    /// Where the metadata store runs, whose clock it is.
    pub(crate) node: Node,
}

impl World {
    pub(crate) fn new() -> Self {
        let node = Node::new(1);
        let env = Env::simulated(node.clone());
        let metadata = MetadataStore::new(Arc::new(ModelBackend::new(env.clone())), env);
        let inner = Arc::new(FactPointers::new(metadata.clone()));
        Self {
            store: FaultStore::default(),
            pointers: FaultPointers {
                inner,
                faults: Faults::default(),
                read_faults: Faults::default(),
                unseen: Arc::default(),
            },
            metadata,
            log: Arc::default(),
            cluster: ClusterId(Uuid::from_u128(0xc1)),
            node,
        }
    }

    pub(crate) async fn topic(&self, name: &str, partitions: usize) -> TopicId {
        let count = i32::try_from(partitions).unwrap();
        let made = self.metadata.create_topic(name, count, 1, Default::default()).await.unwrap();
        let TopicCreation::Created(topic) = made else { panic!("topic {name} exists") };
        self.log.add_topic(topic.id, partitions);
        topic.id
    }

    /// Makes a topic of this id.
    pub(crate) fn pretend_topic(&self, topic: TopicId) {
        let name = topic.to_string();
        let made = self.metadata.recreate_topic(topic, &name, &[0]).now_or_never();
        made.expect("the model does not wait").unwrap();
    }

    /// Appends records whose values are these numbers; each is its own timestamp, in hours.
    pub(crate) fn append(&self, topic: TopicId, partition: i32, numbers: Range<i64>) -> i64 {
        let place = TopicPartition { topic, partition: PartitionIndex(partition) };
        self.log.append(place, &numbered_batch(numbers)).unwrap()
    }

    /// Appends so many records that are all of the same hour.
    pub(crate) fn append_at(&self, topic: TopicId, partition: i32, hour: i64, count: usize) {
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            let timestamp_ms = hour * 3_600_000;
            let value = Some(&b"same"[..]);
            builder.push(&NewRecord { timestamp_ms, key: None, value, headers: &[] }).unwrap();
        }
        let place = TopicPartition { topic, partition: PartitionIndex(partition) };
        self.log.append(place, &builder.build().unwrap()).unwrap();
    }

    /// A bridge on a node of its own.
    pub(crate) fn bridge(&self, env: Env) -> Bridge {
        self.bridge_with(env, |_| ())
    }

    pub(crate) fn bridge_with(&self, env: Env, change: impl FnOnce(&mut BridgeConfig)) -> Bridge {
        self.bridge_on(env, self.log.clone(), change)
    }

    /// A bridge that reads the world's log slowly.
    pub(crate) fn slow_bridge(&self, env: Env) -> Bridge {
        let log = SlowLog { inner: self.log.clone(), env: env.clone() };
        self.bridge_on(env, Arc::new(log), |_| ())
    }

    pub(crate) fn bridge_on(
        &self,
        env: Env,
        log: Arc<dyn LogReader>,
        change: impl FnOnce(&mut BridgeConfig),
    ) -> Bridge {
        let mut config = BridgeConfig::new(self.cluster);
        change(&mut config);
        self.bridge_over((env, config), Arc::new(self.store.clone()), log)
    }

    /// A bridge whose store and log are reached in some other way.
    pub(crate) fn bridge_over(
        &self,
        (env, config): (Env, BridgeConfig),
        store: Arc<dyn ObjectStore>,
        log: Arc<dyn LogReader>,
    ) -> Bridge {
        let pointers = Arc::new(self.pointers.clone());
        Bridge::with_pointers((env, config), store, pointers, self.metadata.clone(), log)
    }

    pub(crate) async fn rows(&self, table: &LoadedTable) -> Vec<TableRow> {
        let mut rows = Vec::new();
        for file in table_files(&self.store, table).await {
            let key = table.place.key_of(file.file_path()).unwrap();
            let bytes = self.store.get(&key).await.unwrap().expect("the table names it");
            assert_eq!(bytes.len() as u64, file.file_size_in_bytes());
            let of_file = rows_of(bytes);
            assert_eq!(of_file.len() as u64, file.record_count());
            assert!(of_file.is_sorted(), "rows of a file are in order");
            rows.extend(of_file);
        }
        let total = table.summary("total-records").unwrap();
        assert_eq!(total, rows.len().to_string(), "the summary counts the rows");
        rows.sort();
        rows
    }
}

/// Partition, offset and value.
pub(crate) type TableRow = (i32, i64, String);

pub(crate) fn numbered_batch(numbers: Range<i64>) -> Bytes {
    let mut builder = BatchBuilder::new();
    for number in numbers {
        let value = format!("{number}");
        let record = NewRecord {
            timestamp_ms: number * 3_600_000,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

fn rows_of(bytes: Bytes) -> Vec<TableRow> {
    let mut rows = Vec::new();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
    for batch in reader {
        let batch = batch.unwrap();
        let partitions = batch.column(0).as_primitive::<Int32Type>();
        let offsets = batch.column(1).as_primitive::<Int64Type>();
        let values = batch.column(6).as_binary::<i32>();
        for row in 0..batch.num_rows() {
            let value = String::from_utf8(values.value(row).to_vec()).unwrap();
            rows.push((partitions.value(row), offsets.value(row), value));
        }
        assert_eq!(batch.column(9).null_count(), batch.num_rows());
    }
    rows
}
