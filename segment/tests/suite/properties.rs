//! Properties over generated input, from a fixed seed.

use crate::container::{at_offset, cluster, object, start};
use bytes::Bytes;
use kfs::hostile::TARGETS;
use kfs::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x6b66_7332),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, Debug)]
struct OwnedRecord {
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<OwnedHeader>,
}

fn bytes(length_max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=length_max)
}

fn record() -> impl Strategy<Value = OwnedRecord> {
    let header = (bytes(5), proptest::option::of(bytes(5)));
    let timestamp = prop_oneof![-1_i64..2_000_000_000_000, Just(-1)];
    (
        timestamp,
        proptest::option::of(bytes(20)),
        proptest::option::of(bytes(300)),
        vec(header, 0..4),
    )
        .prop_map(|(timestamp_ms, key, value, headers)| OwnedRecord {
            timestamp_ms,
            key,
            value,
            headers,
        })
}

fn codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(&Codec::ALL[..])
}

fn build(records: &[OwnedRecord], codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new().codec(codec, None);
    for record in records {
        let headers: Vec<HeaderRef<'_>> =
            record.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        builder
            .push(&NewRecord {
                timestamp_ms: record.timestamp_ms,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: &headers,
            })
            .unwrap();
    }
    builder.build().unwrap()
}

fn read(batch: &[u8]) -> Vec<OwnedRecord> {
    let view = BatchView::parse(batch).unwrap();
    view.verify_crc().unwrap();
    let records = view.records(1 << 20).unwrap();
    let owned = records.iter().map(|record| {
        let record = record.unwrap();
        OwnedRecord {
            timestamp_ms: view.header.record_timestamp_ms(record.timestamp_delta),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                .collect(),
        }
    });
    owned.collect()
}

fn same(left: &[OwnedRecord], right: &[OwnedRecord]) -> bool {
    format!("{left:?}") == format!("{right:?}")
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn records_survive_every_codec(
        records in vec(record(), 1..20),
        one in codec(),
        two in codec(),
    ) {
        let batch = build(&records, one);
        prop_assert!(same(&read(&batch), &records));
        let again = recompress(&batch, two, None, 1 << 20).unwrap();
        prop_assert!(same(&read(&again), &records));
        let rules = Rules {
            batch_bytes_max: again.len(),
            decompressed_bytes_max: 1 << 20,
            require_key: false,
            zstd_allowed: true,
            timestamps: TimestampRule::LogAppendTime,
        };
        let summary = validate_batch(&again, &rules).unwrap();
        let timestamps = || records.iter().map(|record| record.timestamp_ms);
        prop_assert_eq!(Some(summary.min_timestamp_ms), timestamps().min());
        prop_assert_eq!(Some(summary.max_timestamp_ms), timestamps().max());
    }

    #[test]
    fn objects_survive(
        sections in vec(vec((vec(record(), 1..4), codec(), 0_i64..50, 0_usize..3), 1..12), 1..6),
        absolute in any::<bool>(),
    ) {
        let mode = if absolute { OffsetMode::Absolute } else { OffsetMode::Relative };
        let mut builder = SegmentBuilder::new(cluster());
        let mut stored = Vec::new();
        for (partition, batches) in sections.iter().enumerate() {
            let mut next_offset = 0;
            let mut built = Vec::new();
            for (records, codec, gap, large) in batches {
                let mut records = records.clone();
                records[0].value = Some(vec![b'x'; large * 40_000]);
                let batch = build(&records, *codec);
                let base = if absolute { next_offset + gap } else { 0 };
                next_offset = base + records.len() as i64;
                built.push(at_offset(&batch, base));
            }
            let topic = partition % 2;
            let start = start(topic as u128, ["a", "b"][topic], partition as i32, mode);
            let least = batches.iter().flat_map(|(records, ..)| records);
            let min_timestamp_ms = least.map(|record| record.timestamp_ms).min().unwrap();
            let start = SectionStart { min_timestamp_ms, ..start };
            stored.push(built.concat());
            builder.add(start, built).unwrap();
        }
        let built = builder.finish().unwrap();
        let object = object(&built);
        let footer = open::<()>(object.len() as u64, |range| {
            Ok(Bytes::copy_from_slice(&object[range.start as usize..range.end as usize]))
        }).unwrap();
        prop_assert_eq!(&footer, &built.footer);
        for (section, expected) in footer.sections.iter().zip(&stored) {
            let bytes = &object[section.position as usize..][..section.length as usize];
            prop_assert!(bytes == &expected[..]);
            prop_assert_eq!(section.crc, crc32c::crc32c(bytes));
            for entry in &section.index {
                let first = BatchView::first(&bytes[entry.position as usize..]).unwrap();
                prop_assert!(first.header.max_timestamp_ms <= entry.max_timestamp_ms);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(data in bytes(400)) {
        for (_, entry) in TARGETS {
            entry(&data);
        }
    }
}
