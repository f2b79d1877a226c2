//! What a produce accepts, and with what error it refuses the rest.

use crate::{changed, filled, fix_crc, plain_batch};
use kfs::*;

fn rules() -> Rules {
    Rules {
        batch_bytes_max: 1024 * 1024,
        decompressed_bytes_max: 4 * 1024 * 1024,
        require_key: false,
        zstd_allowed: true,
        timestamps: TimestampRule::CreateTime { earliest_ms: i64::MIN, latest_ms: i64::MAX },
    }
}

fn refused(batch: &[u8]) -> BatchError {
    validate_batch(batch, &rules()).unwrap_err()
}

#[test]
fn accepts_every_codec_and_finds_the_true_timestamps() {
    let mut builder = BatchBuilder::new();
    for timestamp_ms in [500, 900, 100] {
        let record = NewRecord { timestamp_ms, value: Some(b"v"), ..NewRecord::default() };
        builder.push(&record).unwrap();
    }
    let plain = builder.build().unwrap();
    for codec in Codec::ALL {
        let batch = recompress(&plain, codec, None, 1000).unwrap();
        let summary = validate_batch(&batch, &rules()).unwrap();
        assert_eq!(summary.codec, codec);
        assert_eq!((summary.min_timestamp_ms, summary.max_timestamp_ms), (100, 900));
        assert_eq!((summary.keyless_records, summary.record_bytes), (3, plain.len() - 61));
        assert!(!summary.needs_create_time_fix());
    }
    let mut wrong = plain.to_vec();
    set_timestamps(&mut wrong, TimestampType::CreateTime, -1);
    assert!(validate_batch(&wrong, &rules()).unwrap().needs_create_time_fix());
    set_timestamps(&mut wrong, TimestampType::LogAppendTime, 900);
    assert!(validate_batch(&wrong, &rules()).unwrap().needs_create_time_fix());
}

#[test]
fn the_order_is_codec_offset_size_checksum_header() {
    let mut batch = filled(BatchBuilder::new().codec(Codec::Zstd, None), 1, 100, 0).to_vec();
    set_base_offset(&mut batch, 1);
    batch[57..61].copy_from_slice(&9_i32.to_be_bytes());
    let len = batch.len();
    let mut rules = Rules { zstd_allowed: false, batch_bytes_max: len - 1, ..rules() };
    assert_eq!(validate_batch(&batch, &rules), Err(BatchError::ZstdNotAllowed));
    rules.zstd_allowed = true;
    assert_eq!(validate_batch(&batch, &rules), Err(BatchError::BaseOffset(1)));
    set_base_offset(&mut batch, 0);
    let too_large = BatchError::TooLarge { bytes: len, bytes_max: len - 1 };
    assert_eq!(validate_batch(&batch, &rules), Err(too_large));
    rules.batch_bytes_max = len;
    assert!(matches!(validate_batch(&batch, &rules), Err(BatchError::Crc { .. })));
    fix_crc(&mut batch);
    let count = BatchError::RecordCount { stated: 9, last_offset_delta: 0, found: 9 };
    assert_eq!(validate_batch(&batch, &rules), Err(count));
}

#[test]
fn every_flipped_bit_under_the_checksum_is_found() {
    let batch = plain_batch(2, 20, 1000);
    for at in 17..batch.len() {
        let mut flipped = batch.to_vec();
        flipped[at] ^= 1 << (at % 8);
        assert!(matches!(refused(&flipped), BatchError::Crc { .. }), "byte {at}");
    }
}

#[test]
fn counts_must_agree() {
    let batch = plain_batch(3, 5, 0);
    for (count, last) in [(0, -1), (-1, -2), (2, 2), (3, 1)] {
        let wrong =
            changed(&changed(&batch, 57, &i32::to_be_bytes(count)), 23, &i32::to_be_bytes(last));
        assert!(matches!(refused(&wrong), BatchError::RecordCount { .. }), "{count} {last}");
    }
    for (count, found) in [(2, 3), (4, 3)] {
        let wrong = changed(
            &changed(&batch, 57, &i32::to_be_bytes(count)),
            23,
            &i32::to_be_bytes(count - 1),
        );
        let expected =
            BatchError::RecordCount { stated: count, last_offset_delta: count - 1, found };
        assert_eq!(refused(&wrong), expected);
    }
}

#[test]
fn headers_that_no_client_may_send() {
    let batch = plain_batch(1, 5, 0);
    assert_eq!(refused(&changed(&batch, 22, &[0x20])), BatchError::Control);
    for bits in 5..=7 {
        assert_eq!(refused(&changed(&batch, 22, &[bits])), BatchError::UnknownCodec(bits));
    }
    let expected = BatchError::Sequence { producer_id: 7, base_sequence: -1 };
    assert_eq!(refused(&changed(&batch, 43, &7_i64.to_be_bytes())), expected);
    // A sequence without a producer is accepted, as in Kafka.
    assert!(validate_batch(&changed(&batch, 53, &7_i32.to_be_bytes()), &rules()).is_ok());
    let log_append = changed(&batch, 22, &[0x08]);
    let rules = Rules { timestamps: TimestampRule::LogAppendTime, ..rules() };
    assert_eq!(validate_batch(&log_append, &rules), Err(BatchError::LogAppendTime));
    assert!(matches!(refused(&changed(&batch, 22, &[0x04])), BatchError::Decompress { .. }));
}

