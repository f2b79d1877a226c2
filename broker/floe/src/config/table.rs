//! The table of all settings: the one place where a setting is named and explained.
//!
//! Where Kafka has a setting of the same meaning, it stands in the table `[kafka]` under Kafka's
//! name. A new setting is added here and read in `typed.rs`; a test fails where one is missing.

use super::catalog_table;
use super::consumer_groups;
use super::setting::Kind::{
    Address, Bool, HttpUrl, Integer, MetadataUrl, Path, Secret, StoreUrl, Text,
};
use super::setting::Preset::{Derived, Fixed, Unset};
use super::setting::{Kind, Setting};
use super::{log_cleaner, log_retention};
use floe_iceberg_bridge::topic_patterns::APPLICATIONS_OWN;

const MIB: i64 = 1024 * 1024;
const GIB: i64 = 1024 * MIB;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const I32_MAX: i64 = i32::MAX as i64;

/// A duration in milliseconds, up to a day.
const fn milliseconds(min: i64) -> Kind {
    Integer { min, max: DAY_MS }
}

/// The flag that names the configuration file; it is no setting, because it is read before them.
pub const FILE_FLAG: &str = "config";
/// The variable that names the configuration file.
pub const FILE_VARIABLE: &str = "FLOE_CONFIG";

/// Every setting, in the order of the pages. One from which another is derived comes first.
pub const SETTINGS: &[Setting] = &[
    Setting::new(
        "data",
        "FLOE_DATA",
        Path,
        Fixed("floe-data"),
        "Directory for whatever is kept on this machine: by default both stores.",
    )
    .flag("data"),
    Setting::new(
        "listen.kafka",
        "FLOE_KAFKA",
        Address,
        Fixed("127.0.0.1:9092"),
        "Address on which Kafka clients are served. Port 0 takes any free port.",
    )
    .flag("kafka"),
    Setting::new(
        "listen.http",
        "FLOE_HTTP",
        Address,
        Fixed("127.0.0.1:8080"),
        "Address of health, metrics, the Iceberg catalog and the command line's questions.",
    )
    .flag("http"),
    Setting::new(
        "listen.advertise",
        "FLOE_ADVERTISE",
        Address,
        Derived("the Kafka address"),
        "Address that Kafka clients are told to connect to. It must be given where the Kafka \
         address is 0.0.0.0 or [::], which no client can connect to.",
    )
    .flag("advertise"),
    Setting::new(
        "listen.insecure",
        "FLOE_INSECURE_LISTEN",
        Bool,
        Fixed("false"),
        "Allows addresses other than loopback although there is no authentication: whoever \
         reaches them can read and delete everything.",
    )
    .flag("insecure-listen"),
    Setting::new(
        "store.url",
        "FLOE_STORE",
        StoreUrl,
        Derived("the directory `store` in the data directory"),
        "Where segments and tables are kept: a directory, `s3://bucket/prefix`, \
         `gs://bucket/prefix` or `az://container/prefix`.",
    )
    .flag("store"),
    Setting::new(
        "store.endpoint",
        "FLOE_STORE_ENDPOINT",
        HttpUrl,
        Unset,
        "Address of the object store's service; not needed for the cloud's own.",
    ),
    Setting::new("store.region", "FLOE_STORE_REGION", Text, Unset, "Region of the bucket."),
    Setting::new(
        "store.access_key",
        "FLOE_STORE_ACCESS_KEY",
        Secret,
        Unset,
        "Access key id. Without one, the machine's own identity is used.",
    ),
    Setting::new(
        "store.secret_key",
        "FLOE_STORE_SECRET_KEY",
        Secret,
        Unset,
        "Secret that belongs to the access key.",
    ),
    Setting::new(
        "store.session_token",
        "FLOE_STORE_SESSION_TOKEN",
        Secret,
        Unset,
        "Session token that belongs to a temporary access key.",
    ),
    Setting::new(
        "store.path_style",
        "FLOE_STORE_PATH_STYLE",
        Bool,
        Derived("true where an endpoint is set or in the environment, else false"),
        "Puts the bucket into the path instead of the host name, as most S3-compatible stores \
         need it.",
    ),
    Setting::new(
        "store.unsigned_payload",
        "FLOE_STORE_UNSIGNED_PAYLOAD",
        Bool,
        Derived("false where the endpoint is without TLS, else true"),
        "Leaves the SHA-256 of uploads out of their signature: it takes two thirds of an upload's \
         CPU, and TLS guards the bytes as well.",
    ),
    Setting::new(
        "store.allow_http",
        "FLOE_STORE_ALLOW_HTTP",
        Bool,
        Fixed("false"),
        "Allows an endpoint without TLS. Keys and data then cross the network unprotected.",
    ),
    Setting::new(
        "store.gcs_service_account",
        "FLOE_STORE_GCS_SERVICE_ACCOUNT",
        Path,
        Unset,
        "File with the key of a service account for Google Cloud Storage. Without one, the \
         machine's own identity is used.",
    ),
    Setting::new(
        "store.azure_account",
        "FLOE_STORE_AZURE_ACCOUNT",
        Text,
        Unset,
        "Storage account that the Azure container belongs to.",
    ),
    Setting::new(
        "store.azure_access_key",
        "FLOE_STORE_AZURE_ACCESS_KEY",
        Secret,
        Unset,
        "Key of the Azure storage account.",
    ),
    Setting::new(
        "metadata.url",
        "FLOE_METADATA",
        MetadataUrl,
        Derived("`sqlite:` and the file `metadata.sqlite` in the data directory"),
        "Where facts are kept: `sqlite:FILE` or `postgres://user@host/database`, for one broker \
         each. For TLS to PostgreSQL add `?sslmode=verify-full`, and `&sslrootcert=FILE` for an \
         authority of your own.",
    )
    .flag("metadata"),
    Setting::new(
        "metadata.password",
        "FLOE_METADATA_PASSWORD",
        Secret,
        Unset,
        "Password for PostgreSQL, so that it need not stand in the address.",
    ),
    Setting::new(
        "metadata.schema",
        "FLOE_METADATA_SCHEMA",
        Text,
        Fixed("floe"),
        "SQL schema in PostgreSQL. Several clusters share a database by having one each.",
    ),
    Setting::new(
        "metadata.snapshot_interval_ms",
        "FLOE_METADATA_SNAPSHOT_INTERVAL_MS",
        Integer { min: 0, max: 86_400_000 },
        Derived("60000 with SQLite beside a remote store, else 0"),
        "How often a snapshot of SQLite's file goes to the object store, where something has \
         changed; 0 for never. `floe restore --from-store` puts one back.",
    )
    .unit("ms"),
    Setting::new(
        "flush.interval_ms",
        "FLOE_FLUSH_INTERVAL_MS",
        Integer { min: 1, max: 60_000 },
        Derived("250 on a remote store, 10 on a directory"),
        "A produced batch waits at most this long for others before its segment is uploaded.",
    )
    .unit("ms"),
    Setting::new(
        "flush.segment_bytes",
        "FLOE_FLUSH_SEGMENT_BYTES",
        Integer { min: 65_536, max: 256 * MIB },
        Fixed("8388608"),
        "A segment of this size is uploaded at once.",
    )
    .unit("bytes"),
    Setting::new(
        "flush.puts_per_second",
        "FLOE_FLUSH_PUTS_PER_SECOND",
        Integer { min: 1, max: 1000 },
        Fixed("4"),
        "Uploads a second that segments which are not full may cost on a remote store, in the \
         long run.",
    )
    .unit("1/s"),
    Setting::new(
        "flush.puts_saved_s",
        "FLOE_FLUSH_PUTS_SAVED_S",
        Integer { min: 0, max: 3600 },
        Fixed("30"),
        "Unused uploads of so many seconds are saved and may be spent in a burst.",
    )
    .unit("s"),
    Setting::new(
        "flush.upload_timeout_ms",
        "FLOE_FLUSH_UPLOAD_TIMEOUT_MS",
        milliseconds(100),
        Fixed("10000"),
        "An upload that takes longer is given up, and its producers are told to try again.",
    )
    .unit("ms"),
    Setting::new(
        "memory.budget_bytes",
        "FLOE_MEMORY_BUDGET_BYTES",
        Integer { min: 64 * MIB, max: 4096 * GIB },
        Derived("half of the machine's memory or of the container's limit, 256 MiB at most"),
        "Memory for requests, segments, answers and the cache together. At the limit clients are \
         slowed down.",
    )
    .unit("bytes"),
    Setting::new(
        "memory.cache_bytes",
        "FLOE_MEMORY_CACHE_BYTES",
        Integer { min: 0, max: 4096 * GIB },
        Derived("half of the budget"),
        "The part of the budget for blocks of records: those just written, those read from the \
         store, and those that answers hold until clients have taken them.",
    )
    .unit("bytes"),
    Setting::new(
        "memory.per_connection_bytes",
        "FLOE_MEMORY_PER_CONNECTION_BYTES",
        Integer { min: 65_536, max: GIB },
        Fixed("16777216"),
        "Requests that one connection may hold at once until they are answered. A larger one is \
         read only while its connection holds nothing else. Answers share a bound with those of \
         all other connections.",
    )
    .unit("bytes"),
    Setting::new(
        "kafka.node.id",
        "FLOE_KAFKA_NODE_ID",
        Integer { min: 0, max: I32_MAX },
        Fixed("1"),
        "Id of this broker, unique in its cluster and kept over restarts.",
    )
    .aliases(&["kafka.broker.id"]),
    Setting::new(
        "kafka.broker.rack",
        "FLOE_KAFKA_BROKER_RACK",
        Text,
        Unset,
        "Zone of this broker. Clients that name theirs are sent to brokers of the same one.",
    ),
    Setting::new(
        "kafka.auto.create.topics.enable",
        "FLOE_KAFKA_AUTO_CREATE_TOPICS_ENABLE",
        Bool,
        Fixed("true"),
        "Makes a topic when a client first asks for it.",
    ),
    Setting::new(
        "kafka.delete.topic.enable",
        "FLOE_KAFKA_DELETE_TOPIC_ENABLE",
        Bool,
        Fixed("true"),
        "Allows clients to delete topics.",
    ),
    Setting::new(
        "kafka.num.partitions",
        "FLOE_KAFKA_NUM_PARTITIONS",
        Integer { min: 1, max: 10_000 },
        Fixed("1"),
        "Partitions of a topic that is made without a number of its own.",
    ),
    Setting::new(
        "kafka.default.replication.factor",
        "FLOE_KAFKA_DEFAULT_REPLICATION_FACTOR",
        Integer { min: 1, max: 32_767 },
        Fixed("1"),
        "Replication factor that is shown for topics made without one. The object store keeps \
         the data; nothing is replicated between brokers.",
    ),
    Setting::new(
        "kafka.message.max.bytes",
        "FLOE_KAFKA_MESSAGE_MAX_BYTES",
        Integer { min: 1024, max: GIB },
        Fixed("1048588"),
        "Largest record batch that a topic without a limit of its own accepts.",
    )
    .unit("bytes"),
    Setting::new(
        "kafka.socket.request.max.bytes",
        "FLOE_KAFKA_SOCKET_REQUEST_MAX_BYTES",
        Integer { min: 4096, max: GIB },
        Fixed("104857600"),
        "Largest request of any kind; the connection of a larger one is closed.",
    )
    .unit("bytes"),
    Setting::new(
        "kafka.connections.max.idle.ms",
        "FLOE_KAFKA_CONNECTIONS_MAX_IDLE_MS",
        milliseconds(1000),
        Fixed("600000"),
        "A connection without a request for so long is closed.",
    )
    .unit("ms"),
    Setting::new(
        "kafka.group.initial.rebalance.delay.ms",
        "FLOE_KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS",
        milliseconds(0),
        Fixed("3000"),
        "An empty consumer group waits so long for more members before its first assignment.",
    )
    .unit("ms"),
    Setting::new(
        "kafka.group.min.session.timeout.ms",
        "FLOE_KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS",
        milliseconds(1),
        Fixed("6000"),
        "Shortest session timeout that a group member may ask for.",
    )
    .unit("ms"),
    Setting::new(
        "kafka.group.max.session.timeout.ms",
        "FLOE_KAFKA_GROUP_MAX_SESSION_TIMEOUT_MS",
        milliseconds(1),
        Fixed("1800000"),
        "Longest session timeout that a group member may ask for.",
    )
    .unit("ms"),
    log_retention::LOG_RETENTION_MS,
    log_retention::LOG_RETENTION_MINUTES,
    log_retention::LOG_RETENTION_HOURS,
    log_retention::LOG_RETENTION_BYTES,
    log_retention::LOG_RETENTION_CHECK_INTERVAL_MS,
    log_cleaner::LOG_CLEANER_ENABLE,
    log_cleaner::LOG_CLEANER_BACKOFF_MS,
    log_cleaner::LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    consumer_groups::SESSION_TIMEOUT_MS,
    consumer_groups::HEARTBEAT_INTERVAL_MS,
    consumer_groups::ASSIGNMENT_INTERVAL_MS,
    consumer_groups::MAX_SIZE,
    consumer_groups::MIGRATION_POLICY,
    Setting::new(
        "kafka.offsets.retention.minutes",
        "FLOE_KAFKA_OFFSETS_RETENTION_MINUTES",
        Integer { min: 1, max: I32_MAX },
        Fixed("10080"),
        "Committed offsets of a group without members are kept so long.",
    )
    .unit("min"),
    Setting::new(
        "kafka.producer.id.expiration.ms",
        "FLOE_KAFKA_PRODUCER_ID_EXPIRATION_MS",
        Integer { min: 1, max: I32_MAX },
        Fixed("86400000"),
        "What is remembered of an idempotent producer that writes no more is kept so long.",
    )
    .unit("ms"),
    Setting::new(
        "kafka.transaction.max.timeout.ms",
        "FLOE_KAFKA_TRANSACTION_MAX_TIMEOUT_MS",
        Integer { min: 1, max: I32_MAX },
        Fixed("900000"),
        "The longest that a transactional producer may let a transaction be open: until it ends, \
         readers of committed records wait.",
    )
    .unit("ms"),
    Setting::new(
        "kafka.transactional.id.expiration.ms",
        "FLOE_KAFKA_TRANSACTIONAL_ID_EXPIRATION_MS",
        Integer { min: 1, max: I32_MAX },
        Fixed("604800000"),
        "A transactional id that nobody uses is forgotten after so long.",
    )
    .unit("ms"),
    Setting::new(
        "iceberg.enable",
        "FLOE_ICEBERG_ENABLE",
        Bool,
        Fixed("true"),
        "Keeps an Iceberg table for each topic and serves the catalog.",
    ),
    Setting::new(
        "iceberg.exclude_topics",
        "FLOE_ICEBERG_EXCLUDE_TOPICS",
        Text,
        Fixed(APPLICATIONS_OWN),
        "Topics without a table, unless their own config iceberg.enable is true: names and \
         patterns with `*`, separated by commas, or `none`. The default names what applications \
         keep for themselves: internal topics, those of Kafka Streams, and Connect's.",
    ),
    Setting::new(
        "iceberg.namespace",
        "FLOE_ICEBERG_NAMESPACE",
        Text,
        Fixed("kafka"),
        "Namespace of the tables.",
    ),
    Setting::new(
        "iceberg.look_timeout_ms",
        "FLOE_ICEBERG_LOOK_TIMEOUT_MS",
        milliseconds(1),
        Fixed("5000"),
        "A query that loads a table waits at most so long for the newest records to be \
         committed; then it gets the newest snapshot that there is.",
    )
    .unit("ms"),
    Setting::new(
        "iceberg.commit_interval_ms",
        "FLOE_ICEBERG_COMMIT_INTERVAL_MS",
        milliseconds(1000),
        Fixed("60000"),
        "Records are committed to their table at the latest after so long, also if nobody looks.",
    )
    .unit("ms"),
    log_retention::LOG_HOLD_MS,
    log_retention::LOG_HOLD_BYTES,
    Setting::new(
        "iceberg.delete_retention_ms",
        "FLOE_ICEBERG_DELETE_RETENTION_MS",
        Integer { min: 0, max: i64::MAX },
        Fixed("604800000"),
        "A deleted topic's table leaves the catalog at once; its files are deleted after so long.",
    )
    .unit("ms"),
    Setting::new(
        "iceberg.external_write",
        "FLOE_ICEBERG_EXTERNAL_WRITE",
        Bool,
        Fixed("false"),
        "Lets engines make, change, rename and drop tables through the catalog, those of topics \
         too. Without it the catalog is for reading.",
    ),
    Setting::new(
        "iceberg.client_id",
        "FLOE_ICEBERG_CLIENT_ID",
        Text,
        Unset,
        "Id of the OAuth2 client that may ask the catalog. Without one, everybody may who reaches \
         it.",
    ),
    Setting::new(
        "iceberg.client_secret",
        "FLOE_ICEBERG_CLIENT_SECRET",
        Secret,
        Unset,
        "Secret of the catalog's OAuth2 client.",
    ),
    Setting::new(
        "iceberg.token_lifetime_s",
        "FLOE_ICEBERG_TOKEN_LIFETIME_S",
        Integer { min: 1, max: 31 * 24 * 3600 },
        Fixed("3600"),
        "A token that the catalog gives to its client is good for so long.",
    )
    .unit("s"),
    Setting::new(
        "iceberg.read_access_key",
        "FLOE_ICEBERG_READ_ACCESS_KEY",
        Secret,
        Unset,
        "Access key id that engines get which ask the catalog for keys. It must be one that may \
         read the files of tables and nothing else: a broker whose own key this is, or that can \
         do more with it, does not start. Without it engines bring keys of their own.",
    ),
    Setting::new(
        "iceberg.read_secret_key",
        "FLOE_ICEBERG_READ_SECRET_KEY",
        Secret,
        Unset,
        "Secret that belongs to the access key that engines get.",
    ),
    Setting::new(
        "iceberg.read_session_token",
        "FLOE_ICEBERG_READ_SESSION_TOKEN",
        Secret,
        Unset,
        "Session token that belongs to the access key that engines get.",
    ),
    Setting::new(
        "iceberg.read_endpoint",
        "FLOE_ICEBERG_READ_ENDPOINT",
        HttpUrl,
        Derived("the endpoint of the store"),
        "Address of the object store as engines reach it, told with the keys.",
    ),
    catalog_table::URI,
    catalog_table::WAREHOUSE,
    catalog_table::TOKEN,
    catalog_table::CLIENT_ID,
    catalog_table::CLIENT_SECRET,
    catalog_table::SCOPE,
    catalog_table::OAUTH2_URI,
    catalog_table::SIGV4_SERVICE,
    catalog_table::SIGV4_REGION,
    catalog_table::ACCESS_KEY,
    catalog_table::SECRET_KEY,
    catalog_table::SESSION_TOKEN,
    catalog_table::ALLOW_HTTP,
    catalog_table::SET_LOCATION,
    catalog_table::TAGS,
    catalog_table::TIMEOUT_MS,
    Setting::new(
        "iceberg.snapshots_max",
        "FLOE_ICEBERG_SNAPSHOTS_MAX",
        Integer { min: 10, max: 100_000 },
        Fixed("1000"),
        "A table keeps at most so many snapshots; beyond, the oldest go.",
    ),
    Setting::new(
        "iceberg.snapshot_age_ms",
        "FLOE_ICEBERG_SNAPSHOT_AGE_MS",
        Integer { min: 0, max: i64::MAX },
        Fixed("3600000"),
        "A snapshot stays at least so long, unless there are too many.",
    )
    .unit("ms"),
    Setting::new(
        "iceberg.time_travel_ms",
        "FLOE_ICEBERG_TIME_TRAVEL_MS",
        Integer { min: 0, max: 31 * 24 * 3_600_000 },
        Fixed("86400000"),
        "A table can be read as it was at the end of each hour for so long, by a tag such as \
         `floe-hour-2026-11-30T13`; the files of those hours stay as long. 0 for no such tags.",
    )
    .unit("ms"),
    Setting::new(
        "iceberg.json_columns_max",
        "FLOE_ICEBERG_JSON_COLUMNS_MAX",
        Integer { min: 0, max: 10_000 },
        Fixed("1000"),
        "A table has at most so many columns made from JSON, counting those that hold values \
         themselves. What is beyond stays in _kafka_rescued.",
    ),
    Setting::new(
        "iceberg.json_object_keys_max",
        "FLOE_ICEBERG_JSON_OBJECT_KEYS_MAX",
        Integer { min: 0, max: 10_000 },
        Fixed("100"),
        "The objects of one path have at most so many different keys with columns, records \
         themselves too.",
    ),
    Setting::new(
        "iceberg.json_depth_max",
        "FLOE_ICEBERG_JSON_DEPTH_MAX",
        Integer { min: 1, max: floe_iceberg_bridge::mapping::DEPTH_LIMIT as i64 },
        Fixed("16"),
        "Columns lie at most so many levels deep in a record.",
    ),
    Setting::new(
        "iceberg.json_key_bytes_max",
        "FLOE_ICEBERG_JSON_KEY_BYTES_MAX",
        Integer { min: 1, max: 1024 },
        Fixed("128"),
        "A longer key has no column.",
    )
    .unit("bytes"),
    Setting::new(
        "log.filter",
        "FLOE_LOG",
        Text,
        Fixed("info"),
        "What is logged: a level, or levels by module such as `info,floe_log=debug`.",
    )
    .flag("log"),
];

/// The setting of a name or alias.
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.is_named(name))
}
