//! Which files of a table were unreachable when they were looked at first: a fact of the metadata
//! store, so that a restart does not begin again.

use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::Backend;
use floe_metadata::facts::{Change, FactKey, Write};
use kfs::TopicId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const MARKS: &str = "table-orphans";

/// Marked files of one table.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Marks {
    /// The metadata store's clock when they were marked, ms.
    pub(super) marked_ms: i64,
    /// Their names below the table's folder.
    pub(super) names: Vec<String>,
}

fn key_of(topic: TopicId, table: Uuid) -> FactKey {
    FactKey::new(&[MARKS, &topic.to_string(), &table.to_string()])
}

impl Marks {
    pub(super) async fn read(
        backend: &dyn Backend,
        topic: TopicId,
        table: Uuid,
    ) -> Result<Option<Self>> {
        let key = key_of(topic, table);
        let Some(value) = backend.get(std::slice::from_ref(&key)).await?.pop().flatten() else {
            return Ok(None);
        };
        let marks = serde_json::from_slice(&value)
            .map_err(|error| Error::corrupt(format!("fact {}", key.as_str())).with_source(error))?;
        Ok(Some(marks))
    }

    pub(super) async fn write(
        &self,
        backend: &dyn Backend,
        topic: TopicId,
        table: Uuid,
    ) -> Result<()> {
        let value = serde_json::to_vec(self).expect("a struct of text and numbers is JSON");
        let write = Write::Put(key_of(topic, table), Bytes::from(value));
        let change = Change { writes: vec![write], ..Change::default() };
        backend.change(&change).await.map(|_| ())
    }

    pub(crate) async fn forget(backend: &dyn Backend, topic: TopicId, table: Uuid) -> Result<()> {
        let write = Write::Delete(key_of(topic, table));
        let change = Change { writes: vec![write], ..Change::default() };
        backend.change(&change).await.map(|_| ())
    }
}
