//! Since when records are in the log, where their timestamps do not tell: facts of the job that
//! removes old records.
//!
//! A record that carries no timestamp, or one that was long past when it came, was written some
//! time before it was first found at the beginning of its log. A mark notes when that was and where
//! the log ended then: all that lies below is older. It stays right whatever happens, so the last
//! writer wins.

use crate::facts::{Change, FactKey, Write};
use crate::store::{MetadataStore, from_json, put_json, topic_segment};
use floe_env::{Error, Result};
use kfs::{PartitionIndex, TopicPartition};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything below an offset was written before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenMark {
    /// The log's end then.
    pub end: i64,
    /// When that was, by the store's clock, ms.
    pub since_ms: i64,
}

impl WrittenMark {
    /// True where it says something about the record of this offset.
    pub fn covers(&self, offset: i64) -> bool {
        offset < self.end
    }
}

/// Named after the marks' first use; what is stored keeps its name.
fn folder() -> FactKey {
    FactKey::new(&["retention", "untimed"])
}

fn mark_key(partition: TopicPartition) -> FactKey {
    let TopicPartition { topic, partition } = partition;
    FactKey::new(&["retention", "untimed", &topic.to_string(), &partition.0.to_string()])
}

fn partition_of(key: &FactKey) -> Result<TopicPartition> {
    let index = key.segments().pop().and_then(|index| index.parse().ok());
    let index =
        index.ok_or_else(|| Error::corrupt(format!("fact {} names no partition", key.as_str())))?;
    Ok(TopicPartition { topic: topic_segment(key, 2)?, partition: PartitionIndex(index) })
}

impl MetadataStore {
    /// All marks; mostly there are none.
    ///
    /// # Errors
    /// Whatever the store answers, and `Corrupt` for a fact that is no mark.
    pub async fn written_marks(&self) -> Result<BTreeMap<TopicPartition, WrittenMark>> {
        let facts = self.scan_all(folder().folder()).await?;
        let marks =
            facts.iter().map(|(key, value)| Ok((partition_of(key)?, from_json(key, value)?)));
        marks.collect()
    }

    /// Sets a partition's mark, or removes it.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub async fn set_written_mark(
        &self,
        partition: TopicPartition,
        mark: Option<WrittenMark>,
    ) -> Result<()> {
        let key = mark_key(partition);
        let write = match mark {
            Some(mark) => put_json(key, &mark),
            None => Write::Delete(key),
        };
        let change = Change { writes: vec![write], ..Change::default() };
        self.change(&change).await.map(|_| ())
    }
}
