//! Marks: at most one fact a partition in a folder of a job's own, as JSON.

use crate::facts::{Change, FactKey, Write};
use crate::store::{MetadataStore, from_json, put_json, topic_segment};
use floe_env::{Error, Result};
use kfs::{PartitionIndex, TopicPartition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The folder of a job's marks.
pub(crate) struct Marks(pub(crate) &'static [&'static str]);

impl Marks {
    fn key(&self, partition: TopicPartition) -> FactKey {
        let TopicPartition { topic, partition } = partition;
        let (topic, index) = (topic.to_string(), partition.0.to_string());
        FactKey::new(&[self.0, &[topic.as_str(), index.as_str()]].concat())
    }

    fn partition(&self, key: &FactKey) -> Result<TopicPartition> {
        let index = key.segments().pop().and_then(|index| index.parse().ok());
        let unnamed = || Error::corrupt(format!("fact {} names no partition", key.as_str()));
        let partition = PartitionIndex(index.ok_or_else(unnamed)?);
        Ok(TopicPartition { topic: topic_segment(key, self.0.len())?, partition })
    }

    /// All of them.
    pub(crate) async fn all<Mark: DeserializeOwned>(
        &self,
        store: &MetadataStore,
    ) -> Result<BTreeMap<TopicPartition, Mark>> {
        let facts = store.scan_all(FactKey::new(self.0).folder()).await?;
        let marks =
            facts.iter().map(|(key, value)| Ok((self.partition(key)?, from_json(key, value)?)));
        marks.collect()
    }

    /// Sets a partition's, or removes it.
    pub(crate) async fn set<Mark: Serialize>(
        &self,
        store: &MetadataStore,
        partition: TopicPartition,
        mark: Option<&Mark>,
    ) -> Result<()> {
        let key = self.key(partition);
        let write = match mark {
            Some(mark) => put_json(key, mark),
            None => Write::Delete(key),
        };
        let change = Change { writes: vec![write], ..Change::default() };
        store.change(&change).await.map(|_| ())
    }
}
