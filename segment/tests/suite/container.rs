//! The container: what is written is read again, with two reads, and damage is found.

use crate::plain_batch;
use bytes::Bytes;
use kfs::container::{
    CONTAINER_HEADER_LEN, INDEX_STEP_BYTES, TAIL_BYTES, TRAILER_LEN, parse_header,
};
use kfs::*;
use std::convert::Infallible;
use std::ops::Range;
use uuid::Uuid;

pub(crate) fn cluster() -> ClusterId {
    ClusterId(Uuid::from_u128(0xC1))
}

pub(crate) fn start(topic: u128, name: &str, partition: i32, mode: OffsetMode) -> SectionStart {
    SectionStart {
        topic: TopicId(Uuid::from_u128(topic)),
        topic_name: name.into(),
        partition: PartitionIndex(partition),
        mode,
        min_timestamp_ms: 0,
        aborted: Vec::new(),
        delete_horizon_ms: None,
    }
}

/// A client's batch: base offset 0, leader epoch -1, and a producer's sequence.
pub(crate) fn sent(count: usize, value_len: usize, sequence: i32) -> Bytes {
    let builder = BatchBuilder::new().producer(ProducerId(7), ProducerEpoch(2), sequence);
    let mut batch = crate::filled(builder, count, value_len, 1000).to_vec();
    set_leader_epoch(&mut batch, -1);
    batch.into()
}

pub(crate) fn at_offset(batch: &Bytes, base_offset: i64) -> Bytes {
    let mut batch = batch.to_vec();
    set_base_offset(&mut batch, base_offset);
    batch.into()
}

pub(crate) fn object(built: &BuiltSegment) -> Vec<u8> {
    let object = built.parts.concat();
    assert_eq!(object.len() as u64, built.length);
    object
}

fn open_counting(object: &[u8]) -> (Footer, Vec<Range<u64>>) {
    let bytes = Bytes::copy_from_slice(object);
    let mut reads = Vec::new();
    let footer = open::<Infallible>(object.len() as u64, |range| {
        reads.push(range.clone());
        Ok(bytes.slice(range.start as usize..range.end as usize))
    });
    (footer.unwrap(), reads)
}

#[test]
fn a_fresh_segment_holds_what_was_sent() {
    let segment = SegmentId { broker: BrokerId(3), epoch: BrokerEpoch(9), counter: 12 };
    let mut builder = SegmentBuilder::new(cluster()).segment_id(segment);
    let first = [sent(3, 10, 0), sent(2, 9000, 3), sent(1, 10, 100)];
    let orders =
        SectionStart { min_timestamp_ms: 1000, ..start(1, "orders", 0, OffsetMode::Relative) };
    let places = builder.add(orders, first.clone()).unwrap();
    let other = start(1, "orders", 1, OffsetMode::Relative);
    builder
        .add(SectionStart { min_timestamp_ms: 900, ..other }, [plain_batch(1, 5, 1000)])
        .unwrap();
    builder.add(start(2, "clicks", 0, OffsetMode::Relative), [sent(4, 100, 5)]).unwrap();
    let built = builder.finish().unwrap();
    let object = object(&built);

    assert_eq!(parse_header(&object), Ok(cluster()));
    let (footer, reads) = open_counting(&object);
    assert_eq!(reads, vec![0..object.len() as u64]);
    assert_eq!(footer, built.footer);
    assert_eq!((footer.cluster, footer.segment), (cluster(), Some(segment)));
    let relative: Vec<_> = places.iter().map(|place| place.relative_offset).collect();
    assert_eq!(relative, [0, 3, 5]);
    for (place, sent) in places.iter().zip(&first) {
        let stored = &object[place.position as usize..][..place.length as usize];
        let mut expected = sent.to_vec();
        set_leader_epoch(&mut expected, 0);
        assert_eq!(stored, expected);
        verify_crc(stored).unwrap();
    }
    let section = &footer.sections[0];
    let stored = &object[section.position as usize..][..section.length as usize];
    assert_eq!(section.crc, crc32c::crc32c(stored));
    assert_eq!((section.batch_count, section.record_count), (3, 6));
    assert_eq!((section.min_timestamp_ms, section.max_timestamp_ms), (1000, 1002));
    assert_eq!(footer.sections[1].min_timestamp_ms, 900);
    let run = |first_sequence, last_sequence| ProducerRun {
        producer: ProducerId(7),
        epoch: ProducerEpoch(2),
        first_sequence,
        last_sequence,
    };
    assert_eq!(section.producers, [run(0, 4), run(100, 100)]);
    assert!(footer.sections[1].producers.is_empty());
    assert_eq!(&*footer.sections[2].topic_name, "clicks");
}

