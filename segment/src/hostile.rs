//! What the fuzz targets call, and a stable test over their corpora: each function gives bytes to
//! a parser and panics where the parser broke a promise.

use crate::batch::{
    BatchHeader, BatchView, HEADER_LEN, assign_offsets, batches, single_batch, update_crc,
};
use crate::codec::{Codec, CodecError, decompress};
use crate::container::{FOOTER_EXPANSION_MAX, Footer, Section, Tail, open, parse_header};
use crate::control::ControlRecord;
use crate::error::BatchError;
use crate::record::Records;
use crate::v1::{V1_FOOTER_LEN, V1_HEADER_LEN, V1Index, V1Segment};
use crate::validate::{Rules, TimestampRule, validate_batch};
use crate::writer::recompress;
use bytes::Bytes;
use std::borrow::Cow;
use std::convert::Infallible;

/// Most bytes that a batch of the fuzzer may decompress to.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// What a parsed footer may take beside its multiple of the input: the first step of a vector.
const FOOTER_BYTES_FIXED: usize = 4096;

/// Takes bytes and panics if a parser broke a promise.
pub type Entry = fn(&[u8]);

/// Each entry function by the name of its target, which is also the name of its corpus.
pub const TARGETS: [(&str, Entry); 6] = [
    ("batch", batch),
    ("records", records),
    ("codec", codec),
    ("footer", footer),
    ("object", object),
    ("v1", v1),
];

/// A batch, or several, as a client or a store might send them.
pub fn batch(data: &[u8]) {
    let _ = BatchHeader::parse(data);
    let _ = single_batch(data);
    let mut whole = 0;
    for view in batches(data).flatten() {
        whole += view.bytes().len();
        walk(&view);
    }
    assert!(whole <= data.len());
    let mut patched = data.to_vec();
    let _ = assign_offsets(&mut patched, i64::MAX - 1, 7);
    if data.len() < HEADER_LEN {
        return;
    }
    // A fuzzer does not find checksums.
    patched.copy_from_slice(data);
    update_crc(&mut patched);
    validate(&patched);
}

fn validate(batch: &[u8]) {
    let rules = Rules {
        batch_bytes_max: OUTPUT_BYTES_MAX,
        decompressed_bytes_max: OUTPUT_BYTES_MAX,
        require_key: batch.len() & 1 == 1,
        zstd_allowed: true,
        timestamps: TimestampRule::CreateTime { earliest_ms: 0, latest_ms: i64::MAX },
    };
    match validate_batch(batch, &rules) {
        Ok(summary) => {
            assert!(summary.min_timestamp_ms <= summary.max_timestamp_ms);
            let plain = recompress(batch, Codec::None, None, OUTPUT_BYTES_MAX)
                .expect("what was validated can be decompressed");
            let rules = Rules { batch_bytes_max: plain.len(), ..rules };
            let again = validate_batch(&plain, &rules).expect("the same records are valid");
            assert_eq!(again.record_bytes, summary.record_bytes);
            assert_eq!(again.keyless_records, summary.keyless_records);
        }
        Err(BatchError::BadRecords(bad)) => assert!(!bad.is_empty()),
        Err(_) => {}
    }
}

fn walk(view: &BatchView<'_>) {
    let _ = view.verify_crc();
    let _ = (view.header.last_offset(), view.header.last_sequence());
    let Ok(records) = view.records(OUTPUT_BYTES_MAX) else { return };
    walk_records(records.iter(), records.bytes().len());
}

fn walk_records(records: Records<'_>, bytes: usize) {
    let mut found = 0;
    for record in records.flatten() {
        // A record takes 7 bytes, a header 2.
        found += 7 + 2 * record.headers.count();
        let _ = ControlRecord::parse(&record);
    }
    assert!(found <= bytes);
}

/// Decompressed records; the first byte is their count.
pub fn records(data: &[u8]) {
    let Some((&count, bytes)) = data.split_first() else { return };
    walk_records(Records::new(bytes, i32::from(count as i8)), bytes.len());
}

/// Compressed bytes; the first byte chooses the codec.
pub fn codec(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else { return };
    let codec = Codec::ALL[usize::from(first) % Codec::ALL.len()];
    for bytes_max in [OUTPUT_BYTES_MAX, 100] {
        match decompress(codec, input, bytes_max) {
            Ok(Cow::Borrowed(output)) => assert_eq!(output, input),
            Ok(Cow::Owned(output)) => assert!(output.capacity() <= bytes_max.max(output.len())),
            Err(CodecError::OutputLimit { bytes_max: said }) => assert_eq!(said, bytes_max),
            Err(CodecError::Corrupt { .. }) => {}
        }
    }
}

/// A footer's fields.
pub fn footer(data: &[u8]) {
    let body_end = u64::from(u32::MAX);
    let Ok(footer) = Footer::parse_fields(data, body_end) else { return };
    let heap = heap_bytes(&footer);
    assert!(heap <= FOOTER_BYTES_FIXED + FOOTER_EXPANSION_MAX * data.len(), "{heap} bytes");
    check(&footer);
    let again = Footer::parse_fields(&footer.encode(), body_end);
    assert_eq!(again.as_ref(), Ok(&footer));
}

/// A whole object.
pub fn object(data: &[u8]) {
    let _ = parse_header(data);
    let _ = Tail::parse(data.len() as u64, data);
    let _ = Tail::parse(u64::MAX, data);
    let bytes = Bytes::copy_from_slice(data);
    let mut reads = 0;
    let footer = open::<Infallible>(data.len() as u64, |range| {
        reads += 1;
        Ok(bytes.slice(range.start as usize..range.end as usize))
    });
    assert!(reads <= 2);
    let Ok(footer) = footer else { return };
    check(&footer);
    for section in &footer.sections {
        let stored = &data[section.position as usize..][..section.length as usize];
        for view in batches(stored).flatten() {
            walk(&view);
        }
    }
}

fn check(footer: &Footer) {
    for section in &footer.sections {
        assert!(section.position.checked_add(section.length).is_some());
        assert!(section.index[0].position == 0);
        assert!(section.seek_offset(u64::MAX).position < section.length);
        let _ = section.seek_timestamp(section.max_timestamp_ms);
    }
}

/// Bytes on the heap, spare capacity included; names are shared, and smaller than their fields.
fn heap_bytes(footer: &Footer) -> usize {
    let mut bytes = footer.sections.capacity() * size_of::<Section>();
    for section in &footer.sections {
        bytes += section.producers.capacity() * element_len(&section.producers);
        bytes += section.index.capacity() * element_len(&section.index);
        bytes += section.aborted.capacity() * element_len(&section.aborted);
    }
    bytes
}

fn element_len<T>(_: &[T]) -> usize {
    size_of::<T>()
}

/// A segment or an index of version 1.
pub fn v1(data: &[u8]) {
    let _ = V1Index::parse(data);
    let mut fixed = data.to_vec();
    if let Some(body_end) = data.len().checked_sub(V1_FOOTER_LEN)
        && body_end >= V1_HEADER_LEN
    {
        let crc = crc32c::crc32c(&data[V1_HEADER_LEN..body_end]);
        fixed[body_end..body_end + 4].copy_from_slice(&crc.to_be_bytes());
    }
    let Ok(segment) = V1Segment::parse(&fixed) else { return };
    let _ = segment.build_index(100);
    for view in segment.batches().flatten() {
        walk(&view);
    }
}
