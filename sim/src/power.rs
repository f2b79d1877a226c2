//! A machine whose power can be cut: at a chosen step of its file system the process dies, and what
//! was not synced is forgotten. Every step is a call of [`FileSystem`], so that a cut falls between
//! any two of them.

use bytes::Bytes;
use floe_env::simulated::Node;
use floe_store::directory::{DirectoryEntry, FileSystem, SimulatedFile, SimulatedFileSystem};
use parking_lot::Mutex;
use std::io::{self, Error, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The machine; clones are the same one.
#[derive(Clone, Default)]
pub struct Machine {
    files: SimulatedFileSystem,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Raised when power is cut: who was there before does nothing any more.
    boots: u64,
    /// Steps until power is cut.
    cut_in: Option<u64>,
    cuts: u64,
    /// Processes of this boot, some of which may have ended.
    running: Vec<Node>,
    /// A planted bug: names are not synced.
    forgets_names: bool,
}

/// The file system as one process sees it.
#[derive(Clone)]
pub struct PoweredFileSystem {
    machine: Machine,
    /// The process, and the boot in which it runs; none for the world's own view.
    process: Option<(Node, u64)>,
}

impl Machine {
    /// The file system for a process that starts now.
    pub fn mount(&self, node: &Node) -> PoweredFileSystem {
        let mut state = self.state.lock();
        state.running.push(node.clone());
        let boot = state.boots;
        PoweredFileSystem { machine: self.clone(), process: Some((node.clone(), boot)) }
    }

    /// The file system for the world, which takes no part.
    pub fn watch(&self) -> PoweredFileSystem {
        PoweredFileSystem { machine: self.clone(), process: None }
    }

    /// Cuts the power now: every process that has started since the last cut dies.
    pub fn cut(&self) {
        let running = {
            let mut state = self.state.lock();
            state.boots += 1;
            state.cuts += 1;
            state.cut_in = None;
            self.files.crash();
            std::mem::take(&mut state.running)
        };
        running.iter().for_each(Node::kill);
    }

    /// Cuts the power after so many steps of any process, or never.
    pub fn cut_in(&self, steps: Option<u64>) {
        self.state.lock().cut_in = steps;
    }

    /// How often power was cut.
    pub fn cuts(&self) -> u64 {
        self.state.lock().cuts
    }

    /// Plants a bug: the syncs of directories are left out.
    pub fn forget_names(&self) {
        self.state.lock().forgets_names = true;
    }
}

impl PoweredFileSystem {
    /// One step: an error where the process is dead or the power is off.
    fn step(&self) -> io::Result<&SimulatedFileSystem> {
        let Some((node, boot)) = &self.process else { return Ok(&self.machine.files) };
        let is_cut = {
            let mut state = self.machine.state.lock();
            if state.boots != *boot || !node.is_alive() {
                return Err(Error::new(ErrorKind::BrokenPipe, "simulated: the process is dead"));
            }
            match &mut state.cut_in {
                Some(0) => true,
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            }
        };
        if is_cut {
            self.machine.cut();
            return Err(Error::new(ErrorKind::BrokenPipe, "simulated: the power is cut"));
        }
        Ok(&self.machine.files)
    }
}

impl FileSystem for PoweredFileSystem {
    type File = SimulatedFile;

    fn create(&self, path: &Path) -> io::Result<SimulatedFile> {
        self.step()?.create(path)
    }

    fn write(&self, file: &mut SimulatedFile, parts: &[Bytes]) -> io::Result<()> {
        self.step()?.write(file, parts)
    }

    fn sync_data(&self, file: &SimulatedFile) -> io::Result<()> {
        self.step()?.sync_data(file)
    }

    fn rename_if_free(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.step()?.rename_if_free(from, to)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let files = self.step()?;
        if self.process.is_some() && self.machine.state.lock().forgets_names {
            return Ok(());
        }
        files.sync_directory(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?.remove(path)
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        self.step()?.size(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.step()?.is_directory(path)
    }

    fn read(&self, path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.step()?.read(path, range)
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.step()?.entries(path)
    }

    fn is_sole_user(&self, lock: &Path) -> io::Result<bool> {
        self.step()?.is_sole_user(lock)
    }
}
