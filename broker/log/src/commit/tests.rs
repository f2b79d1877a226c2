use super::*;
use floe_metadata::rows::Refusal;
use kfs::TimestampType;

fn batch(position: u64, length: u32, record_count: u32) -> BatchFacts {
    BatchFacts {
        position,
        length,
        record_count,
        max_timestamp_ms: position.cast_signed(),
        timestamp_type: TimestampType::CreateTime,
        producer: None,
        transactional: false,
    }
}

fn accepted(base_offset: i64) -> BatchOutcome {
    BatchOutcome::Accepted { base_offset }
}

fn ranges(extents: &[Extent]) -> Vec<(i64, i64, u64, u64)> {
    let range = |extent: &Extent| match extent.place {
        Place::Range { position, length, .. } => {
            (extent.base_offset, extent.last_offset, position, length)
        }
        _ => panic!("a fresh extent is a range"),
    };
    extents.iter().map(range).collect()
}

#[test]
fn accepted_batches_that_touch_are_one_extent() {
    let batches = [batch(32, 10, 2), batch(42, 20, 3)];
    let extents = accepted_extents(&"key".into(), &batches, &[accepted(7), accepted(9)]);
    assert_eq!(ranges(&extents), vec![(7, 11, 32, 30)]);
    assert_eq!(extents[0].max_timestamp_ms, 42);
}

#[test]
fn no_extent_covers_a_refused_or_duplicate_batch() {
    let batches = [batch(32, 10, 1), batch(42, 10, 1), batch(52, 10, 1), batch(62, 10, 1)];
    let outcomes = [
        accepted(0),
        BatchOutcome::Refused(Refusal::OutOfOrderSequence),
        accepted(1),
        BatchOutcome::Duplicate { base_offset: 0, max_timestamp_ms: 0 },
    ];
    let extents = accepted_extents(&"key".into(), &batches, &outcomes);
    assert_eq!(ranges(&extents), vec![(0, 0, 32, 10), (1, 1, 52, 10)]);
}

#[test]
fn a_range_is_taken_out_of_the_pieces_that_hold_it() {
    let pieces = vec![Bytes::from("abcd"), Bytes::from("efgh"), Bytes::from("ij")];
    let mut placed = place_pieces(pieces, 100);
    assert_eq!(take_range(&mut placed, 102, 2), vec![Bytes::from("cd")]);
    assert_eq!(take_range(&mut placed, 104, 5), vec![Bytes::from("efgh"), Bytes::from("i")]);
    assert_eq!(take_range(&mut placed, 109, 1), vec![Bytes::from("j")]);
}
