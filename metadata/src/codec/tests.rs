use super::*;
use crate::fresh::FreshExtent;
use crate::producers::PartitionProducers;
use crate::rows::{ProducerState, RememberedBatch};
use kfs::{PartitionIndex, TopicId, TopicPartition};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use uuid::Uuid;

fn sample_outcomes() -> Vec<SegmentOutcome> {
    let mut batches = vec![
        BatchOutcome::Accepted { base_offset: i64::MAX },
        BatchOutcome::Duplicate { base_offset: 0, max_timestamp_ms: -1 },
        BatchOutcome::Duplicate { base_offset: 300, max_timestamp_ms: i64::MIN },
    ];
    batches.extend(REFUSALS.map(BatchOutcome::Refused));
    let state = PartitionState {
        version: u64::MAX,
        log_start_offset: 1,
        high_watermark: 1 << 40,
        last_stable_offset: 127,
        bytes: 128,
    };
    vec![
        SegmentOutcome::Abandoned,
        SegmentOutcome::Committed(Vec::new()),
        SegmentOutcome::Committed(vec![
            SectionOutcome { batches, state: Some(state) },
            SectionOutcome { batches: Vec::new(), state: None },
        ]),
    ]
}

#[test]
fn outcomes_come_back() {
    for outcome in sample_outcomes() {
        assert_eq!(decode_outcome(&encode_outcome(&outcome)).unwrap(), outcome);
    }
}

#[test]
fn the_stored_form_is_fixed() {
    let outcome = SegmentOutcome::Committed(vec![SectionOutcome {
        batches: vec![
            BatchOutcome::Accepted { base_offset: 3 },
            BatchOutcome::Refused(Refusal::StaleProducerEpoch),
        ],
        state: None,
    }]);
    assert_eq!(encode_outcome(&outcome), [1, 1, 1, 2, 0, 6, 2, 2, 0]);
    assert_eq!(encode_place(&Place::Hole).unwrap(), [1, 0]);
}

#[test]
fn batches_and_places_come_back() {
    let batch = RememberedBatch {
        first_sequence: i32::MAX,
        last_sequence: 0,
        base_offset: 5,
        last_offset: 6,
        max_timestamp_ms: -1,
    };
    for count in 0..6 {
        let batches = vec![batch; count];
        assert_eq!(decode_batches(&encode_batches(&batches)).unwrap(), batches);
    }
    let marker = Place::Marker {
        producer: ProducerId(7),
        epoch: ProducerEpoch(-1),
        commit: true,
        coordinator_epoch: 3,
        timestamp_ms: 9,
    };
    for place in [marker, Place::Hole] {
        assert_eq!(decode_place(&encode_place(&place).unwrap()).unwrap(), place);
    }
}

#[test]
fn cut_changed_or_longer_bytes_are_refused_or_differ_but_never_panic() {
    for outcome in sample_outcomes() {
        let bytes = encode_outcome(&outcome);
        for cut in 0..bytes.len() {
            assert!(decode_outcome(&bytes[..cut]).is_err());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(decode_outcome(&longer).is_err());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                if let Ok(decoded) = decode_outcome(&changed) {
                    assert_ne!(decoded, outcome);
                }
            }
        }
    }
    assert!(decode_batches(&[2, 0]).unwrap_err().to_string().contains("version 2"));
}

#[test]
fn flags_come_back() {
    for mode in [OffsetMode::Relative, OffsetMode::Absolute] {
        for kind in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
            for transactional in [false, true] {
                let flags = extent_flags(mode, kind, transactional);
                assert_eq!(decode_flags(flags.into()).unwrap(), (mode, kind, transactional));
            }
        }
    }
    assert!(decode_flags(8).is_err());
}

fn any_extent() -> impl Strategy<Value = (TopicPartition, FreshExtent)> {
    let place = (any::<u64>(), any::<u64>(), any::<i64>());
    // Few topics and partitions, so that they often are the same.
    let named = (0..3u128, prop_oneof![0..4, any::<i32>()]);
    let offsets = (prop_oneof![0..100i64, any::<i64>()], prop_oneof![0..9u64, any::<u64>()]);
    (named, offsets, place, any::<(bool, bool)>()).prop_map(|(named, offsets, place, flags)| {
        let base_offset = offsets.0;
        let partition = TopicPartition {
            topic: TopicId(Uuid::from_u128(named.0 << 100)),
            partition: PartitionIndex(named.1),
        };
        let kind = [TimestampType::CreateTime, TimestampType::LogAppendTime];
        let extent = FreshExtent {
            base_offset,
            last_offset: base_offset.saturating_add_unsigned(offsets.1),
            position: place.0,
            length: place.1,
            max_timestamp_ms: place.2,
            timestamp_type: kind[usize::from(flags.0)],
            has_transactional: flags.1,
        };
        (partition, extent)
    })
}

