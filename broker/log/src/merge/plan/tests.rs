use super::*;
use kfs::TimestampType;

const NOW_MS: i64 = 1_000_000_000;
const LIMIT: u64 = 1_000;

fn rules() -> MergeRules {
    MergeRules { object_bytes_max: LIMIT, ..MergeRules::default() }
}

fn extent(base_offset: i64, place: Place) -> Extent {
    Extent {
        base_offset,
        last_offset: base_offset,
        place,
        offset_mode: OffsetMode::Relative,
        max_timestamp_ms: NOW_MS,
        timestamp_type: TimestampType::CreateTime,
        has_transactional: false,
    }
}

/// One extent an object, of these sizes.
fn fresh(sizes: &[u64]) -> Vec<Extent> {
    let place = |(at, length): (usize, &u64)| {
        let place = Place::Range { key: format!("wal/{at}"), position: 32, length: *length };
        extent(at as i64, place)
    };
    sizes.iter().enumerate().map(place).collect()
}

fn aged(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.iter_mut().for_each(|extent| extent.max_timestamp_ms = NOW_MS - AGE_MS);
    extents
}

fn planned(extents: &[Extent]) -> Option<Range<usize>> {
    plan(extents, (i64::MAX, None), &rules(), NOW_MS)
}

#[test]
fn few_young_extents_wait_and_enough_of_them_are_merged() {
    assert_eq!(planned(&[]), None);
    assert_eq!(planned(&fresh(&[10; 7])), None);
    assert_eq!(planned(&fresh(&[10; 8])), Some(0..8));
    assert_eq!(planned(&aged(fresh(&[10]))), None);
    assert_eq!(planned(&aged(fresh(&[10; 2]))), Some(0..2));
    let mut half_aged = aged(fresh(&[10; 2]));
    half_aged[1].max_timestamp_ms += 1;
    assert_eq!(planned(&half_aged), None);
}

#[test]
fn where_requests_have_a_price_small_pieces_wait_for_more_bytes_or_more_company() {
    let rules = MergeRules { bytes_min: 100, ..rules() };
    let planned = |sizes: &[u64]| plan(&fresh(sizes), (i64::MAX, None), &rules, NOW_MS);
    assert_eq!(planned(&[10; 9]), None);
    assert_eq!(planned(&[10; 10]), Some(0..10));
    assert_eq!(planned(&[1; PIECES_ENOUGH - 1]), None);
    assert_eq!(planned(&[1; PIECES_ENOUGH]), Some(0..PIECES_ENOUGH));
    assert_eq!(plan(&aged(fresh(&[10; 2])), (i64::MAX, None), &rules, NOW_MS), Some(0..2));
}

#[test]
fn a_merged_object_never_exceeds_its_limit() {
    assert_eq!(planned(&fresh(&[100; 25])), Some(0..10));
    assert_eq!(planned(&fresh(&[LIMIT / 8 + 1; 25])), None);
    assert_eq!(planned(&aged(fresh(&[501, 501, 400]))), None);
    assert_eq!(planned(&aged(fresh(&[501, 450, 450]))), Some(1..3));
    assert_eq!(planned(&fresh(&[u64::MAX / 2; 8])), None);
}

#[test]
fn only_what_is_stable_and_has_bytes_is_merged() {
    let extents = fresh(&[10; 10]);
    assert_eq!(plan(&extents, (9, None), &rules(), NOW_MS), Some(0..9));
    assert_eq!(plan(&extents, (7, None), &rules(), NOW_MS), None);
    let between = |change: &dyn Fn(&mut Extent)| {
        let mut extents = fresh(&[10; 17]);
        change(&mut extents[8]);
        let first = planned(&extents);
        extents[0].place = Place::Hole;
        (first, planned(&extents))
    };
    let split = (Some(0..8), Some(9..17));
    assert_eq!(between(&|extent| extent.place = Place::Hole), split);
    let log_append_time = TimestampType::LogAppendTime;
    assert_eq!(between(&|extent| extent.timestamp_type = log_append_time), split);
    let mut gap = fresh(&[10; 16]);
    gap[8..].iter_mut().for_each(|extent| {
        extent.base_offset += 1;
        extent.last_offset += 1;
    });
    gap[0].place = Place::Hole;
    assert_eq!(planned(&gap), Some(8..16));
}

