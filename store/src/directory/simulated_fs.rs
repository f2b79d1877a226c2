//! A file system in memory that forgets at a crash whatever was not synced: contents without a data
//! sync, and names without a sync of the directory that holds them. It is as forgetful as POSIX
//! allows, which real ones seldom are.

use super::file_system::{DirectoryEntry, FileSystem};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::Arc;

/// The number of a file or directory.
type Inode = u64;

const ROOT: Inode = 0;

/// Something that is there, in two states: as seen now, and as found after a crash.
#[derive(Clone, Debug)]
enum Thing {
    File { live: Vec<u8>, durable: Vec<u8> },
    Directory { live: BTreeMap<String, Inode>, durable: BTreeMap<String, Inode> },
}

#[derive(Debug)]
struct State {
    things: BTreeMap<Inode, Thing>,
    next: Inode,
}

/// The file system; clones share it, as processes that follow each other do.
#[derive(Clone, Debug)]
pub struct SimulatedFileSystem {
    state: Arc<Mutex<State>>,
}

/// A file that is being written.
#[derive(Debug)]
pub struct SimulatedFile(Inode);

impl Default for SimulatedFileSystem {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedFileSystem {
    /// One that has only its root.
    pub fn new() -> Self {
        let state = State { things: BTreeMap::from([(ROOT, empty_directory())]), next: ROOT + 1 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Cuts the machine's power: what was not synced is forgotten.
    pub fn crash(&self) {
        for thing in self.state.lock().things.values_mut() {
            match thing {
                Thing::File { live, durable } => live.clone_from(durable),
                Thing::Directory { live, durable } => live.clone_from(durable),
            }
        }
    }
}

fn empty_directory() -> Thing {
    Thing::Directory { live: BTreeMap::new(), durable: BTreeMap::new() }
}

impl State {
    fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut at = ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let name = name.to_str().ok_or(ErrorKind::InvalidInput)?;
            at = *self.names(at)?.get(name).ok_or(ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn names(&self, directory: Inode) -> io::Result<&BTreeMap<String, Inode>> {
        match self.things.get(&directory) {
            Some(Thing::Directory { live, .. }) => Ok(live),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The names beside `path`, and its own.
    fn names_of(&mut self, path: &Path) -> io::Result<(&mut BTreeMap<String, Inode>, String)> {
        let parent = self.find(path.parent().ok_or(ErrorKind::InvalidInput)?)?;
        let name =
            path.file_name().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidInput)?;
        match self.things.get_mut(&parent) {
            Some(Thing::Directory { live, .. }) => Ok((live, name.to_owned())),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn add(&mut self, path: &Path, thing: Thing) -> io::Result<Inode> {
        let inode = self.next;
        let (names, name) = self.names_of(path)?;
        if names.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        names.insert(name, inode);
        self.things.insert(inode, thing);
        self.next += 1;
        Ok(inode)
    }

    fn contents(&self, path: &Path) -> io::Result<Option<&Vec<u8>>> {
        match self.find(path) {
            Ok(inode) => Ok(self.things.get(&inode).and_then(|thing| match thing {
                Thing::File { live, .. } => Some(live),
                Thing::Directory { .. } => None,
            })),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

impl FileSystem for SimulatedFileSystem {
    type File = SimulatedFile;

    fn create(&self, path: &Path) -> io::Result<SimulatedFile> {
        let empty = Thing::File { live: Vec::new(), durable: Vec::new() };
        self.state.lock().add(path, empty).map(SimulatedFile)
    }

    fn write(&self, file: &mut SimulatedFile, parts: &[Bytes]) -> io::Result<()> {
        if let Some(Thing::File { live, .. }) = self.state.lock().things.get_mut(&file.0) {
            for part in parts {
                live.extend_from_slice(part);
            }
        }
        Ok(())
    }

    fn sync_data(&self, file: &SimulatedFile) -> io::Result<()> {
        if let Some(Thing::File { live, durable }) = self.state.lock().things.get_mut(&file.0) {
            durable.clone_from(live);
        }
        Ok(())
    }

    fn rename_if_free(&self, from: &Path, to: &Path) -> io::Result<bool> {
        let mut state = self.state.lock();
        let inode = state.find(from)?;
        let (names, name) = state.names_of(to)?;
        if names.contains_key(&name) {
            return Ok(false);
        }
        names.insert(name, inode);
        let (names, name) = state.names_of(from)?;
        names.remove(&name);
        Ok(true)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match self.state.lock().add(path, empty_directory()) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.find(path)?;
        match state.things.get_mut(&inode) {
            Some(Thing::Directory { live, durable }) => durable.clone_from(live),
            _ => return Err(ErrorKind::NotADirectory.into()),
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.state.lock().names_of(path) {
            Ok((names, name)) => {
                names.remove(&name);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(self.state.lock().contents(path)?.map(|contents| contents.len() as u64))
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        Ok(state.find(path).and_then(|inode| state.names(inode).map(|_| ())).is_ok())
    }

    fn read(&self, path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        let contents = state.contents(path)?.ok_or(ErrorKind::NotFound)?;
        let part = contents.get(range.start as usize..range.end as usize);
        part.map(<[u8]>::to_vec).ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let state = self.state.lock();
        let names = match state.find(path).and_then(|inode| state.names(inode)) {
            Ok(names) => names,
            Err(error) if is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let entry = |(name, inode): (&String, &Inode)| DirectoryEntry {
            name: name.clone(),
            is_directory: matches!(state.things.get(inode), Some(Thing::Directory { .. })),
        };
        Ok(names.iter().map(entry).collect())
    }

    fn is_sole_user(&self, _lock: &Path) -> io::Result<bool> {
        Ok(true)
    }
}
