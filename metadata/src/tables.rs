//! The catalog's pointers: which metadata file a table is at, and the copies of tables' progress.
//! What a table's name may be and to whom it belongs is the bridge's to decide.

use crate::facts::{Change, ChangeOutcome, FactKey, Write};
use crate::store::{MetadataStore, from_json, put_json, topic_segment, unchanged};
use bytes::Bytes;
use floe_env::Result;
use kfs::TopicId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Where a table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePointer {
    /// Location of the newest metadata file.
    pub metadata_location: String,
    /// The topic that the table shows, if it is ours.
    #[serde(default)]
    pub topic_id: Option<Uuid>,
    /// Location of the metadata file before.
    #[serde(default)]
    pub previous: Option<String>,
}

/// A table's name in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName {
    /// The namespace; its levels joined as the bridge likes.
    pub namespace: String,
    /// The table.
    pub table: String,
}

fn table_key(name: &TableName) -> FactKey {
    FactKey::new(&["tables", &name.namespace, &name.table])
}

fn progress_key(topic: TopicId) -> FactKey {
    FactKey::new(&["table-progress", &topic.to_string()])
}

impl MetadataStore {
    /// A table's pointer.
    pub async fn table(&self, name: &TableName) -> Result<Option<TablePointer>> {
        let key = table_key(name);
        let value = self.fact(&key).await?;
        value.map(|value| from_json(&key, &value)).transpose()
    }

    /// Moves a table's pointer from what it was read as (`None`: no such table) to `next` (`None`:
    /// removes it). `Rejected` if it is something else by now.
    pub async fn move_table(
        &self,
        name: &TableName,
        expected: Option<&TablePointer>,
        next: Option<&TablePointer>,
    ) -> Result<ChangeOutcome> {
        let key = table_key(name);
        // Compared as values, checked as bytes: another release may have written them otherwise.
        let stored = self.fact(&key).await?;
        let current: Option<TablePointer> =
            stored.as_ref().map(|value| from_json(&key, value)).transpose()?;
        if current.as_ref() != expected {
            return Ok(ChangeOutcome::Rejected);
        }
        let write = match next {
            Some(pointer) => put_json(key.clone(), pointer),
            None => Write::Delete(key.clone()),
        };
        let change = Change {
            checks: vec![unchanged(key, stored)],
            writes: vec![write],
            ..Change::default()
        };
        self.change(&change).await
    }

    /// All tables of one namespace, or of all, by name.
    pub async fn tables(&self, namespace: Option<&str>) -> Result<Vec<(TableName, TablePointer)>> {
        let folder = match namespace {
            Some(namespace) => FactKey::new(&["tables", namespace]).folder(),
            None => FactKey::new(&["tables"]).folder(),
        };
        let mut tables = Vec::new();
        for (key, value) in self.scan_all(folder).await? {
            let pointer = from_json(&key, &value)?;
            let mut segments = key.segments().into_iter().skip(1);
            let namespace = segments.next().unwrap_or_default();
            let table = segments.next().unwrap_or_default();
            tables.push((TableName { namespace, table }, pointer));
        }
        Ok(tables)
    }

    /// The copy of a table's progress, as the bridge encoded it.
    pub async fn table_progress(&self, topic: TopicId) -> Result<Option<Bytes>> {
        self.fact(&progress_key(topic)).await
    }

    /// All copies of tables' progress.
    pub async fn tables_progress(&self) -> Result<Vec<(TopicId, Bytes)>> {
        let facts = self.scan_all(FactKey::new(&["table-progress"]).folder()).await?;
        facts.into_iter().map(|(key, value)| Ok((topic_segment(&key, 1)?, value))).collect()
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
