//! What becomes of a deleted topic's table: what was in the topic is brought into it, the table
//! leaves the catalog, and its files stay for a while, for whoever still reads them.
//!
//! A table is removed only after its pointer was read and its topic was then not found. Topic ids
//! are never used again, so such a topic is gone for good. A commit that is under way loses: it
//! moves a pointer that is no more. Whatever a crash leaves undone, the next round does.

use crate::bridge::Bridge;
use crate::place::TablePlace;
use crate::pointer::{RemovedTable, TablePointer};
use floe_env::Result;
use floe_metadata::facts::ChangeOutcome;
use floe_store::ObjectStore;
use kfs::TopicId;
use std::collections::BTreeMap;

/// Tables that one look at the catalog brings.
const TABLES_PER_PAGE: usize = 1000;
/// Namespaces that one call lists.
const NAMESPACES_PER_PAGE: usize = 1000;
/// Files that one call deletes.
const FILES_PER_PAGE: usize = 1000;

impl Bridge {
    /// Brings all that is in a topic into its table, before the topic is deleted. Waits no longer
    /// than a look does; what is not reached by then is lost to the table.
    ///
    /// # Errors
    /// What kept the rest out of the table.
    pub async fn finish(&self, topic: TopicId) -> Result<()> {
        let topics = self.topics().await?;
        let Some(topic) = topics.iter().find(|known| known.id == topic) else { return Ok(()) };
        if self.is_enabled(topic) {
            self.look_at(&self.worker(topic.id, &topic.name)).await?;
        }
        Ok(())
    }

    /// Takes a deleted topic's table out of the catalog.
    ///
    /// # Errors
    /// Whatever the metadata store answers; the background job tries again.
    pub async fn remove_table_of(&self, topic: TopicId) -> Result<()> {
        match self.pointers().by_topic(topic).await? {
            Some(pointer) => self.remove_if_gone(topic, &pointer).await,
            None => Ok(()),
        }
    }

    /// Removes the tables of all topics that are gone.
    pub(crate) async fn remove_tables(&self) -> Result<()> {
        let topics = self.topics().await?;
        let known: BTreeMap<TopicId, &str> =
            topics.iter().map(|topic| (topic.id, topic.name.as_str())).collect();
        // Engines may have given a topic's table another namespace.
        let mut after: Option<String> = None;
        loop {
            let page = self.namespaces(after.as_deref(), NAMESPACES_PER_PAGE).await?;
            for namespace in &page {
                self.remove_tables_in(namespace, &known).await?;
            }
            match page.last() {
                Some(last) if page.len() == NAMESPACES_PER_PAGE => after = Some(last.clone()),
                _ => return Ok(()),
            }
        }
    }

    async fn remove_tables_in(
        &self,
        namespace: &str,
        known: &BTreeMap<TopicId, &str>,
    ) -> Result<()> {
        let mut after: Option<String> = None;
        loop {
            let page = self.pointers().list(namespace, after.as_deref(), TABLES_PER_PAGE).await?;
            // Asked for one by one are only those that the list lacks; a topic that has gone since
            // changes the list's revision, and the next sweep sees it.
            for pointer in &page {
                let Some(topic) = pointer.topic() else { continue };
                match known.get(&topic) {
                    None => self.remove_if_gone(topic, pointer).await?,
                    // So that it is shown, also where its topic wants no table any more.
                    Some(name) => drop(self.worker(topic, name)),
                }
            }
            match page.last() {
                Some(last) if page.len() == TABLES_PER_PAGE => after = Some(last.name.clone()),
                _ => return Ok(()),
            }
        }
    }

    async fn remove_if_gone(&self, topic: TopicId, pointer: &TablePointer) -> Result<()> {
        if self.metadata().topic_by_id(topic).await?.is_some() {
            return Ok(());
        }
        // Rejected: somebody has just moved or removed it; the next round looks again.
        if self.pointers().remove(pointer).await? == ChangeOutcome::Applied {
            let (table, id) = (&pointer.name, pointer.table_id);
            tracing::info!(%table, %topic, %id, "table removed: its topic was deleted");
        }
        self.metadata().set_table_progress(topic, None).await?;
        self.forget_worker(topic);
        Ok(())
    }

    /// Deletes the files of tables that were removed long enough ago, unless deletion is stopped.
    pub(crate) async fn delete_files(&self) -> Result<()> {
        let retention = i64::try_from(self.config().delete_retention.as_millis());
        let retention_ms = retention.unwrap_or(i64::MAX);
        let removed = self.pointers().removed(TABLES_PER_PAGE).await?;
        if removed.is_empty() || !self.pointers().may_delete().await? {
            return Ok(());
        }
        let until_ms = self.metadata().backend().now_ms().await?.saturating_sub(retention_ms);
        let mut first_error = None;
        for table in removed.iter().filter(|table| table.removed_ms <= until_ms) {
            if let Err(error) = self.delete_removed(table).await {
                let error = error.context(&format!("delete the files of table {}", table.table));
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn delete_removed(&self, table: &RemovedTable) -> Result<()> {
        self.delete_files_of(table).await?;
        if let Some(topic) = table.topic {
            self.forget_marks(topic, table.table).await?;
        }
        self.pointers().forget(table).await
    }

    async fn delete_files_of(&self, removed: &RemovedTable) -> Result<()> {
        let store: &dyn ObjectStore = self.store();
        let RemovedTable { topic, table, .. } = *removed;
        let place = TablePlace::of(store, self.config().cluster, topic, table);
        let mut files = 0;
        loop {
            let page = store.list(place.key(), None, FILES_PER_PAGE).await?;
            if page.is_empty() {
                tracing::info!(%table, files, "files of a removed table deleted");
                return Ok(());
            }
            files += page.len();
            let keys: Vec<String> = page.into_iter().map(|object| object.key).collect();
            store.delete(&keys).await?;
        }
    }
}
