//! The trace of a run: every event with its virtual time goes into a 64-bit FNV-1a hash, which is
//! equal in two runs of one seed. The newest lines are kept for whoever looks into a failure.

use floe_env::Instant;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Lines that are kept.
const LINES_MAX: usize = 4000;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The trace; clones share it.
#[derive(Clone)]
pub struct Trace(Arc<TraceState>);

struct TraceState {
    started: Instant,
    state: Mutex<(u64, u64, VecDeque<String>)>,
}

impl Trace {
    /// An empty trace that counts time from `started`.
    pub fn new(started: Instant) -> Self {
        let state = Mutex::new((FNV_OFFSET, 0, VecDeque::new()));
        Self(Arc::new(TraceState { started, state }))
    }

    /// Adds an event that happened now.
    pub fn event(&self, now: Instant, text: &str) {
        let line = format!("{:>7} ms  {text}", (now - self.0.started).as_millis());
        let mut state = self.0.state.lock();
        let (hash, events, lines) = &mut *state;
        for byte in line.bytes().chain([b'\n']) {
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        *events += 1;
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The hash of all events, and their number.
    pub fn hash(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.0, state.1)
    }

    /// The newest events.
    pub fn lines(&self) -> Vec<String> {
        self.0.state.lock().2.iter().cloned().collect()
    }
}
