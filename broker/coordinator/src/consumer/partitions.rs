//! Sets of partitions, by topic id.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Partition indexes by topic id; no topic without any.
pub type Partitions = BTreeMap<Uuid, BTreeSet<i32>>;

/// Partitions that a member holds, each with the member epoch at which it came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Held(BTreeMap<Uuid, BTreeMap<i32, i32>>);

impl Held {
    pub(super) fn insert(&mut self, topic: Uuid, partition: i32, epoch: i32) {
        self.0.entry(topic).or_default().insert(partition, epoch);
    }

    /// The epoch at which a partition came; `None` if it is not held.
    pub(super) fn epoch_of(&self, topic: Uuid, partition: i32) -> Option<i32> {
        self.0.get(&topic)?.get(&partition).copied()
    }

    /// Topic, partition, epoch.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Uuid, i32, i32)> + '_ {
        let topics = self.0.iter();
        topics.flat_map(|(topic, held)| held.iter().map(|(index, epoch)| (*topic, *index, *epoch)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Without the epochs.
    pub(super) fn partitions(&self) -> Partitions {
        let topics = self.0.iter();
        topics.map(|(topic, held)| (*topic, held.keys().copied().collect())).collect()
    }

    /// Whether all of the partitions are held.
    pub(super) fn contains_all(&self, partitions: &Partitions) -> bool {
        pairs(partitions).all(|(topic, index)| self.epoch_of(topic, index).is_some())
    }

    /// Whether any of the partitions is held.
    pub(super) fn contains_any(&self, partitions: &Partitions) -> bool {
        pairs(partitions).any(|(topic, index)| self.epoch_of(topic, index).is_some())
    }
}

/// Topic and partition index, one after the other.
pub(super) fn pairs(partitions: &Partitions) -> impl Iterator<Item = (Uuid, i32)> + '_ {
    partitions.iter().flat_map(|(topic, indexes)| indexes.iter().map(|index| (*topic, *index)))
}

/// Whether the partition is among them.
pub(super) fn contains(partitions: &Partitions, topic: Uuid, index: i32) -> bool {
    partitions.get(&topic).is_some_and(|indexes| indexes.contains(&index))
}
