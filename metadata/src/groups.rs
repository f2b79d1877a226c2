//! Consumer groups: one opaque record per group, changed by compare-and-set, and committed offsets,
//! one fact per (group, topic id, partition), so that a commit touches only what it names.

use crate::facts::{Change, ChangeOutcome, Check, FactKey, Write};
use crate::store::{MetadataStore, from_json, put_json, topic_segment, unchanged};
use bytes::Bytes;
use floe_env::{Error, Result};
use kfs::{PartitionIndex, TopicPartition};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedOffset {
    /// The next offset that the group reads.
    pub offset: i64,
    /// Leader epoch of the last record read; -1 where unknown.
    pub leader_epoch: i32,
    /// The client's own note.
    pub metadata: String,
    /// When it was committed, ms.
    pub commit_ms: i64,
    /// When it expires whatever the cluster's retention is, ms: old clients can say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
}

fn group_key(group: &str) -> FactKey {
    FactKey::new(&["groups", group])
}

pub(crate) fn offset_key(group: &str, partition: TopicPartition) -> FactKey {
    // Zeros keep partitions in order.
    let index = format!("{:010}", partition.partition.0);
    FactKey::new(&["offsets", group, &partition.topic.to_string(), &index])
}

fn partition_of(key: &FactKey) -> Result<TopicPartition> {
    let topic = topic_segment(key, 2)?;
    let index = key.segments().pop().and_then(|index| index.parse().ok());
    let index =
        index.ok_or_else(|| Error::corrupt(format!("fact {} names no partition", key.as_str())))?;
    Ok(TopicPartition { topic, partition: PartitionIndex(index) })
}

/// A check that a group's record is still what was read; fences an offset commit.
pub fn group_check(group: &str, expected: Option<Bytes>) -> Check {
    unchanged(group_key(group), expected)
}

impl MetadataStore {
    /// A group's record, as its coordinator encoded it.
    pub async fn group(&self, group: &str) -> Result<Option<Bytes>> {
        self.fact(&group_key(group)).await
    }

    /// Replaces a group's record if it is still `expected`.
    pub async fn put_group(
        &self,
        group: &str,
        expected: Option<Bytes>,
        record: Bytes,
    ) -> Result<ChangeOutcome> {
        let change = Change {
            checks: vec![group_check(group, expected)],
            writes: vec![Write::Put(group_key(group), record)],
            ..Change::default()
        };
        self.change(&change).await
    }

    /// All groups that have a record, by id, with it.
    pub async fn groups(&self) -> Result<Vec<(String, Bytes)>> {
        let facts = self.scan_all(FactKey::new(&["groups"]).folder()).await?;
        let named = facts.into_iter().map(|(key, value)| {
            let group = key.segments().pop().unwrap_or_default();
            (group, value)
        });
        Ok(named.collect())
    }

    /// Some groups with a record, by id, that come after `after` in the order of the store, with
    /// their records; none is left once fewer than `limit` come.
    pub async fn groups_after(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>> {
        let mut rest = FactKey::new(&["groups"]).folder();
        if let Some(after) = after {
            // The smallest key above the last one.
            rest.from = format!("{}\u{0}", group_key(after).as_str());
        }
        let facts = self.backend().scan(&rest, limit).await?;
        let named = facts.into_iter();
        Ok(named.map(|(key, value)| (key.segments().pop().unwrap_or_default(), value)).collect())
    }

    /// Removes a group with its committed offsets, if its record is still `expected`.
    pub async fn delete_group(
        &self,
        group: &str,
        expected: Option<Bytes>,
    ) -> Result<ChangeOutcome> {
        let offsets = self.scan_all(FactKey::new(&["offsets", group]).folder()).await?;
        let (mut checks, mut writes) = self.drop_pending(group, None).await?;
        writes.push(Write::Delete(group_key(group)));
        writes.extend(offsets.into_iter().map(|(key, _)| Write::Delete(key)));
        checks.push(group_check(group, expected));
        self.change(&Change { checks, writes, ..Change::default() }).await
    }

    /// Commits offsets together; a partition occurs once at most. `Rejected` if a check fails.
    pub async fn commit_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, CommittedOffset)],
        checks: impl IntoIterator<Item = Check> + Send,
    ) -> Result<ChangeOutcome> {
        let puts = offsets.iter();
        let puts = puts.map(|(partition, offset)| put_json(offset_key(group, *partition), offset));
        let change = Change {
            checks: checks.into_iter().collect(),
            writes: puts.collect(),
            ..Change::default()
        };
        self.change(&change).await
    }

    /// All committed offsets of a group.
    pub async fn offsets(&self, group: &str) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        let facts = self.scan_all(FactKey::new(&["offsets", group]).folder()).await?;
        let mut offsets = BTreeMap::new();
        for (key, value) in facts {
            offsets.insert(partition_of(&key)?, from_json(&key, &value)?);
        }
        Ok(offsets)
    }

    /// Some committed offsets of a group, in the order asked.
    pub async fn offsets_of(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<CommittedOffset>>> {
        let keys = partitions.iter().map(|partition| offset_key(group, *partition));
        let keys: Vec<FactKey> = keys.collect();
        let values = self.backend().get(&keys).await?;
        let named = keys.iter().zip(values);
        let decoded =
            named.map(|(key, value)| value.map(|value| from_json(key, &value)).transpose());
        decoded.collect()
    }

    /// Removes committed offsets together, and those of open transactions. `Rejected` if a check
    /// fails, or what waits for an end has changed.
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        checks: impl IntoIterator<Item = Check> + Send,
    ) -> Result<ChangeOutcome> {
        let keys = partitions.iter().map(|partition| offset_key(group, *partition));
        let (mut all_checks, mut writes) = self.drop_pending(group, Some(partitions)).await?;
        all_checks.extend(checks);
        writes.extend(keys.map(Write::Delete));
        let change = Change { checks: all_checks, writes, ..Change::default() };
        self.change(&change).await
    }

    /// The ids of all groups that have committed offsets, with or without a record, by id.
    pub async fn groups_with_offsets(&self) -> Result<Vec<String>> {
        let everything = FactKey::new(&["offsets"]).folder();
        let mut rest = everything;
        let mut groups: Vec<String> = Vec::new();
        loop {
            let page = self.backend().scan(&rest, 1).await?;
            let Some((key, _)) = page.first() else {
                return Ok(groups);
            };
            let group = key.segments().into_iter().nth(1).unwrap_or_default();
            // The next group's keys begin where this one's folder ends.
            rest.from = FactKey::new(&["offsets", &group]).folder().until;
            groups.push(group);
        }
    }
}
