//! The single-broker guard of a metadata file: an exclusive lock on `{file}.lock`, which the system
//! releases when the process dies, however it dies.

use floe_env::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// More of a lock file is not read.
const PID_BYTES_MAX: u64 = 32;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock of a metadata file at once, or says who has it.
    pub(crate) fn take(database: &Path) -> Result<Self> {
        let path = lock_path(database);
        let doing = |error: std::io::Error| {
            Error::unavailable(format!("lock {}", path.display())).with_source(error)
        };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(doing)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.take(PID_BYTES_MAX).read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "unknown" } else { holder };
                let message = format!("metadata is in use by another floe (pid {holder})");
                return Err(Error::unavailable(message));
            }
            Err(TryLockError::Error(error)) => return Err(doing(error)),
        }
        // Only for people: the lock itself is what counts.
        file.set_len(0).map_err(doing)?;
        file.rewind().map_err(doing)?;
        writeln!(file, "{}", std::process::id()).map_err(doing)?;
        Ok(Self { _file: file })
    }
}

fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}
