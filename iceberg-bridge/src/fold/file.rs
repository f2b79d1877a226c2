//! A folded file: written like those that are committed, in row groups of bounded size; its
//! manifest entry comes of its sources' entries. Pure.

use super::rows::Job;
use crate::encode::{FileSlot, ROW_GROUP_BYTES, column_bytes, split_offsets};
use crate::error::parquet_error;
use crate::schema::{SPEC_DAY, SPEC_UNPARTITIONED};
use arrow_array::RecordBatch;
use bytes::Bytes;
use floe_env::{Error, Result};
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Literal, Struct,
};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use std::collections::BTreeMap;

/// Files that stay are worth more than those that will be folded.
pub(super) const ZSTD_LEVEL: i32 = 3;

/// A folded file in memory.
#[derive(Debug)]
pub(super) struct Merged {
    /// `Mixed` where the sources' partition is the file's.
    pub(super) slot: FileSlot,
    pub(super) bytes: Bytes,
    pub(super) rows: u64,
    column_bytes: BTreeMap<i32, u64>,
    split_offsets: Vec<i64>,
}

/// A folded file in the making.
pub(super) struct FileWriter {
    writer: ArrowWriter<Vec<u8>>,
    rows: u64,
}

impl FileWriter {
    pub(super) fn new(job: &Job) -> Result<Self> {
        let options = ArrowWriterOptions::new()
            .with_properties(job.properties.clone())
            .with_schema_root("table".to_owned())
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), job.schema.clone(), options)
            .map_err(|error| parquet_error("begin a data file", error))?;
        Ok(Self { writer, rows: 0 })
    }

    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let failed = |error| parquet_error("encode rows", error);
        self.writer.write(rows).map_err(failed)?;
        self.rows += rows.num_rows() as u64;
        if self.writer.in_progress_size() >= ROW_GROUP_BYTES {
            self.writer.flush().map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self, slot: FileSlot) -> Result<Merged> {
        let ended = self.writer.finish();
        let metadata = ended.map_err(|error| parquet_error("end a data file", error))?;
        Ok(Merged {
            slot,
            rows: self.rows,
            column_bytes: column_bytes(&metadata),
            split_offsets: split_offsets(&metadata),
            bytes: Bytes::from(std::mem::take(self.writer.inner_mut())),
        })
    }
}

/// The manifest entry of a folded file that stands, or will stand, at `url`.
pub(super) fn data_file_of(merged: &Merged, sources: &[DataFile], url: String) -> Result<DataFile> {
    let first = sources.first().ok_or_else(|| Error::bug("a fold of no files"))?;
    let is_unpartitioned = first.partition().fields().is_empty();
    let (spec_id, partition) = match merged.slot {
        FileSlot::Day(day) => (SPEC_DAY, Struct::from_iter([day.map(Literal::date)])),
        FileSlot::Mixed if is_unpartitioned => (SPEC_UNPARTITIONED, Struct::empty()),
        FileSlot::Mixed => (SPEC_DAY, first.partition().clone()),
    };
    let has_all_rows = merged.rows == sources.iter().map(DataFile::record_count).sum::<u64>();
    let lower: Vec<Columns<Datum>> =
        sources.iter().map(|file| file.lower_bounds().clone().into_iter().collect()).collect();
    let upper: Vec<Columns<Datum>> =
        sources.iter().map(|file| file.upper_bounds().clone().into_iter().collect()).collect();
    let mut builder = DataFileBuilder::default();
    builder
        .content(DataContentType::Data)
        .file_path(url)
        .file_format(DataFileFormat::Parquet)
        .partition_spec_id(spec_id)
        .partition(partition)
        .record_count(merged.rows)
        .file_size_in_bytes(merged.bytes.len() as u64)
        .column_sizes(merged.column_bytes.iter().map(|(id, bytes)| (*id, *bytes)).collect())
        .lower_bounds(bounds(sources, &lower, |new, old| new < old).into_iter().collect())
        .upper_bounds(bounds(sources, &upper, |new, old| new > old).into_iter().collect())
        .split_offsets(Some(merged.split_offsets.clone()));
    // Of a part of the rows nobody has counted the nulls; their bounds are as wide as before.
    if has_all_rows {
        let values: Vec<Columns<u64>> =
            sources.iter().map(|file| file.value_counts().clone().into_iter().collect()).collect();
        let nulls: Vec<Columns<u64>> = sources
            .iter()
            .map(|file| file.null_value_counts().clone().into_iter().collect())
            .collect();
        builder
            .value_counts(counts(&values).into_iter().collect())
            .null_value_counts(counts(&nulls).into_iter().collect());
    }
    builder.build().map_err(|error| Error::bug(format!("manifest entry of a fold: {error}")))
}

/// What the sources' manifest entries say of their columns, by field id.
type Columns<T> = BTreeMap<i32, T>;

/// Sums of the counts that every source has.
fn counts(sources: &[Columns<u64>]) -> Columns<u64> {
    let Some(first) = sources.first() else { return BTreeMap::new() };
    let sum = |id: &i32| {
        let all: Option<Vec<u64>> = sources.iter().map(|counts| counts.get(id).copied()).collect();
        all.map(|all| (*id, all.iter().sum()))
    };
    first.keys().filter_map(sum).collect()
}

/// The widest of the sources' bounds, for columns of which each source has one, or has no value.
fn bounds(
    sources: &[DataFile],
    of: &[Columns<Datum>],
    is_wider: fn(&Datum, &Datum) -> bool,
) -> Columns<Datum> {
    let mut widest: Columns<Datum> = BTreeMap::new();
    for (id, bound) in of.iter().flatten() {
        let known = widest.entry(*id).or_insert_with(|| bound.clone());
        if is_wider(bound, known) {
            *known = bound.clone();
        }
    }
    widest.retain(|id, bound| {
        sources.iter().zip(of).all(|(file, bounds)| match bounds.get(id) {
            // Bounds of a column that was widened in between cannot be compared.
            Some(own) => own.data_type() == bound.data_type(),
            None => {
                let values = file.value_counts().get(id);
                values.is_some() && values == file.null_value_counts().get(id)
            }
        })
    });
    widest
}
