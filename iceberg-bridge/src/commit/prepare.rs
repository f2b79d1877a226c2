//! What one attempt of a commit needs, made in memory: manifests, their list, and the metadata of
//! the next version.

use super::encoded::{EncodedMetadata, is_compressed};
use super::kind::Kind;
use super::manifest::{Entries, SnapshotPlace, encode_list, encode_manifest};
use super::merge::manifest_shape;
use super::refs::Refs;
use super::snapshot::{Addition, NextVersion, Version, next_snapshot, next_version};
use super::{Committer, LoadedTable, Staged};
use crate::place::TablePlace;
use bytes::Bytes;
use floe_env::{Env, Result};
use floe_store::ObjectStore;
use iceberg::TableUpdate;
use iceberg::spec::{DataFile, ManifestFile, SnapshotRef, TableMetadata};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects to be put, each in pieces.
pub(super) type Puts = Vec<(String, Vec<Bytes>)>;

/// All that one attempt needs, in memory.
pub(super) struct Prepared {
    pub(super) puts: Puts,
    pub(super) snapshot_id: i64,
    /// What the version has beyond the one before.
    pub(super) changes: Vec<TableUpdate>,
    pub(super) metadata: TableMetadata,
    pub(super) encoded: EncodedMetadata,
    pub(super) metadata_file: Vec<Bytes>,
    pub(super) metadata_location: String,
    pub(super) refs: Refs,
    pub(super) manifests: Vec<ManifestFile>,
    pub(super) expired: Vec<SnapshotRef>,
    pub(super) old_metadata: Vec<String>,
}

/// The version that an attempt is made on: that of `base`, or of a table that is to be made.
pub(super) struct Onto<'a> {
    pub(super) place: &'a TablePlace,
    pub(super) base: Option<&'a LoadedTable>,
    pub(super) metadata: TableMetadata,
}

impl Committer {
    /// `None` where the table lacks a file that the commit takes out.
    pub(super) async fn prepare(
        &self,
        Onto { place, base, metadata }: Onto<'_>,
        staged: &Staged,
        kind: &Kind,
    ) -> Result<Option<Prepared>> {
        let version = base.map_or(0, |base| base.pointer.metadata_version + 1);
        // Positive, as some readers expect.
        let snapshot_id = i64::try_from(self.env.random_u64() >> 1).expect("63 bits").max(1);
        let snapshot = next_snapshot(base, snapshot_id);
        let list_key = place.manifest_list_key(&self.env, snapshot_id);
        let list_url = place.url_of(&list_key)?;
        let addition = Addition {
            operation: kind.operation(),
            removed: kind.removed(),
            note: kind.note(),
            files: staged.files.iter().map(|file| &file.data_file).collect(),
            progress: &staged.to,
            gaps: &staged.gaps,
            mapping: &staged.mapping,
            counts: &staged.counts,
        };
        let location = base.map(|base| base.pointer.metadata_location.clone());
        let no_refs = Refs::new();
        let refs = base.map_or(&no_refs, |base| &base.refs);
        let next = next_version(
            Version { name: base.map(|base| base.pointer.name.as_str()), metadata, refs, location },
            snapshot,
            list_url.clone(),
            self.env.now_ms(),
            &self.rules,
            &addition,
        )?;
        let metadata = &next.built.metadata;
        let (env, store) = (&self.env, &self.store);
        let making = Making { env, store, place, metadata, snapshot };
        let mut puts = Puts::new();
        let manifests = making.manifests(base, staged, kind, &mut puts).await?;
        let Some(manifests) = manifests else { return Ok(None) };
        puts.push((list_key, vec![encode_list(&list_url, snapshot, &manifests).await?]));
        let (encoded, metadata_file) = self.encoded(base, &next)?;
        let metadata_key = place.metadata_key(&self.env, version, is_compressed(metadata));
        let metadata_location = place.url_of(&metadata_key)?;
        let mut old_metadata = Vec::new();
        // Another catalog writes its own.
        if self.rest.is_none() {
            puts.push((metadata_key, metadata_file.clone()));
            let old = next.built.expired_metadata_logs.iter();
            old_metadata.extend(old.filter_map(|log| place.key_of(&log.metadata_file).ok()));
        }
        Ok(Some(Prepared {
            puts,
            snapshot_id,
            changes: next.built.changes,
            metadata: next.built.metadata,
            metadata_location,
            encoded,
            metadata_file,
            refs: next.refs,
            manifests,
            expired: next.expired,
            old_metadata,
        }))
    }

    /// The next version's metadata and its file. Another catalog makes its own of both.
    fn encoded(
        &self,
        base: Option<&LoadedTable>,
        next: &NextVersion,
    ) -> Result<(EncodedMetadata, Vec<Bytes>)> {
        if self.rest.is_some() {
            return Ok(Default::default());
        }
        let none = EncodedMetadata::default();
        let before = base.map_or(&none, |base| &base.encoded);
        EncodedMetadata::of(&next.built.metadata, &next.refs, before)
    }
}

/// The snapshot that is being made.
pub(super) struct Making<'a> {
    pub(super) env: &'a Env,
    pub(super) store: &'a Arc<dyn ObjectStore>,
    pub(super) place: &'a TablePlace,
    /// Of its own version: files may have columns that are new.
    pub(super) metadata: &'a TableMetadata,
    pub(super) snapshot: SnapshotPlace,
}

impl Making<'_> {
    /// Its manifests; those that are new go into `puts`. `None` where the table lacks a file that
    /// the commit takes out.
    async fn manifests(
        &self,
        base: Option<&LoadedTable>,
        staged: &Staged,
        kind: &Kind,
        puts: &mut Puts,
    ) -> Result<Option<Vec<ManifestFile>>> {
        let mut manifests = self.added(staged, puts).await?;
        let Some(base) = base else { return Ok(Some(manifests)) };
        if let Some(removed) = kind.taken_out() {
            let left = self.manifests_without(&base.manifests, removed, puts).await?;
            return Ok(left.map(|left| [manifests, left].concat()));
        }
        manifests.extend(self.carried(&base.manifests, puts).await?);
        Ok(Some(manifests))
    }

    /// Manifests of the files that it adds.
    async fn added(&self, staged: &Staged, puts: &mut Puts) -> Result<Vec<ManifestFile>> {
        let mut by_spec: BTreeMap<i32, Vec<DataFile>> = BTreeMap::new();
        for file in &staged.files {
            let (spec_id, file) = (partition_spec_id(&file.data_file), file.data_file.clone());
            by_spec.entry(spec_id).or_default().push(file);
        }
        let mut added = Vec::with_capacity(by_spec.len());
        for (spec_id, files) in by_spec {
            added.push(self.manifest(spec_id, Entries::Added(files), puts).await?);
        }
        Ok(added)
    }

    /// A new manifest.
    pub(super) async fn manifest(
        &self,
        spec_id: i32,
        entries: Entries,
        puts: &mut Puts,
    ) -> Result<ManifestFile> {
        let key = self.place.manifest_key(self.env);
        let (url, shape) = (self.place.url_of(&key)?, manifest_shape(self.metadata, spec_id)?);
        let (manifest, bytes) = encode_manifest(&url, self.snapshot, shape, entries).await?;
        puts.push((key, vec![bytes]));
        Ok(manifest)
    }
}

pub(super) fn partition_spec_id(file: &DataFile) -> i32 {
    if file.partition().fields().is_empty() {
        crate::schema::SPEC_UNPARTITIONED
    } else {
        crate::schema::SPEC_DAY
    }
}
