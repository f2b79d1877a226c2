//! What Floe counts and measures, for Prometheus.
//!
//! One [`Metrics`] is made at the start and cloned to whoever records. Recording takes atomic
//! operations on handles that exist already; nothing is allocated per request. What another part
//! counts itself (caches, background jobs) is copied when somebody asks, by a function given to
//! [`Metrics::on_scrape`]. Every family is registered through [`registrar::Registrar`], which also
//! remembers its description, and `docs/metrics.md` is made of these.

mod compaction;
mod decoding;
mod jobs;
mod kafka;
mod log;
mod metadata;
mod page;
mod process;
mod registrar;
mod retention;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod upkeep;

pub use compaction::CompactionMetrics;
pub use decoding::{ColumnLimit, DecodingMetrics};
pub use jobs::JobMetrics;
pub use kafka::{ApiMetrics, KafkaMetrics};
pub use log::{CommitOutcome, CutReason, LogMetrics};
pub use metadata::MetadataMetrics;
pub use process::ProcessMetrics;
pub use retention::RetentionMetrics;
pub use store::{CacheMetrics, RequestKind, RequestOutcome, StoreMetrics};
pub use tables::{TableHandle, TableMetrics, TableState};
pub use upkeep::UpkeepMetrics;

use floe_env::{Error, Result};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use registrar::{Described, Registrar};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Every family; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

/// The families, by the part that they measure.
pub struct Families {
    /// Requests of Kafka clients.
    pub kafka: KafkaMetrics,
    /// Segments on their way to the store.
    pub log: LogMetrics,
    /// Records that leave the log.
    pub retention: RetentionMetrics,
    /// Records that a newer one of their key has replaced.
    pub compaction: CompactionMetrics,
    /// Changes of the metadata store.
    pub metadata: MetadataMetrics,
    /// Requests to the object store.
    pub store: StoreMetrics,
    /// The cache of blocks read.
    pub cache: CacheMetrics,
    /// Iceberg tables.
    pub tables: TableMetrics,
    /// The upkeep of tables.
    pub upkeep: UpkeepMetrics,
    /// Values in tables.
    pub decoding: DecodingMetrics,
    /// Background jobs.
    pub jobs: JobMetrics,
    /// This process.
    pub process: ProcessMetrics,
    registry: Registry,
    described: Vec<Described>,
    refreshers: Mutex<Vec<Refresher>>,
}

/// Copies what is counted elsewhere.
type Refresher = Box<dyn Fn(&Families) + Send + Sync>;

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All families, at zero.
    pub fn new() -> Self {
        let mut registrar = Registrar::new();
        let kafka = KafkaMetrics::register(&mut registrar);
        let log = LogMetrics::register(&mut registrar);
        let retention = RetentionMetrics::register(&mut registrar);
        let compaction = CompactionMetrics::register(&mut registrar);
        let metadata = MetadataMetrics::register(&mut registrar);
        let store = StoreMetrics::register(&mut registrar);
        let cache = CacheMetrics::register(&mut registrar);
        let tables = TableMetrics::register(&mut registrar);
        let upkeep = UpkeepMetrics::register(&mut registrar);
        let decoding = DecodingMetrics::register(&mut registrar);
        let jobs = JobMetrics::register(&mut registrar);
        let process = ProcessMetrics::register(&mut registrar);
        let (registry, described) = registrar.into_parts();
        let refreshers = Mutex::default();
        Self(Arc::new(Families {
            kafka,
            log,
            retention,
            compaction,
            metadata,
            store,
            cache,
            tables,
            upkeep,
            decoding,
            jobs,
            process,
            registry,
            described,
            refreshers,
        }))
    }

    /// Runs `refresh` before each answer, to copy what is counted elsewhere. It must not block.
    pub fn on_scrape(&self, refresh: impl Fn(&Families) + Send + Sync + 'static) {
        self.0.refreshers.lock().push(Box::new(refresh));
    }

    /// Everything in Prometheus's text format, version 0.0.4.
    ///
    /// # Errors
    /// `Bug` where a value cannot be written.
    pub fn encode(&self) -> Result<String> {
        self.0.process.refresh();
        for refresh in self.0.refreshers.lock().iter() {
            refresh(&self.0);
        }
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &self.0.registry)
            .map_err(|error| Error::bug("cannot write the metrics").with_source(error))?;
        Ok(text)
    }

    /// The page about all metrics, in Markdown.
    pub fn markdown(&self) -> String {
        page::markdown(&self.0.described)
    }
}

impl Deref for Metrics {
    type Target = Families;

    fn deref(&self) -> &Families {
        &self.0
    }
}

impl fmt::Debug for Families {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Families").field("count", &self.described.len()).finish()
    }
}

/// Sets a counter to a total that is counted elsewhere and only grows.
pub fn set_total(counter: &Counter, total: u64) {
    counter.inner().store(total, Ordering::Relaxed);
}
