//! Gathering a group: pure.
//!
//! Clients that keep a number of requests under way send again as soon as they are answered. If the
//! next group leaves before that, it takes only those that waited, and the clients split for good
//! into two halves that wait for each other's turn: twice the latency and twice the syncs. So a
//! group waits until about as much has arrived as was just answered and was waiting then, or until
//! its time is over. Where that does not come true, the load is another one, and the next groups
//! do not wait: one after the first failure, three after the second, and so on.

use floe_env::Instant;
use std::time::Duration;

/// What is waited for, as a share of what is expected: batches come back in other sizes.
const EXPECTED_SHARE: f64 = 0.8;
/// A group waits for this share of the last group's turn, from its cut to its answers,
const TURN_SHARE: u32 = 2;
/// but not less than a timer's tick.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// After so many failures in a row, 2^so many - 1 groups do not wait.
const FAILURES_MAX: u32 = 8;

/// Decides how long a group waits for clients that have just been answered.
#[derive(Debug, Default)]
pub(super) struct Gather {
    waiting: Option<Waiting>,
    failures: u32,
    groups_to_skip: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    bytes: u64,
    until: Instant,
}

impl Gather {
    /// Notes that `answered` bytes were answered while `open` bytes waited, after a turn that took
    /// so long.
    pub(super) fn answered(&mut self, answered: u64, open: u64, now: Instant, turn: Duration) {
        if self.groups_to_skip > 0 {
            self.groups_to_skip -= 1;
            self.waiting = None;
            return;
        }
        let bytes = ((answered + open) as f64 * EXPECTED_SHARE) as u64;
        self.waiting = Some(Waiting { bytes, until: now + (turn / TURN_SHARE).max(WAIT_MIN) });
    }

    /// When a group of so many bytes need not wait any longer; `None`: not at all.
    pub(super) fn due(&self, bytes: u64) -> Option<Instant> {
        self.waiting.filter(|waiting| bytes < waiting.bytes).map(|waiting| waiting.until)
    }

    /// Notes that a group of so many bytes was cut.
    pub(super) fn cut(&mut self, bytes: u64) {
        let Some(waiting) = self.waiting.take() else { return };
        if bytes >= waiting.bytes {
            self.failures = 0;
            return;
        }
        self.failures = (self.failures + 1).min(FAILURES_MAX);
        self.groups_to_skip = (1 << self.failures) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_env::Env;

    const TURN: Duration = Duration::from_millis(4);

    #[tokio::test(start_paused = true)]
    async fn a_group_waits_for_what_was_answered_and_what_was_open_then() {
        let now = Env::current().monotonic();
        let mut gather = Gather::default();
        assert_eq!(gather.due(1), None, "nothing was answered yet");
        gather.answered(300, 200, now, TURN);
        assert_eq!(gather.due(200), Some(now + TURN / 2));
        assert_eq!(gather.due(399), Some(now + TURN / 2));
        assert_eq!(gather.due(400), None, "four fifths are enough");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_turn_waits_a_timers_tick() {
        let now = Env::current().monotonic();
        let mut gather = Gather::default();
        gather.answered(300, 0, now, Duration::from_micros(100));
        assert_eq!(gather.due(0), Some(now + WAIT_MIN));
    }

    #[tokio::test(start_paused = true)]
    async fn groups_that_nobody_joined_are_followed_by_ever_more_that_do_not_wait() {
        let now = Env::current().monotonic();
        let mut gather = Gather::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            gather.answered(100, 0, now, TURN);
            waits.push(gather.due(10).is_some());
            gather.cut(10);
        }
        let waited: Vec<usize> = (0..waits.len()).filter(|at| waits[*at]).collect();
        assert_eq!(waited, [0, 2, 6]);
        gather.groups_to_skip = 0;
        gather.answered(100, 0, now, TURN);
        gather.cut(100);
        gather.answered(100, 0, now, TURN);
        assert!(gather.due(10).is_some(), "one success and all is forgiven");
    }
}
