//! The budget of PUTs on a remote store: requests are money. Some are earned every second, and
//! unused ones are saved up to a limit. Pure: the caller brings the time.

use floe_env::Instant;
use std::time::Duration;

/// PUTs earned a second on a remote store, if nothing else is set.
pub const PUTS_PER_SECOND_DEFAULT: u32 = 4;

/// Seconds of unused PUTs that are saved, if nothing else is set.
pub const SAVED_SECONDS_DEFAULT: u32 = 30;

/// A budget of PUTs. It starts with all savings.
#[derive(Clone, Copy, Debug)]
pub struct PutBudget {
    /// The time in which one PUT is earned.
    interval: Duration,
    /// The time in which all savings are earned.
    savings: Duration,
    /// When the savings would be complete again; in the past where they are.
    complete_at: Instant,
}

impl PutBudget {
    /// A budget of `per_second` PUTs, of which `saved_seconds` seconds' worth may be saved. Zeros
    /// count as one.
    pub fn new(now: Instant, per_second: u32, saved_seconds: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let savings = Duration::from_secs(u64::from(saved_seconds.max(1)));
        Self { interval, savings, complete_at: now }
    }

    /// The default of a remote store.
    pub fn standard(now: Instant) -> Self {
        Self::new(now, PUTS_PER_SECOND_DEFAULT, SAVED_SECONDS_DEFAULT)
    }

    /// Takes one PUT if there is one.
    pub fn try_take(&mut self, now: Instant) -> bool {
        let complete_at = self.complete_at.max(now) + self.interval;
        let has_one = complete_at <= now + self.savings;
        if has_one {
            self.complete_at = complete_at;
        }
        has_one
    }

    /// Takes one PUT in any case, as a full segment does. Nothing is owed afterwards: whoever comes
    /// behind a burst of full segments waits for one PUT to be earned, not for all of them.
    pub fn take(&mut self, now: Instant) {
        let complete_at = self.complete_at.max(now) + self.interval;
        self.complete_at = complete_at.min(now + self.savings);
    }

    /// When the next PUT can be taken; `now` if there is one.
    pub fn next_at(&self, now: Instant) -> Instant {
        let at = (self.complete_at + self.interval).checked_sub(self.savings);
        at.map_or(now, |at| at.max(now))
    }

    /// PUTs that can be taken now.
    pub fn saved(&self, now: Instant) -> u32 {
        let saved = (now + self.savings).saturating_duration_since(self.complete_at.max(now));
        u32::try_from(saved.as_nanos() / self.interval.as_nanos().max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_env::Env;

    async fn start() -> Instant {
        Env::current().monotonic()
    }

    fn take_all(budget: &mut PutBudget, now: Instant) -> u32 {
        let mut taken = 0;
        while budget.try_take(now) {
            taken += 1;
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn savings_are_spent_and_then_the_rate_holds() {
        let start = start().await;
        let mut budget = PutBudget::standard(start);
        assert_eq!(budget.saved(start), 120);
        assert_eq!(budget.next_at(start), start);
        assert_eq!(take_all(&mut budget, start), 120);
        assert_eq!(budget.saved(start), 0);
        assert_eq!(budget.next_at(start), start + Duration::from_millis(250));
        let mut taken = 0;
        for millisecond in 1..=10_000 {
            taken += u32::from(budget.try_take(start + Duration::from_millis(millisecond)));
        }
        assert_eq!(taken, 40);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_saved_than_the_limit() {
        let start = start().await;
        let mut budget = PutBudget::standard(start);
        take_all(&mut budget, start);
        assert_eq!(budget.saved(start + Duration::from_secs(10)), 40);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!(take_all(&mut budget, much_later), 120);
    }

    #[tokio::test(start_paused = true)]
    async fn forced_takes_cost_the_next_one_an_interval_at_most() {
        let start = start().await;
        let mut budget = PutBudget::new(start, 4, 30);
        for _ in 0..100_000 {
            budget.take(start);
        }
        assert_eq!(budget.next_at(start), start + Duration::from_millis(250));
        assert!(!budget.try_take(start + Duration::from_millis(249)));
        assert!(budget.try_take(start + Duration::from_millis(250)));
    }
}
