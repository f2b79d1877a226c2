//! How many commits are made at the same time, over all tables: some that looks wait for, and fewer
//! that nobody waits for. A turn that waits among the latter goes over to the former when somebody
//! looks at its table.

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Commits that nobody waits for.
pub(crate) const BACKGROUND_COMMITS_MAX: usize = 2;
/// Commits that looks wait for: a budget of their own.
const LOOK_COMMITS_MAX: usize = 4;

/// The permits. Each is held for one commit, never for a whole backfill.
#[derive(Debug)]
pub(crate) struct CommitBudget {
    background: Semaphore,
    looks: Semaphore,
}

impl CommitBudget {
    pub(crate) fn new() -> Self {
        Self {
            background: Semaphore::new(BACKGROUND_COMMITS_MAX),
            looks: Semaphore::new(LOOK_COMMITS_MAX),
        }
    }

    /// Waits until a turn may begin.
    pub(crate) async fn first(&self, is_look: &mut watch::Receiver<bool>) -> SemaphorePermit<'_> {
        tokio::select! {
            biased;
            true = becomes_look(is_look) => acquire(&self.looks).await,
            permit = acquire(&self.background) => permit,
        }
    }

    /// Waits until a commit that somebody waits for may be made.
    pub(crate) async fn look(&self) -> SemaphorePermit<'_> {
        acquire(&self.looks).await
    }

    /// Waits until a turn that has more to commit than one commit takes may go on.
    pub(crate) async fn rest(&self) -> SemaphorePermit<'_> {
        acquire(&self.background).await
    }
}

/// Waits until somebody looks; false if nobody can any more.
pub(crate) async fn becomes_look(is_look: &mut watch::Receiver<bool>) -> bool {
    is_look.wait_for(|is_look| *is_look).await.is_ok()
}

async fn acquire(budget: &Semaphore) -> SemaphorePermit<'_> {
    budget.acquire().await.expect("the budget is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_turn_that_waits_in_the_background_goes_over_to_the_looks() {
        let budget = CommitBudget::new();
        let background: Vec<_> = (0..BACKGROUND_COMMITS_MAX)
            .map(|_| budget.rest().now_or_never().expect("there are as many"))
            .collect();
        let looked = watch::Sender::new(false);
        let mut is_look = looked.subscribe();
        let mut waiting = Box::pin(budget.first(&mut is_look));
        assert!(waiting.as_mut().now_or_never().is_none(), "others are at it");
        looked.send_replace(true);
        assert!(waiting.now_or_never().is_some());
        // Looks wait for each other only.
        let mut is_look = looked.subscribe();
        let looks: Vec<_> = (0..LOOK_COMMITS_MAX)
            .map(|_| {
                let mut is_look = looked.subscribe();
                budget.first(&mut is_look).now_or_never().expect("there are as many")
            })
            .collect();
        drop(background);
        assert!(budget.first(&mut is_look).now_or_never().is_none());
        drop(looks);
        assert!(budget.first(&mut is_look).now_or_never().is_some());
    }
}
