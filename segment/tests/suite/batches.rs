//! Batches as kafka-clients 4.4.0 wrote them (`KafkaBatches.java` beside the files), and ours.

use crate::{changed, filled, golden, plain_batch};
use kfs::*;

const LIMIT: usize = 1024 * 1024;

type KeyValue<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

#[test]
fn reads_what_kafka_wrote_in_every_codec() {
    let kinds = [
        ("none", Codec::None),
        ("gzip", Codec::Gzip),
        ("snappy", Codec::Snappy),
        ("lz4", Codec::Lz4),
        ("zstd", Codec::Zstd),
        ("zstd22", Codec::Zstd),
    ];
    for (name, codec) in kinds {
        let bytes = golden(&format!("kafka-4.4.0-{name}.batch"));
        let batch = BatchView::parse(&bytes).unwrap();
        batch.verify_crc().unwrap();
        let header = batch.header;
        assert_eq!(header.codec(), Ok(codec), "{name}");
        assert_eq!(header.total_len(), bytes.len());
        assert_eq!((header.producer_id, header.producer_epoch), (4711, 3));
        assert_eq!((header.base_sequence, header.last_sequence()), (i32::MAX - 1, 1));
        assert!(header.is_transactional() && !header.is_control());
        assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
        assert_eq!((header.base_offset, header.last_offset()), (0, 3));
        check_records(&batch, if name == "none" { 1000 } else { 70_000 });
    }
}

fn check_records(batch: &BatchView<'_>, value_len: usize) {
    let records = batch.records(LIMIT).unwrap();
    let records: Vec<Record<'_>> = records.iter().map(Result::unwrap).collect();
    let value: Vec<u8> = (0..value_len).map(|index| (index / 9) as u8).collect();
    let timestamps =
        records.iter().map(|record| batch.header.record_timestamp_ms(record.timestamp_delta));
    let expected = [1_700_000_000_123, 1_700_000_000_100, 1_700_000_000_999, -1];
    assert_eq!(timestamps.collect::<Vec<_>>(), expected);
    let bodies: Vec<_> = records.iter().map(|record| (record.key, record.value)).collect();
    let expected: [KeyValue<'_>; 4] = [
        (Some(b"first"), Some(b"value")),
        (None, Some(&value)),
        (Some(b"grabstein"), None),
        (Some(b""), Some(b"")),
    ];
    assert_eq!(bodies, expected);
    let headers: Vec<_> = records[0].headers.collect();
    let expected: [(&[u8], Option<&[u8]>); 3] =
        [(b"a", Some(&[1, 2])), (b"b", None), (b"a", Some(b""))];
    assert_eq!(headers, expected);
    assert!(records[1..].iter().all(|record| record.headers.len() == 0));
}

#[test]
fn writes_the_bytes_that_kafka_writes() {
    let value: Vec<u8> = (0..1000_usize).map(|index| (index / 9) as u8).collect();
    let headers: [HeaderRef<'_>; 3] = [(b"a", Some(&[1, 2])), (b"b", None), (b"a", Some(b""))];
    let mut builder = BatchBuilder::new()
        .producer(ProducerId(4711), ProducerEpoch(3), i32::MAX - 1)
        .transactional();
    let record =
        |timestamp_ms, key, value, headers| NewRecord { timestamp_ms, key, value, headers };
    let records = [
        record(
            1_700_000_000_123,
            Some(b"first".as_slice()),
            Some(b"value".as_slice()),
            &headers[..],
        ),
        record(1_700_000_000_100, None, Some(value.as_slice()), &[]),
        record(1_700_000_000_999, Some(b"grabstein".as_slice()), None, &[]),
        record(-1, Some(b"".as_slice()), Some(b"".as_slice()), &[]),
    ];
    for record in &records {
        builder.push(record).unwrap();
    }
    let mut ours = builder.build().unwrap().to_vec();
    set_leader_epoch(&mut ours, -1);
    assert_eq!(ours, golden("kafka-4.4.0-none.batch"));
}

#[test]
fn markers_are_the_bytes_that_kafka_writes() {
    for (marker, name) in [(Marker::Commit, "commit"), (Marker::Abort, "abort")] {
        let batch =
            control_batch(marker, ProducerId(4711), ProducerEpoch(3), 17, 1_700_000_000_456);
        assert_eq!(batch.len(), MARKER_LEN);
        assert_eq!(batch, golden(&format!("kafka-4.4.0-{name}.batch")));
        let view = BatchView::parse(&batch).unwrap();
        let records = view.records(LIMIT).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let expected = ControlRecord::End { marker, coordinator_epoch: 17 };
        assert_eq!(ControlRecord::parse(&record), expected);
    }
}

#[test]
fn patches_leave_the_checksum_right() {
    let mut bytes = plain_batch(3, 10, 1000).to_vec();
    set_base_offset(&mut bytes, i64::MAX - 5);
    set_leader_epoch(&mut bytes, 9);
    verify_crc(&bytes).unwrap();
    set_timestamps(&mut bytes, TimestampType::LogAppendTime, 77);
    verify_crc(&bytes).unwrap();
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!((header.base_offset, header.partition_leader_epoch), (i64::MAX - 5, 9));
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.record_timestamp_ms(2), 77);
    set_timestamps(&mut bytes, TimestampType::CreateTime, 1002);
    set_base_offset(&mut bytes, 0);
    set_leader_epoch(&mut bytes, 0);
    assert_eq!(bytes, plain_batch(3, 10, 1000));
}