#[test]
fn nothing_clean_is_joined_to_what_is_dirty() {
    let extents = fresh(&[10; 17]);
    let of = |clean_until| plan(&extents, (i64::MAX, clean_until), &rules(), NOW_MS);
    assert_eq!(of(None), Some(0..17));
    assert_eq!(of(Some(extents[8].base_offset)), Some(0..8));
    assert_eq!(of(Some(extents[3].base_offset)), Some(3..17), "three are too few");
    assert_eq!(of(Some(0)), Some(0..17));
}

#[test]
fn transactions_and_their_markers_are_merged_once_they_have_ended() {
    let mut extents = fresh(&[90; 8]);
    for extent in extents.iter_mut().skip(1).step_by(2) {
        extent.place = Place::Marker {
            producer: kfs::ProducerId(1),
            epoch: kfs::ProducerEpoch(1),
            commit: true,
            coordinator_epoch: 0,
            timestamp_ms: NOW_MS,
        };
    }
    extents.iter_mut().for_each(|extent| extent.has_transactional = true);
    assert_eq!(planned(&extents), Some(0..8));
    assert_eq!(plan(&extents, (7, None), &rules(), NOW_MS), None, "one is still open");
    let markers: Vec<Extent> = extents.into_iter().skip(1).step_by(2).collect();
    assert_eq!(planned(&aged(markers[..1].to_vec())), None, "a marker alone");
}

#[test]
fn a_large_object_is_not_rewritten_for_a_few_small_ones() {
    let mut sizes = vec![10; 8];
    sizes.insert(0, 400);
    assert_eq!(planned(&fresh(&sizes)), Some(1..9));
    assert_eq!(planned(&aged(fresh(&[400, 10, 10]))), Some(1..3));
    assert_eq!(planned(&aged(fresh(&[400, 399]))), None);
    assert_eq!(planned(&aged(fresh(&[400, 20, 380]))), Some(0..3));
}

#[test]
fn the_extents_of_one_merged_object_count_as_one_piece() {
    let mut extents = fresh(&[10; 16]);
    for (at, extent) in extents.iter_mut().enumerate().take(9) {
        extent.place =
            Place::Range { key: "log/x".into(), position: 32 + at as u64 * 10, length: 10 };
    }
    assert_eq!(planned(&extents[..9]), None);
    assert_eq!(planned(&extents), None, "one large and seven small pieces");
    assert_eq!(whole_pieces(&extents[..5]).len(), 5, "nothing is left of a page of one piece");
    assert_eq!(whole_pieces(&extents).len(), 15);
    assert_eq!(open_tail(&extents, &rules()), 0);
    assert_eq!(open_tail(&extents, &MergeRules { object_bytes_max: 60, ..rules() }), 10);
    assert_eq!(open_tail(&extents, &MergeRules { object_bytes_max: 159, ..rules() }), 9);
}

/// What was merged, of these sizes, each in an object of its own.
fn merged(sizes: &[u64]) -> Vec<Extent> {
    let mut extents = fresh(sizes);
    extents.iter_mut().for_each(|extent| extent.offset_mode = OffsetMode::Absolute);
    extents
}

