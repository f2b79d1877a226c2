//! The blocking half of the directory store: one call is one job on a thread that may wait for the
//! disk.
//!
//! A put is: folders made and their names synced; contents written under a temporary name and
//! synced; the name given without replacing another; the folder synced. Only then is it answered. A
//! folder counts as durable once the folder above it was synced after the folder was seen there,
//! whoever made it: a put that merely finds a folder may not trust that its maker got as far as the
//! sync.

use super::file_system::{DirectoryEntry, FileSystem};
use crate::key::{check_key, check_listed_key, missing, outside};
use crate::object::{ObjectMeta, PutOutcome};
use bytes::Bytes;
use floe_env::{Error, HashSet, Result};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder of files that are being written, and of the lock; no key begins with it.
pub(super) const TEMPORARY_FOLDER: &str = ".tmp";

/// Folders remembered as durable; beyond this number they are forgotten, and synced again when next
/// used.
const DURABLE_FOLDERS_MAX: usize = 65_536;

/// The files of one store.
pub(super) struct Files<F> {
    file_system: F,
    root: PathBuf,
    instance: String,
    next_temporary: AtomicU64,
    durable_folders: Mutex<HashSet<PathBuf>>,
}

impl<F: FileSystem> Files<F> {
    /// Makes the root durable, and removes what an earlier process was still writing.
    pub(super) fn open(file_system: F, root: PathBuf, instance: String) -> Result<Self> {
        let files = Self {
            file_system,
            root,
            instance,
            next_temporary: AtomicU64::new(0),
            durable_folders: Mutex::new(HashSet::default()),
        };
        let root = files.root.display();
        files.prepare().map_err(|error| failed(&format!("open directory store {root}"), error))?;
        Ok(files)
    }

    fn prepare(&self) -> io::Result<()> {
        self.make_root_durable()?;
        let temporary = self.root.join(TEMPORARY_FOLDER);
        self.file_system.create_directory(&temporary)?;
        if !self.file_system.is_sole_user(&temporary.join("lock"))? {
            return Ok(());
        }
        for entry in self.file_system.entries(&temporary)? {
            if entry.name != "lock" {
                self.file_system.remove(&temporary.join(entry.name))?;
            }
        }
        Ok(())
    }

    fn make_root_durable(&self) -> io::Result<()> {
        let mut above: Vec<&Path> = self.root.ancestors().collect();
        above.reverse();
        let mut made_above = false;
        for pair in above.windows(2) {
            let (parent, folder) = (pair[0], pair[1]);
            let existed = self.file_system.is_directory(folder)?;
            // Folders that were there long before this store are left alone: they may not even be
            // readable.
            if existed && !made_above && folder != self.root {
                continue;
            }
            if !existed {
                self.file_system.create_directory(folder)?;
            }
            match self.file_system.sync_directory(parent) {
                Err(error) if existed && error.kind() == ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
            made_above = true;
        }
        Ok(())
    }

    fn path(&self, key: &str) -> Result<PathBuf> {
        check_key(key)?;
        self.path_of_checked(key)
    }

    fn path_of_checked(&self, key: &str) -> Result<PathBuf> {
        if key.split('/').next() == Some(TEMPORARY_FOLDER) {
            return Err(Error::invalid(format!("object key {key:?} is in the store's own folder")));
        }
        Ok(self.root.join(key))
    }

    /// See [`ObjectStore::put`](crate::ObjectStore::put).
    pub(super) fn put(&self, key: &str, parts: &[Bytes]) -> Result<PutOutcome> {
        let target = self.path(key)?;
        let doing = || format!("write object {key}");
        let folder = target.parent().unwrap_or(&self.root);
        self.make_durable(folder).map_err(|error| failed(&doing(), error))?;
        if !self.publish(&target, parts).map_err(|error| failed(&doing(), error))? {
            return self.found(key, &target, folder);
        }
        let synced = self.file_system.sync_directory(folder);
        synced.map_err(|error| Error::unknown_outcome(doing()).with_source(error))?;
        Ok(PutOutcome::Created)
    }

    /// The name is taken: whoever took it may not have come as far as the sync, so that is done
    /// here too.
    fn found(&self, key: &str, target: &Path, folder: &Path) -> Result<PutOutcome> {
        let doing = format!("look at object {key}");
        let size = self.file_system.size(target).map_err(|error| failed(&doing, error))?;
        if size.is_none() && self.file_system.is_directory(target).unwrap_or(false) {
            return Err(Error::invalid(format!("object key {key} is the name of a folder")));
        }
        let synced = self.file_system.sync_directory(folder);
        synced.map_err(|error| Error::unknown_outcome(doing).with_source(error))?;
        Ok(PutOutcome::Exists)
    }

    /// Writes, syncs and names a file; false where the name was taken.
    fn publish(&self, target: &Path, parts: &[Bytes]) -> io::Result<bool> {
        let temporary = self.temporary_path();
        let published = self
            .write(&temporary, parts)
            .and_then(|()| self.file_system.rename_if_free(&temporary, target));
        if !matches!(published, Ok(true)) {
            // What stays is removed at the next start; the error that counts is the first.
            let _ = self.file_system.remove(&temporary);
        }
        published
    }

    fn write(&self, temporary: &Path, parts: &[Bytes]) -> io::Result<()> {
        let mut file = self.file_system.create(temporary)?;
        self.file_system.write(&mut file, parts)?;
        self.file_system.sync_data(&file)
    }

    fn temporary_path(&self) -> PathBuf {
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        self.root.join(TEMPORARY_FOLDER).join(format!("{}-{number}", self.instance))
    }

    /// Makes a folder of the store, and every folder above it that is not known to be durable.
    fn make_durable(&self, folder: &Path) -> io::Result<()> {
        let mut unknown = Vec::new();
        for above in folder.ancestors().take_while(|above| *above != self.root) {
            if self.durable_folders.lock().contains(above) {
                break;
            }
            unknown.push(above);
        }
        for folder in unknown.into_iter().rev() {
            self.file_system.create_directory(folder)?;
            self.file_system.sync_directory(folder.parent().unwrap_or(&self.root))?;
            let mut durable = self.durable_folders.lock();
            if durable.len() >= DURABLE_FOLDERS_MAX {
                durable.clear();
            }
            durable.insert(folder.to_owned());
        }
        Ok(())
    }

    /// See [`ObjectStore::get_range`](crate::ObjectStore::get_range).
    pub(super) fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(key)?;
        match self.file_system.read(&path, range.clone()) {
            Ok(bytes) => Ok(Bytes::from(bytes)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(outside(key, &range)),
            Err(error) if is_missing(&error) => Err(missing(key)),
            Err(error) => Err(failed(&format!("read object {key}"), error)),
        }
    }

    /// See [`ObjectStore::get`](crate::ObjectStore::get).
    pub(super) fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let Some(meta) = self.head(key)? else { return Ok(None) };
        let path = self.path(key)?;
        match self.file_system.read(&path, 0..meta.size) {
            Ok(bytes) => Ok(Some(Bytes::from(bytes))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed(&format!("read object {key}"), error)),
        }
    }

