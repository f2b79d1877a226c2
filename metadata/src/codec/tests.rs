use super::*;

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
