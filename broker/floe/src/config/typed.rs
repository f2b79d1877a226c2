//! The typed configuration that the rest of the broker is handed.

use super::check::check;
use super::{
    Address, LogCleaner, LogRetention, MetadataLocation, Resolved, Secret, StoreLocation, Value,
};
use floe_coordinator::consumer::MigrationPolicy;
use floe_env::{Error, Result};
use floe_iceberg_bridge::{
    CatalogClient, CatalogConfig, MappingLimits, ReadKeys, RestConfig, TopicPatterns,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All settings. Paths are absolute.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory for whatever is kept on this machine.
    pub data: PathBuf,
    /// Addresses.
    pub listen: ListenConfig,
    /// The object store.
    pub store: StoreConfig,
    /// The metadata store.
    pub metadata: MetadataConfig,
    /// When segments are cut and uploaded.
    pub flush: FlushConfig,
    /// Limits of memory.
    pub memory: MemoryConfig,
    /// What Kafka brokers have too.
    pub kafka: KafkaConfig,
    /// Tables.
    pub iceberg: IcebergConfig,
    /// What is logged, in the form of tracing's filters.
    pub log_filter: String,
}

/// Addresses.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Where Kafka clients are served.
    pub kafka: Address,
    /// Where HTTP is served.
    pub http: Address,
    /// Where Kafka clients are told to connect to; see [`ListenConfig::advertised`].
    pub advertise: Address,
    /// Whether addresses other than loopback are allowed without authentication.
    pub insecure: bool,
}

impl ListenConfig {
    /// The address for clients once the Kafka address is bound: port 0 becomes the bound port.
    pub fn advertised(&self, bound: SocketAddr) -> Address {
        let mut address = self.advertise.clone();
        if address.port == 0 {
            address.port = bound.port();
        }
        address
    }
}

/// The object store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Where it is.
    pub location: StoreLocation,
    /// Address of its service, where it is not the cloud's own.
    pub endpoint: Option<String>,
    /// Whether an endpoint without TLS is allowed.
    pub allow_http: bool,
    /// What S3-compatible stores need.
    pub s3: S3Config,
    /// File with a service account's key, for Google Cloud Storage.
    pub gcs_service_account: Option<PathBuf>,
    /// Azure's storage account.
    pub azure_account: Option<String>,
    /// Its key.
    pub azure_access_key: Option<Secret>,
}

/// What S3-compatible stores need.
#[derive(Clone, Debug)]
pub struct S3Config {
    /// Region of the bucket.
    pub region: Option<String>,
    /// Access key id.
    pub access_key: Option<Secret>,
    /// Its secret.
    pub secret_key: Option<Secret>,
    /// Its session token.
    pub session_token: Option<Secret>,
    /// Whether the bucket stands in the path. Not set: where the environment names an endpoint.
    pub path_style: Option<bool>,
    /// Whether uploads are signed without their SHA-256. Not set: where the environment's endpoint,
    /// or Amazon's own, is one with TLS.
    pub unsigned_payload: Option<bool>,
}

/// The metadata store.
#[derive(Clone, Debug)]
pub struct MetadataConfig {
    /// Where it is.
    pub location: MetadataLocation,
    /// Password for PostgreSQL, over one in the address.
    pub password: Option<Secret>,
    /// SQL schema in PostgreSQL.
    pub schema: String,
    /// Pause between snapshots of SQLite's file in the object store; zero for none.
    pub snapshot_interval: Duration,
}

/// When segments are cut and uploaded.
#[derive(Clone, Debug)]
pub struct FlushConfig {
    /// The longest that a batch waits for others.
    pub interval: Duration,
    /// A segment of this size is cut at once, bytes.
    pub segment_bytes: usize,
    /// Uploads of segments that are not full, per second in the long run (remote stores).
    pub puts_per_second: u32,
    /// So many seconds' unused uploads may be spent in a burst.
    pub puts_saved: Duration,
    /// A longer upload is given up.
    pub upload_timeout: Duration,
}

/// Limits of memory, all in bytes.
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    /// Requests, segments, answers and the cache together.
    pub budget_bytes: u64,
    /// The cache's part of it.
    pub cache_bytes: u64,
    /// What one connection may hold.
    pub per_connection_bytes: usize,
}

