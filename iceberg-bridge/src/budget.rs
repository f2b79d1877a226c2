//! How many commits are made at the same time, over all tables: some that looks wait for, and fewer
//! that nobody waits for. A turn that waits among the latter goes over to the former when somebody
//! looks at its table.

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Commits that nobody waits for.
pub(crate) const BACKGROUND_COMMITS_MAX: usize = 2;
/// Commits that looks wait for: a budget of their own.
const LOOK_COMMITS_MAX: usize = 4;
/// How many of these are flushes'. No more of them wait either: one flush may be of a thousand
/// tables, and looks come in their turn.
const FLUSH_COMMITS_MAX: usize = 2;

/// The permits. Each is held for one commit, never for a whole backfill.
#[derive(Debug)]
pub(crate) struct CommitBudget {
    background: Semaphore,
    looks: Semaphore,
    flushes: Semaphore,
}

/// Leave to make one commit.
#[derive(Debug)]
pub(crate) struct CommitPermit<'a> {
    _commit: SemaphorePermit<'a>,
    _flush: Option<SemaphorePermit<'a>>,
}

impl CommitBudget {
    pub(crate) fn new() -> Self {
        Self {
            background: Semaphore::new(BACKGROUND_COMMITS_MAX),
            looks: Semaphore::new(LOOK_COMMITS_MAX),
            flushes: Semaphore::new(FLUSH_COMMITS_MAX),
        }
    }

    /// Waits until a turn may begin.
    pub(crate) async fn first(&self, is_look: &mut watch::Receiver<bool>) -> CommitPermit<'_> {
        tokio::select! {
            biased;
            true = becomes_look(is_look) => acquire(&self.looks).await,
            permit = acquire(&self.background) => permit,
        }
    }

    /// Waits until a commit of a flush may be made.
    pub(crate) async fn flush(&self) -> CommitPermit<'_> {
        let flush = self.flushes.acquire().await.expect("the budget is never closed");
        CommitPermit { _flush: Some(flush), ..acquire(&self.looks).await }
    }

    /// Waits until a turn that has more to commit than one commit takes may go on.
    pub(crate) async fn rest(&self) -> CommitPermit<'_> {
        acquire(&self.background).await
    }
}

/// Waits until somebody looks; false if nobody can any more.
pub(crate) async fn becomes_look(is_look: &mut watch::Receiver<bool>) -> bool {
    is_look.wait_for(|is_look| *is_look).await.is_ok()
}

async fn acquire(budget: &Semaphore) -> CommitPermit<'_> {
    let commit = budget.acquire().await.expect("the budget is never closed");
    CommitPermit { _commit: commit, _flush: None }
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
    #[test]
    fn a_look_waits_for_no_more_than_the_commits_of_a_flush_that_run() {
        let budget = CommitBudget::new();
        let mut flushing: Vec<_> = (0..1000).map(|_| Box::pin(budget.flush())).collect();
        let mut running: Vec<_> =
            flushing.iter_mut().filter_map(|flush| flush.as_mut().now_or_never()).collect();
        assert_eq!(running.len(), FLUSH_COMMITS_MAX);
        let looked = watch::Sender::new(true);
        let mut looks = Vec::new();
        for _ in 0..LOOK_COMMITS_MAX {
            let mut is_look = looked.subscribe();
            looks.extend(budget.first(&mut is_look).now_or_never());
        }
        assert_eq!(looks.len(), LOOK_COMMITS_MAX - FLUSH_COMMITS_MAX, "beside the flushes");
        let mut is_look = looked.subscribe();
        let mut late = Box::pin(budget.first(&mut is_look));
        assert!(late.as_mut().now_or_never().is_none());
        running.pop();
        assert!(late.now_or_never().is_some(), "before the rest of the flush");
    }
}
