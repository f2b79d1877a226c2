//! The commit: data files, manifests, manifest list and metadata are made in memory and put at
//! once; then the pointer moves. Until it moves nothing is visible; once it has moved everything
//! is.
//!
//! Rules:
//!
//! * A commit starts from a progress map and ends with another. Every attempt, also after a
//!   conflict, requires that the map it started from is still the table's newest: a committer that
//!   was overtaken never doubles a row.
//! * An outcome that is unknown is asked for again until it is known: the same move may be made any
//!   number of times, and a snapshot's id tells whether it is in the table.
//! * Files of an attempt that certainly failed are deleted; those of an unknown one are left to the
//!   orphan sweep, which fences every commit whose files it may have deleted.

mod binding;
mod columns;
mod encoded;
mod expiry;
mod garbage;
mod head;
mod kind;
mod leftovers;
mod manifest;
mod merge;
mod outcome;
mod own;
mod prepare;
mod publish;
mod refs;
mod resume;
mod rewrite;
mod snapshot;
mod staged;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod tests_support;

pub(crate) use binding::foreign_schema;
pub use columns::MAPPING_PROPERTY;
pub(crate) use encoded::{is_compressed, joined, metadata_file};
pub use expiry::ExpiryRules;
pub use head::{TableCounts, TableHead};
pub(crate) use kind::Removed;
pub use kind::{RESUMED_KEY, TRIMMED_KEY};
pub(crate) use manifest::{SnapshotPlace, encode_list, encode_relocated};
pub(crate) use outcome::{Moved, delete_unnamed, put, until_known};
pub use resume::ResumeFrom;
pub use snapshot::Ownership;
pub(crate) use snapshot::owner_properties;
pub use staged::{Gap, Staged, StagedFile};
pub use table::{
    CLUSTER_PROPERTY, GAP_OFFSETS_KEY, LoadedTable, RESCUED_ROWS_KEY, TABLE_NAME_PROPERTY, TAG,
    TOPIC_NAME_PROPERTY, TOPIC_PROPERTY, UNDECODABLE_ROWS_KEY,
};
pub(crate) use table::{is_untouched, parsed_metadata, read_metadata};

use crate::encode::DecodeCounts;
use crate::names;
use crate::place::TablePlace;
use crate::pointer::{TablePointer, TablePointers};
use crate::rest::{Found, RestCatalog};
use floe_env::{Env, Error, ErrorKind, Result};
use floe_store::ObjectStore;
use futures::stream::{self, StreamExt};
use kfs::{ClusterId, TopicId};
use kind::Kind;
use prepare::{Onto, Prepared};
use snapshot::empty_table;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Attempts of one commit against others that move the pointer without moving progress.
const ATTEMPTS_MAX: usize = 5;
/// Objects that one commit puts at the same time.
const PUTS_PARALLEL_MAX: usize = 16;

/// How a commit ended.
#[derive(Debug)]
pub enum CommitEnd {
    /// The rows are in this version of the table.
    Committed(Arc<LoadedTable>),
    /// Somebody else has moved the table's progress, or the table is not to be written: nothing was
    /// committed, and the caller starts again from the newest version.
    Overtaken,
}

/// What commits have cost.
#[derive(Debug, Default)]
pub struct CommitCounts {
    /// Attempts that others were faster than.
    pub conflicts: AtomicU64,
    /// Objects put.
    pub puts: AtomicU64,
}

/// Makes commits. Cheap to clone.
#[derive(Clone)]
pub struct Committer {
    env: Env,
    store: Arc<dyn ObjectStore>,
    pointers: Arc<dyn TablePointers>,
    /// Where tables are committed to, if not to the embedded catalog.
    rest: Option<Arc<RestCatalog>>,
    cluster: ClusterId,
    rules: ExpiryRules,
    counts: Arc<CommitCounts>,
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Committer").field("cluster", &self.cluster).finish()
    }
}

impl Committer {
    /// Commits to the tables of `cluster`.
    pub fn new(
        env: Env,
        store: Arc<dyn ObjectStore>,
        pointers: Arc<dyn TablePointers>,
        cluster: ClusterId,
    ) -> Self {
        let (rules, counts) = (ExpiryRules::default(), Arc::default());
        Self { env, store, pointers, rest: None, cluster, rules, counts }
    }

    /// The same, to another catalog.
    #[must_use]
    pub(crate) fn with_catalog(self, rest: Option<Arc<RestCatalog>>) -> Self {
        Self { rest, ..self }
    }

    /// The same, which lets snapshots go by these rules.
    #[must_use]
    pub fn with_rules(self, rules: ExpiryRules) -> Self {
        Self { rules, ..self }
    }

    /// The same, with counts of its own.
    pub(crate) fn counting(&self, counts: Arc<CommitCounts>) -> Self {
        Self { counts, ..self.clone() }
    }

