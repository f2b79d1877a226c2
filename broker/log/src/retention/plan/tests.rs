use super::*;
use crate::planned::{self, state};
use floe_metadata::rows::Place;
use kfs::{ProducerEpoch, ProducerId};

const NOW_MS: i64 = 1_000_000;

/// Extents of two offsets and 100 bytes each, with these greatest timestamps.
fn extents(timestamps: &[i64]) -> Vec<Extent> {
    let of: Vec<(i64, u64)> = timestamps.iter().map(|at_ms| (*at_ms, 100)).collect();
    planned::extents(&of)
}

fn limits(time_ms: Option<i64>, bytes: Option<u64>) -> Limits {
    Limits {
        terms: RetentionTerms { time_ms, bytes, has_table: false },
        now_ms: NOW_MS,
        written: None,
        table_end: i64::MAX,
        hold: TableHold { time_ms: 500, bytes: 150 },
    }
}

/// Where the log starts afterwards.
fn start(timestamps: &[i64], limits: &Limits) -> i64 {
    let extents = extents(timestamps);
    over(&extents, &state(&extents), limits).log_start
}

#[test]
fn what_is_older_goes_and_what_is_as_old_stays() {
    let limits = limits(Some(1000), None);
    let (old, young) = (NOW_MS - 1001, NOW_MS - 1000);
    assert_eq!(start(&[], &limits), 0);
    assert_eq!(start(&[young], &limits), 0);
    assert_eq!(start(&[old, young], &limits), 2);
    assert_eq!(start(&[old, old], &limits), 4, "the newest one goes too");
    assert_eq!(start(&[old, young, old], &limits), 2, "nothing behind what stays");
    assert_eq!(start(&[NOW_MS + 1, old], &limits), 0);
    assert_eq!(start(&[0, old], &self::limits(None, None)), 0);
    assert_eq!(start(&[NOW_MS - 1], &self::limits(Some(0), None)), 2);
    assert_eq!(start(&[i64::MAX], &self::limits(Some(i64::MAX), None)), 0);
}

#[test]
fn a_size_is_left_at_least() {
    let of = |kept: u64| start(&[NOW_MS; 4], &limits(None, Some(kept)));
    assert_eq!(of(1000), 0);
    assert_eq!(of(400), 0);
    assert_eq!(of(301), 0);
    assert_eq!(of(300), 2);
    assert_eq!(of(101), 4);
    assert_eq!(of(100), 6);
    assert_eq!(of(0), 8);
}

#[test]
fn each_reason_counts_its_bytes() {
    let extents = extents(&[NOW_MS, NOW_MS - 9, NOW_MS - 9, NOW_MS]);
    let gone = over(&extents, &state(&extents), &limits(Some(5), Some(250)));
    assert_eq!((gone.bytes_by_size, gone.bytes_by_time), (100, 200));
    assert_eq!((gone.extents, gone.log_start, gone.bytes()), (3, 6, 300));
}

#[test]
fn an_open_transaction_keeps_what_it_reaches() {
    let extents = extents(&[0, 0, 0]);
    let open = PartitionState { last_stable_offset: 3, ..state(&extents) };
    assert_eq!(over(&extents, &open, &limits(Some(5), None)).log_start, 2);
    let open = PartitionState { last_stable_offset: 4, ..open };
    assert_eq!(over(&extents, &open, &limits(Some(5), Some(0))).log_start, 4);
}

#[test]
fn what_a_table_lacks_waits_up_to_a_limit() {
    let old = NOW_MS - 1001;
    let here = |since_ms| Some(WrittenMark { end: i64::MAX, since_ms });
    let waiting = Limits { table_end: 3, written: here(0), ..limits(Some(1000), None) };
    assert_eq!(start(&[old, old, old], &waiting), 2);
    assert_eq!(start(&[old, old - 499, old], &waiting), 2);
    let extents = extents(&[old, old - 500, old - 500, old]);
    let gone = over(&extents, &state(&extents), &waiting);
    assert_eq!((gone.log_start, gone.lacked_by_table), (6, 3), "offsets 3, 4 and 5");
    let waiting = Limits { table_end: 0, ..limits(None, Some(100)) };
    assert_eq!(start(&[NOW_MS; 2], &waiting), 0);
    assert_eq!(start(&[NOW_MS; 3], &waiting), 0, "250 bytes are held");
    assert_eq!(start(&[NOW_MS; 4], &waiting), 2);
    assert_eq!(start(&[NOW_MS; 3], &waiting.without_table()), 4);
}