#[test]
fn offsets_are_assigned_batch_by_batch() {
    let mut bytes = [plain_batch(3, 5, 0), plain_batch(1, 5, 0), plain_batch(4, 5, 0)].concat();
    assert_eq!(assign_offsets(&mut bytes, 100, 1), Ok(108));
    let bases: Vec<_> = batches(&bytes).map(|batch| batch.unwrap().header.base_offset).collect();
    assert_eq!(bases, [100, 103, 104]);
    assert!(batches(&bytes).all(|batch| batch.unwrap().verify_crc().is_ok()));
}

#[test]
fn a_torn_batch_ends_the_iteration_with_an_error() {
    let bytes = [plain_batch(1, 5, 0), plain_batch(1, 5, 0)].concat();
    let torn = &bytes[..bytes.len() - 1];
    let found: Vec<_> = batches(torn).map(|batch| batch.is_ok()).collect();
    assert_eq!(found, [true, false]);
    assert!(matches!(
        BatchView::parse(torn),
        Err(BatchError::Truncated { .. } | BatchError::NotOneBatch(_))
    ));
}

#[test]
fn a_block_holds_one_batch_and_may_have_a_scrap_behind_it() {
    let batch = plain_batch(2, 5, 0);
    assert_eq!(single_batch(&batch), Ok(&batch[..]));
    let scrap = [&batch[..], &batch[..40]].concat();
    assert_eq!(single_batch(&scrap), Ok(&batch[..]));
    let two = [&batch[..], &batch[..]].concat();
    assert_eq!(single_batch(&two), Err(BatchError::NotOneBatch(2)));
    assert_eq!(single_batch(&[]), Err(BatchError::NotOneBatch(0)));
    assert_eq!(single_batch(&batch[..batch.len() - 1]), Err(BatchError::NotOneBatch(0)));
    for magic in [0, 1] {
        assert_eq!(
            single_batch(&changed(&batch, 16, &[magic])),
            Err(BatchError::OldMagic(magic as i8))
        );
    }
    assert_eq!(single_batch(&changed(&batch, 16, &[3])), Err(BatchError::UnknownMagic(3)));
    let short = changed(&batch, 8, &13_i32.to_be_bytes());
    assert_eq!(single_batch(&short), Err(BatchError::LengthTooSmall(13)));
}

#[test]
fn compaction_keeps_offsets_and_producer() {
    let producer = BatchBuilder::new().producer(ProducerId(5), ProducerEpoch(1), 40);
    let mut original = filled(producer, 5, 10, 1000).to_vec();
    set_base_offset(&mut original, 200);
    let header = BatchHeader::parse(&original).unwrap();
    let mut builder = BatchBuilder::replacing(&header, Codec::Zstd);
    let record = NewRecord { timestamp_ms: 1001, key: Some(b"k"), ..NewRecord::default() };
    builder.push_at(1, &record).unwrap();
    assert_eq!(builder.push_at(1, &record), Err(BuildError::OffsetDelta(1)));
    assert_eq!(builder.push_at(5, &record), Err(BuildError::OffsetDelta(5)));
    let compacted = builder.build().unwrap();
    let view = BatchView::parse(&compacted).unwrap();
    view.verify_crc().unwrap();
    let kept = BatchHeader {
        batch_length: view.header.batch_length,
        crc: view.header.crc,
        attributes: 4,
        max_timestamp_ms: 1001,
        record_count: 1,
        ..header
    };
    assert_eq!(view.header, kept);
    let records = view.records(LIMIT).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    assert_eq!((record.offset_delta, record.timestamp_delta), (1, 1));

    let empty = BatchBuilder::replacing(&header, Codec::Zstd).build().unwrap();
    assert_eq!(empty.len(), HEADER_LEN);
    let view = BatchView::parse(&empty).unwrap();
    assert_eq!((view.header.last_offset(), view.header.record_count), (204, 0));
    assert_eq!(view.records(LIMIT).unwrap().iter().count(), 0);
}

#[test]
fn a_batch_that_compaction_empties_has_kafkas_header() {
    let producer = BatchBuilder::new().producer(ProducerId(5), ProducerEpoch(1), 40);
    let builder = producer.transactional().codec(Codec::Gzip, None).delete_horizon(7_000);
    let original = filled(builder, 5, 10, 1000);
    let header = BatchHeader::parse(&original).unwrap();
    assert!(header.has_delete_horizon() && header.base_timestamp_ms == 7_000);
    let empty = empty_batch(&header);
    assert_eq!(empty.len(), HEADER_LEN);
    let view = BatchView::parse(&empty).unwrap();
    view.verify_crc().unwrap();
    let kept = BatchHeader {
        batch_length: view.header.batch_length,
        crc: view.header.crc,
        attributes: 1 << 4,
        base_timestamp_ms: -1,
        record_count: 0,
        ..header
    };
    assert_eq!(view.header, kept);
    assert_eq!(view.records(LIMIT).unwrap().iter().count(), 0);
}

#[test]
fn sequences_wrap_to_zero() {
    assert_eq!(add_sequence(i32::MAX, 1), 0);
    assert_eq!(add_sequence(i32::MAX - 1, 3), 1);
    assert_eq!(add_sequence(5, 0), 5);
}
