//! Reads tables as an engine does: from a metadata file to the manifest list, the manifests, and
//! the Parquet files, straight from the objects. Independent of the bridge's own reader. Files
//! never change, so each is read once.

use crate::model::{NAME_KEY, RecordName, SECOND_KEYS, name_of};
use crate::object_server::ObjectServer;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use flate2::read::GzDecoder;
use floe_store::ObjectStore;
use iceberg::spec::{FormatVersion, Manifest, ManifestList, Snapshot, SnapshotRef, TableMetadata};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// Columns by position: partition, offset, value.
const COLUMNS: [usize; 3] = [0, 1, 6];

/// Partition, offset and record.
pub type TableRow = (i32, i64, RecordName);

/// A version of a table, as read.
pub struct TableContent {
    /// The table's uuid.
    pub table: Uuid,
    /// The current snapshot's summary.
    pub summary: BTreeMap<String, String>,
    /// What each snapshot that is still there says of itself.
    pub summaries: Vec<BTreeMap<String, String>>,
    /// Sequence number and id of each snapshot that is still there.
    pub snapshots: Vec<(i64, i64)>,
    /// All rows, in no order.
    pub rows: Vec<TableRow>,
}

/// Reads tables; clones share what was read.
#[derive(Clone)]
pub struct TableFiles {
    objects: ObjectServer,
    rows: Arc<Mutex<BTreeMap<String, Arc<Vec<TableRow>>>>>,
    manifests: Arc<Mutex<BTreeMap<String, Arc<Vec<String>>>>>,
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

impl TableFiles {
    /// A reader that has read nothing.
    pub fn new(objects: ObjectServer) -> Self {
        Self { objects, rows: Arc::default(), manifests: Arc::default() }
    }

    fn key(&self, url: &str) -> Result<String, String> {
        let root = self.objects.url("");
        url.strip_prefix(&root).map(str::to_owned).ok_or_else(|| format!("{url} is not in {root}"))
    }

    async fn get(&self, key: &str) -> Result<Bytes, String> {
        let found = self.objects.get(key).await.map_err(text)?;
        found.ok_or_else(|| format!("{key} is not there"))
    }

    /// A metadata file.
    ///
    /// # Errors
    /// What is missing or makes no sense.
    pub async fn metadata(&self, location: &str) -> Result<TableMetadata, String> {
        let file = self.get(&self.key(location)?).await?;
        if !location.ends_with(".gz.metadata.json") {
            return serde_json::from_slice(&file).map_err(text);
        }
        serde_json::from_reader(GzDecoder::new(file.as_ref())).map_err(text)
    }

