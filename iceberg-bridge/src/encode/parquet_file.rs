//! One data file in the making: zstd, row groups of bounded size, and the counts and bounds that
//! its manifest entry will state.

use super::FileSlot;
use super::bounds::{Bounds, ColumnStatistics, field_id, statistics};
use crate::error::parquet_error;
use crate::mapping::{Kind, Mapping};
use crate::projection::project;
use crate::schema::{COLUMNS_WITH_BOUNDS, arrow_schema, as_arrow, field, grown_schema};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, SchemaRef};
use bytes::Bytes;
use floe_env::Result;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ZSTD_LEVEL: i32 = 1;
/// Encoded bytes of a row group, about: what one reader of many takes at a time.
pub(crate) const ROW_GROUP_BYTES: usize = 16 << 20;

/// The columns of a file, and how they are written.
#[derive(Clone, Debug)]
pub struct FileShape {
    /// The ten columns and those of a mapping, with their field ids.
    pub schema: SchemaRef,
    /// The columns that files have: the same, unless others have changed the table's schema.
    file_schema: SchemaRef,
    /// Ids of columns of JSON text.
    json_ids: Arc<BTreeSet<i32>>,
    properties: Arc<WriterProperties>,
}

impl FileShape {
    /// The shape of files with a mapping's columns.
    ///
    /// # Errors
    /// None in practice; `Bug` if the library refuses the schema.
    pub fn of(mapping: &Mapping) -> Result<Self> {
        Self::of_table(mapping, None)
    }

    /// The shape of files of a table whose schema is not the mapping's alone.
    pub(super) fn of_table(mapping: &Mapping, table: Option<&TableSchema>) -> Result<Self> {
        let schema = arrow_schema(mapping)?;
        let file_schema = match table {
            Some(table) => as_arrow(&grown_schema(&table.schema, mapping, table.known)?)?,
            None => schema.clone(),
        };
        let json_ids = Arc::new(json_ids(mapping));
        let properties = Arc::new(writer_properties(&file_schema, &json_ids, ZSTD_LEVEL));
        Ok(Self { schema, file_schema, json_ids, properties })
    }

    /// Rows as a file has them.
    pub(super) fn bound(&self, rows: RecordBatch) -> Result<RecordBatch> {
        match Arc::ptr_eq(&self.schema, &self.file_schema) {
            true => Ok(rows),
            false => project(&rows, &self.file_schema),
        }
    }
}

/// A table's schema that others have changed, and how many nodes its mapping has.
#[derive(Clone, Debug)]
pub(super) struct TableSchema {
    pub(super) schema: Arc<iceberg::spec::Schema>,
    pub(super) known: usize,
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
    /// Bounds by field id, for columns at the top that have some.
    pub bounds: BTreeMap<i32, Bounds>,
    /// Nulls by field id, for columns at the top that hold values themselves.
    pub nulls: BTreeMap<i32, u64>,
    /// Compressed bytes by field id of the leaf column.
    pub column_bytes: BTreeMap<i32, u64>,
    /// Where its row groups begin.
    pub split_offsets: Vec<i64>,
}

/// Writes one data file, batch by batch.
pub struct DataFileWriter {
    slot: FileSlot,
    writer: ArrowWriter<Vec<u8>>,
    statistics: Vec<ColumnStatistics>,
    rows: u64,
}

impl std::fmt::Debug for DataFileWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DataFileWriter").field("rows", &self.rows).finish()
    }
}

