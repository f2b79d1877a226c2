//! What the command line needs of the broker as a whole.

use crate::config::Config;
use crate::metrics::Metrics;
use async_trait::async_trait;
use floe_env::{Env, Result, Shutdown};
use floe_iceberg_bridge::RecoveredTable;
use std::net::SocketAddr;
use std::sync::Arc;

/// The broker, put together from its parts.
#[async_trait]
pub trait Assembly: Send + Sync + 'static {
    /// Runs a broker until `serving.shutdown` is given and all that runs has ended well. Calls
    /// `serving.announce` once clients are served.
    async fn serve(&self, serving: Serving) -> Result<()>;

    /// Opens the object store and probes it (writes, reads and removes one object of its own).
    /// Answers what was found, in a few words.
    async fn check_store(&self, env: &Env, config: &Config) -> Result<String>;

    /// Opens the metadata store for reading. An error of kind `Limit` means that a running broker
    /// has it. Answers what was found, in a few words.
    async fn check_metadata(&self, env: &Env, config: &Config) -> Result<String>;

    /// Asks the catalog that tables are committed to, if it is not the embedded one (else `None`).
    /// Answers what was found, in a few words.
    async fn check_catalog(&self, env: &Env, config: &Config) -> Result<Option<String>>;

    /// Lists what is in the bucket under the cluster's root and compares it with the metadata
    /// store; changes nothing, but that `allows_deletion` lets objects be deleted again that a
    /// restore has kept. `progress` is told from time to time how far it is. Called only
    /// where both stores could be opened.
    async fn reconcile(
        &self,
        env: &Env,
        config: &Config,
        allows_deletion: bool,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Reconciliation>;

    /// Makes metadata that was put back from a backup the one that holds, after putting it back
    /// where it is in the object store. Answers what was done, in a few words.
    async fn restore(
        &self,
        env: &Env,
        config: &Config,
        backup: &Backup,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String>;

    /// The snapshots of the metadata in the object store, oldest first.
    async fn snapshots(&self, env: &Env, config: &Config) -> Result<Vec<SnapshotView>>;

    /// Makes the cluster's tables and their topics known to a metadata store that has lost them, or
    /// is new. Answers what became of each table.
    async fn recover_tables(
        &self,
        env: &Env,
        config: &Config,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Vec<RecoveredTable>>;

    /// Writes the addresses of tables anew in a store that was moved. Answers what was done, in a
    /// sentence.
    async fn relocate(
        &self,
        env: &Env,
        config: &Config,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String>;
}

/// Where a backup of the metadata is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backup {
    /// In its place already.
    InPlace,
    /// The newest snapshot in the object store.
    Newest,
    /// The snapshot of this name there.
    Snapshot(String),
}

/// A snapshot in the object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotView {
    /// Its name.
    pub name: String,
    /// It has what was committed before, ms since 1970.
    pub taken_ms: i64,
    /// Bytes of the metadata file.
    pub bytes: u64,
}

/// What a running broker is handed.
pub struct Serving {
    /// Clock, randomness, tasks.
    pub env: Env,
    /// The configuration.
    pub config: Arc<Config>,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// When to stop.
    pub shutdown: Shutdown,
    /// Tells the user that clients are served.
    pub announce: Box<dyn FnOnce(&Endpoints) + Send>,
}

/// Where a broker is reached once it serves.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The bound Kafka address.
    pub kafka: SocketAddr,
    /// The bound HTTP address.
    pub http: SocketAddr,
}

/// What a comparison of bucket and metadata found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reconciliation {
    /// Objects looked at.
    pub objects: u64,
    /// What is wrong, a line each, bounded by whoever looked: data that is lost or unreadable.
    pub problems: Vec<String>,
    /// What is worth knowing, such as bytes that the next clean-up removes.
    pub notes: Vec<String>,
    /// Partitions that keep records which retention should have taken, a line each.
    pub kept: Vec<String>,
    /// Whether objects are deleted.
    pub deletion: Deletion,
}

/// Whether objects are deleted that nothing names.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub enum Deletion {
    /// They are.
    #[default]
    Goes,
    /// Nothing is, for this reason.
    Stopped(String),
    /// It had been stopped, and goes on now.
    Allowed,
}
