//! The world's metadata store, which outlives every broker: the model, or SQLite in a file that is
//! opened again at each start. When the power is cut, the next start gets what was on the disk: the
//! file and its log as the last transaction left them, and behind them perhaps a piece of one that
//! was being written.

use crate::dice::{below, chance};
use floe_env::{Env, Error, Result};
use floe_metadata::facts::FactKey;
use floe_metadata::{Backend, ModelBackend, SqliteBackend};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// While the server opens its file again, calls look after this time.
const OPENING_PAUSE: Duration = Duration::from_millis(1);
/// A file that stays locked for so many looks is a bug.
const OPENING_LOOKS_MAX: u32 = 10_000;

/// How long a torn piece of a transaction is at most, bytes.
const TORN_BYTES_MAX: u64 = 9000;
/// A page in SQLite's log, bytes.
const FRAME_BYTES: usize = 4096 + 24;
/// Pages that a planted bug loses.
const FRAMES_LOST: usize = 40;
/// The facts that are tables' pointers.
const TABLES: &str = "tables";
/// The facts that are removed tables.
const REMOVED_TABLES: &str = "removed-tables";
/// Tables that are looked at.
const TABLES_MAX: usize = 1000;

/// The store behind all lives.
pub struct MetadataServer {
    env: Env,
    /// The folder of the SQLite file; none where the model serves.
    folder: Option<TempDir>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<dyn Backend>>,
    /// Names the file: there is a new one after each power cut.
    boots: u32,
    /// Power was cut since the file was last opened.
    is_cut: bool,
    /// A planted bug: the log's end was not synced.
    loses_last: bool,
}

impl MetadataServer {
    /// A new store, in a file or in the model. `env` is the world's own.
    ///
    /// # Errors
    /// Whatever the file system or SQLite answers.
    pub async fn start(env: Env, in_file: bool) -> Result<Arc<Self>> {
        let folder = in_file
            .then(tempfile::tempdir)
            .transpose()
            .map_err(|error| Error::unavailable("no temporary folder").with_source(error))?;
        let model: Option<Arc<dyn Backend>> =
            if in_file { None } else { Some(Arc::new(ModelBackend::new(env.clone()))) };
        let state = Mutex::new(State { current: model, ..State::default() });
        let server = Arc::new(Self { env, folder, state });
        server.open_again().await?;
        Ok(server)
    }

    /// Cuts the power of the machine that has the file. Nothing where the model serves.
    pub fn cut_power(&self) {
        self.state.lock().is_cut = self.folder.is_some();
    }

    /// Plants a bug: a power cut loses the end of the log.
    pub fn lose_last_transactions(&self) {
        self.state.lock().loses_last = true;
    }

    /// Closes the file and opens it again, as a restarted process does. Nothing where the model
    /// serves.
    ///
    /// # Errors
    /// Whatever SQLite answers.
    pub async fn open_again(&self) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let (is_cut, boots) = {
            let mut state = self.state.lock();
            state.current = None;
            (std::mem::take(&mut state.is_cut), state.boots)
        };
        let mut path = folder.path().join(format!("metadata-{boots}.sqlite"));
        if is_cut {
            self.wait_until_closed(&path).await?;
            let rebooted = folder.path().join(format!("metadata-{}.sqlite", boots + 1));
            self.reboot(&path, &rebooted)
                .map_err(|error| Error::unavailable("copy the disk").with_source(error))?;
            self.state.lock().boots += 1;
            path = rebooted;
        }
        for _ in 0..OPENING_LOOKS_MAX {
            match SqliteBackend::open(&self.env, &path).await {
                Ok(opened) => {
                    self.state.lock().current = Some(Arc::new(opened));
                    return Ok(());
                }
                // The closed one's tasks end at their next poll.
                Err(error) if error.message().contains("in use") => {
                    self.env.sleep(OPENING_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::bug("the metadata file stays locked"))
    }

    /// Waits until nobody holds the file's lock, so that the copy has all that was done.
    async fn wait_until_closed(&self, path: &Path) -> Result<()> {
        let failed = |error| Error::unavailable("lock of the metadata file").with_source(error);
        for _ in 0..OPENING_LOOKS_MAX {
            let lock = std::fs::File::open(beside(path, ".lock")).map_err(failed)?;
            if lock.try_lock().is_ok() {
                return Ok(());
            }
            self.env.sleep(OPENING_PAUSE).await;
        }
        Err(Error::bug("the metadata file stays locked"))
    }

    /// What a power cut leaves of the file: all that was committed, as SQLite syncs each commit,
    /// and behind it perhaps a piece of a transaction that never was.
    fn reboot(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        std::fs::copy(from, to)?;
        let mut log = std::fs::read(beside(from, "-wal"))?;
        if self.state.lock().loses_last {
            log.truncate(log.len().saturating_sub(FRAMES_LOST * FRAME_BYTES));
        } else if chance(&self.env, 600) {
            let length = below(&self.env, TORN_BYTES_MAX) as usize;
            if chance(&self.env, 500) {
                // The log once more: frames whose checksums do not follow on the last one.
                let piece = log[..length.min(log.len())].to_vec();
                log.extend_from_slice(&piece);
            } else {
                log.extend((0..length).map(|_| below(&self.env, 256) as u8));
            }
        }
        std::fs::write(beside(to, "-wal"), log)?;
        std::fs::remove_file(from)
    }

    /// The backend that serves now.
    pub async fn backend(&self) -> Arc<dyn Backend> {
        loop {
            let current = self.state.lock().current.clone();
            if let Some(backend) = current {
                return backend;
            }
            self.env.sleep(OPENING_PAUSE).await;
        }
    }

    /// Where all tables are: the address of each one's newest metadata file.
    ///
    /// # Errors
    /// Whatever the backend answers, and `Corrupt` for a pointer that names no file.
    pub async fn table_locations(&self) -> Result<Vec<String>> {
        let all = FactKey::new(&[TABLES]).folder();
        let pointers = self.backend().await.scan(&all, TABLES_MAX).await?;
        pointers.iter().map(|(_, bytes)| metadata_location(bytes)).collect()
    }

    /// Folders of tables that were removed and whose files wait for the end of their retention.
    ///
    /// # Errors
    /// Whatever the backend answers.
    pub async fn removed_tables(&self) -> Result<BTreeSet<String>> {
        let all = FactKey::new(&[REMOVED_TABLES]).folder();
        let removed = self.backend().await.scan(&all, TABLES_MAX).await?;
        Ok(removed.iter().map(|(key, _)| key.segments()[1..].join("-")).collect())
    }
}

/// The address of the metadata file that a table's pointer names.
///
/// # Errors
/// `Corrupt` where it names none.
pub fn metadata_location(pointer: &[u8]) -> Result<String> {
    let pointer: serde_json::Value = serde_json::from_slice(pointer)
        .map_err(|error| Error::corrupt("a table's pointer is no JSON").with_source(error))?;
    let location = pointer["metadata_location"].as_str();
    location.map(str::to_owned).ok_or_else(|| Error::corrupt("a table's pointer names no file"))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
