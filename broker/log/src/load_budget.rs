//! Memory of what is being read from the store. It counts with the cache's other memory, and is
//! bounded on its own: whoever waits for an extent waits for its turn too, and what is read ahead
//! takes what is free or nothing.

use crate::blocks::{BlockMemory, Reserved};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which the budget is counted.
const UNIT_BYTES: u64 = 4096;

/// The budget; cheap to clone.
#[derive(Clone)]
pub(crate) struct LoadBudget {
    free: Arc<Semaphore>,
    units: u32,
    memory: BlockMemory,
}

/// What one read holds, until it is dropped.
pub(crate) struct Loading {
    _permit: OwnedSemaphorePermit,
    _reserved: Reserved,
}

impl LoadBudget {
    /// A budget of this many bytes, which are counted in `memory` while they are used.
    pub(crate) fn new(bytes: u64, memory: BlockMemory) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        let units = units.clamp(1, u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self { free: Arc::new(Semaphore::new(units as usize)), units, memory }
    }

    /// Waits for its turn. What is larger than the budget waits for all of it.
    pub(crate) fn take(&self, bytes: u64) -> impl Future<Output = Loading> + Send + use<> {
        let (budget, units) = (self.clone(), self.units(bytes));
        async move {
            let permit = budget.free.clone().acquire_many_owned(units).await;
            budget.loading(permit.expect("the budget is never closed"), bytes)
        }
    }

    /// Takes what is free, or nothing.
    pub(crate) fn try_take(&self, bytes: u64) -> Option<Loading> {
        let permit = self.free.clone().try_acquire_many_owned(self.units(bytes)).ok()?;
        Some(self.loading(permit, bytes))
    }

    fn loading(&self, permit: OwnedSemaphorePermit, bytes: u64) -> Loading {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Loading { _permit: permit, _reserved: self.memory.reserve(bytes) }
    }

    fn units(&self, bytes: u64) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        units.clamp(1, self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn reads_wait_for_their_turn_and_what_is_ahead_does_not() {
        let memory = BlockMemory::default();
        let budget = LoadBudget::new(8 * 4096, memory.clone());
        let first = budget.take(5 * 4096).await;
        assert_eq!(memory.bytes(), 5 * 4096);
        assert!(budget.try_take(4 * 4096).is_none());
        let ahead = budget.try_take(3 * 4096).expect("it is free");
        let mut large = Box::pin(budget.take(100 * 4096));
        assert!(large.as_mut().now_or_never().is_none());
        drop((first, ahead));
        let large = large.await;
        assert_eq!(memory.bytes(), 100 * 4096);
        assert!(budget.try_take(1).is_none(), "it has all of the budget");
        drop(large);
        assert_eq!(memory.bytes(), 0);
    }
}
