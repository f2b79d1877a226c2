use super::*;
use crate::schema::{COLUMN_NAMES, field};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use kfs::{BatchBuilder, Codec, HeaderRef, NewRecord};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const DAY: i64 = DAY_MS;
/// The id of a table's first column beside the ten.
const FIRST_JSON_FIELD: i32 = 17;

fn record<'a>(timestamp_ms: i64, headers: &'a [HeaderRef<'a>]) -> NewRecord<'a> {
    NewRecord { timestamp_ms, key: Some(b"k"), value: Some(b"v"), headers }
}

fn batch_at(base_offset: i64, records: &[NewRecord<'_>]) -> Bytes {
    let mut builder = BatchBuilder::new().base_offset(base_offset);
    for record in records {
        builder.push(record).unwrap();
    }
    builder.build().unwrap()
}

fn read(file: &EncodedFile) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file.bytes.clone()).unwrap();
    let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1, "the tests' files are small");
    batches.into_iter().next().unwrap()
}

fn encoder() -> Encoder {
    Encoder::new(&EncoderConfig::default(), Mapping::new()).unwrap()
}

fn encode(batches: &[Bytes], from: i64, until: i64) -> Vec<EncodedFile> {
    let mut encoder = encoder();
    encoder.append(3, batches, from, until).unwrap();
    encoder.finish_files().unwrap()
}

fn offsets(file: &EncodedFile) -> Vec<i64> {
    read(file).column(1).as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn a_record_becomes_a_row() {
    let headers: [HeaderRef<'_>; 2] = [(b"trace", Some(b"abc")), (b"empty", None)];
    let tombstone = NewRecord { timestamp_ms: 5, key: None, value: None, headers: &[] };
    let files = encode(&[batch_at(10, &[record(1234, &headers), tombstone])], 0, 100);
    let rows = read(&files[0]);
    let names: Vec<_> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, COLUMN_NAMES);
    for (field, id) in rows.schema().fields().iter().zip(1..) {
        assert_eq!(field.metadata()["PARQUET:field_id"], format!("{id}"));
        assert_eq!(field.is_nullable(), id > 2);
    }
    assert_eq!(rows.column(0).as_primitive::<Int32Type>().values(), &[3, 3]);
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().values(), &[10, 11]);
    let timestamps = rows.column(2).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(timestamps.values(), &[1_234_000, 5_000]);
    assert_eq!(timestamps.timezone(), Some("UTC"));
    assert_eq!(rows.column(3).as_primitive::<Int64Type>().values(), &[1234, 5]);
    assert_eq!(rows.column(4).as_primitive::<Int32Type>().values(), &[0, 0]);
    assert_eq!(rows.column(5).as_binary::<i32>().value(0), b"k");
    assert!(rows.column(5).is_null(1) && rows.column(6).is_null(1));
    let all = rows.column(7).as_list::<i32>();
    assert_eq!((all.value_length(0), all.value_length(1)), (2, 0));
    assert!(all.is_valid(1), "no headers is an empty list");
    let first = all.value(0);
    let first = first.as_struct();
    assert_eq!(first.column(0).as_string::<i32>().value(1), "empty");
    assert_eq!(first.column(1).as_binary::<i32>().value(0), b"abc");
    assert!(first.column(1).is_null(1));
    assert_eq!((rows.column(8).null_count(), rows.column(9).null_count()), (2, 2));
}

