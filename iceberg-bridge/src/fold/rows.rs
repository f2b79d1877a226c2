//! Files whose rows are in (partition, offset) order become one whose rows are. Pure.
//!
//! The least of the sources' next rows goes first, and with it all rows of its source that come
//! before the next row of any other: sources follow one another in long runs. Rows without a day of
//! their own, which one file has of many days, are split: days with many of them get a file each.

use super::file::{FileWriter, Merged};
use crate::encode::{DAYS_MAX, FileSlot};
use crate::projection::{index_of, project};
use crate::schema::{SPEC_UNPARTITIONED, field};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, FieldRef, SchemaRef};
use bytes::Bytes;
use floe_env::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::properties::WriterProperties;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Rows that are decoded of a source before it is known how large they are.
const FIRST_ROWS: usize = 64;
const BATCH_ROWS_MAX: usize = 8192;
/// Decoded bytes of a value at least, also of one that is null.
const CELL_BYTES: usize = 8;
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
    /// How the files are written.
    pub(super) properties: WriterProperties,
    /// The sources' partition spec.
    pub(super) spec_id: i32,
    /// Decoded bytes of all sources together, about.
    pub(super) decoded_bytes_max: usize,
}

/// Why files could not be merged.
#[derive(Debug)]
pub(super) struct Failure {
    /// Which of the sources makes no sense, if one does not.
    pub(super) source: Option<usize>,
    pub(super) error: Error,
}

impl Failure {
    /// That a source, by its position, makes no sense.
    pub(super) fn of(source: usize) -> impl FnOnce(Error) -> Self {
        move |error| Self { source: Some(source), error }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { source: None, error }
    }
}

/// Merges all sources.
pub(super) fn merge(job: &Job, sources: Vec<Bytes>) -> Result<Vec<Merged>, Failure> {
    let days = match job.spec_id {
        SPEC_UNPARTITIONED => Some(large_days(&sources)?),
        _ => None,
    };
    let mut output = Output { job, days, files: BTreeMap::new() };
    let share = job.decoded_bytes_max / sources.len().max(1);
    let mut cursors = Vec::with_capacity(sources.len());
    let mut heads = BinaryHeap::new();
    for (source, bytes) in sources.into_iter().enumerate() {
        if let Some(cursor) = Cursor::open(bytes, job, share).map_err(Failure::of(source))? {
            heads.push(Reverse((cursor.head(), cursors.len())));
            cursors.push(Some((source, cursor)));
        }
    }
    while let Some(Reverse((_, at))) = heads.pop() {
        let limit = heads.peek().map(|Reverse((head, _))| *head);
        let Some((source, cursor)) = &mut cursors[at] else { continue };
        output.write(&cursor.run_until(limit))?;
        if cursor.fill().map_err(Failure::of(*source))? {
            heads.push(Reverse((cursor.head(), at)));
        } else {
            // Its bytes are given back before the next source's rows are copied.
            cursors[at] = None;
        }
    }
    let ended: Result<Vec<Merged>> =
        output.files.into_iter().map(|(slot, file)| file.finish(slot)).collect();
    Ok(ended?)
}

/// One source, at some row.
struct Cursor {
    source: Bytes,
    metadata: ArrowReaderMetadata,
    reader: ParquetRecordBatchReader,
    /// Rows that the reader decodes at once.
    batch_rows: usize,
    /// Bytes that these may have once they are decoded, about.
    decoded_bytes_max: usize,
    /// Rows that were decoded.
    decoded: usize,
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

fn corrupt(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::corrupt("read a data file").with_source(error)
}

/// Columns that hold values themselves.
fn leaves<'a>(fields: impl IntoIterator<Item = &'a FieldRef>) -> usize {
    let of = |field: &'a FieldRef| match field.data_type() {
        DataType::Struct(members) => leaves(members),
        DataType::List(element) | DataType::Map(element, _) => leaves([element]),
        _ => 1,
    };
    fields.into_iter().map(of).sum()
}

impl Cursor {
    /// At the first row; `None` if there is none.
    fn open(source: Bytes, job: &Job, decoded_bytes_max: usize) -> Result<Option<Self>> {
        let metadata = ArrowReaderMetadata::load(&source, Default::default()).map_err(corrupt)?;
        let row_bytes_min = CELL_BYTES * leaves(job.schema.fields()).max(1);
        let batch_rows = (decoded_bytes_max / row_bytes_min).clamp(1, FIRST_ROWS);
        let mut cursor = Self {
            reader: reader(&source, &metadata, batch_rows, 0)?,
            source,
            metadata,
            batch_rows,
            decoded_bytes_max,
            decoded: 0,
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
            self.fit()?;
            let Some(batch) = self.reader.next() else { return Ok(false) };
            let batch = batch.map_err(corrupt)?;
            self.decoded += batch.num_rows();
            self.batch = project(&batch, &self.schema)?;
            self.partitions = self.whole_numbers(field::PARTITION)?;
            self.offsets = self.whole_numbers(field::OFFSET)?;
            self.row = 0;
        }
        Ok(true)
    }