    /// The newest version of a topic's table, `None` if it has none.
    ///
    /// # Errors
    /// Whatever the stores answer; `Corrupt` where the version makes no sense.
    pub async fn load(&self, topic: TopicId) -> Result<Option<LoadedTable>> {
        if let Some(catalog) = &self.rest {
            return match catalog.find(topic, None).await? {
                Found::Newest(table) => Ok(Some(*table)),
                Found::Nothing | Found::Same | Found::Dropped(_) => Ok(None),
            };
        }
        let Some(pointer) = self.pointers.by_topic(topic).await? else { return Ok(None) };
        let store = self.store.as_ref();
        LoadedTable::load(&self.env, store, self.cluster, pointer).await.map(Some)
    }

    /// Makes a topic's table with its first rows, under the first free of its names. `staged`
    /// starts from nothing.
    ///
    /// # Errors
    /// `UnknownOutcome` where the table may have been made; all others mean that it was not.
    pub async fn create(
        &self,
        namespace: &str,
        topic_name: &str,
        owner: Ownership,
        mut staged: Staged,
    ) -> Result<CommitEnd> {
        let place = self.place(owner.topic, owner.table);
        for name in names::candidates(topic_name, owner.topic) {
            let metadata = empty_table(&owner, (topic_name, &name), place.url())?;
            let onto = Onto { place: &place, base: None, metadata };
            let Some(prepared) = self.put_attempt(onto, &mut staged, &Kind::Append).await? else {
                return Ok(CommitEnd::Overtaken);
            };
            let place_in_catalog = (namespace, name.as_str());
            let pointer = TablePointer::new(
                place_in_catalog,
                owner.topic,
                owner.table,
                prepared.metadata_location.clone(),
            );
            let made = until_known(&self.env, || self.pointers.create(&pointer)).await;
            let made = self.clean_up_after(made, &staged, &prepared).await?;
            if made == Moved::Applied {
                return Ok(self.committed(place, pointer, staged, prepared));
            }
            if let Some(current) = self.load_after(made, owner.topic, &staged, &prepared).await? {
                return self.after_conflict(current, staged, &prepared).await;
            }
            // The name is another topic's.
            self.discard_attempt(&prepared).await;
        }
        self.discard_data(&staged).await;
        Err(Error::limit(format!("no free table name for topic {topic_name}")))
    }

    /// Appends to a table. `staged` was made after `base` was read.
    ///
    /// # Errors
    /// `UnknownOutcome` where the rows may be in the table; all others mean that they are not.
    pub async fn append(&self, base: Arc<LoadedTable>, staged: Staged) -> Result<CommitEnd> {
        self.commit(base, staged, &Kind::Append).await
    }

    /// Puts files in the place of others that have the same rows. `files` were made after `base`
    /// was read. `Overtaken` where a file to be replaced is not in the table any more.
    ///
    /// # Errors
    /// `UnknownOutcome` where it may have been done; all others mean that nothing has changed.
    pub(crate) async fn replace(
        &self,
        base: Arc<LoadedTable>,
        removed: Removed,
        files: Vec<StagedFile>,
    ) -> Result<CommitEnd> {
        self.take_out(base, files, &Kind::Replace(removed)).await
    }

    /// Takes files out whose rows are too old. `Overtaken` where one of them is not in the table
    /// any more.
    ///
    /// # Errors
    /// `UnknownOutcome` where it may have been done; all others mean that nothing has changed.
    pub(crate) async fn trim(&self, base: Arc<LoadedTable>, removed: Removed) -> Result<CommitEnd> {
        self.take_out(base, Vec::new(), &Kind::Trim(removed)).await
    }

    async fn take_out(
        &self,
        base: Arc<LoadedTable>,
        files: Vec<StagedFile>,
        kind: &Kind,
    ) -> Result<CommitEnd> {
        let (from, to) = (base.progress.clone(), base.progress.clone());
        let (from_mapping, mapping) = (base.mapping.clone(), base.mapping.clone());
        let (gaps, counts) = (Vec::new(), DecodeCounts::default());
        let may_be_named = false;
        let staged = Staged { from, to, from_mapping, mapping, files, gaps, counts, may_be_named };
        self.commit(base, staged, kind).await
    }

