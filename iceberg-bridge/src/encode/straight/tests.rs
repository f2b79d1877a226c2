//! The short way and the long one write the same.

use crate::encode::{Encoder, EncoderConfig};
use crate::mapping::Mapping;
use bytes::Bytes;
use kfs::{BatchBuilder, NewRecord};
use proptest::prelude::*;

/// Files of records that may take the short way, or none may; with the columns and the counts.
fn encoded(records: &[String], may_be_short: bool) -> (Vec<Bytes>, String) {
    let mut encoder = Encoder::new(&EncoderConfig::default(), Mapping::new()).unwrap();
    if !may_be_short {
        encoder.decoder.straight.pause = (u32::MAX, 0);
    }
    let mut builder = BatchBuilder::new();
    for record in records {
        let value = Some(record.as_bytes());
        builder.push(&NewRecord { value, ..NewRecord::default() }).unwrap();
    }
    encoder.append(0, &[builder.build().unwrap()], 0, records.len() as i64).unwrap();
    let files = encoder.finish_files().unwrap().into_iter().map(|file| file.bytes).collect();
    (files, format!("{:?} {:?}", encoder.mapping(), encoder.counts()))
}

/// Values of few keys and of all kinds, so that records are alike, and sometimes are not.
fn value() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        6 => (-3i64..3).prop_map(|number| number.to_string()),
        1 => Just("9007199254740993".to_owned()),
        1 => Just("123456789012345678901234567890".to_owned()),
        1 => Just("1.5".to_owned()),
        1 => Just("1e999".to_owned()),
        3 => Just("null".to_owned()),
        2 => Just("true".to_owned()),
        3 => "[a-z\u{e9}]{0,3}".prop_map(|text| format!("\"{text}\"")),
        1 => Just("\"\\u00e9\\n\"".to_owned()),
        1 => Just("01".to_owned()),
    ];
    scalar.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            4 => object(inner.clone()),
            1 => prop::collection::vec(inner, 0..3).prop_map(|all| format!("[{}]", all.join(","))),
        ]
    })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec(("[abc]", value), 0..4).prop_map(|members| {
        let members: Vec<String> =
            members.into_iter().map(|(key, value)| format!(" \"{key}\" : {value}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

proptest! {
    #[test]
    fn short_and_long_way_write_the_same(
        records in prop::collection::vec(object(value()), 1..24),
        end in prop_oneof![4 => Just(""), 1 => Just("}"), 1 => Just(" x")],
    ) {
        let mut records = records;
        records.push(format!("{{\"a\":1}}{end}"));
        prop_assert_eq!(encoded(&records, true), encoded(&records, false));
    }
}

#[test]
fn records_that_are_alike_go_the_short_way() {
    let mut straight = super::Straight::default();
    let mut encoder = Encoder::new(&EncoderConfig::default(), Mapping::new()).unwrap();
    let mut builder = BatchBuilder::new();
    let value = Some(&br#"{"a":1,"b":{"c":"x","d":1.5},"e":true}"#[..]);
    builder.push(&NewRecord { value, ..NewRecord::default() }).unwrap();
    encoder.append(0, &[builder.build().unwrap()], 0, 1).unwrap();
    let mapping = encoder.mapping();
    let mut read = |record: &[u8]| straight.read(mapping, record);
    // In another order, with nulls, and with a key that never had a value.
    for record in [
        &br#"{"a":1,"b":{"c":"x","d":1.5},"e":true}"#[..],
        br#"{"e":null,"b":{"d":-2.0e1},"a":2}"#,
        br#" { "never" : null , "b" : { } } "#,
    ] {
        assert_eq!(read(record), Some(true), "{}", String::from_utf8_lossy(record));
    }
    assert_eq!(read(b"{\"a\":null}"), Some(false));
    let long = [
        &br#"{"a":1,"a":null}"#[..],
        br#"{"new":1}"#,
        br#"{"a":[1]}"#,
        br#"{"a":"text"}"#,
        br#"{"b":1}"#,
        br#"{"a":1"#,
    ];
    for record in long {
        let mut straight = super::Straight::default();
        assert_eq!(straight.read(mapping, record), None, "{}", String::from_utf8_lossy(record));
    }
}

#[test]
fn after_records_of_the_long_way_the_short_one_is_tried_again() {
    let mapping = Mapping::new();
    let mut straight = super::Straight::default();
    let mut tried = Vec::new();
    for number in 0..200 {
        let waits = straight.pause.0 > 0;
        assert_eq!(straight.read(&mapping, b"{\"new\":1}"), None);
        if !waits {
            tried.push(number);
        }
    }
    assert_eq!(tried, [0, 2, 5, 10, 19, 36, 69, 134, 199]);
}