#[test]
fn where_requests_have_a_price_what_was_merged_into_enough_bytes_is_done() {
    let priced = MergeRules { bytes_min: 100, ..rules() };
    let planned = |extents: &[Extent]| plan(extents, (i64::MAX, None), &priced, NOW_MS);
    assert_eq!(planned(&merged(&[99; 8])), Some(0..8));
    assert_eq!(planned(&merged(&[100; 8])), None);
    assert_eq!(planned(&aged(merged(&[100; 8]))), None, "whatever its age");
    assert_eq!(planned(&fresh(&[100; 8])), Some(0..8), "fresh ones share their objects");
    assert_eq!(plan(&merged(&[100; 8]), (i64::MAX, None), &rules(), NOW_MS), Some(0..8));
    // It is counted whole, and nothing is joined across it.
    let mut extents = merged(&[20; 24]);
    for (at, extent) in extents[8..16].iter_mut().enumerate() {
        let (key, position) = ("log/x".to_owned(), at as u64 * 20);
        extent.place = Place::Range { key, position, length: 20 };
    }
    assert_eq!(planned(&extents), Some(0..8));
    extents[0].place = Place::Hole;
    assert_eq!(planned(&extents), Some(16..24));
}

/// A partition that is written to will have more pieces soon, so that two of them are not worth a
/// merge; where nothing more can come to them, they are.
#[test]
fn where_requests_have_a_price_aged_pieces_wait_while_a_partition_is_written_to() {
    let priced = MergeRules { bytes_min: 100, ..rules() };
    let of = |extents: &[Extent], stable| plan(extents, (stable, None), &priced, NOW_MS);
    let half_aged = |sizes: &[u64], count: usize| {
        let mut extents = aged(fresh(sizes));
        extents[count..].iter_mut().for_each(|extent| extent.max_timestamp_ms = NOW_MS);
        extents
    };
    assert_eq!(of(&half_aged(&[10; 7], 6), i64::MAX), None);
    assert_eq!(of(&half_aged(&[10; 9], 8), i64::MAX), Some(0..8), "enough company, few bytes");
    assert_eq!(plan(&half_aged(&[10; 7], 6), (i64::MAX, None), &rules(), NOW_MS), Some(0..6));
    assert_eq!(of(&aged(fresh(&[10; 8])), i64::MAX), Some(0..8), "nobody writes any more");
    // What is not stable yet will be.
    assert_eq!(of(&half_aged(&[10; 8], 7), 7), None);
    // Nothing comes to the pieces before one that is done.
    let mut closed = half_aged(&[10, 10, 100, 10], 3);
    closed[2].offset_mode = OffsetMode::Absolute;
    assert_eq!(of(&closed, i64::MAX), Some(0..2));
    let mut closed = half_aged(&[10, 10, 100], 2);
    closed[2].offset_mode = OffsetMode::Absolute;
    assert_eq!(of(&closed, i64::MAX), Some(0..2));
}

#[test]
fn where_partitions_share_objects_runs_grow_no_longer_than_they_must() {
    let priced = MergeRules { bytes_min: 100, ..rules() };
    let of = |partition_count, extents: &[Extent]| {
        plan(extents, (i64::MAX, None), &priced.of_topic(partition_count), NOW_MS)
    };
    assert_eq!(of(1, &fresh(&[10; 90])), Some(0..90));
    assert_eq!(of(4, &fresh(&[10; 90])), Some(0..25), "a quarter of an object");
    assert_eq!(of(4, &fresh(&[40; 20])), Some(0..8), "as few pieces as are worth it");
    assert_eq!(of(40, &fresh(&[10; 90])), Some(0..10), "what is done afterwards");
    assert_eq!(rules().of_topic(40).run_bytes_enough, u64::MAX);
}

