//! What this broker knows of each partition: the newest state it has seen, a window of extents, and
//! who waits for news. A state is one tuple with a version, and an older version never replaces a
//! newer one, so that no client ever sees a watermark go back.

use floe_env::HashMap;
use floe_metadata::rows::{Extent, PartitionState, Place};
use kfs::{OffsetMode, TopicPartition};
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Extents that are remembered for one partition at most.
const WINDOW_EXTENTS_MAX: usize = 512;

/// All partitions that this broker has served.
#[derive(Default)]
pub(crate) struct Partitions {
    entries: RwLock<HashMap<TopicPartition, Arc<Mutex<Entry>>>>,
}

#[derive(Default)]
struct Entry {
    state: Option<PartitionState>,
    /// Extents without gaps between their offsets, oldest first.
    window: VecDeque<Arc<Extent>>,
    waiters: Vec<Weak<Notify>>,
}

/// Waits for news of some partitions: anything that happens after it was made wakes it.
#[derive(Debug)]
pub struct Waiter(Arc<Notify>);

impl Waiter {
    /// Waits until one of the partitions has news.
    pub async fn news(&self) {
        self.0.notified().await;
    }
}

impl Partitions {
    fn entry(&self, partition: TopicPartition) -> Arc<Mutex<Entry>> {
        if let Some(entry) = self.entries.read().get(&partition) {
            return entry.clone();
        }
        self.entries.write().entry(partition).or_default().clone()
    }

    /// The newest state seen, if any.
    pub(crate) fn state(&self, partition: TopicPartition) -> Option<PartitionState> {
        self.entries.read().get(&partition)?.lock().state
    }

    /// Takes a state in, and answers the newest that is known afterwards.
    pub(crate) fn observe(
        &self,
        partition: TopicPartition,
        state: PartitionState,
    ) -> PartitionState {
        let entry = self.entry(partition);
        let mut entry = entry.lock();
        match entry.state {
            Some(known) if known.version >= state.version => known,
            _ => {
                entry.state = Some(state);
                entry.wake();
                state
            }
        }
    }

    /// Takes in the state after a commit of this broker, or the end of a transaction, and the
    /// extents that it made.
    pub(crate) fn committed(
        &self,
        partition: TopicPartition,
        state: PartitionState,
        extents: Vec<Extent>,
    ) {
        let entry = self.entry(partition);
        let mut entry = entry.lock();
        for extent in extents {
            entry.push(Arc::new(extent));
        }
        if entry.state.is_none_or(|known| known.version < state.version) {
            entry.state = Some(state);
        }
        entry.wake();
    }

    /// Remembers a page of extents as the window, unless the window holds all of it already.
    pub(crate) fn remember(&self, partition: TopicPartition, page: &[Arc<Extent>]) {
        let Some(last) = page.last() else { return };
        let entry = self.entry(partition);
        let mut entry = entry.lock();
        if entry.find(last.last_offset).is_none() {
            entry.window.clear();
            page.iter().cloned().for_each(|extent| entry.push(extent));
        }
    }

    /// Remembered extents from the one that holds `offset`, `limit` at most. Empty if it is not
    /// remembered.
    pub(crate) fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Vec<Arc<Extent>> {
        let entry = self.entry(partition);
        let entry = entry.lock();
        let Some(first) = entry.find(offset) else { return Vec::new() };
        entry.window.iter().skip(first).take(limit).cloned().collect()
    }

    /// True where no transaction was aborted whose records may lie between these offsets, as far as
    /// is known here: from the first to the partition's end, `until`, everything that could be an
    /// abort's marker is remembered, and nothing is.
    pub(crate) fn has_no_aborts(&self, partition: TopicPartition, from: i64, until: i64) -> bool {
        let entry = self.entry(partition);
        let entry = entry.lock();
        let reaches_end = entry.window.back().is_some_and(|last| last.last_offset + 1 >= until);
        let Some(first) = entry.find(from).filter(|_| reaches_end) else { return false };
        entry.window.iter().skip(first).all(|extent| !may_abort(extent))
    }

    /// Forgets the extents of a partition: they have been replaced, or one of their objects is
    /// gone.
    pub(crate) fn forget_extents(&self, partition: TopicPartition) {
        self.entry(partition).lock().window.clear();
    }

    /// Forgets a partition that is gone, and wakes who waits for it.
    pub(crate) fn forget(&self, partition: TopicPartition) {
        if let Some(entry) = self.entries.write().remove(&partition) {
            entry.lock().wake();
        }
    }

    /// A waiter for news of these partitions. Make it before looking, so that nothing between is
    /// missed.
    pub(crate) fn waiter(&self, partitions: &[TopicPartition]) -> Waiter {
        let notify = Arc::new(Notify::new());
        for partition in partitions {
            let entry = self.entry(*partition);
            let mut entry = entry.lock();
            entry.waiters.retain(|waiter| waiter.strong_count() > 0);
            entry.waiters.push(Arc::downgrade(&notify));
        }
        Waiter(notify)
    }
}

impl Entry {
    fn wake(&mut self) {
        for waiter in self.waiters.drain(..) {
            if let Some(waiter) = waiter.upgrade() {
                waiter.notify_one();
            }
        }
    }

    fn push(&mut self, extent: Arc<Extent>) {
        if let Some(last) = self.window.back() {
            if extent.last_offset <= last.last_offset {
                return;
            }
            if last.last_offset + 1 != extent.base_offset {
                self.window.clear();
            }
        }
        self.window.push_back(extent);
        if self.window.len() > WINDOW_EXTENTS_MAX {
            self.window.pop_front();
        }
    }

    fn find(&self, offset: i64) -> Option<usize> {
        let index = self.window.partition_point(|extent| extent.last_offset < offset);
        let extent = self.window.get(index)?;
        (extent.base_offset <= offset).then_some(index)
    }
}

/// Whether an extent is an abort's marker, or may hold one: merged objects do.
fn may_abort(extent: &Extent) -> bool {
    match &extent.place {
        Place::Marker { commit, .. } => !commit,
        Place::Range { .. } => {
            extent.has_transactional && extent.offset_mode == OffsetMode::Absolute
        }
        Place::Hole => false,
    }
}

#[cfg(test)]
mod tests;
