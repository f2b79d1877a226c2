//! Memory of answers to Fetch: one budget for all connections, taken before anything is read and
//! given back when the client has taken the answer.
//!
//! Under pressure answers first become smaller: each takes at most a quarter of what is left. Where
//! less than [`ANSWER_BYTES_MIN`] is left, a fetch waits, holding nothing, until others have been
//! sent; it is answered without records when its patience ends. So readers that do not take their
//! answers hold back new answers, and never the memory of the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which the memory is counted.
const UNIT_BYTES: usize = 4096;
/// No answer starts with less: about the largest batch that a topic takes by default.
const ANSWER_BYTES_MIN: usize = 1 << 20;
/// The part of what is left that one answer takes at most.
const SHARE_OF_REST: usize = 4;

/// The budget; cheap to clone.
#[derive(Clone)]
pub(crate) struct AnswerMemory {
    free: Arc<Semaphore>,
    units: usize,
    waiting: Arc<AtomicUsize>,
}

/// What one answer holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct AnswerPermit {
    permit: OwnedSemaphorePermit,
}

/// Counts a fetch that waits, whatever ends its wait.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AnswerMemory {
    /// A budget of this many bytes, but of two of the smallest answers at least.
    pub(crate) fn new(bytes: usize) -> Self {
        let units = (bytes.max(2 * ANSWER_BYTES_MIN) / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(units)), units, waiting: Arc::default() }
    }

    /// Takes up to `bytes_max`, less under pressure; waits where too little is left. A fetch that
    /// is dropped while it waits takes nothing.
    pub(crate) async fn take(&self, bytes_max: usize) -> AnswerPermit {
        let least = bytes_max.clamp(1, ANSWER_BYTES_MIN).div_ceil(UNIT_BYTES);
        let share = self.free.available_permits() / SHARE_OF_REST;
        let most = bytes_max.div_ceil(UNIT_BYTES).min(share).max(least);
        for units in [most, least] {
            if let Ok(permit) = self.free.clone().try_acquire_many_owned(wide(units)) {
                return AnswerPermit { permit };
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let permit = self.free.clone().acquire_many_owned(wide(least)).await;
        AnswerPermit { permit: permit.expect("the budget is never closed") }
    }

    /// True while a fetch waits for what others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Bytes that answers hold now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.units.saturating_sub(self.free.available_permits()) * UNIT_BYTES
    }
}

impl AnswerPermit {
    /// How large the answer may be.
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT_BYTES
    }

    /// Keeps what an answer of `bytes` needs and gives the rest back. An answer whose first batch
    /// is larger than what was taken, takes the rest of it where there is some.
    pub(crate) fn resize(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT_BYTES);
        let held = self.permit.num_permits();
        if units < held {
            drop(self.permit.split(held - units));
        } else {
            let more = wide(units - held);
            if let Ok(permit) = self.permit.semaphore().clone().try_acquire_many_owned(more) {
                self.permit.merge(permit);
            }
        }
    }
}

fn wide(units: usize) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn answers_become_smaller_as_memory_runs_out_and_then_wait() {
        let memory = AnswerMemory::new(16 * MIB);
        let first = memory.take(50 * MIB).await;
        assert_eq!(first.bytes(), 4 * MIB);
        let second = memory.take(50 * MIB).await;
        assert_eq!(second.bytes(), 3 * MIB);
        let mut held = Vec::new();
        while let Some(permit) = memory.take(50 * MIB).now_or_never() {
            assert!(permit.bytes() >= MIB);
            held.push(permit);
        }
        assert!(memory.held_bytes() > 15 * MIB && memory.held_bytes() <= 16 * MIB);
        assert!(!memory.is_short(), "who has left does not wait");
        let mut waiting = Box::pin(memory.take(MIB));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(memory.is_short());
        drop(second);
        assert_eq!(waiting.await.bytes(), MIB);
        assert!(!memory.is_short());
    }

    #[tokio::test]
    async fn what_an_answer_does_not_need_is_given_back() {
        let memory = AnswerMemory::new(16 * MIB);
        let mut permit = memory.take(2 * MIB).await;
        permit.resize(10);
        assert_eq!(memory.held_bytes(), UNIT_BYTES);
        permit.resize(3 * MIB);
        assert_eq!(memory.held_bytes(), 3 * MIB);
        permit.resize(64 * MIB);
        assert_eq!(memory.held_bytes(), 3 * MIB, "there is not so much");
        permit.resize(0);
        assert_eq!(memory.held_bytes(), 0);
        drop(permit);
        assert_eq!(memory.held_bytes(), 0);
    }

    #[tokio::test]
    async fn a_small_fetch_takes_little() {
        let memory = AnswerMemory::new(0);
        let permit = memory.take(0).await;
        assert_eq!(permit.bytes(), UNIT_BYTES);
        assert_eq!(memory.take(5 * MIB).await.bytes(), MIB);
    }
}
