//! The bridge: one worker a topic, a background round that commits when a file is worth writing
//! (`bridge/round.rs`), and looks.

mod round;

use crate::commit::{LoadedTable, ResumeFrom};
use crate::config::BridgeConfig;
use crate::convoy::Convoys;
use crate::encode::DecodeCounts;
use crate::external::TableName;
use crate::fold::{FoldCounts, FoldState};
use crate::log_reader::LogReader;
use crate::look::{LookAnswer, look};
use crate::names;
use crate::pointer::{FactPointers, TablePointer, TablePointers};
use crate::rest::RestCatalog;
use crate::status::TableStatus;
use crate::sweep::{SweepCounts, SweepState};
use crate::table_settings::TableSettings;
use crate::trim::{TrimCounts, TrimState};
use crate::worker::{Shared, Worker};
use floe_env::{Background, Env, Error, Instant, Result, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::topics::Topic;
use floe_store::ObjectStore;
use futures::stream::{self, StreamExt};
use kfs::TopicId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Tables of deleted topics are looked for when topics have changed, and this often: a commit that
/// was under way may have made one since.
const REMOVAL_PAUSE: Duration = Duration::from_secs(60);

/// Tables that a list of them makes at the same time.
const TABLES_MADE_MAX: usize = 16;

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
    /// The newest look for tables of deleted topics: the topics' revision then, and when it was.
    removed: Mutex<Option<(Option<u64>, Instant)>>,
    orphans: Mutex<SweepState>,
    sweep_counts: SweepCounts,
    folds: Mutex<FoldState>,
    fold_counts: FoldCounts,
    trims: Mutex<TrimState>,
    trim_counts: TrimCounts,
    convoys: tokio::sync::Mutex<Convoys>,
    /// Held while a flush waits for the tables that it wants to hold.
    flushes: tokio::sync::Mutex<()>,
}

/// The topics as last read.
#[derive(Default)]
struct KnownTopics {
    revision: Option<u64>,
    topics: Arc<Vec<Topic>>,
    /// Where each is among them.
    positions: Arc<BTreeMap<TopicId, usize>>,
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
        let rest = config.rest.clone().map(|rest| {
            let names = (config.cluster, config.namespace.as_str());
            Arc::new(RestCatalog::new(env.clone(), rest, names, store.clone(), metadata.clone()))
        });
        let shared = Arc::new(Shared::new(env, config, store, pointers, rest, log));
        let (topics, workers, removed) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (orphans, sweep_counts) = (Mutex::default(), SweepCounts::default());
        let (folds, fold_counts) = (Mutex::default(), FoldCounts::default());
        let (trims, trim_counts) = (Mutex::default(), TrimCounts::default());
        let inner = Inner {
            shared,
            metadata,
            topics,
            workers,
            removed,
            orphans,
            sweep_counts,
            folds,
            fold_counts,
            trims,
            trim_counts,
            convoys: tokio::sync::Mutex::default(),
            flushes: tokio::sync::Mutex::default(),
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
    /// The first that the stores answer; further ones are logged, and the next round goes on.
    pub async fn keep_up(&self) -> Result<()> {
        let ended = [self.sweep_orphans().await, self.trim_next().await, self.fold_next().await];
        let mut errors = ended.into_iter().filter_map(Result::err);
        let first = errors.next();
        errors.for_each(|error| tracing::warn!(%error, "a table's upkeep failed too"));
        first.map_or(Ok(()), Err)
    }

    /// What became of the values committed since the broker started, of all tables.
    pub fn decode_counts(&self) -> DecodeCounts {
        *self.inner.shared.decoded.lock()
    }

    /// What folds have done since the broker started.
    pub fn fold_counts(&self) -> &FoldCounts {
        &self.inner.fold_counts
    }

    pub(crate) fn fold_state(&self) -> &Mutex<FoldState> {
        &self.inner.folds
    }

    /// What retention has done since the broker started.
    pub fn trim_counts(&self) -> &TrimCounts {
        &self.inner.trim_counts
    }

    pub(crate) fn trim_state(&self) -> &Mutex<TrimState> {
        &self.inner.trims
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

    /// Looks at a table: all that was committed to its topic when the call began is in the answer,
    /// or the answer says how far it is behind. `None` if there is no such table.
    ///
    /// # Errors
    /// Whatever the stores answer while there is no version to show.
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
        if worker.head().is_some_and(|known| known.pointer != *pointer) {
            worker.refresh_head().await?;
        }
        self.look_at(&worker).await
    }

    /// Lets a stopped table go on, in the namespace of topics' tables or where an engine has moved
    /// it. `None` if there is no such table.
    ///
    /// # Errors
    /// `Invalid` where it is not stopped, or cannot go on like this; `Fenced` where it is not ours;
    /// `Retry` where it has just changed; whatever the stores answer.
    pub async fn resume(
        &self,
        (namespace, name): (&str, &str),
        from: ResumeFrom,
    ) -> Result<Option<TableStatus>> {
        let worker = self.worker_named(namespace, name).await?;
        let Some(worker) = worker else { return Ok(None) };
        let resumed = worker.resume(from).await?;
        tracing::warn!(table = %name, from = from.name(), "a stopped table goes on");
        Ok(resumed)
    }

    /// A table's newest snapshot, without a commit. `None` if there is no such table, or it shows
    /// no topic.
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
    /// whose first record was acknowledged before the call has its table in the list, unless that
    /// takes longer than a look may wait.
    ///
    /// # Errors
    /// Whatever the metadata store answers.
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
        self.made_table_names(namespace, after, limit).await
    }

