//! How snapshots stand in the object store: `{cluster}/snapshots/{name}/{part}`, and beside the
//! parts `manifest.json`. The name is the incarnation's number and one that grows, so that keys
//! sort by age.

use floe_env::{Error, Result};
use floe_store::ObjectStore;
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// The version of the manifest's form that is written, and the newest that is read.
pub(super) const MANIFEST_VERSION: u32 = 1;
/// The manifest's name; it sorts behind the parts'.
const MANIFEST: &str = "manifest.json";
/// Keys that one listing brings.
const KEYS_PER_PAGE: usize = 1000;

/// A snapshot's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// The number of the metadata's incarnation.
    pub(super) incarnation: u64,
    /// Which of its snapshots.
    pub(super) number: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:08}-{:012}", self.incarnation, self.number)
    }
}

impl Name {
    /// The name that a text is, exactly as it is shown.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (incarnation, number) = text.split_once('-')?;
        let name = Self { incarnation: incarnation.parse().ok()?, number: number.parse().ok()? };
        (name.to_string() == text).then_some(name)
    }
}

/// What a snapshot consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Version of this form.
    pub(super) version: u32,
    /// Whose metadata it is.
    pub(super) cluster: Uuid,
    /// It has all that was committed before, ms since 1970.
    pub(crate) taken_ms: i64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Its parts, in order.
    pub(super) parts: Vec<Part>,
}

/// A stretch of the file, as one zstd frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// Its bytes in the file.
    pub(super) bytes: u64,
    /// CRC-32C of the object.
    pub(super) crc32c: u32,
}

/// A snapshot in the store.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) name: Name,
    /// It has its manifest.
    pub(crate) is_whole: bool,
    /// The keys of its objects.
    pub(super) keys: Vec<String>,
}

fn folder(cluster: Uuid) -> String {
    format!("{cluster}/snapshots")
}

/// The key of a part.
pub(super) fn part_key(cluster: Uuid, name: Name, index: usize) -> String {
    format!("{}/{name}/{index:06}.zst", folder(cluster))
}

/// The key of a manifest.
pub(super) fn manifest_key(cluster: Uuid, name: Name) -> String {
    format!("{}/{name}/{MANIFEST}", folder(cluster))
}

/// All snapshots of a cluster, oldest first.
///
/// # Errors
/// Those of the store.
pub(crate) async fn list(store: &dyn ObjectStore, cluster: Uuid) -> Result<Vec<Found>> {
    let (folder, mut found) = (folder(cluster), Vec::<Found>::new());
    let mut after: Option<String> = None;
    loop {
        let page = store.list(&folder, after.as_deref(), KEYS_PER_PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for object in page {
            let rest = object.key.strip_prefix(&folder).and_then(|rest| rest.strip_prefix('/'));
            let named = rest.and_then(|rest| rest.split_once('/'));
            let Some((name, file)) = named else { continue };
            let Some(name) = Name::parse(name) else { continue };
            let is_whole = file == MANIFEST;
            match found.last_mut().filter(|last| last.name == name) {
                Some(last) => {
                    last.is_whole |= is_whole;
                    last.keys.push(object.key);
                }
                None => found.push(Found { name, is_whole, keys: vec![object.key] }),
            }
        }
    }
}

/// Reads a snapshot's manifest.
///
/// # Errors
/// `Corrupt` where it is something else, `Invalid` where a newer Floe wrote it or there is none,
/// and those of the store.
pub(crate) async fn read(store: &dyn ObjectStore, cluster: Uuid, name: Name) -> Result<Manifest> {
    let key = manifest_key(cluster, name);
    let url = store.url(&key);
    let missing = || Error::invalid(format!("there is no snapshot {name}: {url} is not there"));
    let bytes = store.get(&key).await?.ok_or_else(missing)?;
    let corrupt = |error| Error::corrupt(format!("{url} is no manifest")).with_source(error);
    let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(corrupt)?;
    let version = json.get("version").and_then(serde_json::Value::as_u64);
    if version.is_none_or(|version| version > u64::from(MANIFEST_VERSION)) {
        return Err(Error::invalid(format!("{url} was written by a newer Floe")));
    }
    let manifest: Manifest = serde_json::from_value(json).map_err(corrupt)?;
    if manifest.cluster != cluster {
        return Err(Error::corrupt(format!("{url} is of cluster {}", manifest.cluster)));
    }
    Ok(manifest)
}
