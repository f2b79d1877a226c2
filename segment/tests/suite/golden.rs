//! Golden files: objects of a fixed content, byte by byte what the first release wrote.

use crate::container::{at_offset, cluster, object, sent, start};
use crate::{golden, golden_path, plain_batch, regenerate};
use kfs::*;

fn fresh() -> Vec<u8> {
    let segment = SegmentId { broker: BrokerId(1), epoch: BrokerEpoch(5), counter: 300 };
    let mut builder = SegmentBuilder::new(cluster()).segment_id(segment).align(512);
    let orders = [sent(3, 10, 0), sent(2, 200, 3)];
    let section =
        SectionStart { min_timestamp_ms: 1000, ..start(1, "orders", 0, OffsetMode::Relative) };
    builder.add(section, orders).unwrap();
    let untimed =
        SectionStart { min_timestamp_ms: -1, ..start(1, "orders", 130, OffsetMode::Relative) };
    builder.add(untimed, [plain_batch(2, 7, -1)]).unwrap();
    let transactional = BatchBuilder::new()
        .producer(ProducerId(1 << 40), ProducerEpoch(0), i32::MAX)
        .transactional();
    let clicks = crate::filled(transactional, 2, 3, 1_700_000_000_000);
    let section = start(2, "clicks", 0, OffsetMode::Relative);
    let section = SectionStart { min_timestamp_ms: 1_700_000_000_000, ..section };
    builder.add(section, [clicks]).unwrap();
    object(&builder.finish().unwrap())
}

fn merged() -> Vec<u8> {
    let aborted = AbortedTransaction {
        producer: ProducerId(7),
        first_offset: 1_000_000,
        last_offset: 1_000_010,
        last_stable_offset: 1_000_011,
    };
    let section = SectionStart {
        aborted: vec![aborted],
        delete_horizon_ms: Some(1_700_000_000_000),
        min_timestamp_ms: 999,
        ..start(1, "orders", 0, OffsetMode::Absolute)
    };
    let marker = control_batch(Marker::Abort, ProducerId(7), ProducerEpoch(2), 0, 2000);
    let batches = [
        at_offset(&sent(3, 10, 0), 1_000_000),
        at_offset(&marker, 1_000_010),
        at_offset(&plain_batch(4, 17_000, 3000), 1_000_011),
        at_offset(&sent(1, 10, 3), 1_000_020),
    ];
    let mut builder = SegmentBuilder::new(cluster());
    builder.add(section, batches).unwrap();
    object(&builder.finish().unwrap())
}

/// Not compressed: a codec's library may change what it writes, not what it reads.
#[test]
fn objects_are_written_as_ever() {
    for (name, bytes) in [("fresh-v2.kfs", fresh()), ("merged-v2.kfs", merged())] {
        if regenerate() {
            std::fs::write(golden_path(name), &bytes).unwrap();
        }
        assert!(golden(name) == bytes, "{name} differs: a new format needs a new version");
    }
}

#[test]
fn objects_are_read_as_ever() {
    let bytes = golden("fresh-v2.kfs");
    let Ok(Tail::Footer(footer)) = Tail::parse(bytes.len() as u64, &bytes) else { panic!() };
    let facts: Vec<_> = footer
        .sections
        .iter()
        .map(|section| {
            (&*section.topic_name, section.partition.0, section.position, section.record_count)
        })
        .collect();
    let expected = [("orders", 0, 32, 5), ("orders", 130, 638, 2), ("clicks", 0, 733, 2)];
    assert_eq!(facts, expected);
    let range = |section: &Section| (section.min_timestamp_ms, section.max_timestamp_ms);
    assert_eq!(range(&footer.sections[1]), (-1, 0));
    let last = &footer.sections[2];
    assert_eq!(range(last), (1_700_000_000_000, 1_700_000_000_001));
    assert!(last.has_transactional);
    assert_eq!((last.producers[0].first_sequence, last.producers[0].last_sequence), (i32::MAX, 0));

    let bytes = golden("merged-v2.kfs");
    let Ok(Tail::Footer(footer)) = Tail::parse(bytes.len() as u64, &bytes) else { panic!() };
    let section = &footer.sections[0];
    assert_eq!((footer.segment, footer.sections.len()), (None, 1));
    let offsets: Vec<_> = section.index.iter().map(|entry| entry.relative_offset).collect();
    assert_eq!(offsets, [0, 11, 20]);
    assert_eq!((section.min_timestamp_ms, section.max_timestamp_ms), (999, 3003));
}
