//! A store in a directory of this machine: durable, atomic, and never overwriting. object_store's
//! own does not sync.
//!
//! A put writes to a temporary name, syncs the data, gives the file its name without replacing
//! another, and syncs every folder whose names changed, before it answers. One put of a warm folder
//! costs two syncs. All of it runs as blocking jobs, of which at most [`FILE_JOBS_MAX`] run at
//! once.

mod file_system;
mod files;
mod real_fs;
mod simulated_fs;
#[cfg(test)]
mod tests;

pub use file_system::{DirectoryEntry, FileSystem};
pub use real_fs::{RealFile, RealFileSystem};
pub use simulated_fs::{SimulatedFile, SimulatedFileSystem};

use crate::key::{check_folder, check_range};
use crate::object::{ObjectMeta, ObjectStore, PutOutcome};
use async_trait::async_trait;
use bytes::Bytes;
use files::Files;
use floe_env::{Env, Error, Result};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// File jobs of one store that run at once; more wait.
pub const FILE_JOBS_MAX: usize = 32;

/// A store in a directory.
pub struct DirectoryStore<F: FileSystem = RealFileSystem> {
    env: Env,
    root: PathBuf,
    files: Arc<Files<F>>,
    jobs: Arc<Semaphore>,
}

impl DirectoryStore {
    /// Opens a directory of this machine, which is made if it is missing. `direct`: write past the
    /// kernel's cache where the file system allows it. Addresses have the directory's canonical
    /// path.
    ///
    /// # Errors
    /// `Invalid` without permission, `Unavailable` where the disk fails.
    pub async fn open(env: Env, root: &Path, direct: bool) -> Result<Self> {
        let named = root.display().to_string();
        let failed = |error| Error::invalid(format!("directory {named}")).with_source(error);
        let absolute = std::path::absolute(root).map_err(failed)?;
        let canonical = env.blocking(move || canonical(&absolute)).await.map_err(failed)?;
        Self::open_on(env, RealFileSystem::new(direct), canonical).await
    }
}

/// The one address that a directory has, whatever links lead to it: tables name it. What is not
/// there yet has no links.
fn canonical(path: &Path) -> std::io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(canonical), _, _) => Ok(canonical),
        (Err(error), Some(around), Some(name)) if error.kind() == ErrorKind::NotFound => {
            Ok(canonical(around)?.join(name))
        }
        (Err(error), _, _) => Err(error),
    }
}

impl<F: FileSystem> DirectoryStore<F> {
    /// Opens an absolute directory of any file system; several stores may share one.
    ///
    /// # Errors
    /// As [`DirectoryStore::open`].
    pub async fn open_on(env: Env, file_system: F, root: PathBuf) -> Result<Self> {
        let instance = env.uuid().simple().to_string();
        let opened = root.clone();
        let files = env.blocking(move || Files::open(file_system, opened, instance)).await?;
        let jobs = Arc::new(Semaphore::new(FILE_JOBS_MAX));
        Ok(Self { env, root, files: Arc::new(files), jobs })
    }

    /// Runs a file job. A caller that goes away leaves the job running, with its place.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Files<F>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(&self.jobs).acquire_owned().await;
        let place = place.map_err(|_| Error::bug("the file jobs' semaphore is never closed"))?;
        let files = Arc::clone(&self.files);
        let work = move || {
            let result = job(&files);
            drop(place);
            result
        };
        self.env.blocking(work).await
    }
}

#[async_trait]
impl<F: FileSystem> ObjectStore for DirectoryStore<F> {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        let key = key.to_owned();
        self.run(move |files| files.put(&key, &parts)).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        check_range(key, &range)?;
        let key = key.to_owned();
        self.run(move |files| files.get_range(&key, range)).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let key = key.to_owned();
        self.run(move |files| files.get(&key)).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let key = key.to_owned();
        self.run(move |files| files.head(&key)).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let folder = check_folder(prefix)?.to_owned();
        let after = after.map(str::to_owned);
        self.run(move |files| files.list(&folder, after.as_deref(), limit)).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        let keys = keys.to_vec();
        self.run(move |files| files.delete(&keys)).await
    }

    fn url(&self, key: &str) -> String {
        format!("file://{}/{key}", self.root.display())
    }
}
