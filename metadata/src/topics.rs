//! Topics: made and ended together with their partitions. `topics/revision` rises with every
//! change, so that a broker polls one fact. A reader takes the revision before the topics: it then
//! reads too much again, never too little.

use crate::facts::{Change, Check, FactKey, PartitionChange, Write};
use crate::store::{
    Attempt, CONFLICT_ATTEMPTS_MAX, MetadataStore, counter, counter_value, from_json, put_json,
    to_json, too_many_conflicts, unchanged,
};
use bytes::Bytes;
use floe_env::{Error, Result};
use kfs::{PartitionIndex, TopicId, TopicPartition};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Partitions of one topic.
pub const PARTITIONS_PER_TOPIC_MAX: i32 = 10_000;

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its identity; never reused.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// Partitions 0 until this exist.
    pub partition_count: i32,
    /// As asked for; it has no effect.
    pub replication_factor: i16,
    /// Settings that differ from the default.
    pub configs: BTreeMap<String, String>,
    /// When it was made, by the store's clock, ms.
    pub created_ms: i64,
}

/// The stored form; the id is in the key too.
#[derive(Serialize, Deserialize)]
struct TopicRecord {
    id: Uuid,
    name: String,
    partition_count: i32,
    replication_factor: i16,
    #[serde(default)]
    configs: BTreeMap<String, String>,
    created_ms: i64,
}

/// What became of a topic's creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicCreation {
    /// It was made.
    Created(Topic),
    /// There was one of this name.
    AlreadyExists(Topic),
}

/// What became of a change of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicChange {
    /// It was made; the topic afterwards.
    Changed(Topic),
    /// It does not fit the topic as it is.
    Refused(Topic),
    /// There is no such topic.
    NoSuchTopic,
}

fn revision_key() -> FactKey {
    FactKey::new(&["topics", "revision"])
}

fn name_key(name: &str) -> FactKey {
    FactKey::new(&["topics", "by-name", name])
}

/// The fact that a topic is. It goes with the topic, for good: a change that checks it is made only
/// while the topic exists.
pub fn topic_key(id: TopicId) -> FactKey {
    FactKey::new(&["topics", "by-id", &id.to_string()])
}

fn encode(topic: &Topic) -> Bytes {
    to_json(&TopicRecord {
        id: topic.id.0,
        name: topic.name.clone(),
        partition_count: topic.partition_count,
        replication_factor: topic.replication_factor,
        configs: topic.configs.clone(),
        created_ms: topic.created_ms,
    })
}

/// The topic of its fact, for who makes a change on condition that the topic still is so.
///
/// # Errors
/// `Corrupt` for what is no topic.
pub fn decode_topic(id: TopicId, fact: &[u8]) -> Result<Topic> {
    decode(&topic_key(id), fact)
}

fn decode(key: &FactKey, value: &[u8]) -> Result<Topic> {
    let record: TopicRecord = from_json(key, value)?;
    Ok(Topic {
        id: TopicId(record.id),
        name: record.name,
        partition_count: record.partition_count,
        replication_factor: record.replication_factor,
        configs: record.configs,
        created_ms: record.created_ms,
    })
}

fn partitions(topic: TopicId, indexes: std::ops::Range<i32>) -> Vec<TopicPartition> {
    let named = indexes.map(|index| TopicPartition { topic, partition: PartitionIndex(index) });
    named.collect()
}

/// A topic as read, with the facts that must still stand when it is changed.
struct Read {
    topic: Topic,
    checks: Vec<Check>,
    next_revision: Write,
}

impl MetadataStore {
    /// Raised by every change of the set of topics or of one of them; 0 at first.
    pub async fn topics_revision(&self) -> Result<u64> {
        let key = revision_key();
        counter(&key, self.fact(&key).await?.as_ref())
    }

    /// All topics, by id. Take the revision before.
    pub async fn topics(&self) -> Result<Vec<Topic>> {
        let facts = self.scan_all(FactKey::new(&["topics", "by-id"]).folder()).await?;
        facts.iter().map(|(key, value)| decode(key, value)).collect()
    }

    /// The topic of this id.
    pub async fn topic_by_id(&self, id: TopicId) -> Result<Option<Topic>> {
        let key = topic_key(id);
        let value = self.fact(&key).await?;
        value.map(|value| decode(&key, &value)).transpose()
    }

