//! Snapshots of the metadata in the object store: with SQLite beside a remote store, all that a
//! lost disk takes with it stands in the bucket too, as it was at most an interval ago.
//!
//! A snapshot is the whole file at one moment, in parts, and a manifest that is put last; without
//! one it does not count. `floe restore --from-store` puts it back (`put_back.rs`). What was
//! committed after it is lost then.
//!
//! What a snapshot names must still be there when it is put back. So nothing is deleted from the
//! log that was still named when the newest one was taken: see [`SnapshotMoment`]. A round in
//! which nothing has changed puts nothing.

mod manifest;
mod put_back;

pub(crate) use put_back::put_back;

use crate::cli::SnapshotView;
use bytes::Bytes;
use floe_env::{Background, Env, Error, Result, Shutdown};
use floe_log::SnapshotMoment;
use floe_metadata::{ChangeCounts, MetadataStore, SqliteBackend};
use floe_store::{ObjectStore, PutOutcome, read_identity, read_incarnation};
use manifest::{MANIFEST_VERSION, Manifest, Name, Part, list, manifest_key, part_key};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Bytes of the file in one part, before it is compressed.
const PART_BYTES: u64 = 8 << 20;
/// Whoever stops a broker waits so long for the last snapshot.
const LAST_WITHIN: Duration = Duration::from_secs(10);
/// Snapshots that are kept. The newest is the one that is whole for certain.
const KEPT: usize = 10;

/// Takes snapshots; cheap to clone.
#[derive(Clone)]
pub(crate) struct Snapshots(Arc<Inner>);

struct Inner {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    metadata: MetadataStore,
    file: PathBuf,
    moment: SnapshotMoment,
    memory: Mutex<Memory>,
}

/// What is remembered between rounds.
#[derive(Default)]
struct Memory {
    /// The name that the next one gets.
    next: Option<Name>,
    /// The changes that had been asked for when the last round began.
    counts: Option<ChangeCounts>,
    /// Nothing had been asked for since the round before when the newest one was taken. Until then
    /// a change that was asked for just before may not be in it.
    has_all: bool,
}

impl Snapshots {
    /// Takes snapshots of the metadata in `file`.
    pub(crate) fn new(
        env: &Env,
        objects: Arc<dyn ObjectStore>,
        metadata: MetadataStore,
        file: PathBuf,
    ) -> Self {
        let (env, moment, memory) = (env.clone(), SnapshotMoment::default(), Mutex::default());
        Self(Arc::new(Inner { env, objects, metadata, file, moment, memory }))
    }

    /// When the newest one was taken, which deletion waits for.
    pub(crate) fn moment(&self) -> SnapshotMoment {
        self.0.moment.clone()
    }

    /// Starts the background job.
    pub(crate) fn start(&self, pause: Duration, shutdown: Shutdown) -> Background {
        let snapshots = self.clone();
        Background::start(&self.0.env, "snapshot", pause, shutdown, move || {
            let snapshots = snapshots.clone();
            async move { snapshots.round().await }
        })
    }

    /// Takes a snapshot, unless nothing has changed since the newest one.
    ///
    /// # Errors
    /// Those of the stores and of the disk; the newest one stays the newest.
    pub(crate) async fn round(&self) -> Result<()> {
        let mut memory = self.0.memory.lock().await;
        let counts = self.0.metadata.change_counts();
        let is_quiet = memory.counts == Some(counts);
        let now_ms = self.0.metadata.now_ms().await?;
        if !(is_quiet && memory.has_all) {
            memory.counts = Some(counts);
            memory.has_all = false;
            self.0.take(&mut memory, now_ms).await?;
            memory.has_all = is_quiet;
        }
        self.0.moment.set(now_ms);
        Ok(())
    }

    /// Takes one at a shutdown, when nothing changes any more. It is for a lost disk: a store that
    /// is away keeps nobody from stopping.
    pub(crate) async fn take_last(&self) {
        let taken = self.0.env.timeout(LAST_WITHIN, self.round()).await;
        let failure = match taken {
            Some(Ok(())) => return,
            Some(Err(error)) => error.to_string(),
            None => format!("not done within {} s", LAST_WITHIN.as_secs()),
        };
        tracing::warn!(failure, "the last snapshot of the metadata was not taken");
    }
}

