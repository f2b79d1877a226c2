//! Memory of answers to Fetch: one budget for all connections, taken before anything is read and
//! given back when the client has taken the answer. Who finds no records takes none.
//!
//! Under pressure answers first become smaller: each takes at most a quarter of what is left. Where
//! less than [`ANSWER_BYTES_MIN`] is left, a fetch waits until others have been sent; it is
//! answered without records when its patience ends. So readers that do not take their answers hold
//! back new answers, and never the memory of the broker.
//!
//! A part is reserved for records that were just written. So readers that lag and are slow hold
//! back each other, and not those at the end of the log.

use crate::waiters::Waiters;
use floe_log::RecordsOrigin;
use std::sync::Arc;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The unit in which the memory is counted.
const UNIT_BYTES: usize = 4096;
/// No answer starts with less: about the largest batch that a topic takes by default.
const ANSWER_BYTES_MIN: usize = 1 << 20;
/// The part of what is left that one answer takes at most.
const SHARE_OF_REST: usize = 4;
/// The part of the budget that only answers of records take that were just written.
const RESERVED_PART: usize = 4;

/// The budget; cheap to clone.
#[derive(Clone)]
pub(crate) struct AnswerMemory {
    shared: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    units: usize,
    waiters: Waiters,
}

/// What one answer holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct AnswerPermit {
    permit: OwnedSemaphorePermit,
}

impl AnswerMemory {
    /// A budget of this many bytes, but of one of the smallest answers in each part at least.
    pub(crate) fn new(bytes: usize) -> Self {
        let units =
            (bytes.max(RESERVED_PART * ANSWER_BYTES_MIN) / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        let reserved = units / RESERVED_PART;
        let part = |units| Arc::new(Semaphore::new(units));
        let (shared, reserved) = (part(units - reserved), part(reserved));
        Self { shared, reserved, units, waiters: Waiters::default() }
    }

    /// Takes up to `bytes_max` for records of this origin, less under pressure; waits where too
    /// little is left. A fetch that is dropped while it waits takes nothing.
    pub(crate) async fn take(&self, bytes_max: usize, origin: RecordsOrigin) -> AnswerPermit {
        let parts = match origin {
            RecordsOrigin::JustWritten => &[&self.shared, &self.reserved][..],
            RecordsOrigin::Stored => &[&self.shared][..],
        };
        let left: usize = parts.iter().map(|part| part.available_permits()).sum();
        let least = bytes_max.clamp(1, ANSWER_BYTES_MIN).div_ceil(UNIT_BYTES);
        let most = bytes_max.div_ceil(UNIT_BYTES).min(left / SHARE_OF_REST).max(least);
        for units in [most, least] {
            for part in parts {
                if let Ok(permit) = (*part).clone().try_acquire_many_owned(wide(units)) {
                    return AnswerPermit { permit };
                }
            }
        }
        let _waiting = self.waiters.enter();
        let shared = self.shared.clone().acquire_many_owned(wide(least));
        let taken: Result<OwnedSemaphorePermit, AcquireError> = match origin {
            RecordsOrigin::Stored => shared.await,
            RecordsOrigin::JustWritten => tokio::select! {
                biased;
                permit = shared => permit,
                permit = self.reserved.clone().acquire_many_owned(wide(least)) => permit,
            },
        };
        AnswerPermit { permit: taken.expect("the budget is never closed") }
    }

    /// True while a fetch waits for what others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.waiters.any()
    }

    /// Bytes that answers hold now.
    pub(crate) fn held_bytes(&self) -> usize {
        let free = self.shared.available_permits() + self.reserved.available_permits();
        self.units.saturating_sub(free) * UNIT_BYTES
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
    use super::RecordsOrigin::{JustWritten, Stored};
    use super::*;
    use futures::FutureExt;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn answers_become_smaller_as_memory_runs_out_and_then_wait() {
        let memory = AnswerMemory::new(16 * MIB);
        let first = memory.take(50 * MIB, JustWritten).await;
        assert_eq!(first.bytes(), 4 * MIB);
        let second = memory.take(50 * MIB, JustWritten).await;
        assert_eq!(second.bytes(), 3 * MIB);
        let mut held = Vec::new();
        while let Some(permit) = memory.take(50 * MIB, JustWritten).now_or_never() {
            assert!(permit.bytes() >= MIB);
            held.push(permit);
        }
        assert!(memory.held_bytes() > 14 * MIB && memory.held_bytes() <= 16 * MIB);
        assert!(!memory.is_short(), "who has left does not wait");
        let mut waiting = Box::pin(memory.take(MIB, JustWritten));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(memory.is_short());
        drop(second);
        assert_eq!(waiting.await.bytes(), MIB);
        assert!(!memory.is_short());
    }

    #[tokio::test]
    async fn readers_that_lag_leave_a_part_to_those_at_the_end() {
        let memory = AnswerMemory::new(16 * MIB);
        let mut lagging = Vec::new();
        while let Some(permit) = memory.take(50 * MIB, Stored).now_or_never() {
            lagging.push(permit);
        }
        assert!(memory.held_bytes() <= 12 * MIB);
        let tail = memory.take(MIB, JustWritten).now_or_never().expect("the reserved part");
        assert_eq!(tail.bytes(), MIB);
        // Both wait for what comes back first, wherever that is.
        let _rest: Vec<_> =
            std::iter::from_fn(|| memory.take(MIB, JustWritten).now_or_never()).collect();
        let mut waiting = [Stored, JustWritten].map(|origin| Box::pin(memory.take(MIB, origin)));
        for take in &mut waiting {
            assert!(take.as_mut().now_or_never().is_none());
        }
        drop(tail);
        assert!(waiting[0].as_mut().now_or_never().is_none());
        assert!(waiting[1].as_mut().now_or_never().is_some());
        drop(lagging);
        assert!(waiting[0].as_mut().now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_an_answer_does_not_need_is_given_back() {
        let memory = AnswerMemory::new(16 * MIB);
        let mut permit = memory.take(2 * MIB, Stored).await;
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
        let permit = memory.take(0, JustWritten).await;
        assert_eq!(permit.bytes(), UNIT_BYTES);
        assert_eq!(memory.take(5 * MIB, JustWritten).await.bytes(), MIB);
    }
}
