//! Copies of tables' progress. The tables themselves, their names and pointers, are facts of the
//! bridge's own.

use crate::facts::{Change, FactKey, Write};
use crate::store::MetadataStore;
use bytes::Bytes;
use floe_env::Result;
use kfs::TopicId;

fn progress_key(topic: TopicId) -> FactKey {
    FactKey::new(&["table-progress", &topic.to_string()])
}

impl MetadataStore {
    /// The copy of a table's progress, as the bridge encoded it.
    pub async fn table_progress(&self, topic: TopicId) -> Result<Option<Bytes>> {
        self.fact(&progress_key(topic)).await
    }

    /// The copies of several tables' progress, in the order asked and of one moment.
    pub async fn table_progress_of(&self, topics: &[TopicId]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<FactKey> = topics.iter().copied().map(progress_key).collect();
        self.backend().get(&keys).await
    }

    /// Sets the copy of a table's progress, or removes it. It is a copy: the last writer wins.
    pub async fn set_table_progress(&self, topic: TopicId, value: Option<Bytes>) -> Result<()> {
        let key = progress_key(topic);
        let write = match value {
            Some(value) => Write::Put(key, value),
            None => Write::Delete(key),
        };
        let change = Change { writes: vec![write], ..Change::default() };
        self.change(&change).await.map(|_| ())
    }
}