#[test]
fn a_header_key_that_is_no_text_is_rescued() {
    let headers: [HeaderRef<'_>; 2] = [(b"good", None), (&[0x61, 0xff], Some(b"x"))];
    let files = encode(&[batch_at(0, &[record(0, &headers)])], 0, 1);
    let rows = read(&files[0]);
    let all = rows.column(7).as_list::<i32>().value(0);
    assert_eq!(all.as_struct().column(0).as_string::<i32>().value(1), "a\u{fffd}");
    let rescued = rows.column(8).as_string::<i32>().value(0);
    assert_eq!(rescued, r#"{"header_keys_hex":{"1":"61ff"}}"#);
    assert_eq!(files[0].nulls[&field::RESCUED], 0);
}

#[test]
fn timestamps_that_engines_cannot_show_are_null() {
    let times = [-1, TIMESTAMP_MS_MIN - 1, TIMESTAMP_MS_MAX + 1, i64::MAX, i64::MIN];
    // Each in a batch of its own, as their distance does not fit into a delta.
    let batches: Vec<_> =
        (0..).zip(times).map(|(at, ms)| batch_at(at, &[record(ms, &[])])).collect();
    let files = encode(&batches, 0, 100);
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].slot, FileSlot::Day(None));
    let rows = read(&files[0]);
    assert_eq!(rows.column(2).null_count(), times.len());
    assert_eq!(rows.column(3).as_primitive::<Int64Type>().values(), &times);
    assert!(!files[0].bounds.contains_key(&field::TIMESTAMP));
    assert_eq!(
        files[0].bounds[&field::TIMESTAMP_MS],
        Bounds::Whole { min: i64::MIN, max: i64::MAX }
    );
    let shown = [TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX];
    let batches: Vec<_> =
        (0..).zip(shown).map(|(at, ms)| batch_at(at, &[record(ms, &[])])).collect();
    let files = encode(&batches, 0, 100);
    assert!(files.iter().all(|file| read(file).column(2).null_count() == 0));
}

#[test]
fn days_beyond_the_eighth_share_a_file() {
    let times: Vec<i64> = (0..12).map(|day| day * DAY).chain([0, DAY * 11]).collect();
    let records: Vec<_> = times.iter().map(|ms| record(*ms, &[])).collect();
    let files = encode(&[batch_at(0, &records)], 0, 100);
    assert_eq!(files.len(), DAYS_MAX + 1);
    assert_eq!(files[0].slot, FileSlot::Day(Some(0)));
    assert_eq!(offsets(&files[0]), [0, 12]);
    assert_eq!(files[DAYS_MAX].slot, FileSlot::Mixed);
    assert_eq!(offsets(&files[DAYS_MAX]), [8, 9, 10, 11, 13]);
    assert_eq!(record_days_before_epoch(), FileSlot::Day(Some(-1)));
}

#[test]
fn the_largest_file_is_ended_alone_and_its_day_goes_on() {
    let mut encoder = encoder();
    let day = |day: i64, count| vec![record(day * DAY, &[]); count];
    let records = [day(0, 10), day(1, 500), day(2, 10)].concat();
    encoder.append(3, &[batch_at(0, &records)], 0, 1000).unwrap();
    let before = encoder.memory_bytes();
    let ended = encoder.finish_largest().unwrap();
    assert_eq!((ended.len(), ended[0].slot), (1, FileSlot::Day(Some(1))));
    assert_eq!(ended[0].rows, 500);
    assert!(encoder.memory_bytes() < before / 10);
    encoder.append(3, &[batch_at(520, &day(1, 5))], 0, 1000).unwrap();
    let rest = encoder.finish_files().unwrap();
    let shown: Vec<_> = rest.iter().map(|file| (file.slot, file.rows)).collect();
    let slot = |day| FileSlot::Day(Some(day));
    assert_eq!(shown, [(slot(0), 10), (slot(1), 5), (slot(2), 10)]);
    assert_eq!(encoder.memory_bytes(), 0);
    assert!(encoder.finish_largest().unwrap().is_empty());
}

fn record_days_before_epoch() -> FileSlot {
    encode(&[batch_at(0, &[record(-2, &[])])], 0, 1)[0].slot
}

#[test]
fn only_asked_offsets_become_rows() {
    let records: Vec<_> = (0..10).map(|ms| record(ms, &[])).collect();
    let batches = [batch_at(0, &records), batch_at(10, &records)];
    assert_eq!(offsets(&encode(&batches, 7, 12)[0]), [7, 8, 9, 10, 11]);
    assert!(encode(&batches, 20, 30).is_empty());
}

