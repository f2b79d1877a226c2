//! Files whose rows are in (partition, offset) order become one whose rows are. Pure.
//!
//! The least of the sources' next rows goes first, and with it all rows of its source that come
//! before the next row of any other: sources follow one another in long runs. Rows without a day of
//! their own, which one file has of many days, are split: days with many of them get a file each.

use super::file::{FileWriter, Merged};
use crate::encode::{DAYS_MAX, FileSlot};
use crate::error::parquet_error;
use crate::projection::{index_of, project};
use crate::schema::{SPEC_UNPARTITIONED, field};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use floe_env::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Decoded bytes of all sources together, about.
const DECODED_BYTES: usize = 64 << 20;
const BATCH_ROWS_MAX: usize = 8192;
const DAY_US: i64 = 86_400_000_000;
/// A day with fewer of the sources' rows gets no file of its own.
const DAY_ROWS_MIN: u64 = 1000;
/// Days that are counted; rows of further ones stay together.
const DAYS_COUNTED_MAX: usize = 10_000;

/// How files are merged.
#[derive(Debug)]
pub(super) struct Job {
    /// The table's schema.
    pub(super) schema: SchemaRef,
    /// Columns that have statistics.
    pub(super) ordered: Vec<String>,
    /// The sources' partition spec.
    pub(super) spec_id: i32,
}

/// Merges all sources.
pub(super) fn merge(job: &Job, sources: Vec<Bytes>) -> Result<Vec<Merged>> {
    let days = match job.spec_id {
        SPEC_UNPARTITIONED => Some(large_days(&sources)?),
        _ => None,
    };
    let mut output = Output { job, days, files: BTreeMap::new() };
    let share = DECODED_BYTES / sources.len().max(1);
    let mut cursors = Vec::with_capacity(sources.len());
    let mut heads = BinaryHeap::new();
    for source in sources {
        if let Some(cursor) = Cursor::open(source, job, share)? {
            heads.push(Reverse((cursor.head(), cursors.len())));
            cursors.push(cursor);
        }
    }
    while let Some(Reverse((_, at))) = heads.pop() {
        let limit = heads.peek().map(|Reverse((head, _))| *head);
        let cursor = &mut cursors[at];
        let run = cursor.run_until(limit);
        output.write(&run)?;
        if cursor.fill()? {
            heads.push(Reverse((cursor.head(), at)));
        }
    }
    output.files.into_iter().map(|(slot, file)| file.finish(slot)).collect()
}

/// One source, at some row.
struct Cursor {
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
    batch: RecordBatch,
    partitions: Int64Array,
    offsets: Int64Array,
    row: usize,
}

/// The column of a field id, which every file of a table has.
fn required(schema: &SchemaRef, id: i32) -> Result<usize> {
    let lacking = || Error::corrupt(format!("the table's schema lacks field {id}"));
    index_of(schema, id).ok_or_else(lacking)
}

fn open(source: Bytes) -> Result<ParquetRecordBatchReaderBuilder<Bytes>> {
    ParquetRecordBatchReaderBuilder::try_new(source)
        .map_err(|error| Error::corrupt("open a data file").with_source(error))
}

impl Cursor {
    /// At the first row; `None` if there is none.
    fn open(source: Bytes, job: &Job, decoded_bytes: usize) -> Result<Option<Self>> {
        let builder = open(source)?;
        let groups = builder.metadata().row_groups();
        let rows: i64 = groups.iter().map(|group| group.num_rows()).sum();
        let bytes: i64 = groups.iter().map(|group| group.total_byte_size()).sum();
        let row_bytes = usize::try_from(bytes / rows.max(1)).unwrap_or(usize::MAX).max(1);
        let batch_rows = (decoded_bytes / row_bytes).clamp(1, BATCH_ROWS_MAX);
        let reader = builder.with_batch_size(batch_rows).build();
        let reader = reader.map_err(|error| parquet_error("read a data file", error))?;
        let mut cursor = Self {
            reader,
            schema: job.schema.clone(),
            batch: RecordBatch::new_empty(job.schema.clone()),
            partitions: Int64Array::from(Vec::<i64>::new()),
            offsets: Int64Array::from(Vec::<i64>::new()),
            row: 0,
        };
        Ok(cursor.fill()?.then_some(cursor))
    }

    /// Partition and offset of the next row.
    fn head(&self) -> (i64, i64) {
        (self.partitions.value(self.row), self.offsets.value(self.row))
    }

