//! The orphan sweep: files of failed commits, and of those with unknown outcome, that no live
//! version of a table names.
//!
//! One pass walks the folders of all tables, one a round. A table's folder is listed, and what no
//! snapshot reaches is *marked* in the metadata store. A later pass, [`SweepRules::age`] after the
//! mark or more, deletes what then still is unreachable. In between it raises the count of sweeps
//! in the table's pointer: every commit under way moves a pointer that is no more, and none that
//! began before goes on with files that it had staged. So a commit that sleeps for days loses, and
//! nothing that a version names is ever deleted; the age only spares the slow ones the loss.
//!
//! A folder whose table is not the topic's, or whose topic is gone and did not leave it to
//! [`crate::removal`], comes of a creation that lost. None can win later, so it is deleted.
//!
//! Tables in another catalog are not swept: what a late commit may still name cannot be fenced
//! there.
//!
//! While the metadata store says that deletion is stopped (it was put back from a backup, and does
//! not know of all tables and versions), there is no pass.
//!
//! Cost of a pass: a LIST for a thousand files, and the manifests of so many snapshots as it takes
//! to find every file; without orphans mostly those of the newest.

mod lost;
mod marks;
mod reach;

pub use lost::{LostFiles, lost_files};

use crate::bridge::Bridge;
use crate::commit::LoadedTable;
use crate::place::TablePlace;
use crate::pointer::{TablePointer, TablePointers};
use crate::rest::known;
use floe_env::{Instant, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::ChangeOutcome;
use floe_store::ObjectStore;
use kfs::{ClusterId, TopicId};
use marks::Marks;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// Files that one call lists or deletes.
const FILES_PER_PAGE: usize = 1000;
/// Files that one pass marks in a table's folder.
const MARKS_MAX: usize = 1000;
/// A folder with more files is not swept: their names would take too much memory.
const FOLDER_FILES_MAX: usize = 1_000_000;

/// When files are taken for orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepRules {
    /// Time between the starts of two passes.
    pub pause: Duration,
    /// Least time between a file's mark and its deletion: longer than any commit takes.
    pub age: Duration,
}

impl Default for SweepRules {
    fn default() -> Self {
        let hour = Duration::from_secs(3600);
        Self { pause: hour * 6, age: hour * 24 }
    }
}

/// What sweeps have done since the broker started.
#[derive(Debug, Default)]
pub struct SweepCounts {
    /// Files marked as orphans.
    pub marked: AtomicU64,
    /// Orphans deleted.
    pub deleted: AtomicU64,
}

/// Where the running pass is.
#[derive(Debug, Default)]
pub(crate) struct SweepState {
    /// The newest folder that the pass has seen.
    at: Option<String>,
    began: Option<Instant>,
}

/// Whose a folder of table files is.
pub(super) enum Owner {
    /// This table's.
    Table(Box<TablePointer>),
    /// A table's that may be in the making, a removed one's, or one's in another catalog.
    Another,
    /// A table's that nobody made, and nobody will.
    Nobody,
}

async fn owner_of(
    pointers: &dyn TablePointers,
    metadata: &MetadataStore,
    topic: TopicId,
    table: Uuid,
) -> Result<Owner> {
    let mut pointer = pointers.by_topic(topic).await?;
    if pointer.is_none() {
        if metadata.topic_by_id(topic).await?.is_some() {
            return Ok(Owner::Another);
        }
        // The table may have been made between the two questions, and its topic deleted since. From
        // now on none is made.
        pointer = pointers.by_topic(topic).await?;
    }
    if let Some(own) = pointer.filter(|pointer| pointer.table_id == table) {
        return Ok(Owner::Table(Box::new(own)));
    }
    if known::is_folder(metadata, topic, table).await? {
        return Ok(Owner::Another);
    }
    // Its topic may have another table since an engine has dropped this one.
    let is_removed = pointers.is_removed(Some(topic), table).await?;
    Ok(if is_removed { Owner::Another } else { Owner::Nobody })
}

/// The name of the first folder of table files behind another.
pub(crate) async fn next_folder(
    store: &dyn ObjectStore,
    cluster: ClusterId,
    after: Option<String>,
) -> Result<Option<String>> {
    let root = format!("{cluster}/tables");
    // Behind all that is in the folder, whatever others have put there: 0 comes after the slash.
    let behind = after.map(|folder| format!("{root}/{folder}0"));
    let next = store.list(&root, behind.as_deref(), 1).await?;
    Ok(next.first().and_then(|object| {
        let inside = object.key.strip_prefix(&root)?.strip_prefix('/')?;
        Some(inside.split_once('/')?.0.to_owned())
    }))
}

impl Bridge {
    /// Sweeps the next folder, if a pass is due or under way. True if there was one.
    pub(crate) async fn sweep_orphans(&self) -> Result<bool> {
        // Of another catalog's tables nobody can say that a late commit names no file.
        if self.rest().is_some() || !self.pointers().may_delete().await? {
            return Ok(false);
        }
        let now = self.env().monotonic();
        let after = {
            let mut state = self.sweep_state().lock();
            let is_resting = state.at.is_none()
                && state.began.is_some_and(|began| now < began + self.config().sweep.pause);
            if is_resting {
                return Ok(false);
            }
            if state.at.is_none() {
                state.began = Some(now);
            }
            state.at.clone()
        };
        let folder = next_folder(self.store(), self.config().cluster, after).await?;
        // Whatever comes of this folder, the next round goes on behind it.
        self.sweep_state().lock().at.clone_from(&folder);
        let Some(folder) = folder else { return Ok(false) };
        if let Some((topic, table)) = ids_of(&folder) {
            self.sweep_folder(topic, table).await?;
        }
        Ok(true)
    }

