//! The bridge: one worker a topic, a background round that commits when a file is worth writing,
//! and looks.

use crate::commit::{LoadedTable, ResumeFrom};
use crate::config::BridgeConfig;
use crate::encode::ValueFormat;
use crate::external::TableName;
use crate::fold::{FoldCounts, FoldState};
use crate::log_reader::LogReader;
use crate::look::{LookAnswer, look};
use crate::names;
use crate::pointer::{FactPointers, TablePointer, TablePointers};
use crate::status::TableStatus;
use crate::sweep::{SweepCounts, SweepState};
use crate::worker::{Shared, Worker, ends};
use bytes::Bytes;
use floe_env::{Background, Env, Error, Instant, Result, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::topics::Topic;
use floe_store::ObjectStore;
use kfs::TopicId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Topic setting: whether the topic has a table.
pub const ENABLE_CONFIG: &str = "iceberg.enable";
/// Topic setting: how values become rows, `auto` or `raw`.
pub const VALUE_FORMAT_CONFIG: &str = "iceberg.value.format";

/// Tables of deleted topics are looked for when topics have changed, and this often: a commit that
/// was under way may have made one since.
const SWEEP_PAUSE: Duration = Duration::from_secs(60);

/// From the log to tables. A cheap handle.
#[derive(Clone)]
pub struct Bridge {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    metadata: MetadataStore,
    topics: Mutex<KnownTopics>,
    workers: Mutex<BTreeMap<TopicId, Arc<Worker>>>,
    /// The newest sweep: the topics' revision then, and when it was.
    swept: Mutex<Option<(Option<u64>, Instant)>>,
    orphans: Mutex<SweepState>,
    sweep_counts: SweepCounts,
    folds: Mutex<FoldState>,
    fold_counts: FoldCounts,
}

/// The topics as last read.
#[derive(Default)]
struct KnownTopics {
    revision: Option<u64>,
    topics: Arc<Vec<Topic>>,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Bridge").field("config", self.config()).finish()
    }
}

impl Bridge {
    /// A bridge that does nothing until it is started or looked at.
    pub fn new(
        env: Env,
        config: BridgeConfig,
        store: Arc<dyn ObjectStore>,
        metadata: MetadataStore,
        log: Arc<dyn LogReader>,
    ) -> Self {
        let pointers = Arc::new(FactPointers::new(metadata.clone()));
        Self::with_pointers((env, config), store, pointers, metadata, log)
    }