/// Written steadily, a byte is rewritten twice where requests have a price.
#[test]
fn where_requests_have_a_price_a_byte_of_a_steady_partition_is_rewritten_twice() {
    let (pieces_per_round, piece_bytes) = (40, 16 << 10);
    let rules = MergeRules { bytes_min: REMOTE_BYTES_MIN, ..MergeRules::default() }.of_topic(16);
    // Bytes, rewrites and birth of each piece.
    let mut pieces: Vec<(u64, u32, i64)> = Vec::new();
    for now_ms in (0..3_600_000).step_by(10_000) {
        pieces.extend((0..pieces_per_round).map(|_| (piece_bytes, 0, now_ms)));
        let extents: Vec<Extent> = pieces
            .iter()
            .enumerate()
            .map(|(at, (bytes, rewrites, born))| {
                let mut extent = fresh(&[*bytes]).remove(0);
                let (key, length) = (format!("{at}"), *bytes);
                extent.place = Place::Range { key, position: 32, length };
                (extent.base_offset, extent.last_offset) = (at as i64, at as i64);
                extent.max_timestamp_ms = *born;
                if *rewrites > 0 {
                    extent.offset_mode = OffsetMode::Absolute;
                }
                extent
            })
            .collect();
        if let Some(range) = plan(&extents, (i64::MAX, None), &rules, now_ms) {
            let run = &pieces[range.clone()];
            let bytes = run.iter().map(|(bytes, ..)| bytes).sum();
            let rewrites = run.iter().map(|(_, rewrites, _)| rewrites + 1).max().unwrap();
            pieces.splice(range, [(bytes, rewrites, now_ms)]);
        }
    }
    let done = pieces.iter().filter(|(bytes, ..)| *bytes >= REMOTE_BYTES_MIN).count();
    assert!(done > 10 && pieces.len() - done <= 2 * PIECES_ENOUGH, "{} of {}", done, pieces.len());
    assert_eq!(pieces.iter().map(|(_, rewrites, _)| *rewrites).max(), Some(2));
}

/// Any way of writing leaves few pieces, and no byte is rewritten more often than is promised.
#[test]
fn what_stays_unmerged_and_what_is_rewritten_are_bounded() {
    let ways = [(1, 0), (3, 1), (8, 0), (40, 3), (200, 7)];
    let ways = ways.into_iter().flat_map(|way| [(way, 0), (way, 4 << 10)]);
    for ((round_pieces, size_step), bytes_min) in ways {
        // Bytes and rewrites of each piece.
        let mut pieces: Vec<(u64, u32)> = Vec::new();
        let object_bytes_max = 64 << 10;
        let rules = MergeRules { object_bytes_max, bytes_min, ..MergeRules::default() };
        for written in 0..4_000u64 {
            pieces.push((16 + written * size_step % 32, 0));
            if written % round_pieces != 0 {
                continue;
            }
            let sizes: Vec<u64> = pieces.iter().map(|(bytes, _)| *bytes).collect();
            let mut extents = fresh(&sizes);
            for (extent, (_, rewrites)) in extents.iter_mut().zip(&pieces) {
                if *rewrites > 0 {
                    extent.offset_mode = OffsetMode::Absolute;
                }
            }
            if let Some(range) = plan(&extents, (i64::MAX, None), &rules, NOW_MS) {
                let run = &pieces[range.clone()];
                let bytes = run.iter().map(|(bytes, _)| bytes).sum();
                let rewrites = run.iter().map(|(_, rewrites)| rewrites + 1).max().unwrap();
                pieces.splice(range, [(bytes, rewrites)]);
            }
        }
        let rewrites = pieces.iter().map(|(_, rewrites)| *rewrites).max().unwrap();
        assert!(rewrites <= 6, "{rewrites} rewrites of 16 bytes in 64 KiB: log4 is 6");
        // What waits for bytes, besides the levels that wait for growth.
        let waiting = if bytes_min > 0 { PIECES_ENOUGH } else { 0 };
        let bound = 64 + waiting + usize::try_from(round_pieces).unwrap();
        let is_done = |bytes: u64| bytes_min > 0 && bytes >= bytes_min;
        let left = pieces.iter().filter(|(bytes, _)| !is_done(*bytes)).count();
        assert!(left <= bound, "{left} pieces stay");
    }
}
