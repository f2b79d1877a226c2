//! Version 1, against the vector of its own documentation.

use kfs::v1::{V1Index, V1IndexEntry, V1Segment};
use kfs::{FormatError, HEADER_LEN};

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// The vector: a batch of 66 bytes, mostly zero, with three records by its header.
fn segment() -> Vec<u8> {
    let mut batch = [0; HEADER_LEN + 5];
    batch[11] = 0x36;
    batch[16] = 2;
    batch[26] = 2;
    batch[60] = 3;
    let header = hex("4b41465300010000000000000000000000000003010203040506070800000000");
    let footer = hex("5bfb6c3a0000000000000002454e4421");
    [&header[..], &batch, &footer].concat()
}

fn index() -> Vec<u8> {
    [hex("49445800000100000001000000640000"), hex("000000000000000000000020")].concat()
}

#[test]
fn reads_the_vector() {
    let bytes = segment();
    let segment = V1Segment::parse(&bytes).unwrap();
    assert_eq!((segment.base_offset, segment.message_count, segment.last_offset), (0, 3, 2));
    assert_eq!(segment.created_ms, 0x0102_0304_0506_0708);
    let batches: Vec<_> = segment.batches().map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1);
    assert_eq!((batches[0].bytes().len(), batches[0].header.record_count), (66, 3));
    let parsed = V1Index::parse(&index()).unwrap();
    let entry = V1IndexEntry { offset: 0, position: 32 };
    assert_eq!(parsed, V1Index { interval: 100, entries: vec![entry] });
    assert_eq!(segment.build_index(100).unwrap(), parsed.entries);
}

#[test]
fn refuses_what_is_damaged() {
    let whole = segment();
    for length in 0..whole.len() {
        assert!(V1Segment::parse(&whole[..length]).is_err(), "{length}");
    }
    let mut wrong = whole.clone();
    wrong[40] ^= 1;
    assert_eq!(V1Segment::parse(&wrong).unwrap_err(), FormatError::Checksum("batches"));
    let mut newer = whole;
    newer[5] = 2;
    let expected = FormatError::TooNew { version: 2, min_reader: 2 };
    assert_eq!(V1Segment::parse(&newer).unwrap_err(), expected);

    let index = index();
    for length in 0..index.len() {
        assert!(V1Index::parse(&index[..length]).is_err(), "{length}");
    }
    assert!(V1Index::parse(&[&index[..], &[1, 2, 3]].concat()).is_ok());
    let mut negative = index.clone();
    negative[6] = 0x80;
    assert_eq!(V1Index::parse(&negative), Err(FormatError::Invalid("entry count")));
    let mut many = index;
    many[6] = 0x7f;
    assert_eq!(V1Index::parse(&many), Err(FormatError::Truncated("index")));
}

#[test]
fn version_1_is_refused_by_name_as_version_2() {
    let bytes = segment();
    assert_eq!(kfs::container::parse_header(&bytes), Err(FormatError::Version1));
    assert_eq!(kfs::Tail::parse(bytes.len() as u64, &bytes), Err(FormatError::Version1));
}
