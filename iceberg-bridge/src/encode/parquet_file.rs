//! One data file in the making: zstd, statistics for the five ordered columns only, one row group,
//! and the counts and bounds that its manifest entry will state.

use super::rows::{RowColumns, timestamp_type_code};
use super::{FileSlot, Row};
use crate::error::parquet_error;
use crate::schema::{COLUMN_NAMES, COLUMNS_WITH_BOUNDS, field};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use floe_env::Result;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::collections::BTreeMap;

/// Rows that wait as Arrow columns before they are encoded.
const ROWS_PENDING_MAX: usize = 8192;
/// Bytes of keys, values and headers that wait as Arrow columns before they are encoded.
const BYTES_PENDING_MAX: usize = 4 << 20;
const ZSTD_LEVEL: i32 = 3;

/// The least and greatest value of a column in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// No value is less.
    pub min: i64,
    /// No value is greater.
    pub max: i64,
}

impl Bounds {
    fn widen(bounds: &mut Option<Self>, value: i64) {
        *bounds = Some(match *bounds {
            None => Self { min: value, max: value },
            Some(old) => Self { min: old.min.min(value), max: old.max.max(value) },
        });
    }
}

/// A whole data file in memory.
#[derive(Clone, Debug)]
pub struct EncodedFile {
    /// Which rows it has.
    pub slot: FileSlot,
    /// The file.
    pub bytes: Bytes,
    /// Its rows.
    pub rows: u64,
    /// Bounds by field id, for [`COLUMNS_WITH_BOUNDS`] that have a value.
    pub bounds: BTreeMap<i32, Bounds>,
    /// Nulls by field id, for the columns at the top that are no list or struct.
    pub nulls: BTreeMap<i32, u64>,
    /// Compressed bytes by field id of the leaf column.
    pub column_bytes: BTreeMap<i32, u64>,
    /// Where its row groups begin.
    pub split_offsets: Vec<i64>,
}

pub(super) struct ParquetFile {
    slot: FileSlot,
    writer: ArrowWriter<Vec<u8>>,
    columns: RowColumns,
    rows: u64,
    bounds: [Option<Bounds>; COLUMNS_WITH_BOUNDS.len()],
    nulls: BTreeMap<i32, u64>,
}

impl ParquetFile {
    pub(super) fn new(schema: SchemaRef, slot: FileSlot) -> Result<Self> {
        let options = ArrowWriterOptions::new()
            .with_properties(writer_properties())
            .with_schema_root("table".to_owned())
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema.clone(), options)
            .map_err(|error| parquet_error("open a data file", error))?;
        let counted = COLUMNS_WITH_BOUNDS.into_iter();
        let counted = counted.chain([field::KEY, field::VALUE, field::RESCUED]);
        Ok(Self {
            slot,
            writer,
            columns: RowColumns::new(schema),
            rows: 0,
            bounds: [None; COLUMNS_WITH_BOUNDS.len()],
            nulls: counted.map(|id| (id, 0)).collect(),
        })
    }

    /// Adds a row; answers the bytes of its key, value and headers.
    pub(super) fn push(&mut self, row: &Row<'_>) -> Result<usize> {
        let appended = self.columns.push(row);
        self.rows += 1;
        let timestamp_us = row.timestamp_us();
        let values = [
            Some(i64::from(row.partition)),
            Some(row.offset),
            timestamp_us,
            Some(row.timestamp_ms),
            Some(i64::from(timestamp_type_code(row.timestamp_type))),
        ];
        for (bounds, value) in self.bounds.iter_mut().zip(values) {
            if let Some(value) = value {
                Bounds::widen(bounds, value);
            }
        }
        self.count_null(field::TIMESTAMP, timestamp_us.is_none());
        self.count_null(field::KEY, row.record.key.is_none());
        self.count_null(field::VALUE, row.record.value.is_none());
        self.count_null(field::RESCUED, !appended.rescued);
        if self.columns.rows() >= ROWS_PENDING_MAX || self.columns.bytes() >= BYTES_PENDING_MAX {
            self.flush_columns()?;
        }
        Ok(appended.bytes)
    }

    fn count_null(&mut self, field_id: i32, is_null: bool) {
        *self.nulls.entry(field_id).or_default() += u64::from(is_null);
    }

    fn flush_columns(&mut self) -> Result<()> {
        let batch = self.columns.take()?;
        self.writer.write(&batch).map_err(|error| parquet_error("encode rows", error))
    }

    pub(super) fn finish(mut self) -> Result<EncodedFile> {
        self.flush_columns()?;
        let ended = self.writer.finish();
        let metadata = ended.map_err(|error| parquet_error("end a data file", error))?;
        let bytes = Bytes::from(std::mem::take(self.writer.inner_mut()));
        let bounds = COLUMNS_WITH_BOUNDS.into_iter().zip(self.bounds);
        Ok(EncodedFile {
            slot: self.slot,
            bytes,
            rows: self.rows,
            bounds: bounds.filter_map(|(id, bounds)| Some((id, bounds?))).collect(),
            nulls: self.nulls,
            column_bytes: column_bytes(&metadata),
            split_offsets: split_offsets(&metadata),
        })
    }
}

fn writer_properties() -> WriterProperties {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("a level that zstd has");
    let mut properties = WriterProperties::builder()
        .set_created_by("floe".to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_statistics_truncate_length(None)
        .set_column_index_truncate_length(None)
        .set_max_row_group_row_count(None);
    for id in COLUMNS_WITH_BOUNDS {
        let column = ColumnPath::from(column_name(id));
        properties = properties.set_column_statistics_enabled(column, EnabledStatistics::Page);
    }
    // Values and offsets hardly ever repeat: a dictionary of them is work for nothing.
    for id in [field::OFFSET, field::VALUE] {
        let column = ColumnPath::from(column_name(id));
        properties = properties.set_column_dictionary_enabled(column, false);
    }
    properties.build()
}

fn column_name(field_id: i32) -> &'static str {
    COLUMN_NAMES[usize::try_from(field_id - 1).expect("ids begin at 1")]
}

fn column_bytes(metadata: &ParquetMetaData) -> BTreeMap<i32, u64> {
    let mut bytes = BTreeMap::new();
    for group in metadata.row_groups() {
        for column in group.columns() {
            let info = column.column_descr().self_type().get_basic_info();
            if info.has_id() {
                let size = u64::try_from(column.compressed_size()).unwrap_or(0);
                *bytes.entry(info.id()).or_default() += size;
            }
        }
    }
    bytes
}

fn split_offsets(metadata: &ParquetMetaData) -> Vec<i64> {
    let first_page = |group: &parquet::file::metadata::RowGroupMetaData| {
        let column = group.columns().first()?;
        Some(column.dictionary_page_offset().unwrap_or(column.data_page_offset()))
    };
    metadata.row_groups().iter().filter_map(first_page).collect()
}
