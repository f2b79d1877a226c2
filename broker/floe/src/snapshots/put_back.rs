//! Putting a snapshot back where the metadata file was.

use super::PART_BYTES;
use super::manifest::{Name, Part, list, part_key, read};
use floe_env::{Env, Error, Result};
use floe_store::{ObjectStore, read_identity};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Writes a snapshot, the newest where none is named, to `file`, which must not be there. Answers
/// the snapshot's name and when it was taken, ms since 1970.
///
/// # Errors
/// `Invalid` where the file is there or no snapshot is, `Corrupt` where one is damaged, and those
/// of the store and the disk. The file is there whole or not at all.
pub(crate) async fn put_back(
    env: &Env,
    store: &dyn ObjectStore,
    file: &Path,
    named: Option<&str>,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<(String, i64)> {
    let identity = read_identity(store).await?;
    let nothing = || Error::invalid("the object store holds no cluster: there is nothing in it");
    let cluster = identity.ok_or_else(nothing)?.cluster;
    let name = match named {
        Some(text) => Name::parse(text).ok_or_else(|| no_snapshot(text))?,
        None => {
            let found = list(store, cluster).await?;
            let newest = found.into_iter().rfind(|snapshot| snapshot.is_whole);
            let none = || Error::invalid("the object store has no snapshot of the metadata");
            newest.ok_or_else(none)?.name
        }
    };
    let manifest = read(store, cluster, name).await?;
    refuse_to_replace(env, file).await?;
    let partial = with_suffix(file, "restoring");
    let opened = partial.clone();
    let mut target =
        env.blocking(move || File::create(&opened).map_err(|error| failed(&opened, error))).await?;
    let mut written = 0;
    for (index, part) in manifest.parts.iter().enumerate() {
        let raw = fetch(store, &part_key(cluster, name, index), part).await?;
        let path = partial.clone();
        target = env
            .blocking(move || {
                target.write_all(&raw).map_err(|error| failed(&path, error))?;
                Ok::<_, Error>(target)
            })
            .await?;
        written += part.bytes;
        progress(format!("{written} of {} bytes", manifest.bytes));
    }
    let to = file.to_owned();
    env.blocking(move || {
        target.sync_all().map_err(|error| failed(&partial, error))?;
        std::fs::rename(&partial, &to).map_err(|error| failed(&to, error))?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or_else(|| Path::new(".")));
        folder.and_then(|folder| folder.sync_all()).map_err(|error| failed(&to, error))
    })
    .await?;
    Ok((name.to_string(), manifest.taken_ms))
}

async fn refuse_to_replace(env: &Env, file: &Path) -> Result<()> {
    let (file, log) = (file.to_owned(), with_suffix(file, "wal"));
    let is_there = env.blocking(move || file.exists() || log.exists()).await;
    match is_there {
        false => Ok(()),
        true => Err(Error::invalid(
            "the metadata file is there: move it away, with its -wal file, before a snapshot takes \
             its place",
        )),
    }
}

/// The bytes of a part, verified.
async fn fetch(store: &dyn ObjectStore, key: &str, part: &Part) -> Result<Vec<u8>> {
    let damaged = |what: &str| Error::corrupt(format!("{} {what}", store.url(key)));
    let object = store.get(key).await?.ok_or_else(|| damaged("is not there"))?;
    if crc32c::crc32c(&object) != part.crc32c {
        return Err(damaged("is damaged: its checksum differs"));
    }
    let raw = kfs::decompress(kfs::Codec::Zstd, &object, PART_BYTES as usize)
        .map_err(|error| damaged("is damaged").with_source(error))?
        .into_owned();
    if raw.len() as u64 != part.bytes {
        return Err(damaged("has another length"));
    }
    Ok(raw)
}

fn no_snapshot(text: &str) -> Error {
    Error::invalid(format!("there is no snapshot {text}: `floe restore --list` shows them"))
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::unavailable(format!("cannot write {}", path.display())).with_source(error)
}

fn with_suffix(file: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-");
    name.push(suffix);
    name.into()
}