fn any_producer() -> impl Strategy<Value = ProducerState> {
    let batch = any::<(i32, i32, i64, i64, i64)>().prop_map(|batch| RememberedBatch {
        first_sequence: batch.0,
        last_sequence: batch.1,
        base_offset: batch.2,
        last_offset: batch.3,
        max_timestamp_ms: batch.4,
    });
    let numbers = (any::<i64>(), any::<i16>(), any::<i64>());
    (numbers, vec(batch, 0..6), option::of(any::<i64>())).prop_map(
        |((id, epoch, last_written_ms), batches, transaction_start)| ProducerState {
            id: ProducerId(id),
            epoch: ProducerEpoch(epoch),
            batches,
            transaction_start,
            last_written_ms,
        },
    )
}

proptest! {
    #[test]
    fn fresh_segments_come_back_in_order(extents in vec(any_extent(), 0..40)) {
        let mut sorted = extents.clone();
        sorted.sort_by_key(|(partition, extent)| (*partition, extent.base_offset));
        let decoded = decode_fresh(&encode_fresh(&extents)).unwrap();
        prop_assert_eq!(decoded, sorted);
    }

    #[test]
    fn producers_come_back_in_turn(
        states in vec(any_producer(), 0..12),
        has_spilled: bool,
    ) {
        let mut producers = PartitionProducers::default();
        producers.has_spilled = has_spilled;
        states.into_iter().for_each(|state| producers.put_newest(state));
        let decoded = decode_producers(&encode_producers(&producers)).unwrap();
        prop_assert_eq!(decoded.has_spilled, has_spilled);
        prop_assert_eq!(decoded.oldest_first(), producers.oldest_first());
    }

    #[test]
    fn remembered_batches_come_back(state in any_producer()) {
        let decoded = decode_batches(&encode_batches(&state.batches)).unwrap();
        prop_assert_eq!(decoded, state.batches);
    }

    #[test]
    fn any_bytes_are_refused_or_read_but_never_panic(mut bytes in vec(any::<u8>(), 0..200)) {
        if let Some(first) = bytes.first_mut() {
            *first = VERSION;
        }
        let _ = decode_fresh(&bytes);
        let _ = decode_producers(&bytes);
        let _ = decode_batches(&bytes);
        let _ = decode_outcome(&bytes);
        let _ = decode_place(&bytes);
    }

    #[test]
    fn cut_or_longer_fresh_segments_are_refused(extents in vec(any_extent(), 1..10)) {
        let bytes = encode_fresh(&extents);
        for cut in 0..bytes.len() {
            prop_assert!(decode_fresh(&bytes[..cut]).is_err());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert!(decode_fresh(&longer).is_err());
    }
}

/// A segment as a broker makes it: sections one after the other, of records of about now.
fn usual_segment(sections: i32) -> Vec<(TopicPartition, FreshExtent)> {
    let section = |index: i32| {
        let topic = TopicId(Uuid::from_u128(u128::from(index.unsigned_abs() / 100)));
        let extent = FreshExtent {
            base_offset: 1_000_000 + i64::from(index * 7),
            last_offset: 1_000_099 + i64::from(index * 7),
            position: 64 + u64::from(index.unsigned_abs()) * 900,
            length: 900,
            max_timestamp_ms: 1_700_000_000_000 + i64::from(index % 5),
            timestamp_type: TimestampType::CreateTime,
            has_transactional: false,
        };
        (TopicPartition { topic, partition: PartitionIndex(index % 100) }, extent)
    };
    (0..sections).map(section).collect()
}

#[test]
fn the_packed_form_is_fixed_and_small() {
    let mut one = usual_segment(2);
    one[1].1.has_transactional = true;
    let topic = [0; 16];
    let first = [0, 0, 0x80, 0x89, 0x7a, 99, 0x80, 0x01, 0x84, 0x07];
    let expected = [&[VERSION, 1][..], &topic, &[2], &first, &[0x80, 0xa0, 0xab, 0xfe, 0xf9, 0x62]];
    let next = [2, 4, 0x8e, 0x89, 0x7a, 99, 0, 0x84, 0x07, 2];
    assert_eq!(encode_fresh(&one), [&expected.concat()[..], &next].concat());
    let bytes = encode_fresh(&usual_segment(10_000)).len();
    assert!(bytes < 11 * 10_000, "{bytes} bytes");
    assert!(encode_producers(&PartitionProducers::default()).is_empty());
    assert!(decode_fresh(&[2, 0]).unwrap_err().to_string().contains("version 2"));
}
