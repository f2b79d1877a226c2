//! Compacted topics, of which the newest record of each key is kept:
//!
//! * Whoever reads such a log from its start finds the newest acknowledged value of each key, or a
//!   newer one; where a key was deleted, no older value comes back. A tombstone whose answer was
//!   lost may have deleted its key.
//! * What stands at an offset is what was written there, with its key.
//! * When nobody writes any more, each key stands once within a stated time, and no tombstone is
//!   left.

use super::{Model, RecordName, State};
use kfs::TopicPartition;
use std::collections::{BTreeMap, BTreeSet};

/// A record of such a topic: its key, and its name or none in a tombstone.
pub type Keyed = (String, Option<RecordName>);

/// What is known of a partition.
#[derive(Default)]
pub(crate) struct Keeping {
    /// Acknowledged records, and others that were read, by offset.
    known: BTreeMap<i64, Keyed>,
    /// The newest acknowledged record of each key.
    newest: Newest,
    /// Keys of tombstones of which nobody knows whether they were written: they may still be,
    /// late.
    perhaps_deleted: BTreeSet<String>,
}

/// The offset of each key's newest acknowledged record, and whether it has a value.
pub type Newest = BTreeMap<String, (i64, bool)>;

impl Model {
    /// From now on compaction may take records of this partition.
    pub fn keeps_newest(&self, partition: TopicPartition) {
        self.with(|state| state.keeping.insert(partition, Keeping::default()));
    }

    /// These records are acknowledged from `base_offset` on.
    pub fn keyed(&self, partition: TopicPartition, base_offset: i64, records: &[Keyed]) {
        self.with(|state| {
            for (offset, record) in (base_offset..).zip(records) {
                state.check_keyed(partition, offset, record);
                let Some(keeping) = state.keeping.get_mut(&partition) else { return };
                let newest = (offset, record.1.is_some());
                let entry = keeping.newest.entry(record.0.clone()).or_insert(newest);
                *entry = newest.max(*entry);
            }
        });
    }

    /// Nobody knows whether these records were written.
    pub fn may_be_written(&self, partition: TopicPartition, records: &[Keyed]) {
        self.with(|state| {
            let Some(keeping) = state.keeping.get_mut(&partition) else { return };
            let tombstones = records.iter().filter(|(_, name)| name.is_none());
            keeping.perhaps_deleted.extend(tombstones.map(|(key, _)| key.clone()));
        });
    }

    /// What a reader that begins now must find.
    pub fn newest(&self, partition: TopicPartition) -> Newest {
        self.with(|state| {
            let keeping = state.keeping.get(&partition);
            keeping.map(|keeping| keeping.newest.clone()).unwrap_or_default()
        })
    }

    /// All partitions of compacted topics.
    pub fn kept_partitions(&self) -> Vec<TopicPartition> {
        self.with(|state| state.keeping.keys().copied().collect())
    }

    /// The whole log was read by somebody who began when this was the newest.
    pub fn check_keys(&self, partition: TopicPartition, newest: &Newest, read: &[(i64, Keyed)]) {
        self.with(|state| {
            let mut last: BTreeMap<&str, i64> = BTreeMap::new();
            for (offset, record) in read {
                state.check_keyed(partition, *offset, record);
                last.insert(&record.0, *offset);
            }
            if read.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
                state.violation(format!("{partition}: offsets out of order"));
            }
            for (key, (offset, has_value)) in newest {
                let found = last.get(key.as_str()).copied();
                let keeping = state.keeping.get(&partition);
                let may_be_gone = !has_value
                    || keeping.is_some_and(|keeping| keeping.perhaps_deleted.contains(key));
                if found.map_or(!may_be_gone, |found| found < *offset) {
                    state.violation(format!(
                        "{partition}: of {key} the newest is at {offset}, but {found:?} is read"
                    ));
                }
            }
        });
    }

    /// The log as compaction has left it when it had its time.
    pub fn check_compacted(&self, partition: TopicPartition, read: &[(i64, Keyed)]) {
        self.with(|state| {
            let mut seen: BTreeMap<&str, i64> = BTreeMap::new();
            for (offset, (key, name)) in read {
                if let Some(before) = seen.insert(key, *offset) {
                    state.violation(format!("{partition}: {key} stands at {before} and {offset}"));
                }
                if name.is_none() {
                    state.violation(format!("{partition} {offset}: a tombstone of {key} stays"));
                }
            }
            let keeping = state.keeping.get(&partition);
            let known = keeping.map_or(0, |keeping| keeping.known.len());
            state.counts.compacted += known.saturating_sub(read.len()) as u64;
        });
    }
}

impl State {
    /// A record that was acknowledged or read: it never is another one.
    fn check_keyed(&mut self, partition: TopicPartition, offset: i64, record: &Keyed) {
        let Some(keeping) = self.keeping.get_mut(&partition) else { return };
        let before = keeping.known.insert(offset, record.clone());
        if before.as_ref().is_some_and(|before| before != record) {
            self.violation(format!("{partition} {offset}: was {before:?}, is {record:?}"));
        }
    }
}
