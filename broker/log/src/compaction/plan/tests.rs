use super::*;
use crate::planned::{extents, state};

const NOW_MS: i64 = 1_000_000;

fn terms() -> CompactionTerms {
    CompactionTerms {
        dirty_ratio_min: 0.5,
        lag_ms_min: 0,
        lag_ms_max: i64::MAX,
        delete_retention_ms: 0,
        has_table: false,
    }
}

fn limits(terms: CompactionTerms) -> Limits {
    Limits { terms, now_ms: NOW_MS, table_end: i64::MAX }
}

fn mark(clean_until: i64) -> CompactionMark {
    CompactionMark { clean_until, at_ms: NOW_MS, horizon_ms: None }
}

fn dirt(
    extents: &[Extent],
    state: &PartitionState,
    mark: Option<&CompactionMark>,
    limits: &Limits,
) -> Dirt {
    let mut dirt = Dirt::new(state, mark);
    let dirty = extents.iter().filter(|extent| extent.last_offset >= dirt.from);
    for extent in dirty.collect::<Vec<_>>() {
        dirt.add(extent, state, limits);
    }
    dirt
}

fn urgency(of: &[(i64, u64)], mark: &CompactionMark, limits: &Limits) -> Option<f64> {
    let extents = extents(of);
    let state = state(&extents);
    let dirt = dirt(&extents, &state, Some(mark), limits);
    dirt.urgency(&state, Some(mark), limits, &CompactionRules::default())
}

#[test]
fn more_than_the_ratio_must_be_dirty() {
    let half = [(NOW_MS, 100), (NOW_MS, 100)];
    assert_eq!(urgency(&half, &mark(2), &limits(terms())), None, "half is not more than half");
    assert_eq!(urgency(&half, &mark(0), &limits(terms())), Some(1.0));
    let more = [(NOW_MS, 100), (NOW_MS, 300)];
    assert_eq!(urgency(&more, &mark(2), &limits(terms())), Some(0.75));
    assert_eq!(urgency(&more, &mark(4), &limits(terms())), None, "all is clean");
    let any = CompactionTerms { dirty_ratio_min: 0.0, ..terms() };
    assert_eq!(urgency(&half, &mark(2), &limits(any)), Some(0.5));
    assert_eq!(urgency(&[], &mark(0), &limits(any)), None);
}

#[test]
fn a_pass_ends_before_what_is_young_open_or_not_in_the_table() {
    let extents = extents(&[(NOW_MS - 50, 1), (NOW_MS - 10, 2), (NOW_MS - 50, 4)]);
    let closed = state(&extents);
    let of = |limits: Limits, state: &PartitionState| {
        let dirt = dirt(&extents, state, None, &limits);
        (dirt.until, dirt.bytes, dirt.waiting_bytes, dirt.waits_for_table)
    };
    let all = limits(terms());
    assert_eq!(of(all, &closed), (6, 7, 0, false));
    let lag = |lag_ms_min| limits(CompactionTerms { lag_ms_min, ..terms() });
    assert_eq!(of(lag(11), &closed), (2, 1, 6, false), "nothing behind what is young");
    assert_eq!(of(lag(10), &closed), (6, 7, 0, false));
    let open = PartitionState { last_stable_offset: 3, ..closed };
    assert_eq!(of(all, &open), (2, 1, 6, false));
    assert_eq!(of(Limits { table_end: 5, ..all }, &closed), (4, 3, 4, true));
    assert_eq!(of(Limits { table_end: 3, ..lag(11) }, &closed), (2, 1, 6, false));
}

#[test]
fn where_the_first_extent_waits_nothing_behind_it_matters() {
    let extents = extents(&[(NOW_MS, 1), (NOW_MS, 1), (NOW_MS, 1)]);
    let state = state(&extents);
    let all_waits = |count: usize, table_end| {
        let limits = Limits { table_end, ..limits(terms()) };
        dirt(&extents[..count], &state, None, &limits).all_waits()
    };
    assert!(!all_waits(0, 0), "nothing was seen yet");
    assert!(all_waits(1, 1) && all_waits(3, 1));
    assert!(!all_waits(3, 2), "the first may be taken, and the others count for the ratio");
}

#[test]
fn what_max_compaction_lag_asks_for_comes_first() {
    let of = [(NOW_MS, 1_000), (NOW_MS - 100, 1), (-1, 1)];
    let lag = |lag_ms_max| limits(CompactionTerms { lag_ms_max, ..terms() });
    assert_eq!(urgency(&of, &mark(2), &lag(100)), None);
    assert_eq!(urgency(&of, &mark(2), &lag(99)), Some(f64::INFINITY));
    assert_eq!(urgency(&of[2..], &mark(0), &limits(terms())), Some(1.0));
    // Records may say that they are younger than they are: the last pass is known to be older.
    let old = CompactionMark { at_ms: NOW_MS - 101, ..mark(4) };
    assert_eq!(urgency(&of, &old, &lag(100)), Some(f64::INFINITY));
    let all_clean = CompactionMark { at_ms: NOW_MS - 101, ..mark(6) };
    assert_eq!(urgency(&of, &all_clean, &lag(100)), None);
}

#[test]
fn a_horizon_that_is_past_is_worth_a_pass_without_dirt() {
    let of = [(NOW_MS, 100)];
    let horizon = |at_ms| CompactionMark { horizon_ms: Some(at_ms), ..mark(2) };
    assert_eq!(urgency(&of, &horizon(NOW_MS + 1), &limits(terms())), None);
    assert_eq!(urgency(&of, &horizon(NOW_MS), &limits(terms())), Some(0.0));
}

#[test]
fn young_dirt_on_a_remote_store_must_be_worth_its_requests() {
    let rules =
        CompactionRules { dirt_bytes_min: REMOTE_DIRT_BYTES_MIN, ..CompactionRules::default() };
    let of = |timestamp_ms: i64, bytes: u64, mark: Option<CompactionMark>| {
        let extents = extents(&[(timestamp_ms, bytes)]);
        let (state, limits) = (state(&extents), limits(terms()));
        let dirt = dirt(&extents, &state, mark.as_ref(), &limits);
        dirt.urgency(&state, mark.as_ref(), &limits, &rules)
    };
    let aged_ms = NOW_MS - DIRT_AGE_MS - 1;
    assert_eq!(of(NOW_MS, REMOTE_DIRT_BYTES_MIN, None), Some(1.0));
    assert_eq!(of(NOW_MS, REMOTE_DIRT_BYTES_MIN - 1, None), None);
    assert_eq!(of(aged_ms, 1, None), Some(1.0));
    assert_eq!(of(NOW_MS, 1, Some(CompactionMark { at_ms: aged_ms, ..mark(0) })), Some(1.0));
}

#[test]
fn a_mark_of_another_log_is_none() {
    let extents = extents(&[(NOW_MS, 1), (NOW_MS, 1)]);
    let state = PartitionState { log_start_offset: 1, ..state(&extents) };
    assert_eq!(Dirt::new(&state, None).from, 1);
    assert_eq!(Dirt::new(&state, Some(&mark(3))).from, 3);
    assert_eq!(Dirt::new(&state, Some(&mark(5))).from, 1, "beyond the end");
}
