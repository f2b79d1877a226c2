//! The clock of all groups of a broker.

use floe_env::{Env, Instant};
use std::time::Duration;

/// Milliseconds since the Unix epoch as the wall clock had it when the broker started, and from
/// there on as the monotonic clock runs: comparable with what an earlier broker stored, and no jump
/// of the wall clock ends anybody's session.
#[derive(Clone, Debug)]
pub(super) struct GroupClock {
    env: Env,
    start: Instant,
    start_ms: i64,
}

impl GroupClock {
    pub(super) fn new(env: Env) -> Self {
        Self { start: env.monotonic(), start_ms: env.now_ms(), env }
    }

    /// Now, ms.
    pub(super) fn now_ms(&self) -> i64 {
        let elapsed = self.env.monotonic().saturating_duration_since(self.start);
        self.start_ms.saturating_add(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }

    /// Waits until a time, ms.
    pub(super) async fn sleep_until(&self, deadline_ms: i64) {
        let wait_ms = deadline_ms.saturating_sub(self.now_ms());
        self.env.sleep(Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0))).await;
    }
}