impl Inner {
    /// Takes one, and deletes what is beyond those that are kept.
    async fn take(&self, memory: &mut Memory, now_ms: i64) -> Result<()> {
        let identity = read_identity(self.objects.as_ref()).await?;
        let identity = identity.ok_or_else(|| Error::corrupt("the store has lost its identity"))?;
        let cluster = identity.cluster;
        let known = match memory.next {
            Some(_) => Vec::new(),
            None => list(self.objects.as_ref(), cluster).await?,
        };
        let name = match memory.next {
            Some(name) => name,
            None => {
                let incarnation = read_incarnation(self.objects.as_ref(), &identity).await?.number;
                let of_this = known.iter().map(|found| found.name);
                let last = of_this.filter(|name| name.incarnation == incarnation).max();
                Name { incarnation, number: last.map_or(0, |name| name.number + 1) }
            }
        };
        // A key is written once: what a try that fails has left keeps its name.
        memory.next = Some(Name { number: name.number + 1, ..name });
        let copy = SqliteBackend::copy_beside(&self.env, &self.file).await?;
        let stored = self.store(cluster, name, &copy).await;
        let removed = self.env.blocking(move || std::fs::remove_file(copy)).await;
        let (bytes, parts) = stored?;
        removed.map_err(|error| {
            Error::unavailable("cannot remove the metadata's copy").with_source(error)
        })?;
        let manifest =
            Manifest { version: MANIFEST_VERSION, cluster, taken_ms: now_ms, bytes, parts };
        let json = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| Error::bug("a manifest is always JSON").with_source(error))?;
        self.put(manifest_key(cluster, name), json).await?;
        tracing::debug!(%name, bytes, "took a snapshot of the metadata");
        self.prune(cluster, name).await
    }

    /// Puts the parts of a file; answers its bytes and the parts.
    async fn store(
        &self,
        cluster: uuid::Uuid,
        name: Name,
        copy: &std::path::Path,
    ) -> Result<(u64, Vec<Part>)> {
        let path = copy.to_owned();
        let unreadable =
            |error| Error::unavailable("cannot read the metadata's copy").with_source(error);
        let opened = self.env.blocking(move || std::fs::File::open(path)).await;
        let mut file = opened.map_err(unreadable)?;
        let (mut total, mut parts) = (0, Vec::new());
        loop {
            let (back, read) = self
                .env
                .blocking(move || {
                    let mut raw = Vec::new();
                    let read = (&mut file).take(PART_BYTES).read_to_end(&mut raw);
                    let compressed = kfs::compress(kfs::Codec::Zstd, None, &raw);
                    (file, read.map(|_| (raw.len() as u64, compressed)))
                })
                .await;
            file = back;
            let (bytes, compressed) = read.map_err(unreadable)?;
            if bytes == 0 {
                return Ok((total, parts));
            }
            let crc32c = crc32c::crc32c(&compressed);
            let key = part_key(cluster, name, parts.len());
            self.put(key, compressed).await?;
            parts.push(Part { bytes, crc32c });
            total += bytes;
        }
    }

    async fn put(&self, key: String, bytes: Vec<u8>) -> Result<()> {
        match self.objects.put(&key, vec![Bytes::from(bytes)]).await? {
            PutOutcome::Created => Ok(()),
            PutOutcome::Exists => Err(Error::retry(format!("{key} is there already"))),
        }
    }

    /// Deletes all but the newest. After a restore nothing is deleted until it is reconciled.
    async fn prune(&self, cluster: uuid::Uuid, newest: Name) -> Result<()> {
        if self.metadata.deletion_stop().await?.is_some() {
            return Ok(());
        }
        let found = list(self.objects.as_ref(), cluster).await?;
        let whole = found.iter().filter(|snapshot| snapshot.is_whole).rev();
        let Some(oldest) = whole.take(KEPT).last().map(|snapshot| snapshot.name) else {
            return Ok(());
        };
        // What is not whole and newer may be on its way, of another broker.
        let gone = found.into_iter().filter(|snapshot| {
            snapshot.name < oldest || (!snapshot.is_whole && snapshot.name < newest)
        });
        let keys: Vec<String> = gone.flat_map(|snapshot| snapshot.keys).collect();
        if keys.is_empty() { Ok(()) } else { self.objects.delete(&keys).await }
    }
}

/// The snapshots in an object store, oldest first.
///
/// # Errors
/// Those of the store, and `Corrupt` where a manifest is damaged.
pub(crate) async fn views(objects: &dyn ObjectStore) -> Result<Vec<SnapshotView>> {
    let Some(identity) = read_identity(objects).await? else { return Ok(Vec::new()) };
    let mut views = Vec::new();
    for found in list(objects, identity.cluster).await? {
        if found.is_whole {
            let Manifest { taken_ms, bytes, .. } =
                manifest::read(objects, identity.cluster, found.name).await?;
            views.push(SnapshotView { name: found.name.to_string(), taken_ms, bytes });
        }
    }
    Ok(views)
}

#[cfg(test)]
mod tests;