#[test]
fn faults_in_a_record_name_it() {
    // One record: length, attributes, timestamp delta, offset delta, key "key", value, headers.
    let batch = plain_batch(1, 5, 0);
    let fault = |at: usize, byte: u8| match refused(&changed(&batch, at, &[byte])) {
        BatchError::Record { index: 0, error } => error,
        other => panic!("{other}"),
    };
    let length = batch[61];
    assert_eq!(fault(61, length + 2), RecordError::Truncated);
    assert_eq!(fault(61, length - 2), RecordError::Truncated);
    assert_eq!(fault(61, 1), RecordError::NegativeLength(-1));
    assert_eq!(fault(64, 2), RecordError::OffsetDelta(1));
    assert_eq!(fault(65, 3), RecordError::NegativeLength(-2));
    let mut longer = [&changed(&batch, 61, &[length + 2])[..], &[0]].concat();
    longer[11] += 1;
    fix_crc(&mut longer);
    let expected = BatchError::Record { index: 0, error: RecordError::LeftOver(1) };
    assert_eq!(refused(&longer), expected);
    assert_eq!(fault(75, 2), RecordError::Truncated);
    assert_eq!(fault(75, 1), RecordError::NegativeLength(-1));
    let overflow = changed(&changed(&batch, 27, &i64::MAX.to_be_bytes()), 63, &[2]);
    let expected = BatchError::Record { index: 0, error: RecordError::TimestampOverflow(1) };
    assert_eq!(refused(&overflow), expected);
}

#[test]
fn bad_records_are_listed() {
    let mut builder = BatchBuilder::new();
    let keys: [Option<&[u8]>; 5] = [Some(b"k"), None, Some(b""), None, Some(b"k")];
    for (key, timestamp_ms) in keys.into_iter().zip([100, 150, 99, -1, 201]) {
        builder.push(&NewRecord { timestamp_ms, key, ..NewRecord::default() }).unwrap();
    }
    let batch = builder.build().unwrap();
    let timestamps = TimestampRule::CreateTime { earliest_ms: 100, latest_ms: 200 };
    let rules = Rules { require_key: true, timestamps, ..rules() };
    let missing = |index| BadRecord { index, fault: RecordFault::MissingKey };
    let outside =
        |index, timestamp_ms| BadRecord { index, fault: RecordFault::Timestamp { timestamp_ms } };
    let expected = vec![missing(1), outside(2, 99), missing(3), outside(4, 201)];
    assert_eq!(validate_batch(&batch, &rules), Err(BatchError::BadRecords(expected)));
    // No timestamp is always allowed; -2 is one, and before the limit.
    let one = |timestamp_ms| plain_batch(1, 1, timestamp_ms);
    let rules = Rules { require_key: false, ..rules };
    assert!(validate_batch(&one(NO_TIMESTAMP_MS), &rules).is_ok());
    assert!(validate_batch(&one(-2), &rules).is_err());
    let rules = Rules { timestamps: TimestampRule::LogAppendTime, ..rules };
    assert!(validate_batch(&one(i64::MAX - 1), &rules).is_ok());
}

/// A small compressed batch of very many bad records must not become a large list.
#[test]
fn bad_records_are_listed_up_to_a_limit_and_walked_all_the_same() {
    let count = BAD_RECORDS_MAX + 10;
    let batch = plain_batch(count, 1, 1_000);
    let timestamps = TimestampRule::CreateTime { earliest_ms: 0, latest_ms: 1 };
    let rules = Rules { timestamps, ..rules() };
    let Err(BatchError::BadRecords(bad)) = validate_batch(&batch, &rules) else {
        panic!("all of them are bad")
    };
    assert_eq!(bad.len(), BAD_RECORDS_MAX);
    let mut torn = batch.to_vec();
    let last = torn.len() - 1;
    // The last record's count of headers.
    torn[last] = 1;
    fix_crc(&mut torn);
    assert!(matches!(validate_batch(&torn, &rules), Err(BatchError::Record { .. })));
}

#[test]
fn decompression_is_bounded() {
    let batch = filled(BatchBuilder::new().codec(Codec::Zstd, None), 10, 10_000, 0);
    let rules = Rules { decompressed_bytes_max: 50_000, ..rules() };
    let expected = BatchError::DecompressedTooLarge { bytes_max: 50_000 };
    assert_eq!(validate_batch(&batch, &rules), Err(expected));
}
