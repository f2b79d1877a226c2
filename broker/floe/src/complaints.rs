//! Log lines about what clients send wrong. Each has one; but a client that does it again and again
//! does not fill the log: beyond so many in ten seconds lines are left out, and the next one says
//! how many.

use floe_env::{Env, Instant};
use parking_lot::Mutex;
use std::time::Duration;

/// Lines in a [`WINDOW`].
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// What was told of late.
pub(crate) struct Complaints {
    env: Env,
    told: Mutex<Told>,
}

struct Told {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Complaints {
    /// Nothing was told yet.
    pub(crate) fn new(env: Env) -> Self {
        let told = Told { since: env.monotonic(), lines: 0, left_out: 0 };
        Self { env, told: Mutex::new(told) }
    }

    /// Whether there may be a line now: then with the number of those left out before it.
    pub(crate) fn line(&self) -> Option<u64> {
        let now = self.env.monotonic();
        let mut told = self.told.lock();
        if now.duration_since(told.since) >= WINDOW {
            (told.since, told.lines) = (now, 0);
        }
        if told.lines >= LINES_MAX {
            told.left_out += 1;
            return None;
        }
        told.lines += 1;
        Some(std::mem::take(&mut told.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_limit_are_counted() {
        let env = Env::current();
        let complaints = Complaints::new(env.clone());
        for _ in 0..LINES_MAX {
            assert_eq!(complaints.line(), Some(0));
        }
        assert_eq!([complaints.line(), complaints.line()], [None, None]);
        env.sleep(WINDOW).await;
        assert_eq!([complaints.line(), complaints.line()], [Some(2), Some(0)]);
    }
}