    /// The current snapshot's rows.
    ///
    /// # Errors
    /// What is missing or makes no sense.
    pub async fn content(&self, metadata: &TableMetadata) -> Result<TableContent, String> {
        let snapshot = metadata.current_snapshot().ok_or("no snapshot")?;
        let summary_of = |snapshot: &Snapshot| {
            let values = &snapshot.summary().additional_properties;
            values.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let summaries = metadata.snapshots().map(|snapshot| summary_of(snapshot)).collect();
        let snapshots = numbered_snapshots(metadata);
        let mut rows = Vec::new();
        for manifest in self.manifests(snapshot.manifest_list()).await? {
            for file in self.data_files(&manifest).await?.iter() {
                rows.extend(self.rows(file).await?.iter().copied());
            }
        }
        let table = metadata.uuid();
        Ok(TableContent { table, summary: summary_of(snapshot), summaries, snapshots, rows })
    }

    /// The keys of all files that a version reaches: itself, the versions before it that it names,
    /// the lists and manifests of its snapshots, and their data files. What was read before is not
    /// read again, and need not be there any more.
    ///
    /// # Errors
    /// What is missing or makes no sense.
    pub async fn files_of(
        &self,
        location: &str,
        metadata: &TableMetadata,
    ) -> Result<BTreeSet<String>, String> {
        let mut files = BTreeSet::from([self.key(location)?]);
        for log in metadata.metadata_log() {
            files.insert(self.key(&log.metadata_file)?);
        }
        for snapshot in metadata.snapshots() {
            files.insert(self.key(snapshot.manifest_list())?);
            for manifest in self.manifests(snapshot.manifest_list()).await? {
                files.extend(self.data_files(&manifest).await?.iter().cloned());
                files.insert(manifest);
            }
        }
        Ok(files)
    }

    /// The keys of a list's manifests.
    async fn manifests(&self, list: &str) -> Result<Vec<String>, String> {
        let key = self.key(list)?;
        if let Some(known) = self.manifests.lock().get(&key) {
            return Ok(known.to_vec());
        }
        let bytes = self.get(&key).await?;
        let list = ManifestList::parse_with_version(&bytes, FormatVersion::V2).map_err(text)?;
        let keys: Result<Vec<String>, String> =
            list.entries().iter().map(|manifest| self.key(&manifest.manifest_path)).collect();
        let keys = keys?;
        self.manifests.lock().insert(key, Arc::new(keys.clone()));
        Ok(keys)
    }

    /// The keys of a manifest's living data files.
    async fn data_files(&self, manifest: &str) -> Result<Arc<Vec<String>>, String> {
        if let Some(known) = self.manifests.lock().get(manifest) {
            return Ok(known.clone());
        }
        let parsed = Manifest::parse_avro(&self.get(manifest).await?).map_err(text)?;
        let living = parsed.entries().iter().filter(|entry| entry.is_alive());
        let keys: Result<Vec<String>, String> =
            living.map(|entry| self.key(entry.data_file().file_path())).collect();
        let keys = Arc::new(keys?);
        self.manifests.lock().insert(manifest.to_owned(), keys.clone());
        Ok(keys)
    }

    async fn rows(&self, file: &str) -> Result<Arc<Vec<TableRow>>, String> {
        let known = self.rows.lock().get(file).cloned();
        if let Some(known) = known {
            let is_there = self.objects.head(file).await.map_err(text)?.is_some();
            return if is_there { Ok(known) } else { Err(format!("{file} is gone")) };
        }
        let rows = Arc::new(rows_of(self.get(file).await?).map_err(|e| format!("{file}: {e}"))?);
        self.rows.lock().insert(file.to_owned(), rows.clone());
        Ok(rows)
    }
}

/// Sequence number and id of each snapshot that is still there.
pub fn numbered_snapshots(metadata: &TableMetadata) -> Vec<(i64, i64)> {
    let numbered = |snapshot: &SnapshotRef| (snapshot.sequence_number(), snapshot.snapshot_id());
    metadata.snapshots().map(numbered).collect()
}

/// The name of a record whose object became columns, which must hold the whole object.
fn json_name(batch: &RecordBatch, row: usize) -> Option<RecordName> {
    let name = batch.column_by_name(NAME_KEY)?.as_string_opt::<i32>()?;
    let name = name.is_valid(row).then(|| name_of(name.value(row).as_bytes()))??;
    let number = i64::try_from(name.1).ok()?;
    let key = format!("k{}", name.1 % SECOND_KEYS);
    let column = batch.column_by_name(&key)?.as_primitive_opt::<Int64Type>()?;
    (column.is_valid(row) && column.value(row) == number).then_some(name)
}

fn rows_of(bytes: Bytes) -> Result<Vec<TableRow>, String> {
    let [partition, offset, value] = COLUMNS;
    let mut rows = Vec::new();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(text)?;
    for batch in reader.build().map_err(text)? {
        let batch = batch.map_err(text)?;
        let partitions = batch.column(partition).as_primitive::<Int32Type>();
        let offsets = batch.column(offset).as_primitive::<Int64Type>();
        let values = batch.column(value).as_binary::<i32>();
        for row in 0..batch.num_rows() {
            // A JSON object is in columns, and has no other place.
            let name = match values.is_valid(row) {
                true => name_of(values.value(row)).filter(|_| !values.value(row).starts_with(b"{")),
                false => json_name(&batch, row),
            };
            let name = name.ok_or_else(|| format!("row {row}: nobody sent this value"))?;
            rows.push((partitions.value(row), offsets.value(row), name));
        }
    }
    Ok(rows)
}
