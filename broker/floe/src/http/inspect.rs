//! What the HTTP address tells about a running broker. The broker implements [`Inspect`]; the same
//! views are what the command line reads.

use async_trait::async_trait;
use floe_env::Result;
use floe_iceberg_bridge::FlushedTable;
use serde::{Deserialize, Serialize};

/// Answers questions about a running broker. Every answer is bounded: long lists come in pages.
#[async_trait]
pub trait Inspect: Send + Sync + 'static {
    /// The broker itself.
    async fn status(&self) -> Result<StatusView>;

    /// Up to `limit` topics by name, after `after` if given.
    async fn topics(&self, after: Option<&str>, limit: usize) -> Result<TopicsPage>;

    /// One topic with its partitions. `None` if there is none.
    async fn topic(&self, name: &str) -> Result<Option<TopicView>>;

    /// Every table, by full name.
    async fn tables(&self) -> Result<Vec<TableView>>;

    /// Lets a stopped table go on, as an operator has decided. `None` if there is no such table;
    /// `name` is its name, with or without the namespace.
    async fn resume_table(&self, name: &str, request: &ResumeRequest) -> Result<Option<TableView>>;

    /// Makes snapshots of tables at one cut. `Invalid` for a name that no table has.
    async fn flush_tables(&self, request: &FlushRequest) -> Result<Vec<FlushedTable>>;

    /// Up to `limit` extents of a partition, from the one that holds `offset` on. `None` if there
    /// is no such topic or partition.
    async fn extents(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentsPage>>;
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    /// Floe's version.
    pub version: String,
    /// Cluster id, a UUID.
    pub cluster: String,
    /// Broker id.
    pub broker: i32,
    /// This run's number.
    pub epoch: i64,
    /// Where Kafka clients are told to connect to.
    pub kafka: String,
    /// Where HTTP is served.
    pub http: String,
    /// The object store, without secrets.
    pub store: String,
    /// The metadata store, without secrets.
    pub metadata: String,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
}

/// A page of topics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicsPage {
    /// The topics, by name; without their partitions' details.
    pub topics: Vec<TopicView>,
    /// What to ask for as `after` to get the next page; none on the last.
    pub next: Option<String>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicView {
    /// Name.
    pub name: String,
    /// Id, a UUID.
    pub id: String,
    /// Number of partitions.
    pub partition_count: u32,
    /// Records between log start and high watermark, over all partitions.
    pub records: u64,
    /// Bytes stored.
    pub bytes: u64,
    /// The full name of the topic's table, if there is one.
    pub table: Option<String>,
    /// Partitions that keep records for longer than the topic's configs say.
    #[serde(default)]
    pub kept_partitions: u32,
    /// The partitions; empty in a list of topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionView>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionView {
    /// Index.
    pub partition: i32,
    /// The first offset that can be read.
    pub log_start: i64,
    /// The offset that the next record gets.
    pub high_watermark: i64,
    /// The offset up to which every transaction has ended.
    pub last_stable: i64,
    /// Bytes stored.
    pub bytes: u64,
    /// Why it keeps records for longer than the topic's configs say, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// An Iceberg table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableView {
    /// Full name: namespace, dot, name.
    pub name: String,
    /// The topic's name.
    pub topic: String,
    /// `running`, `degraded` or `stopped`.
    pub state: String,
    /// Why it is not running, or that it is catching up.
    pub reason: Option<String>,
    /// Committed records of the topic that are not in the table.
    pub lag_records: u64,
    /// Age of the oldest of them, seconds.
    pub lag_seconds: f64,
    /// When the table was last committed to, milliseconds since the Unix epoch.
    pub last_commit_ms: Option<i64>,
    /// The newest error.
    pub last_error: Option<String>,
    /// Data files of the newest snapshot.
    #[serde(default)]
    pub files: u64,
    /// Their bytes.
    #[serde(default)]
    pub bytes: u64,
    /// The part of the files that is small, 0 to 1; none until the upkeep has looked.
    #[serde(default)]
    pub small_file_ratio: Option<f64>,
    /// Columns beside the ten, those within structs and lists counted one by one.
    #[serde(default)]
    pub columns: u64,
    /// Rows ever committed with something in `_kafka_rescued`.
    #[serde(default)]
    pub rescued_rows: u64,
    /// Rows ever committed with a `_kafka_error`.
    #[serde(default)]
    pub undecodable_rows: u64,
    /// Age at which rows leave the table, milliseconds; none for never.
    #[serde(default)]
    pub retention_ms: Option<i64>,
    /// Offsets that the table can never hold.
    #[serde(default)]
    pub gap_offsets: u64,
    /// Commits of this broker since its start.
    #[serde(default)]
    pub commits: u64,
    /// Commits that failed.
    #[serde(default)]
    pub failures: u64,
    /// Commits that were made again, because somebody else was faster.
    #[serde(default)]
    pub conflicts: u64,
    /// Objects put for the table by this broker since its start.
    #[serde(default)]
    pub puts: u64,
}

/// Where a stopped table goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeRequest {
    /// `rewind` or `from-here`.
    pub from: String,
}

/// Which tables to bring to one cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushRequest {
    /// Their names, with or without the namespace.
    pub tables: Vec<String>,
}

/// A page of a partition's extents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentsPage {
    /// The topic's name.
    pub topic: String,
    /// The topic's id, a UUID.
    pub topic_id: String,
    /// The partition's index.
    pub partition: i32,
    /// The first offset that can be read.
    pub log_start: i64,
    /// The offset that the next record gets.
    pub high_watermark: i64,
    /// The offset up to which every transaction has ended.
    pub last_stable: i64,
    /// The extents, by offset.
    pub extents: Vec<ExtentView>,
    /// What to ask for as `offset` to get the next page; none on the last.
    pub next: Option<i64>,
}

/// One extent: consecutive offsets, and where they lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentView {
    /// First offset.
    pub base_offset: i64,
    /// Last offset.
    pub last_offset: i64,
    /// `object`, `inline`, `marker` or `hole`.
    pub kind: String,
    /// Address of the object, such as `s3://bucket/key`.
    pub object: Option<String>,
    /// Where the batches begin in the object, bytes.
    pub position: Option<u64>,
    /// Bytes of the batches.
    pub length: Option<u64>,
    /// `relative` where the batches' base offsets are 0 and count from `base_offset` on,
    /// `absolute` where they are the log's.
    pub offset_mode: Option<String>,
    /// The greatest timestamp, milliseconds since the Unix epoch.
    pub max_timestamp_ms: i64,
}
