//! How far log compaction has got: facts of the job that does it.
//!
//! A mark only saves work. A pass that is not noted is made again, and finds little to do; so the
//! last writer wins.

use crate::facts::{Change, FactKey, Write};
use crate::store::{MetadataStore, from_json, put_json, topic_segment};
use floe_env::{Error, Result};
use kfs::{PartitionIndex, TopicPartition};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the last pass over a partition has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionMark {
    /// The offset behind what passes have been over.
    pub clean_until: i64,
    /// When the last one began, by the store's clock, ms.
    pub at_ms: i64,
    /// When all that it left for a while (tombstones, markers) may go, ms; `None` where it left
    /// nothing of that kind.
    pub horizon_ms: Option<i64>,
}

fn folder() -> FactKey {
    FactKey::new(&["compaction"])
}

fn mark_key(partition: TopicPartition) -> FactKey {
    let TopicPartition { topic, partition } = partition;
    FactKey::new(&["compaction", &topic.to_string(), &partition.0.to_string()])
}

fn partition_of(key: &FactKey) -> Result<TopicPartition> {
    let index = key.segments().pop().and_then(|index| index.parse().ok());
    let index =
        index.ok_or_else(|| Error::corrupt(format!("fact {} names no partition", key.as_str())))?;
    Ok(TopicPartition { topic: topic_segment(key, 1)?, partition: PartitionIndex(index) })
}

impl MetadataStore {
    /// All marks: one for each partition that was ever compacted.
    ///
    /// # Errors
    /// Whatever the store answers, and `Corrupt` for a fact that is no mark.
    pub async fn compaction_marks(&self) -> Result<BTreeMap<TopicPartition, CompactionMark>> {
        let facts = self.scan_all(folder().folder()).await?;
        let marks =
            facts.iter().map(|(key, value)| Ok((partition_of(key)?, from_json(key, value)?)));
        marks.collect()
    }

    /// Sets a partition's mark, or removes it.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub async fn set_compaction_mark(
        &self,
        partition: TopicPartition,
        mark: Option<CompactionMark>,
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
