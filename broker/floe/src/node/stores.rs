//! Opens both stores as the configuration says, and agrees on whose they are.

use crate::broker::Stores;
use crate::cli::Backup;
use crate::config::{Config, MetadataConfig, MetadataLocation, StoreConfig, StoreLocation};
use crate::snapshots;
use floe_env::date::utc_text;
use floe_env::{Env, Error, Result};
use floe_metadata::facts::ChangeOutcome;
use floe_metadata::postgres::PostgresOptions;
use floe_metadata::{Backend, MetadataStore, PostgresBackend, SqliteBackend};
use floe_store::{
    AzureOptions, ClusterIdentity, Counted, GcsOptions, ObjectStore, PutOutcome, RetryPolicy,
    Retrying, S3Options, StoreCounters, StoreOptions, create_identity, read_identity,
    read_incarnation, record_incarnation,
};
use kfs::ClusterId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the probe's calls are repeated: whoever starts a broker waits for its reason.
const PROBE_RETRIES: Duration = Duration::from_secs(5);

/// The object store with its layers: every request counted, and tried again where that is safe.
pub(super) struct Objects {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same, which gives up sooner.
    pub(super) probed: Arc<dyn ObjectStore>,
    pub(super) counters: StoreCounters,
}

/// Opens the object store.
pub(super) async fn open_objects(env: &Env, config: &Config) -> Result<Objects> {
    let url = config.store.location.to_string();
    if let StoreLocation::Directory(path) = &config.store.location {
        make_directory(env, path).await?;
    }
    let options = store_options(&config.store);
    let raw = floe_store::open(env.clone(), &url, &options).await?;
    let counted = Counted::new(env.clone(), raw);
    let counters = counted.counters();
    let counted: Arc<dyn ObjectStore> = Arc::new(counted);
    let repeated = |policy| Arc::new(Retrying::new(env.clone(), counted.clone(), policy));
    let store = repeated(RetryPolicy::default());
    let probed = repeated(RetryPolicy { deadline: PROBE_RETRIES, ..RetryPolicy::default() });
    Ok(Objects { store, probed, counters })
}

pub(super) fn store_options(config: &StoreConfig) -> StoreOptions {
    let s3 = &config.s3;
    let path = |path: &PathBuf| path.display().to_string();
    StoreOptions {
        s3: S3Options {
            endpoint: config.endpoint.clone(),
            region: s3.region.clone(),
            access_key_id: s3.access_key.as_ref().map(|key| key.expose().to_owned()),
            secret_access_key: s3.secret_key.clone(),
            session_token: s3.session_token.clone(),
            virtual_hosted: s3.path_style.map(|is_path| !is_path),
            allow_http: Some(config.allow_http),
            unsigned_payload: s3.unsigned_payload,
        },
        gcs: GcsOptions {
            service_account_path: config.gcs_service_account.as_ref().map(path),
            endpoint: config.endpoint.clone(),
        },
        azure: AzureOptions {
            account: config.azure_account.clone(),
            access_key: config.azure_access_key.clone(),
            endpoint: config.endpoint.clone(),
        },
        ..StoreOptions::default()
    }
}

/// Opens the metadata store.
pub(super) async fn open_metadata(env: &Env, config: &Config) -> Result<MetadataStore> {
    let backend: Arc<dyn Backend> = match &config.metadata.location {
        MetadataLocation::Sqlite(path) => {
            if let Some(folder) = path.parent() {
                make_directory(env, folder).await?;
            }
            Arc::new(SqliteBackend::open(env, path).await?)
        }
        MetadataLocation::Postgres(url) => {
            let options = postgres_options(url.expose(), &config.metadata)?;
            Arc::new(PostgresBackend::open(env, options).await?)
        }
    };
    Ok(MetadataStore::new(backend, env.clone()))
}

/// The address, with what settings of their own say; a schema in the address comes first.
fn postgres_options(url: &str, config: &MetadataConfig) -> Result<PostgresOptions> {
    let mut options = PostgresOptions::parse(url)?;
    if !url.contains("schema=") {
        options = options.in_schema(&config.schema)?;
    }
    Ok(match &config.password {
        Some(password) => options.with_password(password.expose()),
        None => options,
    })
}

/// Both stores, opened.
pub(super) fn stores(config: &Config, objects: &Objects, metadata: &MetadataStore) -> Stores {
    Stores {
        objects: objects.store.clone(),
        metadata: metadata.clone(),
        is_remote: config.store.location.is_remote(),
    }
}

async fn make_directory(env: &Env, path: &Path) -> Result<()> {
    let path = path.to_owned();
    env.blocking(move || {
        std::fs::create_dir_all(&path).map_err(|error| {
            let message = format!("cannot make the directory {}", path.display());
            Error::invalid(message).with_source(error)
        })
    })
    .await
}

/// Refuses metadata that is not of the incarnation that the object store knows: it is from before a
/// restore, or a restore was cut short.
pub(super) async fn check_incarnation(
    objects: &dyn ObjectStore,
    metadata: &MetadataStore,
) -> Result<()> {
    let Some(identity) = read_identity(objects).await? else { return Ok(()) };
    let there = read_incarnation(objects, &identity).await?;
    let here = metadata.incarnation().await?;
    if here == Some(there.incarnation) {
        return Ok(());
    }
    let here = here.map_or_else(|| "none".to_owned(), |here| here.to_string());
    Err(Error::invalid(format!(
        "the object store is at incarnation {} of the metadata (number {}: {}), and this metadata \
         store at {here}: give this broker the newer metadata store, or make this one hold with \
         `floe restore`",
        there.incarnation, there.number, there.reason
    )))
}

