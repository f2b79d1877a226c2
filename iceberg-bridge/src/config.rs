//! The bridge's settings.

use crate::catalog::{CatalogClient, ReadKeys, TOKEN_LIFETIME};
use crate::commit::ExpiryRules;
use crate::fold::FoldRules;
use crate::mapping::MappingLimits;
use crate::rest::RestConfig;
use crate::staging::STAGE_BYTES_MAX;
use crate::sweep::SweepRules;
use crate::topic_patterns::TopicPatterns;
use kfs::ClusterId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of the bridge.
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    /// The cluster, which begins every key and stands in every table.
    pub cluster: ClusterId,
    /// Namespace of all tables.
    pub namespace: String,
    /// Topics that have no table unless their own setting says so; all others have one unless it
    /// says otherwise.
    pub exclude_topics: TopicPatterns,
    /// How long a look waits for its commit (`iceberg.look.timeout`).
    pub look_timeout: Duration,
    /// A look that was not reached in time is refused with 503 rather than answered with the newest
    /// snapshot.
    pub refuse_late_looks: bool,
    /// Bytes of log that are worth a file, by estimate.
    pub file_bytes_min: u64,
    /// Bytes that a commit holds of files that have yet to be put, about; it takes twice as much of
    /// memory while it ends one, and [`STAGINGS_MAX`](crate::STAGINGS_MAX) commits do.
    pub stage_bytes_max: usize,
    /// The longest time for which a table nobody looks at lacks a record, about.
    pub lag_max: Duration,
    /// Pause between two rounds of the background job.
    pub round_pause: Duration,
    /// How long the files of a removed table stay (`iceberg.delete_retention_ms`).
    pub delete_retention: Duration,
    /// When snapshots go.
    pub expiry: ExpiryRules,
    /// When orphans go.
    pub sweep: SweepRules,
    /// When files are folded.
    pub fold: FoldRules,
    /// Pause between two rounds of the upkeep: sweeping and folding.
    pub upkeep_pause: Duration,
    /// How far a table's columns may grow (`iceberg.json_*`).
    pub mapping_limits: MappingLimits,
    /// What every table's answer tells the engine, such as `s3.endpoint` and `s3.region`. Never the
    /// broker's own keys.
    pub client_config: BTreeMap<String, String>,
    /// Who may ask the embedded catalog, and for what.
    pub catalog: CatalogConfig,
    /// The catalog that tables are committed to instead of the embedded one.
    pub rest: Option<RestConfig>,
}

/// Settings of the catalog.
#[derive(Clone, Debug)]
pub struct CatalogConfig {
    /// The client that may ask (`iceberg.client_id`); everybody where there is none.
    pub client: Option<CatalogClient>,
    /// How long a token is good for (`iceberg.token_lifetime_s`).
    pub token_lifetime: Duration,
    /// Whether engines may make, change and drop tables (`iceberg.external_write`).
    pub external_write: bool,
    /// Keys that engines get which ask for some (`iceberg.read_access_key`). Never the broker's.
    pub read_keys: Option<ReadKeys>,
}

impl Default for CatalogConfig {
    fn default() -> Self {
        let token_lifetime = TOKEN_LIFETIME;
        Self { client: None, token_lifetime, external_write: false, read_keys: None }
    }
}

impl BridgeConfig {
    /// The defaults.
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            namespace: "kafka".to_owned(),
            exclude_topics: TopicPatterns::default(),
            look_timeout: Duration::from_secs(5),
            refuse_late_looks: false,
            file_bytes_min: 64 << 20,
            stage_bytes_max: STAGE_BYTES_MAX,
            lag_max: Duration::from_secs(60),
            round_pause: Duration::from_secs(1),
            delete_retention: Duration::from_secs(7 * 24 * 3600),
            expiry: ExpiryRules::default(),
            sweep: SweepRules::default(),
            fold: FoldRules::default(),
            upkeep_pause: Duration::from_secs(1),
            mapping_limits: MappingLimits::default(),
            client_config: BTreeMap::new(),
            catalog: CatalogConfig::default(),
            rest: None,
        }
    }
}