    async fn commit(
        &self,
        mut base: Arc<LoadedTable>,
        mut staged: Staged,
        kind: &Kind,
    ) -> Result<CommitEnd> {
        let sweeps = base.pointer.sweeps;
        for _ in 0..ATTEMPTS_MAX {
            // A sweep that came in between may have deleted what was staged before it.
            if !kind.fits(&base, &staged) || base.pointer.sweeps != sweeps {
                self.discard_data(&staged).await;
                return Ok(CommitEnd::Overtaken);
            }
            if kind.taken_out().is_some() {
                // It brings no rows, however far the table has got meanwhile, and no columns.
                staged.to = base.progress.clone();
                staged.mapping = base.mapping.clone();
            }
            let metadata = base.metadata.clone();
            let onto = Onto { place: &base.place, base: Some(&base), metadata };
            let Some(mut prepared) = self.put_attempt(onto, &mut staged, kind).await? else {
                return Ok(CommitEnd::Overtaken);
            };
            let published = self.publish(&base, &staged, &mut prepared).await;
            let (moved, pointer) = self.clean_up_after(published, &staged, &prepared).await?;
            if moved == Moved::Applied {
                let place = base.place.clone();
                return Ok(self.committed(place, pointer, staged, prepared));
            }
            self.counts.conflicts.fetch_add(1, Ordering::Relaxed);
            // A request to another catalog may still be on its way, or was carried out, and the
            // table is not where it was.
            let may_be_made = moved == Moved::Undecided && self.rest.is_some();
            staged.may_be_named |= may_be_made;
            let topic = base.progress.topic;
            let current = self.load_after(moved, topic, &staged, &prepared).await?;
            let is_in =
                |table: &LoadedTable| table.metadata.snapshot_by_id(prepared.snapshot_id).is_some();
            let current = match current {
                Some(table) if is_in(&table) => return Ok(self.found(table, prepared)),
                current => current,
            };
            if !may_be_made {
                self.discard_attempt(&prepared).await;
            }
            let Some(current) = current else {
                self.discard_data(&staged).await;
                return Ok(CommitEnd::Overtaken);
            };
            base = Arc::new(current);
        }
        self.discard_data(&staged).await;
        Err(Error::retry("others kept changing the table"))
    }

    pub(crate) fn place(&self, topic: TopicId, table: uuid::Uuid) -> TablePlace {
        TablePlace::new(self.store.as_ref(), self.cluster, topic, table)
    }

    /// Puts all files of an attempt. `None` where it was overtaken; then, and where it fails, none
    /// of its files is left.
    async fn put_attempt(
        &self,
        onto: Onto<'_>,
        staged: &mut Staged,
        kind: &Kind,
    ) -> Result<Option<Prepared>> {
        let prepared = match self.prepare(onto, staged, kind).await {
            Ok(Some(prepared)) => prepared,
            none => {
                self.discard_data(staged).await;
                return none;
            }
        };
        if let Err(error) = self.put_all(staged, &prepared).await {
            self.discard(staged, &prepared).await;
            return Err(error);
        }
        Ok(Some(prepared))
    }

    /// Puts everything at once. All keys are this attempt's own, so "exists" means that an earlier
    /// try was ours. Waits for all puts also where one fails, so that none comes after what is then
    /// deleted.
    async fn put_all(&self, staged: &mut Staged, prepared: &Prepared) -> Result<()> {
        let data = staged.files.iter().filter_map(|file| {
            file.bytes.as_ref().map(|bytes| (file.key.clone(), vec![bytes.clone()]))
        });
        let all = data.chain(prepared.puts.iter().cloned());
        let puts: Vec<_> = all.map(|(key, pieces)| put(self.store.clone(), key, pieces)).collect();
        self.counts.puts.fetch_add(puts.len() as u64, Ordering::Relaxed);
        let puts = stream::iter(puts).buffer_unordered(PUTS_PARALLEL_MAX);
        let ended: Vec<Result<()>> = puts.collect().await;
        if let Some(error) = ended.into_iter().find_map(Result::err) {
            // Whatever is on the store: the pointer was not moved.
            return Err(match error.kind() {
                ErrorKind::UnknownOutcome => {
                    Error::retry("a table's file may be missing").with_source(error)
                }
                _ => error,
            });
        }
        for file in &mut staged.files {
            file.bytes = None;
        }
        Ok(())
    }

    fn committed(
        &self,
        place: TablePlace,
        pointer: TablePointer,
        staged: Staged,
        prepared: Prepared,
    ) -> CommitEnd {
        // As it will be read; what was just made of it fits it.
        let mapping = binding::bound(staged.mapping.clone(), &prepared.metadata);
        let mapping = mapping.unwrap_or(staged.mapping);
        let head = TableHead {
            pointer,
            place,
            refs: prepared.refs,
            manifests: prepared.manifests,
            progress: staged.to,
            mapping,
            stopped: None,
            counts: table::counts_of(&prepared.metadata),
            file: prepared.metadata_file,
        };
        let table = Arc::new(LoadedTable {
            head: Arc::new(head),
            metadata: prepared.metadata,
            encoded: prepared.encoded,
        });
        garbage::collect_later(
            &self.env,
            self.store.clone(),
            self.pointers.clone(),
            table.clone(),
            prepared.expired,
            prepared.old_metadata,
        );
        CommitEnd::Committed(table)
    }
}
