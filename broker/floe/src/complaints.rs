//! Log lines about what clients send wrong. Each has one; but a client that does it again and again
//! does not fill the log: beyond so many of a kind in ten seconds lines are left out, and the next
//! one of the kind says how many.

use floe_env::{Env, Instant};
use parking_lot::Mutex;
use std::time::Duration;

/// Lines of a kind in a [`WINDOW`].
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// What lines are about. Those of one kind leave none of another out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Complaint {
    /// Records that are not taken.
    Batch,
    /// A connection that is closed.
    Connection,
}

/// What was told of late.
pub(crate) struct Complaints {
    env: Env,
    of_batches: Mutex<Told>,
    of_connections: Mutex<Told>,
}

struct Told {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Complaints {
    /// Nothing was told yet.
    pub(crate) fn new(env: Env) -> Self {
        let since = env.monotonic();
        let nothing = || Mutex::new(Told { since, lines: 0, left_out: 0 });
        Self { env, of_batches: nothing(), of_connections: nothing() }
    }

    /// Whether there may be a line now: then with the number of those left out before it.
    pub(crate) fn line(&self, about: Complaint) -> Option<u64> {
        let now = self.env.monotonic();
        let mut told = match about {
            Complaint::Batch => self.of_batches.lock(),
            Complaint::Connection => self.of_connections.lock(),
        };
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
        let batch = || complaints.line(Complaint::Batch);
        for _ in 0..LINES_MAX {
            assert_eq!(batch(), Some(0));
        }
        assert_eq!([batch(), batch()], [None, None]);
        assert_eq!(complaints.line(Complaint::Connection), Some(0), "a budget of its own");
        env.sleep(WINDOW).await;
        assert_eq!([batch(), batch()], [Some(2), Some(0)]);
    }
}
