//! When the open segment is cut: pure, so that every rule is a test.
//!
//! Full segments are cut at once. Otherwise time decides: with nothing in flight at once, and at
//! the latest after the flush interval. Between the two the place decides:
//!
//! * On a **local disk** a PUT and its commit are a few syncs, which the disk does one after the
//!   other: a second cut would only wait for the first. So what arrives meanwhile is one group, cut
//!   when nothing is in flight any more, and **gathered** ([`gather`]): clients that have just been
//!   answered are about to send again.
//! * On a **remote store** PUTs overlap: a cut is due when a quarter of the measured PUT time has
//!   passed since the last one. There requests are money: a cut by time needs a token of the
//!   budget, and saved tokens are spent only while the rate would not half-fill a segment in one
//!   interval anyway.

mod gather;

use floe_env::Instant;
use floe_store::PutBudget;
use gather::Gather;
use std::time::Duration;

/// Rules for cutting.
#[derive(Clone, Copy, Debug)]
pub struct CutRules {
    /// A segment of this size is full, bytes.
    pub segment_bytes: u64,
    /// The longest that the first batch of a segment waits for a cut by time.
    pub flush_interval: Duration,
    /// What passes between two cuts by time.
    pub pace: Pace,
}

/// What passes between two cuts by time.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// All that is in flight: group commit, for a local disk.
    GroupCommit,
    /// A share of a PUT's time, within a budget of requests: for a remote store.
    Budgeted(BudgetRules),
}

/// A budget of PUT requests.
#[derive(Clone, Copy, Debug)]
pub struct BudgetRules {
    /// Requests a second that may go on for ever.
    pub puts_per_second: u32,
    /// For so many seconds unused requests are saved.
    pub saved_seconds: u32,
}

/// What the open segment holds.
#[derive(Clone, Copy, Debug)]
pub struct OpenState {
    /// Bytes of all batches.
    pub bytes: u64,
    /// When its first batch came.
    pub first_batch: Instant,
    /// Segments that are being uploaded or committed.
    pub in_flight: usize,
}

/// Why a segment was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// It was full.
    Full,
    /// Its time had come.
    Time,
    /// The broker shuts down.
    Shutdown,
}

/// What to do with the open segment now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Cut it.
    Cut(CutReason),
    /// Look again at this time, or when something changes.
    WaitUntil(Instant),
}

/// Decides, and remembers what it needs for that.
#[derive(Debug)]
pub struct CutPolicy {
    rules: CutRules,
    last_cut: Option<Instant>,
    put_time: Duration,
    budget: Option<PutBudget>,
    gather: Gather,
    bytes_per_second: f64,
}

/// Weight of the newest PUT in the moving average of PUT times.
const PUT_TIME_WEIGHT: f64 = 0.2;
/// Weight of the newest segment in the moving average of the rate.
const RATE_WEIGHT: f64 = 0.3;
/// The share of a PUT's time that passes between two cuts while others are in flight, remotely.
const PUT_TIME_SHARE: f64 = 0.25;

impl CutPolicy {
    /// A policy with a full budget.
    pub fn new(rules: CutRules, now: Instant) -> Self {
        let budget = match rules.pace {
            Pace::GroupCommit => None,
            Pace::Budgeted(budget) => {
                Some(PutBudget::new(now, budget.puts_per_second, budget.saved_seconds))
            }
        };
        Self {
            rules,
            last_cut: None,
            put_time: Duration::ZERO,
            budget,
            gather: Gather::default(),
            bytes_per_second: 0.0,
        }
    }

    /// True for a segment that waits for nothing more.
    pub fn is_full(&self, bytes: u64) -> bool {
        bytes >= self.rules.segment_bytes
    }

    /// Decides about a segment that is not empty.
    pub fn decide(&self, open: &OpenState, now: Instant) -> Decision {
        if self.is_full(open.bytes) {
            return Decision::Cut(CutReason::Full);
        }
        let due = self.due_by_time(open).max(self.due_by_budget(now));
        if due <= now { Decision::Cut(CutReason::Time) } else { Decision::WaitUntil(due) }
    }

    /// Notes that a segment of `bytes` was cut, for whatever reason.
    pub fn cut(&mut self, bytes: u64, now: Instant) {
        if let Some(last) = self.last_cut {
            let seconds = (now - last).as_secs_f64().max(1e-4);
            let rate = bytes as f64 / seconds;
            self.bytes_per_second += RATE_WEIGHT * (rate - self.bytes_per_second);
        }
        self.last_cut = Some(now);
        self.gather.cut(bytes);
        if let Some(budget) = &mut self.budget {
            // A full segment is never held back, and leaves no debt behind.
            budget.take(now);
        }
    }

    /// Notes that requests of `answered` bytes were answered, while `open` bytes waited.
    pub fn answered(&mut self, answered: u64, open: u64, now: Instant) {
        if let (Pace::GroupCommit, Some(last_cut)) = (self.rules.pace, self.last_cut) {
            self.gather.answered(answered, open, now, now - last_cut);
        }
    }

    /// Notes how long a PUT took.
    pub fn put_took(&mut self, duration: Duration) {
        let (old, new) = (self.put_time.as_secs_f64(), duration.as_secs_f64());
        let average = if old == 0.0 { new } else { old + PUT_TIME_WEIGHT * (new - old) };
        self.put_time = Duration::from_secs_f64(average);
    }

    fn due_by_time(&self, open: &OpenState) -> Instant {
        let latest = open.first_batch + self.rules.flush_interval;
        if open.in_flight == 0 && !self.saves_tokens() {
            return self.gather.due(open.bytes).unwrap_or(open.first_batch).min(latest);
        }
        match (self.rules.pace, self.last_cut) {
            (Pace::Budgeted(_), Some(last)) if !self.saves_tokens() => {
                latest.min(last + self.put_time.mul_f64(PUT_TIME_SHARE))
            }
            _ => latest,
        }
    }

    /// True where the rate half-fills a segment in one interval: waiting then makes larger objects,
    /// not later ones.
    fn saves_tokens(&self) -> bool {
        let per_interval = self.bytes_per_second * self.rules.flush_interval.as_secs_f64();
        self.budget.is_some() && per_interval * 2.0 >= self.rules.segment_bytes as f64
    }

    fn due_by_budget(&self, now: Instant) -> Instant {
        self.budget.map_or(now, |budget| budget.next_at(now))
    }
}

#[cfg(test)]
mod tests;
