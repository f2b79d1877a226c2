//! Manifests of a commit that takes files out. Those that list one are replaced by one a spec,
//! which lists the files that stay, and the removed ones as deleted; all others are carried on.

use super::Prepared;
use super::kind::Removed;
use super::manifest::{Entries, ExistingFile, SnapshotPlace, encode_manifest, parse_manifest};
use super::merge::{has_files, is_small, manifest_shape};
use super::table::get;
use crate::place::TablePlace;
use floe_env::{Env, Result};
use floe_store::ObjectStore;
use iceberg::spec::{ManifestFile, TableMetadata};
use std::collections::BTreeMap;

/// What a spec's new manifest lists: files that stay, and files that go.
type Split = (Vec<ExistingFile>, Vec<ExistingFile>);

/// The commit that takes files out.
pub(super) struct Rewriting<'a> {
    pub(super) env: &'a Env,
    pub(super) store: &'a dyn ObjectStore,
    pub(super) place: &'a TablePlace,
    pub(super) metadata: &'a TableMetadata,
    pub(super) snapshot: SnapshotPlace,
}

impl Rewriting<'_> {
    /// The next snapshot's manifests for what is left of the earlier ones. `None` if one of the
    /// removed files is not in the table any more: somebody else was faster.
    pub(super) async fn manifests_without(
        &self,
        manifests: &[ManifestFile],
        removed: &Removed,
        prepared: &mut Prepared,
    ) -> Result<Option<Vec<ManifestFile>>> {
        let mut carried = Vec::new();
        let mut touched: BTreeMap<i32, Split> = BTreeMap::new();
        let mut missing = removed.len();
        // Removed files are small, and so in small manifests more often than not.
        let (small, full): (Vec<_>, Vec<_>) =
            manifests.iter().filter(|file| has_files(file)).partition(|file| is_small(file));
        for manifest in small.into_iter().chain(full) {
            if missing == 0 {
                carried.push(manifest.clone());
                continue;
            }
            let key = self.place.key_of(&manifest.manifest_path)?;
            let files = parse_manifest(manifest, &get(self.store, &key).await?)?;
            let is_removed = |file: &ExistingFile| removed.contains_key(file.data_file.file_path());
            let (go, stay): (Vec<_>, Vec<_>) = files.into_iter().partition(is_removed);
            if go.is_empty() {
                carried.push(manifest.clone());
                continue;
            }
            missing = missing.saturating_sub(go.len());
            let split = touched.entry(manifest.partition_spec_id).or_default();
            split.0.extend(stay);
            split.1.extend(go);
        }
        if missing > 0 {
            return Ok(None);
        }
        for (spec_id, (stay, go)) in touched {
            carried.push(self.rewritten(spec_id, stay, go, prepared).await?);
        }
        Ok(Some(carried))
    }

    async fn rewritten(
        &self,
        spec_id: i32,
        stay: Vec<ExistingFile>,
        go: Vec<ExistingFile>,
        prepared: &mut Prepared,
    ) -> Result<ManifestFile> {
        let key = self.place.manifest_key(self.env);
        let shape = manifest_shape(self.metadata, spec_id)?;
        let entries = Entries::Rewritten { existing: stay, deleted: go };
        let url = self.place.url_of(&key)?;
        let (manifest, bytes) = encode_manifest(&url, self.snapshot, shape, entries).await?;
        prepared.puts.push((key, bytes));
        Ok(manifest)
    }
}
