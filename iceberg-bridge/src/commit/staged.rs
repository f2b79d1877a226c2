//! What a commit is to bring: files that were staged, the maps before and after them, and the gaps
//! between.

use crate::encode::DecodeCounts;
use crate::mapping::Mapping;
use crate::progress::Progress;
use bytes::Bytes;
use iceberg::spec::DataFile;
use serde::Serialize;

/// Offsets that can never be in the table, because the log had lost them before they were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The partition.
    pub partition: usize,
    /// The first lost offset.
    pub from: i64,
    /// The first offset that is there again.
    pub until: i64,
    /// Why.
    pub why: String,
}

/// A data file that no commit has named yet.
#[derive(Clone, Debug)]
pub struct StagedFile {
    /// Its manifest entry.
    pub data_file: DataFile,
    /// Its object key.
    pub key: String,
    /// Its bytes, until they are on the store.
    pub bytes: Option<Bytes>,
}

/// What a commit is to bring.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The map that the table must have.
    pub from: Progress,
    /// The map that it will have.
    pub to: Progress,
    /// The columns that the table must have beside the ten.
    pub from_mapping: Mapping,
    /// Those that it will have: the same, or more.
    pub mapping: Mapping,
    /// Everything between the two.
    pub files: Vec<StagedFile>,
    /// Less this.
    pub gaps: Vec<Gap>,
    /// What became of the values.
    pub counts: DecodeCounts,
    /// An attempt that may have been made names the files: nobody deletes them.
    pub may_be_named: bool,
}