#[test]
fn counts_and_bounds_are_right() {
    let records = [record(50, &[]), record(20, &[]), record(-1, &[])];
    let files = encode(&[batch_at(100, &records)], 0, 1000);
    let [shown, without] = files.as_slice() else { panic!("one file a day") };
    assert_eq!((without.slot, shown.slot), (FileSlot::Day(Some(0)), FileSlot::Day(None)));
    assert_eq!((without.rows, without.nulls[&field::TIMESTAMP]), (2, 0));
    assert_eq!((shown.rows, shown.nulls[&field::TIMESTAMP]), (1, 1));
    assert_eq!(without.bounds[&field::OFFSET], Bounds::Whole { min: 100, max: 101 });
    assert_eq!(without.bounds[&field::TIMESTAMP], Bounds::Time { min: 20_000, max: 50_000 });
    assert_eq!(without.bounds[&field::PARTITION], Bounds::Int { min: 3, max: 3 });
    assert_eq!(without.split_offsets, [4]);
    assert!(without.column_bytes[&field::HEADER_KEY] > 0);
}

#[test]
fn statistics_are_on_ordered_columns_only() {
    let files = encode(&[batch_at(0, &[record(0, &[])])], 0, 1);
    let reader = ParquetRecordBatchReaderBuilder::try_new(files[0].bytes.clone()).unwrap();
    for column in reader.metadata().row_group(0).columns() {
        let id = column.column_descr().self_type().get_basic_info().id();
        let has_bounds = crate::schema::COLUMNS_WITH_BOUNDS.contains(&id);
        assert_eq!(column.statistics().is_some(), has_bounds, "field {id}");
    }
}

#[test]
fn every_codec_and_log_append_time() {
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    for codec in codecs {
        let mut builder = BatchBuilder::new().codec(codec, None).log_append_time(77);
        builder.push(&record(5, &[])).unwrap();
        let rows = read(&encode(&[builder.build().unwrap()], 0, 1)[0]);
        assert_eq!(rows.column(3).as_primitive::<Int64Type>().values(), &[77]);
        assert_eq!(rows.column(4).as_primitive::<Int32Type>().values(), &[1]);
    }
}

#[test]
fn torn_bytes_are_corrupt_and_control_batches_are_no_rows() {
    let whole = batch_at(0, &[record(0, &[])]);
    let mut encoder = encoder();
    let error = encoder.append(0, &[whole.slice(..whole.len() - 1)], 0, 1).unwrap_err();
    assert_eq!(error.kind(), floe_env::ErrorKind::Corrupt);
    let mut builder = BatchBuilder::new().control();
    builder.push(&record(0, &[])).unwrap();
    assert!(encode(&[builder.build().unwrap()], 0, 1).is_empty());
}

/// The library's own bounds of a file leave out row groups whose texts it has cut short, so that
/// readers pass over rows that are there.
#[test]
fn bounds_hold_for_every_row_group() {
    let mut encoder = encoder();
    let mut builder = BatchBuilder::new();
    let value = Some(&br#"{"k":"text"}"#[..]);
    builder.push(&NewRecord { timestamp_ms: 0, key: None, value, headers: &[] }).unwrap();
    encoder.append(0, &[builder.build().unwrap()], 0, 1).unwrap();
    let shape = FileShape::of(encoder.mapping()).unwrap();
    let mut writer = DataFileWriter::new(&shape, FileSlot::Day(None)).unwrap();
    let (first, last) = ("a".repeat(200), "z".repeat(200));
    for text in [&*last, "m", &*first] {
        let column = |field: &std::sync::Arc<arrow_schema::Field>| -> arrow_array::ArrayRef {
            match field.name().as_str() {
                "_kafka_partition" => std::sync::Arc::new(arrow_array::Int32Array::from(vec![0])),
                "_kafka_offset" => std::sync::Arc::new(arrow_array::Int64Array::from(vec![0])),
                "k" => std::sync::Arc::new(arrow_array::StringArray::from(vec![text])),
                _ => arrow_array::new_null_array(field.data_type(), 1),
            }
        };
        let columns = shape.schema.fields().iter().map(column).collect();
        writer.write(&RecordBatch::try_new(shape.schema.clone(), columns).unwrap()).unwrap();
        writer.end_row_group().unwrap();
    }
    let file = writer.finish().unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file.bytes.clone()).unwrap();
    assert_eq!((reader.metadata().num_row_groups(), file.split_offsets.len()), (3, 3));
    let id = FIRST_JSON_FIELD;
    let max = format!("{}{{", "z".repeat(15));
    assert_eq!(file.bounds[&id], Bounds::Text { min: "a".repeat(16), max: Some(max) });
    assert_eq!(file.nulls[&id], 0);
}