/// What Kafka brokers have too, under Kafka's names.
#[derive(Clone, Debug)]
pub struct KafkaConfig {
    /// `node.id`
    pub node_id: i32,
    /// `broker.rack`
    pub broker_rack: Option<String>,
    /// `auto.create.topics.enable`
    pub auto_create_topics: bool,
    /// `delete.topic.enable`
    pub delete_topic: bool,
    /// `num.partitions`
    pub num_partitions: i32,
    /// `default.replication.factor`
    pub default_replication_factor: i16,
    /// `message.max.bytes`
    pub message_max_bytes: i32,
    /// `socket.request.max.bytes`
    pub socket_request_max_bytes: i32,
    /// `connections.max.idle.ms`
    pub connections_max_idle: Duration,
    /// `group.initial.rebalance.delay.ms`
    pub group_initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`
    pub group_min_session_timeout: Duration,
    /// `group.max.session.timeout.ms`
    pub group_max_session_timeout: Duration,
    /// `log.retention.*`
    pub log_retention: LogRetention,
    /// `log.cleaner.*`
    pub log_cleaner: LogCleaner,
    /// `group.consumer.session.timeout.ms`
    pub group_consumer_session_timeout: Duration,
    /// `group.consumer.heartbeat.interval.ms`
    pub group_consumer_heartbeat_interval: Duration,
    /// `group.consumer.assignment.interval.ms`
    pub group_consumer_assignment_interval: Duration,
    /// `group.consumer.max.size`, members
    pub group_consumer_max_size: usize,
    /// `group.consumer.migration.policy`
    pub group_consumer_migration_policy: MigrationPolicy,
    /// `offsets.retention.minutes`
    pub offsets_retention: Duration,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration: Duration,
    /// `transaction.max.timeout.ms`
    pub transaction_max_timeout: Duration,
    /// `transactional.id.expiration.ms`
    pub transactional_id_expiration: Duration,
}

/// Tables.
#[derive(Clone, Debug)]
pub struct IcebergConfig {
    /// Whether there are any.
    pub enable: bool,
    /// Topics that have none unless their own config says so.
    pub exclude_topics: TopicPatterns,
    /// Their namespace.
    pub namespace: String,
    /// The longest that a look waits for its commit.
    pub look_timeout: Duration,
    /// The longest that records wait for their commit when nobody looks.
    pub commit_interval: Duration,
    /// How long records stay in the log beyond their time that are not in their table.
    pub log_hold: Duration,
    /// How much of a partition stays beyond its size that is not in its table, bytes.
    pub log_hold_bytes: u64,
    /// How long the files of a deleted topic's table stay.
    pub delete_retention: Duration,
    /// Snapshots that a table keeps at most.
    pub snapshots_max: usize,
    /// How long a snapshot stays at least.
    pub snapshot_age: Duration,
    /// How far back the end of each hour can be read.
    pub time_travel: Duration,
    /// How far the columns that JSON makes may grow.
    pub mapping_limits: MappingLimits,
    /// Who may ask the embedded catalog, and for what.
    pub catalog: CatalogConfig,
    /// The catalog that has the tables instead.
    pub rest: Option<RestConfig>,
}

impl Config {
    /// Types the resolved settings and checks those that depend on each other.
    ///
    /// # Errors
    /// `Invalid`, with the settings' names and a remedy.
    pub fn from_resolved(resolved: &Resolved) -> Result<Self> {
        Self::read(&Reader::new(resolved))
    }

    pub(super) fn read(reader: &Reader<'_>) -> Result<Self> {
        let config = Self {
            data: absolute(Path::new(&reader.text("data")))?,
            listen: reader.listen()?,
            store: reader.store()?,
            metadata: reader.metadata()?,
            flush: reader.flush(),
            memory: reader.memory(),
            kafka: reader.kafka()?,
            iceberg: reader.iceberg()?,
            log_filter: reader.text("log.filter"),
        };
        check(&config)?;
        Ok(config)
    }
}

/// Reads resolved settings by name, and remembers which.
///
/// # Panics
/// Its methods panic for a name that is not in the table, of another kind, or unset: a test reads
/// the defaults, so that no such name gets into a release.
pub(super) struct Reader<'a> {
    resolved: &'a Resolved,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(resolved: &'a Resolved) -> Self {
        Self { resolved, read: RefCell::default() }
    }

    /// The names that were read.
    #[cfg(test)]
    pub(super) fn names_read(&self) -> BTreeSet<&'static str> {
        self.read.borrow().clone()
    }

    fn optional(&self, name: &'static str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(name);
        self.resolved.value(name)
    }

    pub(super) fn text(&self, name: &'static str) -> String {
        self.optional_text(name).expect("the table has a default for this setting")
    }

    pub(super) fn optional_text(&self, name: &'static str) -> Option<String> {
        match self.optional(name)? {
            Value::Text(text) => Some(text.clone()),
            other => panic!("setting {name} is no text: {other:?}"),
        }
    }

    pub(super) fn secret(&self, name: &'static str) -> Option<Secret> {
        match self.optional(name)? {
            Value::Secret(secret) => Some(secret.clone()),
            other => panic!("setting {name} is no secret: {other:?}"),
        }
    }

    pub(super) fn flag(&self, name: &'static str) -> bool {
        self.optional_flag(name).unwrap_or_else(|| panic!("setting {name} has no value"))
    }

    fn optional_flag(&self, name: &'static str) -> Option<bool> {
        match self.optional(name)? {
            Value::Bool(value) => Some(*value),
            other => panic!("setting {name} is no flag: {other:?}"),
        }
    }

    fn number<T: TryFrom<i64>>(&self, name: &'static str) -> T {
        let Some(Value::Integer(value)) = self.optional(name) else {
            panic!("setting {name} is no number");
        };
        T::try_from(*value).ok().expect("the table's range fits the type")
    }

    fn optional_number(&self, name: &'static str) -> Option<i64> {
        match self.optional(name)? {
            Value::Integer(value) => Some(*value),
            other => panic!("setting {name} is no number: {other:?}"),
        }
    }

    pub(super) fn milliseconds(&self, name: &'static str) -> Duration {
        Duration::from_millis(self.number(name))
    }

    fn address(&self, name: &'static str) -> Result<Address> {
        Address::parse(&self.text(name))
    }

    fn listen(&self) -> Result<ListenConfig> {
        Ok(ListenConfig {
            kafka: self.address("listen.kafka")?,
            http: self.address("listen.http")?,
            advertise: self.address("listen.advertise")?,
            insecure: self.flag("listen.insecure"),
        })
    }

    fn store(&self) -> Result<StoreConfig> {
        let location = match StoreLocation::parse(&self.text("store.url"))? {
            StoreLocation::Directory(path) => StoreLocation::Directory(absolute(&path)?),
            remote => remote,
        };
        let s3 = S3Config {
            region: self.optional_text("store.region"),
            access_key: self.secret("store.access_key"),
            secret_key: self.secret("store.secret_key"),
            session_token: self.secret("store.session_token"),
            path_style: self.optional_flag("store.path_style"),
            unsigned_payload: self.optional_flag("store.unsigned_payload"),
        };
        Ok(StoreConfig {
            location,
            endpoint: self.optional_text("store.endpoint"),
            allow_http: self.flag("store.allow_http"),
            s3,
            gcs_service_account: self.optional_text("store.gcs_service_account").map(PathBuf::from),
            azure_account: self.optional_text("store.azure_account"),
            azure_access_key: self.secret("store.azure_access_key"),
        })
    }

    fn metadata(&self) -> Result<MetadataConfig> {
        let location = match MetadataLocation::parse(&self.text("metadata.url"))? {
            MetadataLocation::Sqlite(path) => MetadataLocation::Sqlite(absolute(&path)?),
            postgres => postgres,
        };
        let password = self.secret("metadata.password");
        let schema = self.text("metadata.schema");
        let snapshot_interval = self.milliseconds("metadata.snapshot_interval_ms");
        Ok(MetadataConfig { location, password, schema, snapshot_interval })
    }

    fn flush(&self) -> FlushConfig {
        FlushConfig {
            interval: self.milliseconds("flush.interval_ms"),
            segment_bytes: self.number("flush.segment_bytes"),
            puts_per_second: self.number("flush.puts_per_second"),
            puts_saved: Duration::from_secs(self.number("flush.puts_saved_s")),
            upload_timeout: self.milliseconds("flush.upload_timeout_ms"),
        }
    }

    fn memory(&self) -> MemoryConfig {
        MemoryConfig {
            budget_bytes: self.number("memory.budget_bytes"),
            cache_bytes: self.number("memory.cache_bytes"),
            per_connection_bytes: self.number("memory.per_connection_bytes"),
        }
    }

    fn kafka(&self) -> Result<KafkaConfig> {
        let policy = self.text("kafka.group.consumer.migration.policy");
        let migration_policy = MigrationPolicy::of(&policy).ok_or_else(|| {
            Error::invalid(
                "setting kafka.group.consumer.migration.policy: bidirectional, upgrade, downgrade \
                 or disabled is wanted",
            )
        })?;
        let minutes: u64 = self.number("kafka.offsets.retention.minutes");
        Ok(KafkaConfig {
            node_id: self.number("kafka.node.id"),
            broker_rack: self.optional_text("kafka.broker.rack"),
            auto_create_topics: self.flag("kafka.auto.create.topics.enable"),
            delete_topic: self.flag("kafka.delete.topic.enable"),
            num_partitions: self.number("kafka.num.partitions"),
            default_replication_factor: self.number("kafka.default.replication.factor"),
            message_max_bytes: self.number("kafka.message.max.bytes"),
            socket_request_max_bytes: self.number("kafka.socket.request.max.bytes"),
            connections_max_idle: self.milliseconds("kafka.connections.max.idle.ms"),
            group_initial_rebalance_delay: self
                .milliseconds("kafka.group.initial.rebalance.delay.ms"),
            group_min_session_timeout: self.milliseconds("kafka.group.min.session.timeout.ms"),
            group_max_session_timeout: self.milliseconds("kafka.group.max.session.timeout.ms"),
            log_retention: self.log_retention(),
            log_cleaner: LogCleaner {
                enable: self.flag("kafka.log.cleaner.enable"),
                backoff: self.milliseconds("kafka.log.cleaner.backoff.ms"),
                dedupe_buffer_bytes: self.number("kafka.log.cleaner.dedupe.buffer.size"),
            },
            group_consumer_session_timeout: self
                .milliseconds("kafka.group.consumer.session.timeout.ms"),
            group_consumer_heartbeat_interval: self
                .milliseconds("kafka.group.consumer.heartbeat.interval.ms"),
            group_consumer_assignment_interval: self
                .milliseconds("kafka.group.consumer.assignment.interval.ms"),
            group_consumer_max_size: self.number("kafka.group.consumer.max.size"),
            group_consumer_migration_policy: migration_policy,
            offsets_retention: Duration::from_secs(minutes * 60),
            producer_id_expiration: self.milliseconds("kafka.producer.id.expiration.ms"),
            transaction_max_timeout: self.milliseconds("kafka.transaction.max.timeout.ms"),
            transactional_id_expiration: self.milliseconds("kafka.transactional.id.expiration.ms"),
        })
    }

    fn log_retention(&self) -> LogRetention {
        LogRetention {
            ms: self.optional_number("kafka.log.retention.ms"),
            minutes: self.optional_number("kafka.log.retention.minutes"),
            hours: self.number("kafka.log.retention.hours"),
            bytes: self.number("kafka.log.retention.bytes"),
            check_interval: self.milliseconds("kafka.log.retention.check.interval.ms"),
        }
    }

    fn iceberg(&self) -> Result<IcebergConfig> {
        let exclude_topics = self
            .text("iceberg.exclude_topics")
            .parse()
            .map_err(|why| Error::invalid(format!("setting iceberg.exclude_topics: {why}")))?;
        Ok(IcebergConfig {
            enable: self.flag("iceberg.enable"),
            exclude_topics,
            namespace: self.text("iceberg.namespace"),
            look_timeout: self.milliseconds("iceberg.look_timeout_ms"),
            commit_interval: self.milliseconds("iceberg.commit_interval_ms"),
            log_hold: self.milliseconds("iceberg.log_hold_ms"),
            log_hold_bytes: self.number("iceberg.log_hold_bytes"),
            delete_retention: self.milliseconds("iceberg.delete_retention_ms"),
            snapshots_max: self.number("iceberg.snapshots_max"),
            snapshot_age: self.milliseconds("iceberg.snapshot_age_ms"),
            time_travel: self.milliseconds("iceberg.time_travel_ms"),
            mapping_limits: MappingLimits {
                leaf_columns: self.number("iceberg.json_columns_max"),
                object_keys: self.number("iceberg.json_object_keys_max"),
                depth: self.number("iceberg.json_depth_max"),
                key_bytes: self.number("iceberg.json_key_bytes_max"),
            },
            catalog: self.catalog()?,
            rest: self.rest_catalog()?,
        })
    }

    fn catalog(&self) -> Result<CatalogConfig> {
        let id = self.optional_text("iceberg.client_id");
        let client = match (id, self.secret("iceberg.client_secret")) {
            (Some(id), Some(secret)) => Some(CatalogClient { id, secret }),
            (None, None) => None,
            _ => return Err(both("iceberg.client_id", "iceberg.client_secret")),
        };
        let keys = (self.secret("iceberg.read_access_key"), self.secret("iceberg.read_secret_key"));
        let session_token = self.secret("iceberg.read_session_token");
        let endpoint = self.optional_text("iceberg.read_endpoint");
        let read_keys = match keys {
            (Some(access_key), Some(secret_key)) => Some(ReadKeys {
                access_key,
                secret_key,
                session_token,
                endpoint,
                region: self.optional_text("store.region"),
                path_style: self.optional_flag("store.path_style").unwrap_or(false),
            }),
            (None, None) => None,
            _ => return Err(both("iceberg.read_access_key", "iceberg.read_secret_key")),
        };
        Ok(CatalogConfig {
            client,
            token_lifetime: Duration::from_secs(self.number("iceberg.token_lifetime_s")),
            external_write: self.flag("iceberg.external_write"),
            read_keys,
        })
    }
}

pub(super) fn both(one: &str, other: &str) -> Error {
    Error::invalid(format!("settings {one} and {other} go together: give both"))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        Error::invalid(format!("cannot find the folder of {}", path.display())).with_source(error)
    })
}
