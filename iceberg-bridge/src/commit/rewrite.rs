//! Manifests of a commit that takes files out. Those that list one are replaced by one a spec,
//! which lists the files that stay, and the removed ones as deleted; all others are carried on.

use super::kind::Removed;
use super::manifest::{Entries, ExistingFile, parse_manifest};
use super::merge::{has_files, is_small};
use super::prepare::{Making, Puts};
use super::table::get;
use crate::place::TablePlace;
use floe_env::Result;
use floe_store::ObjectStore;
use futures::stream::{self, StreamExt};
use iceberg::spec::ManifestFile;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Manifests that are read at the same time.
const READS_MAX: usize = 16;

/// What a spec's new manifest lists: files that stay, and files that go.
type Split = (Vec<ExistingFile>, Vec<ExistingFile>);

/// The files of manifests, by the manifest's address.
pub(super) type Listings = BTreeMap<String, Vec<ExistingFile>>;

/// The files of those manifests that list removed ones, as far as these are not known already.
/// Reads no more manifests than it takes to find all.
pub(super) async fn listings(
    store: &Arc<dyn ObjectStore>,
    place: &TablePlace,
    manifests: &[ManifestFile],
    removed: &Removed,
) -> Result<Listings> {
    let count = |files: &[ExistingFile]| files.iter().filter(|file| removed.has(file)).count();
    let mut found = removed.known.clone();
    found.retain(|address, _| manifests.iter().any(|file| file.manifest_path == *address));
    let known: usize = found.values().map(|files| count(files)).sum();
    let mut missing = removed.len().saturating_sub(known);
    let mut unread: Vec<&ManifestFile> = manifests
        .iter()
        .filter(|file| has_files(file) && !found.contains_key(&file.manifest_path))
        .collect();
    // Removed files are small, and so in small manifests more often than not.
    unread.sort_by_key(|file| !is_small(file));
    let mut reads = Vec::with_capacity(unread.len());
    for manifest in unread {
        let key = place.key_of(&manifest.manifest_path)?;
        reads.push(read(store.clone(), key, manifest.clone()));
    }
    let mut reads = stream::iter(reads).buffered(READS_MAX);
    while missing > 0
        && let Some(listing) = reads.next().await
    {
        let (address, files) = listing?;
        let gone = count(&files);
        if gone > 0 {
            found.insert(address, files);
        }
        missing = missing.saturating_sub(gone);
    }
    drop(reads);
    Ok(found)
}

async fn read(
    store: Arc<dyn ObjectStore>,
    key: String,
    manifest: ManifestFile,
) -> Result<(String, Vec<ExistingFile>)> {
    let files = parse_manifest(&manifest, &get(store.as_ref(), &key).await?)?;
    Ok((manifest.manifest_path, files))
}

impl Making<'_> {
    /// The next snapshot's manifests for what is left of the earlier ones. `None` if one of the
    /// removed files is not in the table any more: somebody else was faster.
    pub(super) async fn manifests_without(
        &self,
        manifests: &[ManifestFile],
        removed: &Removed,
        puts: &mut Puts,
    ) -> Result<Option<Vec<ManifestFile>>> {
        let mut found = listings(self.store, self.place, manifests, removed).await?;
        let mut carried = Vec::new();
        let mut touched: BTreeMap<i32, Split> = BTreeMap::new();
        let mut gone = 0;
        for manifest in manifests.iter().filter(|file| has_files(file)) {
            let Some(files) = found.remove(&manifest.manifest_path) else {
                carried.push(manifest.clone());
                continue;
            };
            let (go, stay): (Vec<_>, Vec<_>) =
                files.into_iter().partition(|file| removed.has(file));
            gone += go.len();
            let split = touched.entry(manifest.partition_spec_id).or_default();
            split.0.extend(stay);
            split.1.extend(go);
        }
        if gone < removed.len() {
            return Ok(None);
        }
        for (spec_id, (existing, deleted)) in touched {
            let entries = Entries::Rewritten { existing, deleted };
            carried.push(self.manifest(spec_id, entries, puts).await?);
        }
        Ok(Some(carried))
    }
}
