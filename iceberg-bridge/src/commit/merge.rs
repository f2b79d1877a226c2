//! Merging manifests: every commit adds one or two, and a reader fetches them all, so many small
//! ones become one a spec. A manifest that is full is left alone; so each entry is rewritten a few
//! times at most.

use super::manifest::{Entries, ExistingFile, parse_manifest};
use super::prepare::{Making, Puts};
use super::table::get;
use crate::error::iceberg_error;
use floe_env::Result;
use floe_store::ObjectStore;
use futures::stream::{self, StreamExt, TryStreamExt};
use iceberg::spec::{ManifestContentType, ManifestFile, PartitionSpec, SchemaRef, TableMetadata};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Small manifests that a table may have.
pub(super) const SMALL_MANIFESTS_MAX: usize = 100;
/// A manifest with this many files is full.
const FULL_MANIFEST_FILES: u32 = 1000;
/// Manifests that are read at the same time.
const READS_MAX: usize = 16;

/// Files that a manifest says are in the table.
fn live_files(manifest: &ManifestFile) -> u32 {
    let counts = [manifest.added_files_count, manifest.existing_files_count];
    // One that does not say may have any number.
    counts.into_iter().map(|count| count.unwrap_or(1)).sum()
}

pub(super) fn is_small(manifest: &ManifestFile) -> bool {
    live_files(manifest) < FULL_MANIFEST_FILES
}

/// False for a manifest that lists deleted files only: it was of interest to its own snapshot.
pub(super) fn has_files(manifest: &ManifestFile) -> bool {
    live_files(manifest) > 0
}

impl Making<'_> {
    /// The snapshot's manifests that list the files of earlier ones; those that are new go into
    /// `puts`.
    pub(super) async fn carried(
        &self,
        manifests: &[ManifestFile],
        puts: &mut Puts,
    ) -> Result<Vec<ManifestFile>> {
        let with_files = manifests.iter().filter(|manifest| has_files(manifest)).cloned();
        // Delete manifests of others are small too, and never merged with data.
        let can_merge =
            |file: &ManifestFile| is_small(file) && file.content == ManifestContentType::Data;
        let (mut small, mut carried): (Vec<_>, Vec<_>) = with_files.partition(can_merge);
        if small.len() <= SMALL_MANIFESTS_MAX {
            small.extend(carried);
            return Ok(small);
        }
        let mut reads = Vec::with_capacity(small.len());
        for manifest in small {
            let key = self.place.key_of(&manifest.manifest_path)?;
            reads.push(read_manifest(self.store.clone(), key, manifest));
        }
        let read: Vec<(i32, Vec<ExistingFile>)> =
            stream::iter(reads).buffered(READS_MAX).try_collect().await?;
        let mut by_spec: BTreeMap<i32, Vec<ExistingFile>> = BTreeMap::new();
        for (spec_id, files) in read {
            by_spec.entry(spec_id).or_default().extend(files);
        }
        for (spec_id, files) in by_spec {
            carried.push(self.manifest(spec_id, Entries::Existing(files), puts).await?);
        }
        Ok(carried)
    }
}

async fn read_manifest(
    store: Arc<dyn ObjectStore>,
    key: String,
    manifest: ManifestFile,
) -> Result<(i32, Vec<ExistingFile>)> {
    let bytes = get(store.as_ref(), &key).await?;
    Ok((manifest.partition_spec_id, parse_manifest(&manifest, &bytes)?))
}

/// Schema and spec that a manifest is written with.
pub(super) fn manifest_shape(
    metadata: &TableMetadata,
    spec_id: i32,
) -> Result<(SchemaRef, PartitionSpec)> {
    let spec = metadata.partition_spec_by_id(spec_id).ok_or_else(|| {
        let message = format!("partition spec {spec_id}");
        let unknown = iceberg::Error::new(iceberg::ErrorKind::DataInvalid, message);
        iceberg_error("table metadata lacks a spec", unknown)
    })?;
    Ok((metadata.current_schema().clone(), spec.as_ref().clone()))
}