    /// The topic of this name.
    pub async fn topic_by_name(&self, name: &str) -> Result<Option<Topic>> {
        let key = name_key(name);
        match self.fact(&key).await? {
            Some(value) => self.topic_by_id(named_id(&key, &value)?).await,
            None => Ok(None),
        }
    }

    /// Makes a topic and its partitions, with a new id. The name is the caller's to check.
    pub async fn create_topic(
        &self,
        name: &str,
        partition_count: i32,
        replication_factor: i16,
        configs: BTreeMap<String, String>,
    ) -> Result<TopicCreation> {
        check_partition_count(partition_count)?;
        let topic = Topic {
            id: TopicId(self.env().uuid()),
            name: name.to_owned(),
            partition_count,
            replication_factor,
            configs,
            created_ms: self.now_ms().await?,
        };
        let begun = partitions(topic.id, 0..partition_count).into_iter();
        let begun: Vec<PartitionChange> = begun.map(PartitionChange::Create).collect();
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            if let Some(existing) = self.topic_by_name(name).await? {
                // Ours, where an earlier try had an unknown outcome.
                let is_ours = existing.id == topic.id;
                return Ok(if is_ours {
                    TopicCreation::Created(existing)
                } else {
                    TopicCreation::AlreadyExists(existing)
                });
            }
            if let Attempt::Applied = self.insert_topic(&topic, begun.clone()).await? {
                return Ok(TopicCreation::Created(topic));
            }
            self.wait_for_conflict(attempt).await;
        }
        Err(too_many_conflicts("create a topic"))
    }

    /// Makes a topic anew whose facts were lost: with the id, name and partitions that it had,
    /// which go on at these offsets. `AlreadyExists` where its name or its id is taken.
    ///
    /// # Errors
    /// `Invalid` where there are too many or no partitions; whatever the store answers.
    pub async fn recreate_topic(
        &self,
        id: TopicId,
        name: &str,
        next_offsets: &[i64],
    ) -> Result<TopicCreation> {
        let partition_count = i32::try_from(next_offsets.len()).unwrap_or(i32::MAX);
        check_partition_count(partition_count)?;
        let created_ms = self.now_ms().await?;
        let (name, replication_factor) = (name.to_owned(), 1);
        let configs = BTreeMap::new();
        let topic = Topic { id, name, partition_count, replication_factor, configs, created_ms };
        let begin = |(partition, offset): (TopicPartition, &i64)| {
            PartitionChange::CreateAt(partition, *offset)
        };
        let begun = partitions(id, 0..partition_count).into_iter().zip(next_offsets).map(begin);
        let begun: Vec<PartitionChange> = begun.collect();
        let mut may_be_made = false;
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            if let Some(existing) = self.topic_by_id(id).await? {
                return Ok(match may_be_made && existing.created_ms == created_ms {
                    true => TopicCreation::Created(existing),
                    false => TopicCreation::AlreadyExists(existing),
                });
            }
            if let Some(existing) = self.topic_by_name(&topic.name).await? {
                return Ok(TopicCreation::AlreadyExists(existing));
            }
            match self.insert_topic(&topic, begun.clone()).await? {
                Attempt::Applied => return Ok(TopicCreation::Created(topic)),
                Attempt::Unknown => may_be_made = true,
                Attempt::Conflict => {}
            }
            self.wait_for_conflict(attempt).await;
        }
        Err(too_many_conflicts("make a topic anew"))
    }

    /// Makes a topic and its partitions, if its name is free and no other topic changes.
    async fn insert_topic(&self, topic: &Topic, begun: Vec<PartitionChange>) -> Result<Attempt> {
        let (revision_check, next_revision) = self.next_revision().await?;
        let change = Change {
            checks: vec![unchanged(name_key(&topic.name), None), revision_check],
            writes: vec![
                put_json(name_key(&topic.name), &topic.id.0),
                Write::Put(topic_key(topic.id), encode(topic)),
                next_revision,
            ],
            partitions: begun,
            ..Change::default()
        };
        self.attempt(&change).await
    }

    /// Ends a topic and its partitions. False if there is none.
    pub async fn delete_topic(&self, id: TopicId) -> Result<bool> {
        let mut may_have_deleted = false;
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            let Some(read) = self.read_for_change(id).await? else {
                return Ok(may_have_deleted);
            };
            let dropped = partitions(id, 0..read.topic.partition_count);
            let change = Change {
                checks: read.checks,
                writes: vec![
                    Write::Delete(name_key(&read.topic.name)),
                    Write::Delete(topic_key(id)),
                    read.next_revision,
                ],
                partitions: dropped.into_iter().map(PartitionChange::Drop).collect(),
                ..Change::default()
            };
            match self.attempt(&change).await? {
                Attempt::Applied => return Ok(true),
                Attempt::Unknown => may_have_deleted = true,
                Attempt::Conflict => {}
            }
            self.wait_for_conflict(attempt).await;
        }
        Err(too_many_conflicts("delete a topic"))
    }

    /// Raises a topic's number of partitions. `Refused` if it has as many or more.
    pub async fn create_partitions(&self, id: TopicId, count: i32) -> Result<TopicChange> {
        check_partition_count(count)?;
        let mut may_have_changed = false;
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            let Some(mut read) = self.read_for_change(id).await? else {
                return Ok(TopicChange::NoSuchTopic);
            };
            let existing = read.topic.partition_count;
            if existing == count && may_have_changed {
                return Ok(TopicChange::Changed(read.topic));
            }
            if existing >= count {
                return Ok(TopicChange::Refused(read.topic));
            }
            read.topic.partition_count = count;
            let created = partitions(id, existing..count);
            match self.change_topic(&read, created).await? {
                Attempt::Applied => return Ok(TopicChange::Changed(read.topic)),
                Attempt::Unknown => may_have_changed = true,
                Attempt::Conflict => {}
            }
            self.wait_for_conflict(attempt).await;
        }
        Err(too_many_conflicts("create partitions"))
    }

    /// Replaces a topic's settings if they still are `expected`; else `Refused`.
    pub async fn set_topic_configs(
        &self,
        id: TopicId,
        expected: &BTreeMap<String, String>,
        configs: BTreeMap<String, String>,
    ) -> Result<TopicChange> {
        let mut may_have_changed = false;
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            let Some(mut read) = self.read_for_change(id).await? else {
                return Ok(TopicChange::NoSuchTopic);
            };
            if may_have_changed && read.topic.configs == configs {
                return Ok(TopicChange::Changed(read.topic));
            }
            if read.topic.configs != *expected {
                return Ok(TopicChange::Refused(read.topic));
            }
            read.topic.configs.clone_from(&configs);
            match self.change_topic(&read, Vec::new()).await? {
                Attempt::Applied => return Ok(TopicChange::Changed(read.topic)),
                Attempt::Unknown => may_have_changed = true,
                Attempt::Conflict => {}
            }
            self.wait_for_conflict(attempt).await;
        }
        Err(too_many_conflicts("change a topic's settings"))
    }

    async fn change_topic(&self, read: &Read, created: Vec<TopicPartition>) -> Result<Attempt> {
        let change = Change {
            checks: read.checks.clone(),
            writes: vec![
                Write::Put(topic_key(read.topic.id), encode(&read.topic)),
                read.next_revision.clone(),
            ],
            partitions: created.into_iter().map(PartitionChange::Create).collect(),
            ..Change::default()
        };
        self.attempt(&change).await
    }

    async fn read_for_change(&self, id: TopicId) -> Result<Option<Read>> {
        let (revision_check, next_revision) = self.next_revision().await?;
        let key = topic_key(id);
        let Some(value) = self.fact(&key).await? else {
            return Ok(None);
        };
        let topic = decode(&key, &value)?;
        let checks = vec![unchanged(key, Some(value)), revision_check];
        Ok(Some(Read { topic, checks, next_revision }))
    }

    async fn next_revision(&self) -> Result<(Check, Write)> {
        let key = revision_key();
        let value = self.fact(&key).await?;
        let next = counter::<u64>(&key, value.as_ref())? + 1;
        Ok((unchanged(key.clone(), value), Write::Put(key, counter_value(next))))
    }
}

fn named_id(key: &FactKey, value: &[u8]) -> Result<TopicId> {
    from_json::<Uuid>(key, value).map(TopicId)
}

fn check_partition_count(count: i32) -> Result<()> {
    if (1..=PARTITIONS_PER_TOPIC_MAX).contains(&count) {
        return Ok(());
    }
    Err(Error::invalid(format!("a topic has 1 to {PARTITIONS_PER_TOPIC_MAX} partitions")))
}
