//! From record batches to Parquet files in memory. Pure: bytes in, files out; whoever calls decides
//! when a file is full, stores it and commits it.
//!
//! Rows must come in (partition, offset) order; each file keeps it. One encoder serves one commit:
//! it opens a file per day for the first [`DAYS_MAX`] days that it meets, and one file under the
//! spec without partitions for all other days.
//!
//! Flow: a record's value is read the short way (`straight`) where all of it has columns, else it
//! is decoded by the mapping, which may grow (`decode`); the row goes into the Arrow builders of
//! its file (`rows`, `columns`); every few thousand rows these go through the Parquet encoder
//! (`parquet_file`). A file has the columns of one moment: where the mapping has grown since, the
//! next rows begin another.

mod bounds;
mod columns;
mod decode;
#[cfg(test)]
mod json_tests;
mod open_file;
mod parquet_file;
mod rows;
mod straight;
#[cfg(test)]
mod tests;

pub(crate) use parquet_file::ROW_GROUP_BYTES;

pub use bounds::Bounds;
pub use decode::{DecodeCounts, ValueFormat};
pub use parquet_file::{DataFileWriter, EncodedFile, FileShape};
pub(crate) use parquet_file::{column_bytes, json_ids, split_offsets, writer_properties};

use crate::mapping::{Mapping, MappingLimits};
use bytes::Bytes;
use decode::Decoder;
use floe_env::{Error, Result};
use kfs::{BatchView, Record, TimestampType};
use open_file::OpenFile;
use parquet_file::TableSchema;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Day files that one commit opens at most.
pub const DAYS_MAX: usize = 8;
/// Columns of all open files together, about: each has buffers of its own. A wide table opens fewer
/// days.
const OPEN_COLUMNS_MAX: usize = 2000;
/// The most that one batch's records may decompress to: beyond it the batch cannot have passed a
/// broker.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// The first and last millisecond of the years 0001 to 9999, which every engine can show.
const TIMESTAMP_MS_MIN: i64 = -62_135_596_800_000;
const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999;
const DAY_MS: i64 = 86_400_000;

/// Which file a row goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileSlot {
    /// Rows of one day, counted from 1970-01-01, or of no day at all.
    Day(Option<i32>),
    /// Rows of all further days.
    Mixed,
}

/// One record with its place in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: i64,
    pub(crate) timestamp_type: TimestampType,
    pub(crate) record: Record<'a>,
}

impl Row<'_> {
    /// Microseconds since the epoch; `None` for "no timestamp" and outside the years 0001 to 9999.
    pub(crate) fn timestamp_us(&self) -> Option<i64> {
        let shown = self.timestamp_ms != kfs::NO_TIMESTAMP_MS
            && (TIMESTAMP_MS_MIN..=TIMESTAMP_MS_MAX).contains(&self.timestamp_ms);
        shown.then(|| self.timestamp_ms * 1000)
    }

    fn day(&self) -> Option<i32> {
        let day = self.timestamp_us().map(|_| self.timestamp_ms.div_euclid(DAY_MS))?;
        Some(i32::try_from(day).expect("a day of the years 0001 to 9999"))
    }
}

/// How an encoder sees a topic.
#[derive(Clone, Debug, Default)]
pub struct EncoderConfig {
    /// How values become rows.
    pub format: ValueFormat,
    /// How far the mapping may grow.
    pub limits: MappingLimits,
}

/// Encodes the rows of one commit.
pub struct Encoder {
    decoder: Decoder,
    /// The table's own schema, where others have changed it.
    table: Option<TableSchema>,
    /// The shape of files now, and the size of the mapping that it is made of.
    shape: (FileShape, usize),
    slots: Vec<FileSlot>,
    open: BTreeMap<FileSlot, OpenFile>,
    counts: DecodeCounts,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Encoder").field("memory_bytes", &self.memory_bytes()).finish()
    }
}

impl Encoder {
    /// An encoder without rows, of a table with the columns of `mapping`.
    ///
    /// # Errors
    /// None in practice; `Bug` if the library refuses the schema.
    pub fn new(config: &EncoderConfig, mapping: Mapping) -> Result<Self> {
        Self::of_table(config, mapping, None)
    }

    /// The same, of a table whose schema others have changed: columns are bound by field id.
    ///
    /// # Errors
    /// As of [`Encoder::new`].
    pub fn of_table(
        config: &EncoderConfig,
        mapping: Mapping,
        schema: Option<Arc<iceberg::spec::Schema>>,
    ) -> Result<Self> {
        let known = mapping.node_count();
        let table = schema.map(|schema| TableSchema { schema, known });
        let shape = (FileShape::of_table(&mapping, table.as_ref())?, known);
        Ok(Self {
            decoder: Decoder::new(config.format, config.limits, mapping),
            table,
            shape,
            slots: Vec::new(),
            open: BTreeMap::new(),
            counts: DecodeCounts::default(),
        })
    }

