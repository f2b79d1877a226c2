//! Memory of requests: one budget for all connections. A frame takes what it announces before its
//! body is read, and gives it back when its request is answered.
//!
//! Who announces much and sends little holds what others wait for. So a part is reserved for small
//! frames, which most requests are, and a connection whose frame comes too slowly is closed while
//! others wait ([`FrameMemory::is_short`]).

use crate::waiters::Waiters;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which the memory is counted.
const UNIT_BYTES: usize = 1024;
/// Frames of up to this size find room in the reserved part too.
const SMALL_FRAME_BYTES_MAX: usize = 64 << 10;
/// The part of the budget that only small frames take.
const RESERVED_PART: usize = 4;

/// The budget; cheap to clone.
#[derive(Clone)]
pub(crate) struct FrameMemory {
    shared: Part,
    reserved: Part,
    waiters: Waiters,
}

/// So many bytes for frames: all that one connection has, or a part of the budget.
#[derive(Clone)]
pub(crate) struct Part {
    free: Arc<Semaphore>,
    units: usize,
}

impl Part {
    pub(crate) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(units)), units }
    }

    /// What is larger than the whole part takes all of it.
    fn wanted(&self, bytes: usize) -> u32 {
        let units = bytes.div_ceil(UNIT_BYTES).clamp(1, self.units);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Waits until there is room for a frame of so many bytes.
    pub(crate) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let taken = self.free.clone().acquire_many_owned(self.wanted(bytes)).await;
        taken.expect("the budget is never closed")
    }

    fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_many_owned(self.wanted(bytes)).ok()
    }

    /// Bytes that are taken of it now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.units.saturating_sub(self.free.available_permits()) * UNIT_BYTES
    }
}

impl FrameMemory {
    /// A budget of this many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let reserved = bytes / RESERVED_PART;
        let (shared, reserved) = (Part::new(bytes - reserved), Part::new(reserved));
        Self { shared, reserved, waiters: Waiters::default() }
    }

    /// Takes memory for a frame of so many bytes; waits where too little is left.
    pub(crate) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let is_small = bytes <= SMALL_FRAME_BYTES_MAX;
        let parts = [&self.shared, &self.reserved];
        let open_parts = if is_small { &parts[..] } else { &parts[..1] };
        if let Some(taken) = open_parts.iter().find_map(|part| part.try_take(bytes)) {
            return taken;
        }
        let _waiting = self.waiters.enter();
        if !is_small {
            return self.shared.take(bytes).await;
        }
        tokio::select! {
            biased;
            taken = self.shared.take(bytes) => taken,
            taken = self.reserved.take(bytes) => taken,
        }
    }

    /// True while a frame waits for what others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.waiters.any()
    }

    /// Bytes that requests hold now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.shared.held_bytes() + self.reserved.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn small_frames_find_room_beside_large_ones() {
        let memory = FrameMemory::new(4 * MIB);
        let large = memory.take(100 * MIB).await;
        assert_eq!(memory.held_bytes(), 3 * MIB);
        let small: Vec<_> =
            (0..16).map(|_| memory.take(SMALL_FRAME_BYTES_MAX).now_or_never()).collect();
        assert!(small.iter().all(Option::is_some));
        assert!(!memory.is_short());
        assert_eq!(memory.held_bytes(), 4 * MIB);
        let mut late = Box::pin(memory.take(1));
        assert!((&mut late).now_or_never().is_none() && memory.is_short());
        drop(small);
        drop(late.await);
        assert!(!memory.is_short());
        drop(large);
        assert_eq!(memory.held_bytes(), 0);
    }

    #[tokio::test]
    async fn whoever_stops_waiting_waits_no_more_and_holds_nothing() {
        let memory = FrameMemory::new(4 * MIB);
        let large = memory.take(3 * MIB).await;
        let mut waiting = Box::pin(memory.take(MIB));
        assert!((&mut waiting).now_or_never().is_none() && memory.is_short());
        drop(waiting);
        assert!(!memory.is_short());
        drop(large);
        assert!(memory.take(3 * MIB).now_or_never().is_some());
    }
}