    /// The rows before `limit`, as far as they are decoded; at least one.
    fn run_until(&mut self, limit: Option<(i64, i64)>) -> RecordBatch {
        let from = self.row;
        self.row += 1;
        while self.row < self.batch.num_rows() && limit.is_none_or(|limit| self.head() < limit) {
            self.row += 1;
        }
        self.batch.slice(from, self.row - from)
    }

    /// Decodes more if nothing is left; false at the end.
    fn fill(&mut self) -> Result<bool> {
        while self.row >= self.batch.num_rows() {
            let Some(batch) = self.reader.next() else { return Ok(false) };
            let batch =
                batch.map_err(|error| Error::corrupt("read a data file").with_source(error))?;
            self.batch = project(&batch, &self.schema)?;
            self.partitions = self.whole_numbers(field::PARTITION)?;
            self.offsets = self.whole_numbers(field::OFFSET)?;
            self.row = 0;
        }
        Ok(true)
    }
}

impl Cursor {
    /// A column of the batch; others may have widened it.
    fn whole_numbers(&self, id: i32) -> Result<Int64Array> {
        let column = self.batch.column(required(&self.schema, id)?);
        match column.data_type() {
            DataType::Int64 => Ok(column.as_primitive::<Int64Type>().clone()),
            DataType::Int32 => Ok(column.as_primitive::<Int32Type>().unary(i64::from)),
            other => Err(Error::corrupt(format!("the column of field {id} is {other}"))),
        }
    }
}

/// The files in the making.
struct Output<'a> {
    job: &'a Job,
    /// Days that get a file of their own, where rows are split.
    days: Option<BTreeSet<Option<i64>>>,
    files: BTreeMap<FileSlot, FileWriter>,
}

impl Output<'_> {
    fn write(&mut self, run: &RecordBatch) -> Result<()> {
        if self.days.is_none() {
            return self.write_to(FileSlot::Mixed, run);
        }
        let mut from = 0;
        let slots = self.slots(run)?;
        for slots in slots.chunk_by(|slot, next| slot == next) {
            self.write_to(slots[0], &run.slice(from, slots.len()))?;
            from += slots.len();
        }
        Ok(())
    }

    fn slots(&self, run: &RecordBatch) -> Result<Vec<FileSlot>> {
        let column = run.column(required(&self.job.schema, field::TIMESTAMP)?);
        let days = days_of(column.as_primitive::<TimestampMicrosecondType>().iter());
        let has_file =
            |day: &Option<i64>| self.days.as_ref().is_some_and(|days| days.contains(day));
        Ok(days
            .map(|day| match day.filter(|_| has_file(&day)).and_then(|day| day.try_into().ok()) {
                Some(day) => FileSlot::Day(Some(day)),
                None if day.is_none() && has_file(&day) => FileSlot::Day(None),
                None => FileSlot::Mixed,
            })
            .collect())
    }

    fn write_to(&mut self, slot: FileSlot, rows: &RecordBatch) -> Result<()> {
        if !self.files.contains_key(&slot) {
            self.files.insert(slot, FileWriter::new(self.job)?);
        }
        self.files.get_mut(&slot).expect("made just now").write(rows)
    }
}

fn days_of(times_us: impl Iterator<Item = Option<i64>>) -> impl Iterator<Item = Option<i64>> {
    times_us.map(|time| time.map(|time| time.div_euclid(DAY_US)))
}

/// The days with the most rows, and with enough for a file, over all sources.
fn large_days(sources: &[Bytes]) -> Result<BTreeSet<Option<i64>>> {
    let mut rows_of: BTreeMap<Option<i64>, u64> = BTreeMap::new();
    for source in sources {
        let builder = open(source.clone())?;
        let Some(column) = index_of(builder.schema(), field::TIMESTAMP) else { continue };
        let mask = ProjectionMask::roots(builder.parquet_schema(), [column]);
        let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS_MAX).build();
        for batch in reader.map_err(|error| parquet_error("read a data file", error))? {
            let batch =
                batch.map_err(|error| Error::corrupt("read a data file").with_source(error))?;
            let times = batch.column(0).as_primitive::<TimestampMicrosecondType>();
            for day in days_of(times.iter()) {
                if rows_of.len() < DAYS_COUNTED_MAX || rows_of.contains_key(&day) {
                    *rows_of.entry(day).or_default() += 1;
                }
            }
        }
    }
    let mut days: Vec<_> = rows_of.into_iter().filter(|(_, rows)| *rows >= DAY_ROWS_MIN).collect();
    days.sort_by_key(|(day, rows)| (Reverse(*rows), *day));
    Ok(days.into_iter().take(DAYS_MAX).map(|(day, _)| day).collect())
}
