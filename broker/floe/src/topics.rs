//! The topics as this broker knows them: all of them, in memory, read again whenever the metadata
//! store's revision says that one has changed.

use crate::topic_settings::TopicSettings;
use floe_coordinator::consumer::TopicDirectory;
use floe_env::{HashMap, Result};
use floe_metadata::MetadataStore;
use floe_metadata::topics::Topic;
use kfs::{PartitionIndex, TopicId, TopicPartition};
use parking_lot::RwLock;
use std::sync::{Arc, OnceLock};
use tokio::sync::Mutex;

/// All topics at one revision.
#[derive(Debug, Default)]
struct Snapshot {
    revision: Option<u64>,
    by_name: HashMap<Arc<str>, Arc<KnownTopic>>,
    by_id: HashMap<TopicId, Arc<KnownTopic>>,
    /// Made when the first group asks.
    directory: OnceLock<Arc<TopicDirectory>>,
}

/// A topic with its settings made typed.
#[derive(Debug)]
pub struct KnownTopic {
    /// As stored.
    pub topic: Topic,
    /// Its name, to be shared.
    pub name: Arc<str>,
    /// Its settings.
    pub settings: TopicSettings,
}

impl KnownTopic {
    /// The partition of this index, if there is one.
    pub fn partition(&self, index: i32) -> Option<TopicPartition> {
        let exists = (0..self.topic.partition_count).contains(&index);
        exists.then_some(TopicPartition { topic: self.topic.id, partition: PartitionIndex(index) })
    }

    /// All partitions, by index.
    pub fn partitions(&self) -> Vec<TopicPartition> {
        (0..self.topic.partition_count).filter_map(|index| self.partition(index)).collect()
    }
}

/// The catalog of topics; cheap to clone.
#[derive(Clone)]
pub struct Topics {
    metadata: MetadataStore,
    message_max_bytes: usize,
    known: Arc<RwLock<Arc<Snapshot>>>,
    refreshing: Arc<Mutex<()>>,
}

impl Topics {
    /// The catalog as the store has it now. `message_max_bytes` is the largest batch of a topic
    /// that does not set its own.
    pub async fn load(metadata: MetadataStore, message_max_bytes: usize) -> Result<Self> {
        let (known, refreshing) = (Arc::default(), Arc::default());
        let topics = Self { metadata, message_max_bytes, known, refreshing };
        topics.refresh().await?;
        Ok(topics)
    }

    /// Reads the topics again if any has changed.
    pub async fn refresh(&self) -> Result<()> {
        let _one_at_a_time = self.refreshing.lock().await;
        let revision = Some(self.metadata.topics_revision().await?);
        if self.known.read().revision == revision {
            return Ok(());
        }
        let mut snapshot = Snapshot { revision, ..Snapshot::default() };
        for topic in self.metadata.topics().await? {
            let name: Arc<str> = topic.name.as_str().into();
            let settings = TopicSettings::of(&topic.configs, self.message_max_bytes);
            let id = topic.id;
            let known = Arc::new(KnownTopic { topic, name: name.clone(), settings });
            snapshot.by_name.insert(name, known.clone());
            snapshot.by_id.insert(id, known);
        }
        *self.known.write() = Arc::new(snapshot);
        Ok(())
    }

    /// The topic of this name, as last read.
    pub fn by_name(&self, name: &str) -> Option<Arc<KnownTopic>> {
        self.known.read().by_name.get(name).cloned()
    }

    /// The topic of this id, as last read.
    pub fn by_id(&self, id: TopicId) -> Option<Arc<KnownTopic>> {
        self.known.read().by_id.get(&id).cloned()
    }

    /// All topics as consumer groups need them, as last read.
    pub fn directory(&self) -> Arc<TopicDirectory> {
        let snapshot = self.known.read().clone();
        let directory = snapshot.directory.get_or_init(|| {
            let topics = snapshot.by_name.values().map(|known| {
                let topic = &known.topic;
                (topic.name.clone(), topic.id.0, topic.partition_count)
            });
            Arc::new(TopicDirectory::new(snapshot.revision.unwrap_or_default(), topics))
        });
        directory.clone()
    }

    /// All topics by name, as last read.
    pub fn all(&self) -> Vec<Arc<KnownTopic>> {
        let snapshot = self.known.read().clone();
        let mut topics: Vec<_> = snapshot.by_name.values().cloned().collect();
        topics.sort_by(|left, right| left.name.cmp(&right.name));
        topics
    }
}
