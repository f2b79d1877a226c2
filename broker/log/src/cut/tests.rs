use super::*;
use floe_env::Env;

const MIB: u64 = 1 << 20;

fn rules(pace: Pace) -> CutRules {
    CutRules { segment_bytes: 8 * MIB, flush_interval: Duration::from_millis(250), pace }
}

fn shipped_budget() -> Pace {
    Pace::Budgeted(BudgetRules { puts_per_second: 4, saved_seconds: 30 })
}

fn start() -> Instant {
    Env::current().monotonic()
}

fn open(bytes: u64, first_batch: Instant, in_flight: usize) -> OpenState {
    OpenState { bytes, first_batch, in_flight }
}

#[tokio::test(start_paused = true)]
async fn a_full_segment_is_cut_at_once_whatever_is_in_flight() {
    let now = start();
    let mut policy = CutPolicy::new(rules(shipped_budget()), now);
    for _ in 0..1000 {
        policy.cut(8 * MIB, now);
    }
    assert_eq!(policy.decide(&open(8 * MIB, now, 9), now), Decision::Cut(CutReason::Full));
}

#[tokio::test(start_paused = true)]
async fn a_lone_batch_with_nothing_in_flight_is_cut_at_once() {
    let now = start();
    for pace in [Pace::GroupCommit, shipped_budget()] {
        let policy = CutPolicy::new(rules(pace), now);
        assert_eq!(policy.decide(&open(100, now, 0), now), Decision::Cut(CutReason::Time));
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_local_disk_a_group_waits_for_what_is_in_flight_but_no_longer_than_the_interval() {
    let now = start();
    let mut policy = CutPolicy::new(rules(Pace::GroupCommit), now);
    policy.put_took(Duration::from_millis(2));
    policy.cut(100, now);
    let much_later = now + Duration::from_millis(249);
    let latest = now + Duration::from_millis(250);
    assert_eq!(policy.decide(&open(MIB, now, 1), much_later), Decision::WaitUntil(latest));
    assert_eq!(policy.decide(&open(MIB, now, 0), much_later), Decision::Cut(CutReason::Time));
    assert_eq!(policy.decide(&open(MIB, now, 1), latest), Decision::Cut(CutReason::Time));
}

#[tokio::test(start_paused = true)]
async fn with_uploads_in_flight_a_quarter_of_a_put_passes_between_cuts() {
    let now = start();
    let mut policy = CutPolicy::new(rules(shipped_budget()), now);
    policy.put_took(Duration::from_millis(100));
    policy.cut(100, now);
    let later = now + Duration::from_millis(25);
    assert_eq!(policy.decide(&open(100, now, 1), now), Decision::WaitUntil(later));
    assert_eq!(policy.decide(&open(100, now, 1), later), Decision::Cut(CutReason::Time));
}

#[tokio::test(start_paused = true)]
async fn a_slow_put_delays_a_cut_by_the_flush_interval_at_most() {
    let now = start();
    let mut policy = CutPolicy::new(rules(shipped_budget()), now);
    policy.put_took(Duration::from_secs(10));
    policy.cut(100, now);
    let latest = now + Duration::from_millis(250);
    assert_eq!(policy.decide(&open(100, now, 1), now), Decision::WaitUntil(latest));
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_holds_back_cuts_by_time_to_its_sustained_rate() {
    let now = start();
    let mut policy = CutPolicy::new(rules(shipped_budget()), now);
    for _ in 0..120 {
        policy.cut(100, now);
    }
    let earliest = now + Duration::from_millis(250);
    assert_eq!(policy.decide(&open(100, now, 0), now), Decision::WaitUntil(earliest));
    assert_eq!(policy.decide(&open(100, now, 0), earliest), Decision::Cut(CutReason::Time));
}

#[tokio::test(start_paused = true)]
async fn unused_requests_are_saved_up_to_the_maximum_only() {
    let now = start();
    let mut policy = CutPolicy::new(rules(shipped_budget()), now);
    let much_later = now + Duration::from_secs(3600);
    for _ in 0..120 {
        assert_eq!(policy.decide(&open(1, much_later, 0), much_later), {
            Decision::Cut(CutReason::Time)
        });
        policy.cut(1, much_later);
    }
    let decision = policy.decide(&open(1, much_later, 0), much_later);
    assert!(matches!(decision, Decision::WaitUntil(_)), "{decision:?}");
}

#[tokio::test(start_paused = true)]
async fn a_high_rate_spends_no_savings_and_waits_for_the_interval() {
    let mut now = start();
    let mut policy = CutPolicy::new(rules(shipped_budget()), now);
    for _ in 0..50 {
        now += Duration::from_millis(200);
        policy.cut(8 * MIB, now);
    }
    let decision = policy.decide(&open(MIB, now, 0), now);
    assert_eq!(decision, Decision::WaitUntil(now + Duration::from_millis(250)));
}