    pub(crate) fn with_pointers(
        (env, config): (Env, BridgeConfig),
        store: Arc<dyn ObjectStore>,
        pointers: Arc<dyn TablePointers>,
        metadata: MetadataStore,
        log: Arc<dyn LogReader>,
    ) -> Self {
        let shared = Arc::new(Shared::new(env, config, store, pointers, log));
        let (topics, workers, swept) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (orphans, sweep_counts) = (Mutex::default(), SweepCounts::default());
        let (folds, fold_counts) = (Mutex::default(), FoldCounts::default());
        let inner = Inner {
            shared,
            metadata,
            topics,
            workers,
            swept,
            orphans,
            sweep_counts,
            folds,
            fold_counts,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Starts the background job.
    pub fn start(&self, shutdown: Shutdown) -> Background {
        let shared = &self.inner.shared;
        let bridge = self.clone();
        Background::start(&shared.env, "tables", shared.config.round_pause, shutdown, move || {
            let bridge = bridge.clone();
            async move { bridge.round().await }
        })
    }

    /// Starts the upkeep of tables: a job of its own, so that no commit waits for it.
    pub fn start_upkeep(&self, shutdown: Shutdown) -> Background {
        let shared = &self.inner.shared;
        let bridge = self.clone();
        let pause = shared.config.upkeep_pause;
        Background::start(&shared.env, "table upkeep", pause, shutdown, move || {
            let bridge = bridge.clone();
            async move { bridge.keep_up().await }
        })
    }

    /// One round of the upkeep.
    ///
    /// # Errors
    /// Whatever the stores answer; the next round goes on.
    pub async fn keep_up(&self) -> Result<()> {
        let swept = self.sweep_orphans().await;
        let folded = self.fold_next().await;
        swept.and(folded).map(|_| ())
    }

    /// What folds have done since the broker started.
    pub fn fold_counts(&self) -> &FoldCounts {
        &self.inner.fold_counts
    }

    pub(crate) fn fold_state(&self) -> &Mutex<FoldState> {
        &self.inner.folds
    }

    /// All workers by topic.
    pub(crate) fn workers(&self) -> BTreeMap<TopicId, Arc<Worker>> {
        self.inner.workers.lock().clone()
    }

    /// What sweeps have done since the broker started.
    pub fn sweep_counts(&self) -> &SweepCounts {
        &self.inner.sweep_counts
    }

    pub(crate) fn sweep_state(&self) -> &Mutex<SweepState> {
        &self.inner.orphans
    }

    /// The settings.
    pub fn config(&self) -> &BridgeConfig {
        &self.inner.shared.config
    }

    /// What is known of every topic's table, by topic id.
    pub fn statuses(&self) -> Vec<TableStatus> {
        let workers: Vec<_> = self.inner.workers.lock().values().cloned().collect();
        workers.iter().map(|worker| worker.status()).collect()
    }

    /// One round of the background job: asks for a commit wherever one is due, and waits for none.
    ///
    /// # Errors
    /// The first that a topic had; the others have had their turn all the same.
    pub async fn round(&self) -> Result<()> {
        let topics = self.topics().await?;
        let mut first_error = self.sweep().await.err();
        for topic in topics.iter().filter(|topic| self.is_enabled(topic)) {
            let worker = self.worker(topic.id, &topic.name);
            let visited = self.visit(&worker).await;
            if let Err(error) = visited.and(self.publish_progress(&worker).await) {
                worker.note_error(&error);
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Removes what deleted topics have left, where it may have become more.
    async fn sweep(&self) -> Result<()> {
        let (revision, now) = (self.inner.topics.lock().revision, self.env().monotonic());
        let swept = *self.inner.swept.lock();
        let is_fresh = |(at_revision, at): (Option<u64>, Instant)| {
            at_revision == revision && now < at + SWEEP_PAUSE
        };
        if swept.is_some_and(is_fresh) {
            return Ok(());
        }
        self.remove_tables().await?;
        self.delete_files().await?;
        *self.inner.swept.lock() = Some((revision, now));
        Ok(())
    }

    /// Gives the metadata store its copy of a table's progress, for retention and metrics. It may
    /// be older than the table, never newer.
    async fn publish_progress(&self, worker: &Worker) -> Result<()> {
        let Some(progress) = worker.unpublished_progress() else { return Ok(()) };
        let copy = Bytes::from(progress.pack());
        self.inner.metadata.set_table_progress(worker.topic, Some(copy)).await?;
        worker.note_published(progress);
        Ok(())
    }

    async fn visit(&self, worker: &Arc<Worker>) -> Result<()> {
        let shared = &self.inner.shared;
        let Some(cut) = shared.log.cut(worker.topic).await? else { return Ok(()) };
        let ends = ends(&cut);
        if worker.covers(&ends) {
            return Ok(());
        }
        let table = worker.refresh().await?;
        if worker.covers(&ends) || table.as_ref().is_some_and(|table| table.stopped.is_some()) {
            return Ok(());
        }
        let (_, bytes) = worker.behind(&ends);
        let is_due = table.is_none()
            || bytes.unsigned_abs() >= shared.config.file_bytes_min
            || worker.lag() >= shared.config.lag_max;
        if is_due {
            worker.request(cut, false);
        }
        Ok(())
    }

    /// Looks at a table: all that was committed to its topic when the call began is in the answer,
    /// or the answer says how far it is behind. `None` if there is no such table.
    ///
    /// # Errors Whatever the stores answer while there is no version to show.
    pub async fn look(&self, name: &str) -> Result<Option<LookAnswer>> {
        let namespace = &self.config().namespace;
        if let Some(pointer) = self.inner.shared.pointers.by_name(namespace, name).await? {
            return self.look_by(&pointer).await;
        }
        // The topic may have its first records, and no table yet.
        for topic in self.topics().await?.iter().filter(|topic| self.is_enabled(topic)) {
            if names::candidates(&topic.name, topic.id).iter().any(|candidate| candidate == name) {
                let answer = self.look_at(&self.worker(topic.id, &topic.name)).await?;
                let is_it = |answer: &LookAnswer| answer.table.pointer.name == name;
                if answer.as_ref().is_some_and(is_it) {
                    return Ok(answer);
                }
            }
        }
        Ok(None)
    }

    /// Looks at the table of a pointer, `None` for one that shows no topic.
    pub(crate) async fn look_by(&self, pointer: &TablePointer) -> Result<Option<LookAnswer>> {
        let Some(topic) = pointer.topic() else { return Ok(None) };
        let worker = self.worker_of(topic, pointer).await?;
        // Others may have changed a table that has all its rows.
        if worker.newest().is_some_and(|known| known.pointer != *pointer) {
            worker.refresh().await?;
        }
        self.look_at(&worker).await
    }

    /// Lets a stopped table go on. `None` if there is no such table.
    ///
    /// # Errors
    /// `Invalid` where it is not stopped, or cannot go on like this; `Fenced` where it is not ours;
    /// `Retry` where it has just changed; whatever the stores answer.
    pub async fn resume(&self, name: &str, from: ResumeFrom) -> Result<Option<TableStatus>> {
        let namespace = &self.config().namespace;
        let Some(pointer) = self.inner.shared.pointers.by_name(namespace, name).await? else {
            return Ok(None);
        };
        let Some(topic) = pointer.topic() else {
            return Err(Error::invalid("the table shows no topic"));
        };
        let resumed = self.worker_of(topic, &pointer).await?.resume(from).await?;
        tracing::warn!(table = %name, from = from.name(), "a stopped table goes on");
        Ok(resumed)
    }

    /// A table's newest snapshot, without a commit. `None` if there is no such table, or it shows no
    /// topic.
    ///
    /// # Errors
    /// Whatever the stores answer.
    pub async fn newest(&self, name: &str) -> Result<Option<Arc<LoadedTable>>> {
        match self.pointer_of(&TableName::new(&self.config().namespace, name)).await? {
            Some(pointer) => self.newest_by(&pointer).await,
            None => Ok(None),
        }
    }

    /// The newest snapshot of a pointer's table, without a commit. `None` for one that shows no
    /// topic.
    ///
    /// # Errors
    /// Whatever the stores answer.
    pub(crate) async fn newest_by(
        &self,
        pointer: &TablePointer,
    ) -> Result<Option<Arc<LoadedTable>>> {
        let Some(topic) = pointer.topic() else { return Ok(None) };
        self.worker_of(topic, pointer).await?.refresh().await
    }

    /// The pointer of a table. `None` if there is no such table.
    ///
    /// # Errors
    /// Whatever the metadata store answers.
    pub(crate) async fn pointer_of(&self, table: &TableName) -> Result<Option<TablePointer>> {
        self.pointers().by_name(&table.namespace, &table.name).await
    }

    /// Names of tables behind `after` in the namespace of topics' tables, `limit` at most. A topic
    /// whose first record was acknowledged before the call has its table in the list.
    ///
    /// # Errors
    /// Whatever the stores answer.
    pub async fn table_names(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>> {
        self.table_names_in(&self.config().namespace, after, limit).await
    }

    /// The same of any namespace.
    pub(crate) async fn table_names_in(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        if namespace == self.config().namespace {
            self.make_missing().await?;
        }
        let pointers = self.inner.shared.pointers.list(namespace, after, limit).await?;
        Ok(pointers.into_iter().map(|pointer| pointer.name).collect())
    }

    /// Makes the tables of topics that have records and no table yet, as the next round would.
    async fn make_missing(&self) -> Result<()> {
        for topic in self.topics().await?.iter().filter(|topic| self.is_enabled(topic)) {
            let worker = self.worker(topic.id, &topic.name);
            if worker.status().table.is_none() && worker.refresh().await?.is_none() {
                self.look_at(&worker).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn look_at(&self, worker: &Arc<Worker>) -> Result<Option<LookAnswer>> {
        look(&self.inner.shared, worker).await
    }

    pub(crate) fn is_enabled(&self, topic: &Topic) -> bool {
        match topic.configs.get(ENABLE_CONFIG).map(String::as_str) {
            None => !self.config().exclude_topics.matches(&topic.name),
            Some(value) => value.eq_ignore_ascii_case("true"),
        }
    }

    /// All topics; read again only where one has changed.
    pub(crate) async fn topics(&self) -> Result<Arc<Vec<Topic>>> {
        let metadata = &self.inner.metadata;
        let revision = metadata.topics_revision().await?;
        {
            let known = self.inner.topics.lock();
            if known.revision == Some(revision) {
                return Ok(known.topics.clone());
            }
        }
        let topics = Arc::new(metadata.topics().await?);
        let known = KnownTopics { revision: Some(revision), topics: topics.clone() };
        *self.inner.topics.lock() = known;
        self.forget_workers(&topics);
        for topic in topics.iter() {
            if let Some(worker) = self.inner.workers.lock().get(&topic.id) {
                worker.set_value_format(value_format(topic));
            }
        }
        Ok(topics)
    }

    /// A worker whose topic is gone stays only for its table.
    fn forget_workers(&self, topics: &[Topic]) {
        let exists = |id: &TopicId| topics.iter().any(|topic| topic.id == *id);
        let mut workers = self.inner.workers.lock();
        workers.retain(|id, worker| exists(id) || worker.newest().is_some());
    }

    pub(crate) fn forget_worker(&self, topic: TopicId) {
        self.inner.workers.lock().remove(&topic);
    }

    pub(crate) fn env(&self) -> &Env {
        &self.inner.shared.env
    }

    pub(crate) fn metadata(&self) -> &MetadataStore {
        &self.inner.metadata
    }

    pub(crate) fn pointers(&self) -> &dyn TablePointers {
        self.inner.shared.pointers.as_ref()
    }

    pub(crate) fn shared_store(&self) -> Arc<dyn ObjectStore> {
        self.inner.shared.store.clone()
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.inner.shared.store.as_ref()
    }

    pub(crate) fn worker(&self, topic: TopicId, name: &str) -> Arc<Worker> {
        let known = self.inner.topics.lock().topics.clone();
        let mut workers = self.inner.workers.lock();
        let make = || {
            let worker = Worker::new(self.inner.shared.clone(), topic, name.to_owned());
            if let Some(known) = known.iter().find(|known| known.id == topic) {
                worker.set_value_format(value_format(known));
            }
            worker
        };
        workers.entry(topic).or_insert_with(make).clone()
    }

    pub(crate) async fn worker_of(
        &self,
        topic: TopicId,
        pointer: &TablePointer,
    ) -> Result<Arc<Worker>> {
        if let Some(worker) = self.inner.workers.lock().get(&topic) {
            return Ok(worker.clone());
        }
        match self.inner.metadata.topic_by_id(topic).await? {
            Some(known) => {
                let worker = self.worker(topic, &known.name);
                worker.set_value_format(value_format(&known));
                Ok(worker)
            }
            // The name of a topic that is gone is not needed any more.
            None => Ok(self.worker(topic, &pointer.name)),
        }
    }

    /// What went wrong while there was nothing to show.
    pub(crate) fn no_version(error: Error) -> Error {
        error.context("the table's first commit")
    }
}

fn value_format(topic: &Topic) -> ValueFormat {
    match topic.configs.get(VALUE_FORMAT_CONFIG).map(String::as_str) {
        Some("raw") => ValueFormat::Raw,
        _ => ValueFormat::Auto,
    }
}
