//! The topics that there are, as groups need them.

use std::collections::BTreeMap;
use uuid::Uuid;

/// All topics at one moment, by name and by id.
#[derive(Debug, Clone, Default)]
pub struct TopicDirectory {
    revision: u64,
    by_name: BTreeMap<String, (Uuid, i32)>,
    names: BTreeMap<Uuid, String>,
    partitions: i64,
}

impl TopicDirectory {
    /// - `revision`: another number whenever anything in the directory is another.
    /// - `topics`: name, id, number of partitions.
    pub fn new(revision: u64, topics: impl IntoIterator<Item = (String, Uuid, i32)>) -> Self {
        let mut directory = Self { revision, ..Self::default() };
        for (name, id, partitions) in topics {
            directory.partitions = directory.partitions.saturating_add(i64::from(partitions));
            directory.names.insert(id, name.clone());
            directory.by_name.insert(name, (id, partitions));
        }
        directory
    }

    /// The name of a topic.
    pub fn name(&self, id: Uuid) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of partitions of all topics.
    pub(super) fn partitions(&self) -> i64 {
        self.partitions
    }

    /// Id and number of partitions.
    pub(super) fn find(&self, name: &str) -> Option<(Uuid, i32)> {
        self.by_name.get(name).copied()
    }

    /// Name, id, number of partitions of each topic.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Uuid, i32)> {
        self.by_name.iter().map(|(name, (id, partitions))| (name.as_str(), *id, *partitions))
    }
}
