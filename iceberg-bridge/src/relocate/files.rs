//! One table's files with other addresses: every manifest and manifest list is written anew, under
//! a name of its own.

use super::Tables;
use crate::commit::{SnapshotPlace, encode_list, encode_relocated, put};
use crate::place::TablePlace;
use floe_env::{Error, Result};
use floe_store::ObjectStore;
use iceberg::spec::{
    DataFile, DataFileBuilder, FormatVersion, Manifest, ManifestContentType, ManifestFile,
    ManifestList, TableMetadata,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The address of a table's folder where `location`, of one of its files, was addressed.
pub(super) fn folder_of(location: &str, place: &TablePlace) -> Option<String> {
    let at = location.find(&format!("/{}/", place.key()))?;
    location.get(..at + 1 + place.key().len()).map(str::to_owned)
}

pub(super) struct Rewriter<'a> {
    tables: &'a Tables,
    place: TablePlace,
    /// The folder's old address.
    from: String,
    /// Manifests that were rewritten, by their old addresses.
    manifests: BTreeMap<String, ManifestFile>,
    lists: usize,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(tables: &'a Tables, place: TablePlace, from: String) -> Self {
        Self { tables, place, from, manifests: BTreeMap::new(), lists: 0 }
    }

    /// Files written so far.
    pub(super) fn files(&self) -> usize {
        self.manifests.len() + self.lists
    }

    fn store(&self) -> &dyn ObjectStore {
        self.tables.store.as_ref()
    }

    /// The key of a file by its old address.
    pub(super) fn key_of(&self, url: &str) -> Result<String> {
        self.place.key_of(&self.new_url(url)?)
    }

    fn new_url(&self, url: &str) -> Result<String> {
        let inside = crate::place::inside(&self.from, url);
        let inside =
            inside.ok_or_else(|| Error::invalid(format!("`{url}` is not in {}", self.from)))?;
        Ok(format!("{}/{inside}", self.place.url()))
    }

    /// Puts the new address in the place of the old one in all texts.
    pub(super) fn readdress(&self, json: &mut Value) {
        match json {
            Value::String(text) if *text == self.from => self.place.url().clone_into(text),
            Value::String(text) => {
                if let Ok(url) = self.new_url(text) {
                    *text = url;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.readdress(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.readdress(member));
            }
            _ => {}
        }
    }

    /// Rewrites the files of all snapshots, and names the new lists in the metadata.
    pub(super) async fn rewrite_snapshots(
        &mut self,
        metadata: &TableMetadata,
        json: &mut Value,
    ) -> Result<()> {
        if metadata.format_version() != FormatVersion::V2 {
            let version = metadata.format_version();
            return Err(Error::invalid(format!("format version {version} is not relocated")));
        }
        for snapshot in json["snapshots"].as_array_mut().into_iter().flatten() {
            let id = snapshot["snapshot-id"].as_i64();
            let known = id.and_then(|id| metadata.snapshot_by_id(id));
            let known = known.ok_or_else(|| Error::corrupt("a snapshot without its id"))?;
            let place = SnapshotPlace {
                id: known.snapshot_id(),
                parent: known.parent_snapshot_id(),
                sequence_number: known.sequence_number(),
            };
            snapshot["manifest-list"] =
                self.rewrite_list(known.manifest_list(), place).await?.into();
        }
        Ok(())
    }

    async fn rewrite_list(&mut self, url: &str, snapshot: SnapshotPlace) -> Result<String> {
        let bytes = self.get(url).await?;
        let list = ManifestList::parse_with_version(&bytes, FormatVersion::V2)
            .map_err(|error| Error::corrupt(format!("manifest list {url}")).with_source(error))?;
        let listed: Vec<ManifestFile> = list.consume_entries().into_iter().collect();
        let mut manifests = Vec::with_capacity(listed.len());
        for manifest in listed {
            manifests.push(self.rewrite_manifest(manifest).await?);
        }
        let key = self.place.manifest_list_key(&self.tables.env, snapshot.id);
        let url = self.place.url_of(&key)?;
        let list = encode_list(&url, snapshot, &manifests).await?;
        put(self.tables.store.clone(), key, vec![list]).await?;
        self.lists += 1;
        Ok(url)
    }

    async fn rewrite_manifest(&mut self, file: ManifestFile) -> Result<ManifestFile> {
        if let Some(done) = self.manifests.get(&file.manifest_path) {
            return Ok(done.clone());
        }
        if file.content != ManifestContentType::Data {
            return Err(Error::invalid(
                "it has delete files, which name data files by their addresses: move the store \
                 back, and compact the table first",
            ));
        }
        let bytes = self.get(&file.manifest_path).await?;
        let manifest = Manifest::parse_avro(&bytes).map_err(|error| {
            Error::corrupt(format!("manifest {}", file.manifest_path)).with_source(error)
        })?;
        let key = self.place.manifest_key(&self.tables.env);
        let url = self.place.url_of(&key)?;
        let spec_id = file.partition_spec_id;
        let renamed = |data_file: &DataFile| self.renamed(data_file, spec_id);
        let bytes = encode_relocated(&url, &file, &manifest, renamed).await?;
        let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        put(self.tables.store.clone(), key, vec![bytes]).await?;
        let old = file.manifest_path.clone();
        let done = ManifestFile { manifest_path: url, manifest_length: length, ..file };
        self.manifests.insert(old, done.clone());
        Ok(done)
    }

    /// A file's entry with its new address.
    fn renamed(&self, file: &DataFile, spec_id: i32) -> Result<DataFile> {
        let mut builder = DataFileBuilder::default();
        builder
            .content(file.content_type())
            .file_path(self.new_url(file.file_path())?)
            .file_format(file.file_format())
            .partition(file.partition().clone())
            .partition_spec_id(spec_id)
            .record_count(file.record_count())
            .file_size_in_bytes(file.file_size_in_bytes())
            .column_sizes(file.column_sizes().clone())
            .value_counts(file.value_counts().clone())
            .null_value_counts(file.null_value_counts().clone())
            .nan_value_counts(file.nan_value_counts().clone())
            .lower_bounds(file.lower_bounds().clone())
            .upper_bounds(file.upper_bounds().clone())
            .key_metadata(file.key_metadata().map(<[u8]>::to_vec))
            .split_offsets(file.split_offsets().map(<[i64]>::to_vec));
        if let Some(order) = file.sort_order_id() {
            builder.sort_order_id(order);
        }
        builder.build().map_err(|error| Error::bug(format!("entry of a relocated file: {error}")))
    }

    async fn get(&self, url: &str) -> Result<bytes::Bytes> {
        let key = self.key_of(url)?;
        let found = self.store().get(&key).await?;
        found.ok_or_else(|| Error::corrupt(format!("object `{key}` is missing")))
    }
}
