//! Offsets that a transaction wants to commit.

use super::KnownTransaction;
use crate::facts::{Check, FactKey, Write};
use crate::groups::{CommittedOffset, offset_key};
use crate::store::{MetadataStore, from_json, put_json, unchanged};
use bytes::Bytes;
use floe_env::Result;
use kfs::{PartitionIndex, TopicId, TopicPartition};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// An offset that waits for the end of its transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOffset {
    topic: Uuid,
    partition: i32,
    /// What is committed if the transaction is.
    pub offset: CommittedOffset,
    /// What was committed when this was written: whoever committed since then wins.
    before: Option<CommittedOffset>,
}

impl PendingOffset {
    /// The partition.
    pub fn partition(&self) -> TopicPartition {
        TopicPartition { topic: TopicId(self.topic), partition: PartitionIndex(self.partition) }
    }

    /// Whether it takes the place of what is committed now.
    fn wins_over(&self, now: Option<&CommittedOffset>) -> bool {
        now == self.before.as_ref()
            || now.is_none_or(|committed| committed.commit_ms < self.offset.commit_ms)
    }
}

pub(super) fn pending_key(group: &str, transactional_id: &str) -> FactKey {
    FactKey::new(&["pending-offsets", group, transactional_id])
}

fn decode(key: &FactKey, value: Option<&Bytes>) -> Result<Vec<PendingOffset>> {
    value.map_or_else(|| Ok(Vec::new()), |value| from_json(key, value))
}

/// Checks and writes that belong into one change.
#[derive(Default)]
pub(super) struct Part {
    pub(super) checks: Vec<Check>,
    pub(super) writes: Vec<Write>,
}

impl MetadataStore {
    /// All offsets of a group that wait for the end of a transaction.
    pub async fn pending_offsets(&self, group: &str) -> Result<Vec<PendingOffset>> {
        let folder = FactKey::new(&["pending-offsets", group]).folder();
        let mut pending = Vec::new();
        for (key, value) in self.scan_all(folder).await? {
            pending.extend(decode(&key, Some(&value))?);
        }
        Ok(pending)
    }

    /// What adds offsets to those that wait for this transaction.
    pub(super) async fn add_pending(
        &self,
        transactional_id: &str,
        group: &str,
        offsets: &[(TopicPartition, CommittedOffset)],
    ) -> Result<Part> {
        let key = pending_key(group, transactional_id);
        let mut keys = vec![key.clone()];
        keys.extend(offsets.iter().map(|(partition, _)| offset_key(group, *partition)));
        let values = self.backend().get(&keys).await?;
        let mut values = values.into_iter();
        let stored = values.next().flatten();
        let known = decode(&key, stored.as_ref())?;
        let mut pending: BTreeMap<TopicPartition, PendingOffset> =
            known.into_iter().map(|one| (one.partition(), one)).collect();
        let mut part = Part::default();
        part.checks.push(unchanged(key.clone(), stored));
        for ((key, value), (partition, offset)) in keys[1..].iter().zip(values).zip(offsets) {
            let before = value.as_ref().map(|value| from_json(key, value)).transpose()?;
            part.checks.push(unchanged(key.clone(), value));
            let one = PendingOffset {
                topic: partition.topic.0,
                partition: partition.partition.0,
                offset: offset.clone(),
                before,
            };
            pending.insert(*partition, one);
        }
        let pending: Vec<PendingOffset> = pending.into_values().collect();
        part.writes.push(put_json(key, &pending));
        Ok(part)
    }

    /// What takes offsets of a group out of those that wait for an end, whose deletion they do not
    /// outlive: these partitions' ones, or all.
    pub(crate) async fn drop_pending(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<(Vec<Check>, Vec<Write>)> {
        let (mut checks, mut writes) = (Vec::new(), Vec::new());
        let folder = FactKey::new(&["pending-offsets", group]).folder();
        for (key, value) in self.scan_all(folder).await? {
            let mut pending = decode(&key, Some(&value))?;
            let before = pending.len();
            let is_dropped = |one: &PendingOffset| {
                partitions.is_none_or(|partitions| partitions.contains(&one.partition()))
            };
            pending.retain(|one| !is_dropped(one));
            if pending.len() == before {
                continue;
            }
            checks.push(unchanged(key.clone(), Some(value)));
            writes.push(match pending.is_empty() {
                true => Write::Delete(key),
                false => put_json(key, &pending),
            });
        }
        Ok((checks, writes))
    }

    /// What makes an end of the offsets that wait for this transaction.
    pub(super) async fn settle_pending(
        &self,
        transaction: &KnownTransaction,
        commit: bool,
    ) -> Result<Part> {
        let mut part = Part::default();
        let groups: Vec<&String> = transaction.row.groups.iter().collect();
        let keys = groups.iter().map(|group| pending_key(group, &transaction.id));
        let keys: Vec<FactKey> = keys.collect();
        let values = self.backend().get(&keys).await?;
        for ((group, key), stored) in groups.into_iter().zip(keys).zip(values) {
            let pending = decode(&key, stored.as_ref())?;
            part.checks.push(unchanged(key.clone(), stored.clone()));
            if stored.is_none() {
                continue;
            }
            part.writes.push(Write::Delete(key));
            if commit {
                self.commit_pending(group, &pending, &mut part).await?;
            }
        }
        Ok(part)
    }

    async fn commit_pending(
        &self,
        group: &str,
        pending: &[PendingOffset],
        part: &mut Part,
    ) -> Result<()> {
        let keys: Vec<FactKey> =
            pending.iter().map(|one| offset_key(group, one.partition())).collect();
        let committed = self.backend().get(&keys).await?;
        for ((one, key), stored) in pending.iter().zip(keys).zip(committed) {
            let now: Option<CommittedOffset> =
                stored.as_ref().map(|value| from_json(&key, value)).transpose()?;
            part.checks.push(unchanged(key.clone(), stored));
            if one.wins_over(now.as_ref()) {
                part.writes.push(put_json(key, &one.offset));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(offset: i64, commit_ms: i64) -> CommittedOffset {
        let metadata = String::new();
        CommittedOffset { offset, leader_epoch: -1, metadata, commit_ms, expires_ms: None }
    }

    #[test]
    fn whoever_committed_later_wins() {
        let before = Some(committed(1, 100));
        let pending = |commit_ms| PendingOffset {
            topic: Uuid::nil(),
            partition: 0,
            offset: committed(5, commit_ms),
            before: before.clone(),
        };
        assert!(pending(100).wins_over(before.as_ref()), "nobody has committed since");
        assert!(pending(100).wins_over(None), "it was deleted since");
        assert!(!pending(100).wins_over(Some(&committed(9, 100))), "since, in the same ms");
        assert!(!pending(100).wins_over(Some(&committed(9, 101))));
        assert!(pending(102).wins_over(Some(&committed(9, 101))), "another transaction's, older");
    }
}
