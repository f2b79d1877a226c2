//! A copy of a metadata file as it was at one moment, made while it is in use.

use super::open::open_copier;
use floe_env::{Env, Error, Result};
use std::path::{Path, PathBuf};

/// Copies the file `from` to `to`, in the place of what is there. Writers go on meanwhile; the copy
/// has what was committed when it began. It is not synced.
pub(super) async fn copy(env: &Env, from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (from.to_owned(), to.to_owned());
    env.blocking(move || {
        remove(&to)?;
        let name = to.to_str().ok_or_else(|| Error::invalid("the copy's path is not UTF-8"))?;
        let copied = open_copier(&from)?.execute("VACUUM INTO ?1", [name]);
        copied.map(drop).map_err(|error| {
            // What there is of it is of no use to anybody.
            let _ = remove(&to);
            failed(&to, error)
        })
    })
    .await
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path, error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::unavailable(format!("cannot write {}", path.display())).with_source(error)
}

/// The name of a copy of `path`, beside it.
pub(super) fn copy_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".snapshot");
    PathBuf::from(name)
}