#[test]
fn what_was_old_when_it_came_waits_for_its_table_since_then() {
    let long_past = [0, 0, NOW_MS];
    let came = |end, since_ms| Limits {
        table_end: 2,
        written: Some(WrittenMark { end, since_ms }),
        ..limits(Some(1000), None)
    };
    let unknown = Limits { written: None, ..came(0, 0) };
    assert_eq!(start(&long_past, &unknown), 2, "nobody has noted when it came");
    let second = Oldest::of(&extents(&long_past)[1]);
    assert!(unknown.needs_mark(&second) && came(3, NOW_MS).needs_mark(&second));
    assert!(!came(4, NOW_MS).needs_mark(&second));
    assert_eq!(start(&long_past, &came(4, NOW_MS - 500)), 2);
    assert_eq!(start(&long_past, &came(4, NOW_MS - 501)), 4);
    assert_eq!(start(&long_past, &Limits { table_end: 4, ..unknown }), 4, "its table has it");
    let young = Oldest::of(&extents(&long_past)[2]);
    assert!(!unknown.needs_mark(&young), "it is not over yet");
    let no_hold = Limits { hold: TableHold { time_ms: 0, bytes: 0 }, ..unknown };
    assert!(!no_hold.needs_mark(&second));
    assert_eq!(start(&long_past, &no_hold), 4);
}

#[test]
fn a_log_start_inside_an_extent_counts_what_is_left() {
    let extents = extents(&[0, NOW_MS]);
    let inside = PartitionState { log_start_offset: 1, ..state(&extents) };
    let here = Some(WrittenMark { end: 2, since_ms: 0 });
    let limits = Limits { table_end: 0, written: here, ..limits(Some(5), None) };
    let gone = over(&extents, &inside, &limits);
    assert_eq!((gone.log_start, gone.lacked_by_table), (2, 1));
}

#[test]
fn records_without_a_timestamp_are_as_old_as_their_mark() {
    let untimed = [-1, -1, NOW_MS];
    let without = limits(Some(1000), None);
    assert_eq!(start(&untimed, &without), 0);
    let first = Oldest::of(&extents(&untimed)[0]);
    assert!(first.is_untimed() && without.needs_mark(&first));
    assert!(!limits(None, Some(0)).needs_mark(&first), "size needs no time");
    let mark = |end, since_ms| Limits { written: Some(WrittenMark { end, since_ms }), ..without };
    assert!(!mark(2, NOW_MS).needs_mark(&first) && mark(1, NOW_MS).needs_mark(&first));
    assert_eq!(start(&untimed, &mark(6, NOW_MS - 1000)), 0);
    assert_eq!(start(&untimed, &mark(6, NOW_MS - 1001)), 4);
    assert_eq!(start(&untimed, &mark(2, NOW_MS - 1001)), 2);
    let held = Limits { table_end: 0, ..mark(6, NOW_MS - 1500) };
    assert_eq!(start(&untimed, &held), 0);
    assert_eq!(start(&untimed, &Limits { table_end: 0, ..mark(6, NOW_MS - 1501) }), 4);
}

#[test]
fn markers_go_by_their_own_time() {
    let mut extents = extents(&[0, NOW_MS - 3, NOW_MS]);
    extents[1].place = Place::Marker {
        producer: ProducerId(1),
        epoch: ProducerEpoch(0),
        commit: true,
        coordinator_epoch: 0,
        timestamp_ms: NOW_MS - 3,
    };
    let start = |time_ms| over(&extents, &state(&extents), &limits(Some(time_ms), None)).log_start;
    assert_eq!((start(3), start(2)), (2, 4));
}