#[test]
fn large_batches_are_not_copied() {
    let mut zero_epoch = sent(1, 100_000, 0).to_vec();
    set_leader_epoch(&mut zero_epoch, 0);
    let batches = [Bytes::from(zero_epoch), sent(1, 100_000, 1)];
    let mut builder = SegmentBuilder::new(cluster());
    builder.add(start(1, "t", 0, OffsetMode::Relative), batches.clone()).unwrap();
    let built = builder.finish().unwrap();
    let shared = |bytes: &Bytes| built.parts.iter().any(|part| part.as_ptr() == bytes.as_ptr());
    assert!(shared(&batches[0]));
    assert!(shared(&batches[1].slice(16..)));
}

/// 10,000 sections of what clients send today, each of another producer.
fn ten_thousand(partitions_per_topic: u32, name: impl Fn(u32) -> String) -> BuiltSegment {
    const TODAY_MS: i64 = 1_800_000_000_000;
    let mut builder = SegmentBuilder::new(cluster());
    for index in 0..10_000_u32 {
        let topic = index / partitions_per_topic;
        let partition = (index % partitions_per_topic) as i32;
        let producer = ProducerId(1_000_000 + i64::from(index));
        let batch = BatchBuilder::new().producer(producer, ProducerEpoch(0), 100_000);
        let batch = crate::filled(batch, 5, 100, TODAY_MS + i64::from(index));
        let id = u128::from(topic) << 64 | 0xABCD;
        let start = start(id, &name(topic), partition, OffsetMode::Relative);
        builder.add(SectionStart { min_timestamp_ms: TODAY_MS, ..start }, [batch]).unwrap();
    }
    builder.finish().unwrap()
}

#[test]
fn ten_thousand_sections_stay_under_a_mebibyte_and_open_in_two_reads() {
    let built = ten_thousand(10, |topic| format!("team-{topic:04}.domain.an-event-of-usual-name"));
    assert!(built.trailer.footer_length < 1024 * 1024, "{}", built.trailer.footer_length);
    println!("footer of 10,000 sections: {} bytes", built.trailer.footer_length);
    let object = object(&built);
    let (footer, reads) = open_counting(&object);
    let end = object.len() as u64;
    assert_eq!(reads, vec![end - TAIL_BYTES..end, built.trailer.footer_range()]);
    assert_eq!(footer, built.footer);
}

#[test]
fn ten_thousand_topics_stay_under_a_mebibyte_too() {
    let built = ten_thousand(1, |topic| format!("service-{topic:05}-events"));
    println!("footer of 10,000 topics: {} bytes", built.trailer.footer_length);
    assert!(built.trailer.footer_length < 1024 * 1024, "{}", built.trailer.footer_length);
}

#[test]
fn a_merged_object_keeps_offsets_and_the_aborted_list() {
    let aborted = AbortedTransaction {
        producer: ProducerId(7),
        first_offset: 500,
        last_offset: 510,
        last_stable_offset: 511,
    };
    let marker = control_batch(Marker::Abort, ProducerId(7), ProducerEpoch(2), 0, 2000);
    let section = SectionStart {
        aborted: vec![aborted],
        delete_horizon_ms: Some(-5),
        min_timestamp_ms: 400,
        ..start(1, "orders", 4, OffsetMode::Absolute)
    };
    let batches = [at_offset(&sent(3, 10, 0), 500), at_offset(&marker, 510)];
    let mut builder = SegmentBuilder::new(cluster());
    let places = builder.add(section, batches.clone()).unwrap();
    assert_eq!(places[1].relative_offset, 10);
    let object = object(&builder.finish().unwrap());
    let (footer, _) = open_counting(&object);
    let section = &footer.sections[0];
    let expected = SectionOffsets::Absolute { base_offset: 500, last_offset: 510 };
    assert_eq!((section.offsets, section.offsets.mode()), (expected, OffsetMode::Absolute));
    assert_eq!(section.aborted, [aborted]);
    assert_eq!(section.delete_horizon_ms, Some(-5));
    assert!(section.has_control && section.has_transactional);
    assert_eq!(section.producers.len(), 1);
    let stored = &object[section.position as usize..][..section.length as usize];
    assert_eq!(stored, batches.concat());
}