    /// The same, of tables that are there already.
    pub(crate) async fn made_table_names(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        let pointers = self.inner.shared.pointers.list(namespace, after, limit).await?;
        Ok(pointers.into_iter().map(|pointer| pointer.name).collect())
    }

    /// Makes the tables of topics that have records and no table yet, as the next round would. One
    /// that cannot be made, or not in time, is left to that.
    async fn make_missing(&self) -> Result<()> {
        let topics = self.topics().await?;
        let enabled = topics.iter().filter(|topic| self.is_enabled(topic));
        let workers = enabled.map(|topic| self.worker(topic.id, &topic.name));
        let missing: Vec<_> = workers.filter(|worker| worker.head().is_none()).collect();
        let bridge = self.clone();
        let making = stream::iter(missing).for_each_concurrent(TABLES_MADE_MAX, move |worker| {
            let bridge = bridge.clone();
            async move { bridge.make(&worker).await }
        });
        if self.env().timeout(self.config().look_timeout, making).await.is_none() {
            tracing::warn!("tables are not listed: to make them takes longer than a look may wait");
        }
        Ok(())
    }

    async fn make(&self, worker: &Arc<Worker>) {
        // Another broker may have made it.
        let made = match worker.refresh_head().await {
            Ok(None) => self.look_at(worker).await.err(),
            found => found.err(),
        };
        if let Some(error) = made {
            let topic = &worker.topic_name;
            tracing::warn!(%topic, %error, "a table is not listed: it could not be made");
        }
    }

    pub(crate) async fn look_at(&self, worker: &Arc<Worker>) -> Result<Option<LookAnswer>> {
        look(&self.inner.shared, worker).await
    }

    pub(crate) fn is_enabled(&self, topic: &Topic) -> bool {
        self.settings_of(topic).is_enabled
    }

    fn settings_of(&self, topic: &Topic) -> TableSettings {
        let by_default = !self.config().exclude_topics.matches(&topic.name);
        TableSettings::of(&topic.configs, by_default)
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
        let positions: Arc<BTreeMap<TopicId, usize>> =
            Arc::new(topics.iter().enumerate().map(|(at, topic)| (topic.id, at)).collect());
        self.forget_workers(&positions);
        let known = KnownTopics { revision: Some(revision), topics: topics.clone(), positions };
        *self.inner.topics.lock() = known;
        for topic in topics.iter() {
            if let Some(worker) = self.inner.workers.lock().get(&topic.id) {
                worker.set_settings(self.settings_of(topic));
            }
        }
        Ok(topics)
    }

    /// A worker whose topic is gone stays only for its table.
    fn forget_workers(&self, known: &BTreeMap<TopicId, usize>) {
        let mut workers = self.inner.workers.lock();
        workers.retain(|id, worker| known.contains_key(id) || worker.head().is_some());
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
        if let Some(worker) = self.inner.workers.lock().get(&topic) {
            return worker.clone();
        }
        let known = {
            let known = self.inner.topics.lock();
            known.positions.get(&topic).and_then(|at| known.topics.get(*at)).cloned()
        };
        let mut workers = self.inner.workers.lock();
        let make = || {
            let worker = Worker::new(self.inner.shared.clone(), topic, name.to_owned());
            if let Some(known) = &known {
                worker.set_settings(self.settings_of(known));
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
        self.worker_by_id(topic, &pointer.name).await
    }

    /// The worker of a topic. The name of one that is gone is not needed any more.
    pub(crate) async fn worker_by_id(
        &self,
        topic: TopicId,
        otherwise: &str,
    ) -> Result<Arc<Worker>> {
        if let Some(worker) = self.inner.workers.lock().get(&topic) {
            return Ok(worker.clone());
        }
        match self.inner.metadata.topic_by_id(topic).await? {
            Some(known) => {
                let worker = self.worker(topic, &known.name);
                worker.set_settings(self.settings_of(&known));
                Ok(worker)
            }
            None => Ok(self.worker(topic, otherwise)),
        }
    }

    /// The worker of a table that was made. `None` if there is no such table.
    ///
    /// # Errors
    /// `Invalid` for one that shows no topic; whatever the metadata store answers.
    pub(crate) async fn worker_named(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Worker>>> {
        let topic = match self.rest() {
            Some(catalog) => {
                self.topics().await?;
                let named = catalog.topics_by_name().await?;
                named.get(name).and_then(|topics| self.living(topics))
            }
            None => {
                let pointer = self.pointers().by_name(namespace, name).await?;
                let no_topic = || Error::invalid("the table shows no topic");
                pointer.map(|pointer| pointer.topic().ok_or_else(no_topic)).transpose()?
            }
        };
        match topic {
            Some(topic) => self.worker_by_id(topic, name).await.map(Some),
            None => Ok(None),
        }
    }

    /// The one of these that was there when topics were last read.
    pub(crate) fn living(&self, topics: &[TopicId]) -> Option<TopicId> {
        let positions = self.inner.topics.lock().positions.clone();
        topics.iter().copied().find(|topic| positions.contains_key(topic))
    }

    /// The catalog that tables are committed to, if it is not the embedded one.
    pub(crate) fn rest(&self) -> Option<&RestCatalog> {
        self.inner.shared.rest.as_deref()
    }

    pub(crate) fn flushes(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.flushes
    }

    pub(crate) fn log(&self) -> &dyn LogReader {
        self.inner.shared.log.as_ref()
    }

    /// What went wrong while there was nothing to show.
    pub(crate) fn no_version(error: Error) -> Error {
        error.context("the table's first commit")
    }
}