    /// Goes on with as many rows at once as have room, judged by the newest: how large they are
    /// once they are decoded, a file does not say.
    fn fit(&mut self) -> Result<()> {
        let row_bytes = self.batch.get_array_memory_size() / self.batch.num_rows().max(1);
        let fitting = (self.decoded_bytes_max / row_bytes.max(1)).clamp(1, BATCH_ROWS_MAX);
        let rows = self.metadata.metadata().file_metadata().num_rows();
        let left = usize::try_from(rows).unwrap_or(0).saturating_sub(self.decoded);
        // By halves, and larger once only: a reader from some row on passes those before again.
        let is_too_large = fitting <= self.batch_rows / 2 && left > fitting;
        let is_first = self.decoded == self.batch_rows;
        let is_too_small = is_first && fitting / 2 > self.batch_rows && left > self.batch_rows;
        if self.decoded > 0 && (is_too_large || is_too_small) {
            self.batch_rows = fitting;
            self.reader = reader(&self.source, &self.metadata, fitting, self.decoded)?;
        }
        Ok(())
    }
}

/// A reader of a file from some row on.
fn reader(
    source: &Bytes,
    metadata: &ArrowReaderMetadata,
    batch_rows: usize,
    from: usize,
) -> Result<ParquetRecordBatchReader> {
    let (source, metadata) = (source.clone(), metadata.clone());
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(source, metadata);
    builder.with_batch_size(batch_rows).with_offset(from).build().map_err(corrupt)
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
fn large_days(sources: &[Bytes]) -> Result<BTreeSet<Option<i64>>, Failure> {
    let mut rows_of: BTreeMap<Option<i64>, u64> = BTreeMap::new();
    for (at, source) in sources.iter().enumerate() {
        count_days(source, &mut rows_of).map_err(Failure::of(at))?;
    }
    let mut days: Vec<_> = rows_of.into_iter().filter(|(_, rows)| *rows >= DAY_ROWS_MIN).collect();
    days.sort_by_key(|(day, rows)| (Reverse(*rows), *day));
    Ok(days.into_iter().take(DAYS_MAX).map(|(day, _)| day).collect())
}

fn count_days(source: &Bytes, rows_of: &mut BTreeMap<Option<i64>, u64>) -> Result<()> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(source.clone()).map_err(corrupt)?;
    let Some(column) = index_of(builder.schema(), field::TIMESTAMP) else { return Ok(()) };
    let mask = ProjectionMask::roots(builder.parquet_schema(), [column]);
    let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS_MAX).build();
    for batch in reader.map_err(corrupt)? {
        let batch = batch.map_err(corrupt)?;
        let times = batch.column(0).as_primitive::<TimestampMicrosecondType>();
        for day in days_of(times.iter()) {
            if rows_of.len() < DAYS_COUNTED_MAX || rows_of.contains_key(&day) {
                *rows_of.entry(day).or_default() += 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Encoder, EncoderConfig, writer_properties};
    use crate::mapping::{Mapping, MappingLimits};
    use crate::projection::arrow_schema_of;
    use crate::schema::iceberg_schema;
    use kfs::{BatchBuilder, NewRecord};

    /// A file of these records, and how it would be folded.
    fn file_of(values: &[String]) -> (Bytes, Job) {
        let mut builder = BatchBuilder::new();
        for value in values {
            let value = Some(value.as_bytes());
            builder.push(&NewRecord { timestamp_ms: 0, key: None, value, headers: &[] }).unwrap();
        }
        let limits = MappingLimits { object_keys: 1000, ..MappingLimits::default() };
        let config = EncoderConfig { limits, ..EncoderConfig::default() };
        let mut encoder = Encoder::new(&config, Mapping::new()).unwrap();
        let count = i64::try_from(values.len()).unwrap();
        encoder.append(0, &[builder.build().unwrap()], 0, count).unwrap();
        let schema = arrow_schema_of(&iceberg_schema(encoder.mapping()).unwrap()).unwrap();
        let properties = writer_properties(&schema, &BTreeSet::new(), 1);
        let job =
            Job { schema, properties, spec_id: SPEC_UNPARTITIONED, decoded_bytes_max: 256 << 10 };
        (encoder.finish_files().unwrap().remove(0).bytes, job)
    }

    /// The most that rows take at once, and how many there are.
    fn walk(source: Bytes, job: &Job) -> (usize, usize) {
        let mut cursor = Cursor::open(source, job, job.decoded_bytes_max).unwrap().unwrap();
        let (mut most, mut rows) = (0, 0);
        loop {
            most = most.max(cursor.batch.get_array_memory_size());
            let run = cursor.run_until(None);
            let column = run.column(required(&cursor.schema, field::OFFSET).unwrap());
            let offsets = column.as_primitive::<Int64Type>();
            assert_eq!(offsets.value(0), rows as i64, "no row is passed over or read again");
            rows += run.num_rows();
            if !cursor.fill().unwrap() {
                return (most, rows);
            }
        }
    }

    #[test]
    fn what_is_decoded_at_once_is_bounded_however_small_it_is_in_the_file() {
        // Nulls take next to nothing in a file, and so does a text that repeats.
        let wide: Vec<String> = (0..300).map(|n| format!("\"k{n}\":1")).collect();
        let mut sparse = vec![format!("{{{}}}", wide.join(","))];
        sparse.extend((0..1500).map(|n| format!("{{\"k{}\":1}}", n % 300)));
        let long = "x".repeat(4 << 10);
        let repeated: Vec<String> =
            (0..1500).map(|n| format!("{{\"t\":\"{}{long}\"}}", n % 3)).collect();
        for values in [sparse, repeated] {
            let (source, job) = file_of(&values);
            assert!(source.len() < 1 << 20, "{} bytes", source.len());
            let (most, rows) = walk(source, &job);
            assert_eq!(rows, values.len());
            assert!(most <= 2 * job.decoded_bytes_max, "{most} bytes at once");
            assert!(most >= job.decoded_bytes_max / 4, "{most} bytes: slow for nothing");
        }
    }
}
