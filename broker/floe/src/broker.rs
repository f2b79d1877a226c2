//! A broker: what its handlers share, from the moment its stores are open until it has drained.

use crate::answer_memory::AnswerMemory;
use crate::complaints::Complaints;
use crate::config::Config;
use crate::fetch_sessions::FetchSessions;
use crate::frame_memory::FrameMemory;
use crate::groups::{self, Groups};
use crate::log_observer::LogObserver;
use crate::metrics::Metrics;
use crate::producer_ids::ProducerIds;
use crate::recompression::Recompression;
use crate::topics::{KnownTopic, Topics};
use crate::transactions::DoubtfulEnds;
use crate::{api, topic_names};
use floe_env::{Background, Env, Result, Shutdown};
use floe_iceberg_bridge::Bridge;
use floe_log::{BudgetRules, CutRules, Log, LogConfig, Pace};
use floe_metadata::MetadataStore;
use floe_metadata::brokers::{BrokerAddress, Registration};
use floe_store::ObjectStore;
use floe_wire::Registry;
use kfs::{BrokerId, ClusterId, TopicId};
use std::sync::{Arc, OnceLock};

/// How long a registration lasts without being renewed, ms. One broker needs no renewal: the guard
/// on its metadata keeps others out.
const LEASE_MS: i64 = 30_000;
/// Uploads in flight at most.
const UPLOADS_MAX: usize = 8;
/// Requests have one over this of the memory budget, and so has what waits to be written. The cache
/// has the rest by default.
const PART_OF_BUDGET: u64 = 4;
/// Answers may hold one over this of the cache's size. What they hold are the cache's blocks, and
/// counts as such.
const PART_OF_CACHE: u64 = 4;

/// Who this broker is, as clients see it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// This broker's id.
    pub node_id: i32,
    /// The host that clients are told.
    pub host: String,
    /// The port that clients are told.
    pub port: u16,
    /// Its rack or zone.
    pub rack: Option<String>,
}

/// What a broker stands on.
pub struct Stores {
    /// Bytes.
    pub objects: Arc<dyn ObjectStore>,
    /// Facts.
    pub metadata: MetadataStore,
    /// True where each request to the object store costs money and tens of milliseconds.
    pub is_remote: bool,
}

/// What all handlers share.
pub struct Broker {
    /// Clock, randomness and tasks.
    pub env: Env,
    /// All settings.
    pub config: Arc<Config>,
    /// Who it is.
    pub identity: Identity,
    /// The log.
    pub log: Log,
    /// All facts; what is changed through it carries the registration's fence.
    pub metadata: MetadataStore,
    /// The topics.
    pub topics: Topics,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// The topics' tables, once the bridge runs; never where tables are switched off.
    pub tables: OnceLock<Bridge>,
    pub(crate) registration: Registration,
    pub(crate) groups: Groups,
    pub(crate) registry: Registry,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) doubtful_ends: DoubtfulEnds,
    pub(crate) recompression: Recompression,
    pub(crate) shutdown: Shutdown,
    pub(crate) complaints: Complaints,
    /// Memory for requests of all connections.
    pub(crate) frame_memory: FrameMemory,
    /// Memory for answers to Fetch that clients have not taken yet.
    pub(crate) answer_memory: AnswerMemory,
}