/// Puts a snapshot in the place of SQLite's file, where the backup is one.
pub(super) async fn put_back(
    env: &Env,
    config: &Config,
    objects: &dyn ObjectStore,
    backup: &Backup,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<()> {
    let named = match backup {
        Backup::InPlace => return Ok(()),
        Backup::Newest => None,
        Backup::Snapshot(name) => Some(name.as_str()),
    };
    let MetadataLocation::Sqlite(file) = &config.metadata.location else {
        return Err(Error::invalid("PostgreSQL is put back by its own tools"));
    };
    if let Some(folder) = file.parent() {
        make_directory(env, folder).await?;
    }
    let (name, taken_ms) = snapshots::put_back(env, objects, file, named, progress).await?;
    let taken = utc_text(taken_ms);
    tracing::info!(%name, %taken, "put back a snapshot of the metadata");
    Ok(())
}

/// Makes this metadata the one that holds, for a reason: a new incarnation begins in both stores.
/// May be called again where it was cut short. Answers what was done, in a sentence.
pub(super) async fn begin_incarnation(
    env: &Env,
    objects: &dyn ObjectStore,
    metadata: &MetadataStore,
    reason: &str,
) -> Result<String> {
    let identity = read_identity(objects).await?;
    let (Some(identity), Some(here)) = (identity, metadata.cluster_id().await?) else {
        return Err(Error::invalid("one of the stores belongs to no cluster: nothing to restore"));
    };
    check_same_cluster(&identity, here)?;
    let there = read_incarnation(objects, &identity).await?;
    let previous = metadata.incarnation().await?;
    let previous = previous.ok_or_else(|| Error::corrupt("the metadata has no incarnation"))?;
    let next = env.uuid();
    let others = || Error::retry("another broker has changed the stores: is one running?");
    match metadata.begin_incarnation(previous, (next, there.number + 1), reason).await? {
        ChangeOutcome::Applied => {}
        ChangeOutcome::Rejected => return Err(others()),
    }
    match record_incarnation(objects, identity.cluster, &there, next, reason).await? {
        PutOutcome::Created => Ok(format!("incarnation {next} (number {})", there.number + 1)),
        PutOutcome::Exists => Err(others()),
    }
}

fn check_same_cluster(identity: &ClusterIdentity, here: ClusterId) -> Result<()> {
    if ClusterId(identity.cluster) == here {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the object store belongs to cluster {} but the metadata store to {here}",
        identity.cluster
    )))
}

/// Makes an empty metadata store the cluster's, whose own was lost: a new incarnation begins. Does
/// nothing where it is already. May be called again where it was cut short.
pub(super) async fn adopt_cluster(
    env: &Env,
    objects: &dyn ObjectStore,
    metadata: &MetadataStore,
) -> Result<ClusterId> {
    let Some(identity) = read_identity(objects).await? else {
        return Err(Error::invalid("the object store holds no cluster: there is nothing in it"));
    };
    let here = metadata.initialise_cluster(ClusterId(identity.cluster)).await?;
    check_same_cluster(&identity, here)?;
    let there = read_incarnation(objects, &identity).await?;
    let is_new = metadata.incarnation().await? != Some(there.incarnation);
    if is_new && metadata.topics().await?.is_empty() {
        begin_incarnation(env, objects, metadata, "the metadata was lost").await?;
    }
    check_incarnation(objects, metadata).await?;
    Ok(here)
}

/// Agrees on the cluster's id between both stores: it is made once and stands in both. Where it is
/// missing in one beside a used other, or differs, the broker must not start.
pub async fn agree_on_cluster(
    env: &Env,
    objects: &dyn ObjectStore,
    metadata: &MetadataStore,
) -> Result<ClusterId> {
    let identity = read_identity(objects).await?;
    let in_objects = identity.map(|identity| ClusterId(identity.cluster));
    let in_metadata = metadata.cluster_id().await?;
    match (in_objects, in_metadata) {
        (Some(there), Some(here)) if there == here => Ok(here),
        (Some(there), Some(here)) => Err(Error::invalid(format!(
            "the object store belongs to cluster {there} but the metadata store to {here}: give \
             this broker the two that belong together"
        ))),
        (Some(there), None) => Err(Error::invalid(format!(
            "the object store holds cluster {there} but the metadata store is empty: give this \
             broker that cluster's metadata store, or an empty object store; where it is lost, \
             `floe restore --from-store` puts the newest snapshot of it back, and where there is \
             none, `floe tables recover` brings the tables back"
        ))),
        (None, here) => {
            // A first start may have ended between the two writes: such metadata has no topics.
            if let Some(here) = here
                && !metadata.topics().await?.is_empty()
            {
                return Err(Error::invalid(format!(
                    "the metadata store belongs to cluster {here} but the object store has no \
                     identity: give this broker that cluster's object store"
                )));
            }
            let id = metadata.initialise_cluster(ClusterId(env.uuid())).await?;
            claim(objects, metadata, id).await
        }
    }
}

async fn claim(
    objects: &dyn ObjectStore,
    metadata: &MetadataStore,
    id: ClusterId,
) -> Result<ClusterId> {
    let incarnation = metadata.incarnation().await?;
    let incarnation = incarnation.ok_or_else(|| Error::bug("a cluster without incarnation"))?;
    let identity = ClusterIdentity::new(id.0, incarnation);
    match create_identity(objects, &identity).await? {
        PutOutcome::Created => Ok(id),
        PutOutcome::Exists => Err(Error::invalid(
            "another broker has just made its cluster in this object store: give each cluster a \
             prefix of its own",
        )),
    }
}