impl DataFileWriter {
    /// A file without rows.
    ///
    /// # Errors
    /// None in practice; `Bug` if the library refuses the schema.
    pub fn new(shape: &FileShape, slot: FileSlot) -> Result<Self> {
        let options = ArrowWriterOptions::new()
            .with_properties(shape.properties.as_ref().clone())
            .with_schema_root("table".to_owned())
            .with_skip_arrow_metadata(true);
        let writer =
            ArrowWriter::try_new_with_options(Vec::new(), shape.file_schema.clone(), options)
                .map_err(|error| parquet_error("open a data file", error))?;
        let statistics = statistics(&shape.file_schema, &shape.json_ids);
        Ok(Self { slot, writer, statistics, rows: 0 })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// `Bug` where the batch has other columns than the file.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        for column in &mut self.statistics {
            column.add(batch);
        }
        self.writer.write(batch).map_err(|error| parquet_error("encode rows", error))?;
        if self.writer.in_progress_size() >= ROW_GROUP_BYTES {
            self.end_row_group()?;
        }
        Ok(())
    }

    pub(super) fn end_row_group(&mut self) -> Result<()> {
        self.writer.flush().map_err(|error| parquet_error("encode rows", error))
    }

    /// Bytes that the file holds in memory, about.
    pub fn memory_bytes(&self) -> usize {
        // The first leaves out pages that wait for their dictionary, the second what an encoder
        // holds beyond its pages.
        let in_progress = self.writer.memory_size().max(self.writer.in_progress_size());
        in_progress + self.writer.bytes_written()
    }

    /// Ends the file.
    ///
    /// # Errors
    /// None in practice; `Bug` if the Parquet writer fails in memory.
    pub fn finish(mut self) -> Result<EncodedFile> {
        let ended = self.writer.finish();
        let metadata = ended.map_err(|error| parquet_error("end a data file", error))?;
        let bytes = Bytes::from(std::mem::take(self.writer.inner_mut()));
        let columns = self.statistics.iter();
        Ok(EncodedFile {
            slot: self.slot,
            bytes,
            rows: self.rows,
            nulls: columns.clone().map(|column| (column.field_id, column.nulls)).collect(),
            bounds: columns.filter_map(|c| Some((c.field_id, c.bounds()?))).collect(),
            column_bytes: column_bytes(&metadata),
            split_offsets: split_offsets(&metadata),
        })
    }
}

/// Ids of a mapping's columns of JSON text.
pub(crate) fn json_ids(mapping: &Mapping) -> BTreeSet<i32> {
    let nodes = (1..mapping.node_count()).map(|index| mapping.node(index));
    nodes.filter(|node| node.kind == Kind::Json).map(|node| node.field_id).collect()
}

/// How data files are written: statistics of numbers and of the place in the log only. Texts and
/// bytes have none, so that none is ever cut short.
pub(crate) fn writer_properties(
    schema: &SchemaRef,
    json_ids: &BTreeSet<i32>,
    zstd_level: i32,
) -> WriterProperties {
    let level = ZstdLevel::try_new(zstd_level).expect("a level that zstd has");
    let mut properties = WriterProperties::builder()
        .set_created_by("floe".to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_statistics_truncate_length(None)
        .set_column_index_truncate_length(None)
        .set_max_row_group_row_count(None);
    let mut leaves = Vec::new();
    for column in schema.fields() {
        push_leaves(column, Vec::new(), &mut leaves);
    }
    for (path, id, data_type) in leaves {
        let is_number = matches!(data_type, DataType::Int64 | DataType::Float64);
        if COLUMNS_WITH_BOUNDS.contains(&id) {
            let page = EnabledStatistics::Page;
            properties = properties.set_column_statistics_enabled(path.clone(), page);
        } else if is_number {
            let chunk = EnabledStatistics::Chunk;
            properties = properties.set_column_statistics_enabled(path.clone(), chunk);
        }
        // What hardly ever repeats: a dictionary of it is work for nothing.
        let is_varied = [field::OFFSET, field::VALUE].contains(&id) || json_ids.contains(&id);
        if is_varied {
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    properties.build()
}

/// The columns below a field that hold values themselves, with their places in a file.
fn push_leaves(
    column: &Arc<Field>,
    mut path: Vec<String>,
    leaves: &mut Vec<(ColumnPath, i32, DataType)>,
) {
    path.push(column.name().clone());
    match column.data_type() {
        DataType::Struct(members) => {
            members.iter().for_each(|member| push_leaves(member, path.clone(), leaves));
        }
        DataType::List(element) => {
            path.push("list".to_owned());
            push_leaves(element, path, leaves);
        }
        leaf => leaves.push((ColumnPath::new(path), field_id(column), leaf.clone())),
    }
}

/// Compressed bytes by field id of the leaf column.
pub(crate) fn column_bytes(metadata: &ParquetMetaData) -> BTreeMap<i32, u64> {
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

/// Where row groups begin.
pub(crate) fn split_offsets(metadata: &ParquetMetaData) -> Vec<i64> {
    let first_page = |group: &parquet::file::metadata::RowGroupMetaData| {
        let column = group.columns().first()?;
        Some(column.dictionary_page_offset().unwrap_or(column.data_page_offset()))
    };
    metadata.row_groups().iter().filter_map(first_page).collect()
}