impl Broker {
    /// Registers a broker with its stores and starts its log. `identity` has been agreed between
    /// both stores.
    pub async fn start(
        env: Env,
        config: Arc<Config>,
        identity: Identity,
        stores: Stores,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> Result<Arc<Self>> {
        let address = BrokerAddress {
            host: identity.host.clone(),
            port: identity.port,
            zone: identity.rack.clone(),
        };
        let id = BrokerId(identity.node_id);
        let registration = stores.metadata.register_broker(id, &address, LEASE_MS).await?;
        tracing::info!(broker = %id, epoch = %registration.epoch, "registered");
        let log_config = log_config(&config, &identity, &registration, stores.is_remote);
        let backend = stores.metadata.backend().clone();
        let observer = Arc::new(LogObserver(metrics.clone()));
        let log =
            Log::start(&env, &log_config, stores.objects, backend, observer, shutdown.clone());
        let fenced_log = log.clone();
        let metadata = stores.metadata.fenced_by(registration.fence.clone());
        let metadata = metadata.on_fenced(move || fenced_log.fence());
        let message_max_bytes = config.kafka.message_max_bytes.unsigned_abs() as usize;
        let topics = Topics::load(metadata.clone(), message_max_bytes).await?;
        let groups = Groups::new(
            env.clone(),
            metadata.clone(),
            topics.clone(),
            groups::group_rules(&config.kafka),
            shutdown.clone(),
        );
        let memory = &config.memory;
        Ok(Arc::new(Self {
            fetch_sessions: FetchSessions::new(env.clone()),
            doubtful_ends: DoubtfulEnds::default(),
            tables: OnceLock::new(),
            complaints: Complaints::new(env.clone()),
            env,
            identity,
            log,
            topics,
            registration,
            groups,
            registry: api::registry(),
            producer_ids: ProducerIds::new(metadata.clone()),
            recompression: Recompression::new(),
            metadata,
            shutdown,
            frame_memory: FrameMemory::new(bytes(memory.budget_bytes / PART_OF_BUDGET)),
            answer_memory: AnswerMemory::new(bytes(memory.cache_bytes / PART_OF_CACHE)),
            metrics,
            config,
        }))
    }

    /// Bytes that requests hold until they are answered, and answers until they are taken.
    pub fn connection_bytes_held(&self) -> i64 {
        let held = self.frame_memory.held_bytes() + self.answer_memory.held_bytes();
        i64::try_from(held).unwrap_or(i64::MAX)
    }

    /// Bytes that count against the memory budget: requests, batches that are not in the log yet,
    /// and blocks, those that answers hold included.
    pub(crate) fn memory_counted_bytes(&self) -> i64 {
        let blocks = self.log.cache_stats().memory_bytes;
        let counted = self.frame_memory.held_bytes() + self.log.pending_bytes() + blocks;
        i64::try_from(counted).unwrap_or(i64::MAX)
    }

    /// The topic of this name: as known here, else as the store has it now.
    pub async fn topic_by_name(&self, name: &str) -> Result<Option<Arc<KnownTopic>>> {
        if let Some(topic) = self.topics.by_name(name) {
            return Ok(Some(topic));
        }
        self.topics.refresh().await?;
        Ok(self.topics.by_name(name))
    }

    /// The topic of this id: as known here, else as the store has it now.
    pub async fn topic_by_id(&self, id: TopicId) -> Result<Option<Arc<KnownTopic>>> {
        if let Some(topic) = self.topics.by_id(id) {
            return Ok(Some(topic));
        }
        self.topics.refresh().await?;
        Ok(self.topics.by_id(id))
    }

    /// True if a topic exists whose name differs from this one in dots and underscores only.
    pub(crate) fn collides(&self, name: &str) -> bool {
        let key = topic_names::collision_key(name);
        self.topics.all().iter().any(|topic| topic_names::collision_key(&topic.name) == key)
    }

    /// Starts the job that deletes expired offsets and groups of which nothing is left.
    pub(crate) fn expire_groups(&self) -> Background {
        self.groups.start_expiry(self.topics.clone(), self.config.kafka.offsets_retention)
    }

    /// Waits, after the shutdown was given, until everything taken in is answered, and leaves the
    /// cluster. False where another broker has taken this one's place before that.
    pub async fn drained(&self) -> bool {
        self.log.drained().await;
        // What is still under way fails from the signing off on, as if there were another broker.
        let is_own = !self.log.is_fenced();
        if let Err(error) = self.metadata.deregister_broker(&self.registration).await {
            tracing::warn!(%error, "the broker could not sign off; its next start does it");
        }
        is_own
    }
}

fn bytes(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn log_config(
    config: &Config,
    identity: &Identity,
    registration: &Registration,
    is_remote: bool,
) -> LogConfig {
    let flush = &config.flush;
    let pace = if is_remote {
        Pace::Budgeted(BudgetRules {
            puts_per_second: flush.puts_per_second,
            saved_seconds: u32::try_from(flush.puts_saved.as_secs()).unwrap_or(u32::MAX),
        })
    } else {
        Pace::GroupCommit
    };
    LogConfig {
        cluster: identity.cluster,
        broker: registration.id,
        epoch: registration.epoch,
        fence: registration.fence.clone(),
        cut: CutRules {
            segment_bytes: flush.segment_bytes as u64,
            flush_interval: flush.interval,
            pace,
        },
        uploads_max: UPLOADS_MAX,
        upload_timeout: flush.upload_timeout,
        pending_bytes_max: bytes(config.memory.budget_bytes / PART_OF_BUDGET),
        cache_bytes: bytes(config.memory.cache_bytes),
        decompressed_bytes_max: crate::topic_settings::DECOMPRESSED_BYTES_MAX,
    }
}
