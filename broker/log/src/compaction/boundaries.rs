//! What merging must know of compaction: it leaves the partition alone over which a pass is going,
//! joins nothing clean to what is dirty, for that would make it all dirty, and looks again at what
//! a pass has left.

use kfs::{TopicId, TopicPartition};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Where compaction is and has been.
#[derive(Debug, Default)]
pub(crate) struct Boundaries(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    passing: Option<TopicPartition>,
    clean_until: BTreeMap<TopicPartition, i64>,
    rewritten: BTreeSet<TopicPartition>,
    compacted: BTreeSet<TopicId>,
}

/// A pass is going over a partition until this is dropped.
pub(crate) struct Passing<'a>(&'a Boundaries);

impl Boundaries {
    /// A pass begins.
    pub(crate) fn pass(&self, partition: TopicPartition) -> Passing<'_> {
        let mut inner = self.0.lock();
        inner.passing = Some(partition);
        inner.rewritten.insert(partition);
        Passing(self)
    }

    /// True while a pass is going over the partition.
    pub(crate) fn is_passing(&self, partition: TopicPartition) -> bool {
        self.0.lock().passing == Some(partition)
    }

    /// Says which topics are compacted.
    pub(crate) fn set_compacted(&self, topics: BTreeSet<TopicId>) {
        self.0.lock().compacted = topics;
    }

    /// True for a topic that is compacted: what compaction takes out of it must not stay in an
    /// object because other partitions have records there.
    pub(crate) fn is_compacted(&self, topic: TopicId) -> bool {
        self.0.lock().compacted.contains(&topic)
    }

    /// Says where the dirty part of a partition begins; `None` forgets it.
    pub(crate) fn set(&self, partition: TopicPartition, clean_until: Option<i64>) {
        let mut inner = self.0.lock();
        match clean_until {
            Some(offset) => drop(inner.clean_until.insert(partition, offset)),
            None => {
                inner.clean_until.remove(&partition);
                inner.rewritten.remove(&partition);
            }
        }
    }

    /// Where the dirty part of a partition begins, if it is compacted at all.
    pub(crate) fn clean_until(&self, partition: TopicPartition) -> Option<i64> {
        self.0.lock().clean_until.get(&partition).copied()
    }

    /// True once for each partition that a pass has gone over.
    pub(crate) fn take_rewritten(&self, partition: TopicPartition) -> bool {
        self.0.lock().rewritten.remove(&partition)
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.0.0.lock().passing = None;
    }
}