    /// See [`ObjectStore::head`](crate::ObjectStore::head).
    pub(super) fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let size = self.file_system.size(&self.path(key)?);
        let size = size.map_err(|error| failed(&format!("look at object {key}"), error))?;
        Ok(size.map(|size| ObjectMeta { key: key.to_owned(), size }))
    }

    /// See [`ObjectStore::list`](crate::ObjectStore::list).
    pub(super) fn list(
        &self,
        folder: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let mut walk = Walk { files: self, after: after.unwrap_or(""), limit, found: Vec::new() };
        walk.folder(folder).map_err(|error| failed(&format!("list folder {folder:?}"), error))?;
        Ok(walk.found)
    }

    /// See [`ObjectStore::delete`](crate::ObjectStore::delete).
    pub(super) fn delete(&self, keys: &[String]) -> Result<()> {
        let path = |key: &String| check_listed_key(key).and_then(|()| self.path_of_checked(key));
        let paths = keys.iter().map(path).collect::<Result<Vec<_>>>()?;
        let mut folders = BTreeSet::new();
        for path in &paths {
            let removed = self.file_system.remove(path);
            let doing = || format!("delete {}", path.display());
            match removed {
                Err(error) if !is_missing(&error) => return Err(failed(&doing(), error)),
                _ => folders.extend(path.parent()),
            }
        }
        for folder in folders {
            match self.file_system.sync_directory(folder) {
                Err(error) if !is_missing(&error) => {
                    let doing = format!("sync folder {}", folder.display());
                    return Err(Error::unknown_outcome(doing).with_source(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A walk through folders in the order of keys; of each folder only the names are in memory.
struct Walk<'a, F> {
    files: &'a Files<F>,
    after: &'a str,
    limit: usize,
    found: Vec<ObjectMeta>,
}

impl<F: FileSystem> Walk<'_, F> {
    fn folder(&mut self, folder: &str) -> io::Result<()> {
        let mut entries = self.files.file_system.entries(&self.files.root.join(folder))?;
        for entry in &mut entries {
            if entry.is_directory {
                // A folder sorts as its keys do, which go on with a slash.
                entry.name.push('/');
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in entries {
            if self.found.len() >= self.limit {
                break;
            }
            let own = folder.is_empty() && entry.name.trim_end_matches('/') == TEMPORARY_FOLDER;
            if !own {
                self.entry(folder, &entry)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, folder: &str, entry: &DirectoryEntry) -> io::Result<()> {
        let name = entry.name.trim_end_matches('/');
        let key = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        // What stands beside our folders is none of ours; in them, others may have put files.
        if folder.is_empty() && check_key(&key).is_err() {
            return Ok(());
        }
        if entry.is_directory {
            let own_keys = format!("{key}/");
            let all_before = own_keys.as_str() < self.after && !self.after.starts_with(&own_keys);
            return if all_before { Ok(()) } else { self.folder(&key) };
        }
        if key.as_str() <= self.after {
            return Ok(());
        }
        // It may have been deleted since its name was read.
        if let Some(size) = self.files.file_system.size(&self.files.root.join(&key))? {
            self.found.push(ObjectMeta { key, size });
        }
        Ok(())
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// An error before which nothing has happened that anybody could see.
fn failed(doing: &str, error: io::Error) -> Error {
    let described = match error.kind() {
        ErrorKind::PermissionDenied => Error::invalid(format!("{doing}: no permission")),
        ErrorKind::ReadOnlyFilesystem => {
            Error::invalid(format!("{doing}: the file system is read-only"))
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            Error::invalid(format!("{doing}: a file and a folder would have the same name"))
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Error::unavailable(format!("{doing}: the disk is full"))
        }
        _ => Error::unavailable(doing),
    };
    described.with_source(error)
}