#[test]
fn the_index_leads_to_offsets_and_timestamps() {
    let mut builder = SegmentBuilder::new(cluster());
    let batches: Vec<Bytes> = (0..100).map(|n| plain_batch(10, 500, n * 1000)).collect();
    let places = builder.add(start(1, "t", 0, OffsetMode::Relative), batches).unwrap();
    let built = builder.finish().unwrap();
    let section = &built.footer.sections[0];
    let span = |pair: &[IndexEntry]| pair[1].position - pair[0].position;
    assert!(section.index.windows(2).all(|pair| span(pair) <= INDEX_STEP_BYTES));
    assert!(section.length - section.index.last().unwrap().position <= INDEX_STEP_BYTES);
    for (number, place) in places.iter().enumerate() {
        let entry = section.seek_offset(place.relative_offset + 9);
        assert!(entry.relative_offset <= place.relative_offset);
        let target = number as i64 * 1000 + 5;
        let entry = section.seek_timestamp(target).unwrap();
        assert!(section.position + entry.position <= place.position);
        assert!(entry.max_timestamp_ms >= target);
    }
    assert_eq!(section.seek_timestamp(99_010), None);
    assert_eq!(open_counting(&object(&built)).0, built.footer);
}

#[test]
fn parts_can_be_taken_on_the_way_and_the_end_is_aligned() {
    let mut builder = SegmentBuilder::new(cluster()).align(4096);
    let mut object = Vec::new();
    for partition in 0..5 {
        builder.begin(start(1, "t", partition, OffsetMode::Relative)).unwrap();
        for sequence in 0..20 {
            builder.push(sent(1, 300 * sequence as usize, sequence)).unwrap();
        }
        object.extend(builder.take_parts().concat());
        assert_eq!(object.len() as u64, builder.body_len());
    }
    let built = builder.finish().unwrap();
    object.extend(built.parts.concat());
    assert_eq!(object.len() as u64, built.length);
    assert_eq!(built.length % 4096, 0);
    assert_eq!(open_counting(&object).0, built.footer);
}

#[test]
fn what_cannot_be_written_is_refused() {
    let mut builder = SegmentBuilder::new(cluster());
    assert_eq!(builder.push(sent(1, 1, 0)), Err(SegmentError::NoSection));
    builder.begin(start(1, "t", 0, OffsetMode::Absolute)).unwrap();
    builder.push(at_offset(&sent(3, 1, 0), 10)).unwrap();
    let order = builder.push(at_offset(&sent(3, 1, 0), 12));
    assert_eq!(order, Err(SegmentError::OffsetOrder(12)));
    let edge = builder.push(at_offset(&sent(3, 1, 0), i64::MAX - 1));
    assert_eq!(edge, Err(SegmentError::OffsetOrder(i64::MAX - 1)));
    let torn = builder.push(sent(1, 1, 0).slice(..70));
    assert!(matches!(torn, Err(SegmentError::Batch(BatchError::Truncated { .. }))));
    let again = start(1, "t", 0, OffsetMode::Absolute);
    assert!(matches!(builder.begin(again), Err(SegmentError::SecondSection(..))));
    let renamed = start(1, "u", 1, OffsetMode::Absolute);
    assert_eq!(builder.begin(renamed), Err(SegmentError::Name));
    builder.begin(start(1, "t", 2, OffsetMode::Relative)).unwrap();
    let header = BatchHeader::parse(&sent(3, 1, 0)).unwrap();
    let empty = BatchBuilder::replacing(&header, Codec::None).build().unwrap();
    assert!(matches!(builder.push(empty), Err(SegmentError::NotDense { .. })));
    let next = builder.begin(start(1, "t", 3, OffsetMode::Relative));
    assert_eq!(next, Err(SegmentError::EmptySection));
    for name in ["", &"n".repeat(250)] {
        let unnamed = builder.begin(start(9, name, 0, OffsetMode::Relative));
        assert_eq!(unnamed, Err(SegmentError::Name));
    }
}

#[test]
fn every_damaged_bit_outside_of_the_sections_is_found() {
    let mut builder = SegmentBuilder::new(cluster());
    builder.add(start(1, "t", 0, OffsetMode::Relative), [sent(3, 10, 0)]).unwrap();
    let built = builder.finish().unwrap();
    let object = object(&built);
    let length = object.len() as u64;
    for at in built.trailer.footer_position as usize..object.len() {
        for bit in 0..8 {
            let mut damaged = object.clone();
            damaged[at] ^= 1 << bit;
            assert!(Tail::parse(length, &damaged).is_err(), "byte {at} bit {bit}");
        }
    }
    for at in 0..CONTAINER_HEADER_LEN {
        let mut damaged = object.clone();
        damaged[at] ^= 1;
        assert!(parse_header(&damaged).is_err(), "byte {at}");
    }
    for cut in 1..=object.len() {
        let part = &object[..object.len() - cut];
        assert!(Tail::parse(part.len() as u64, part).is_err());
        assert!(Tail::parse(length, &object[cut..]).is_ok() == (object.len() - cut >= TRAILER_LEN));
    }
    let longer = Tail::parse(length + 1, &object);
    assert_eq!(longer, Err(FormatError::Length { stated: length, actual: length + 1 }));
}