    /// The columns that the table must have for the rows so far.
    pub fn mapping(&self) -> &Mapping {
        &self.decoder.mapping
    }

    /// What became of the values so far.
    pub fn counts(&self) -> DecodeCounts {
        DecodeCounts { limits: self.decoder.limits_reached, ..self.counts }
    }

    /// Bytes of memory that open files hold, about.
    pub fn memory_bytes(&self) -> usize {
        self.open.values().map(OpenFile::memory_bytes).sum()
    }

    /// Adds the records of `batches` whose offsets are in `from..until`.
    ///
    /// # Errors
    /// `Corrupt` where a batch makes no sense.
    pub fn append(
        &mut self,
        partition: i32,
        batches: &[Bytes],
        from: i64,
        until: i64,
    ) -> Result<()> {
        for bytes in batches {
            for batch in kfs::batches(bytes) {
                let batch = batch.map_err(|error| corrupt(partition, from, error))?;
                self.append_batch(partition, &batch, from, until)?;
            }
        }
        Ok(())
    }

    fn append_batch(
        &mut self,
        partition: i32,
        batch: &BatchView<'_>,
        from: i64,
        until: i64,
    ) -> Result<()> {
        let header = batch.header;
        if header.is_control() {
            return Ok(());
        }
        let records = batch
            .records(BATCH_BYTES_MAX)
            .map_err(|error| corrupt(partition, header.base_offset, error))?;
        for record in records.iter() {
            let record = record.map_err(|error| corrupt(partition, header.base_offset, error))?;
            let offset = header.base_offset.wrapping_add(i64::from(record.offset_delta));
            if (from..until).contains(&offset) {
                let timestamp_ms = header.record_timestamp_ms(record.timestamp_delta);
                let timestamp_type = header.timestamp_type();
                self.push(&Row { partition, offset, timestamp_ms, timestamp_type, record })?;
            }
        }
        Ok(())
    }

    fn push(&mut self, row: &Row<'_>) -> Result<()> {
        let slot = self.slot(row.day());
        let shape = &self.shape.0;
        let file = self.open.entry(slot).or_insert_with(|| OpenFile::new(shape, slot));
        let appended = file.push(row, self.decoder.decode(row.record.value));
        self.counts.rescued_rows += u64::from(appended.is_rescued);
        self.counts.undecodable_rows += u64::from(appended.is_undecodable);
        if file.is_full(&self.decoder.mapping) {
            let shape = shape_of(&mut self.shape, &self.decoder.mapping, self.table.as_ref())?;
            file.flush(&self.decoder.mapping, shape)?;
        }
        Ok(())
    }

    fn slot(&mut self, day: Option<i32>) -> FileSlot {
        let slot = FileSlot::Day(day);
        if self.slots.contains(&slot) {
            return slot;
        }
        let columns = self.decoder.mapping.leaves().max(1);
        let days = (OPEN_COLUMNS_MAX / columns).clamp(1, DAYS_MAX);
        if self.slots.len() < days {
            self.slots.push(slot);
            return slot;
        }
        FileSlot::Mixed
    }

    /// Ends all open files. The encoder goes on with new files for the same days.
    ///
    /// # Errors
    /// None in practice; `Bug` if the Parquet writer fails in memory.
    pub fn finish_files(&mut self) -> Result<Vec<EncodedFile>> {
        let mut files = Vec::new();
        for (_, file) in std::mem::take(&mut self.open) {
            files.extend(self.finish(file)?);
        }
        Ok(files)
    }

    /// Ends the open file that holds the most memory, so that the others may still become larger.
    /// The encoder goes on with a new file for the same day.
    ///
    /// # Errors
    /// None in practice; `Bug` if the Parquet writer fails in memory.
    pub fn finish_largest(&mut self) -> Result<Vec<EncodedFile>> {
        let largest = self.open.iter().max_by_key(|(_, file)| file.memory_bytes());
        let Some(slot) = largest.map(|(slot, _)| *slot) else { return Ok(Vec::new()) };
        let file = self.open.remove(&slot);
        file.map_or(Ok(Vec::new()), |file| self.finish(file))
    }

    fn finish(&mut self, file: OpenFile) -> Result<Vec<EncodedFile>> {
        let shape = shape_of(&mut self.shape, &self.decoder.mapping, self.table.as_ref())?;
        file.finish(&self.decoder.mapping, shape)
    }
}

/// The shape of files now; made anew where the mapping has grown.
fn shape_of<'a>(
    shape: &'a mut (FileShape, usize),
    mapping: &Mapping,
    table: Option<&TableSchema>,
) -> Result<&'a FileShape> {
    if shape.1 != mapping.node_count() {
        *shape = (FileShape::of_table(mapping, table)?, mapping.node_count());
    }
    Ok(&shape.0)
}

fn corrupt(partition: i32, offset: i64, error: kfs::BatchError) -> Error {
    Error::corrupt(format!("batch at partition {partition} offset {offset}")).with_source(error)
}
