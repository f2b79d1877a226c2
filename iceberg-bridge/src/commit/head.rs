//! What is kept of a table that is not in use: everything but its metadata, which is a thousand
//! small pieces in memory, and stays as the bytes of its file.

use super::encoded::{EncodedMetadata, joined, json_of};
use super::merge::has_files;
use super::refs::Refs;
use super::table::LoadedTable;
use crate::mapping::Mapping;
use crate::place::TablePlace;
use crate::pointer::TablePointer;
use crate::progress::Progress;
use bytes::Bytes;
use floe_env::{Error, Result};
use iceberg::spec::{ManifestContentType, ManifestFile, TableMetadata};
use std::sync::Arc;

/// One version of a table, without its metadata at hand.
#[derive(Debug)]
pub struct TableHead {
    /// The fact that names this version.
    pub pointer: TablePointer,
    /// Where its files are.
    pub place: TablePlace,
    /// Its branches and tags.
    pub(super) refs: Refs,
    /// The manifests of the current snapshot.
    pub manifests: Vec<ManifestFile>,
    /// How far the table has got; one that is stopped has what main says that it holds, if it does.
    pub progress: Progress,
    /// The columns beside the ten.
    pub mapping: Mapping,
    /// Why the table must not be written, if so.
    pub stopped: Option<String>,
    /// What the current snapshot counts.
    pub counts: TableCounts,
    /// The metadata file as it is on the store, in pieces.
    pub(super) file: Vec<Bytes>,
}

/// What Floe's snapshots count; 0 where they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Offsets that no table can ever hold, over the table's whole life.
    pub gap_offsets: u64,
    /// Rows ever committed with something in `_kafka_rescued`.
    pub rescued_rows: u64,
    /// Rows ever committed with a `_kafka_error`.
    pub undecodable_rows: u64,
    /// Data files of the current snapshot.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// About when Floe committed last, ms since the Unix epoch.
    pub committed_ms: Option<i64>,
}

impl TableHead {
    /// Whether others have written deletes that may apply to the files of the current snapshot.
    pub(crate) fn has_deletes(&self) -> bool {
        let is_deletes = |file: &&ManifestFile| file.content == ManifestContentType::Deletes;
        self.manifests.iter().filter(is_deletes).any(has_files)
    }

    /// The whole table. About 10 us of CPU a snapshot.
    ///
    /// # Errors
    /// `Corrupt` where the file makes no sense, which was seen when it was loaded.
    pub(crate) fn open(self: Arc<Self>) -> Result<LoadedTable> {
        let file = joined(&self.file);
        let (metadata, json) = metadata_of(&file, &self.pointer.metadata_location)?;
        Ok(LoadedTable { head: self, metadata, encoded: EncodedMetadata::read(json) })
    }
}

/// The metadata in a file, and its JSON.
pub(super) fn metadata_of(file: &Bytes, location: &str) -> Result<(TableMetadata, Bytes)> {
    let json = json_of(file.clone())
        .map_err(|error| Error::corrupt(format!("metadata {location}")).with_source(error))?;
    let metadata = serde_json::from_slice(&json)
        .map_err(|error| Error::corrupt(format!("metadata {location}")).with_source(error))?;
    Ok((metadata, json))
}