    async fn sweep_folder(&self, topic: TopicId, table: Uuid) -> Result<()> {
        match owner_of(self.pointers(), self.metadata(), topic, table).await? {
            Owner::Table(pointer) => self.sweep_table(topic, *pointer).await,
            Owner::Another => Ok(()),
            Owner::Nobody => self.delete_lost(topic, table).await,
        }
    }

    /// Deletes the folder of a table that was never made, and never will be.
    async fn delete_lost(&self, topic: TopicId, table: Uuid) -> Result<()> {
        let place = TablePlace::new(self.store(), self.config().cluster, topic, table);
        let page = self.store().list(place.key(), None, FILES_PER_PAGE).await?;
        let keys: Vec<String> = page.into_iter().map(|object| object.key).collect();
        if self.delete_orphans(&keys).await? {
            tracing::info!(%topic, %table, files = keys.len(), "files of a lost creation deleted");
        }
        Ok(())
    }

    async fn sweep_table(&self, topic: TopicId, pointer: TablePointer) -> Result<()> {
        let table = pointer.table_id;
        let backend = self.metadata().backend();
        let now_ms = backend.now_ms().await?;
        let Some(marks) = Marks::read(backend.as_ref(), topic, table).await? else {
            let Some(newest) = self.newest_of(topic, &pointer).await? else { return Ok(()) };
            let names = self.unreachable(&newest).await?;
            if names.is_empty() {
                return Ok(());
            }
            self.sweep_counts().marked.fetch_add(names.len() as u64, Ordering::Relaxed);
            return Marks { marked_ms: now_ms, names }.write(backend.as_ref(), topic, table).await;
        };
        let age_ms = i64::try_from(self.config().sweep.age.as_millis()).unwrap_or(i64::MAX);
        if now_ms.saturating_sub(marks.marked_ms) < age_ms {
            return Ok(());
        }
        // The pointer of a table that is stopped, or not ours, is never moved.
        if self.newest_of(topic, &pointer).await?.is_none() {
            return Ok(());
        }
        // From here on no commit can bring a marked file into the table.
        if self.pointers().swap(&pointer, &pointer.swept()).await? == ChangeOutcome::Rejected {
            return Ok(());
        }
        let Some(newest) = self.newest_of(topic, &pointer).await? else { return Ok(()) };
        let mut orphans: BTreeSet<String> = marks.names.into_iter().collect();
        self.strike_reachable(&newest, &mut orphans).await?;
        let folder = newest.place.key();
        let keys: Vec<String> = orphans.iter().map(|name| format!("{folder}/{name}")).collect();
        if !self.delete_orphans(&keys).await? {
            return Ok(());
        }
        tracing::info!(%topic, %table, files = keys.len(), "orphans of a table deleted");
        Marks::forget(backend.as_ref(), topic, table).await
    }

    /// Forgets what was marked in the folder of a table that is gone.
    pub(crate) async fn forget_marks(&self, topic: TopicId, table: Uuid) -> Result<()> {
        Marks::forget(self.metadata().backend().as_ref(), topic, table).await
    }

    /// False where deletion is stopped by now.
    async fn delete_orphans(&self, keys: &[String]) -> Result<bool> {
        if !self.pointers().may_delete().await? {
            return Ok(false);
        }
        self.store().delete(keys).await?;
        self.sweep_counts().deleted.fetch_add(keys.len() as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// The newest version of a table that may be written.
    async fn newest_of(
        &self,
        topic: TopicId,
        pointer: &TablePointer,
    ) -> Result<Option<Arc<LoadedTable>>> {
        let newest = self.worker_of(topic, pointer).await?.refresh().await?;
        Ok(newest.filter(|newest| {
            newest.stopped.is_none() && newest.pointer.table_id == pointer.table_id
        }))
    }

    /// Names of files in the table's folder that its version does not reach.
    async fn unreachable(&self, table: &LoadedTable) -> Result<Vec<String>> {
        let (folder, mut after) = (table.place.key(), None::<String>);
        let mut names = BTreeSet::new();
        loop {
            let page = self.store().list(folder, after.as_deref(), FILES_PER_PAGE).await?;
            let inside = page.iter().filter_map(|object| {
                object.key.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned)
            });
            names.extend(inside);
            if names.len() > FOLDER_FILES_MAX {
                tracing::warn!(folder, "a table's folder has too many files to be swept");
                return Ok(Vec::new());
            }
            match page.last() {
                Some(last) if page.len() == FILES_PER_PAGE => after = Some(last.key.clone()),
                _ => break,
            }
        }
        // The version may be older than the list: what a commit has put since is marked, and found
        // to be named when it is looked at again.
        self.strike_reachable(table, &mut names).await?;
        Ok(names.into_iter().take(MARKS_MAX).collect())
    }
}

/// Topic and table of a folder's name.
pub(crate) fn ids_of(folder: &str) -> Option<(TopicId, Uuid)> {
    const UUID_LENGTH: usize = 36;
    let (topic, table) = (folder.get(..UUID_LENGTH)?, folder.get(UUID_LENGTH + 1..)?);
    Some((TopicId(Uuid::parse_str(topic).ok()?), Uuid::parse_str(table).ok()?))
}
