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
mod expiry;
mod garbage;
mod head;
mod kind;
mod manifest;
mod merge;
mod outcome;
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
pub use expiry::ExpiryRules;
pub use head::{TableCounts, TableHead};
pub(crate) use kind::Removed;
pub use kind::{RESUMED_KEY, TRIMMED_KEY};
pub(crate) use manifest::{SnapshotPlace, encode_list, encode_relocated};
pub(crate) use outcome::{Moved, delete_unnamed, put, until_known};
pub use resume::ResumeFrom;
pub use snapshot::Ownership;
pub use staged::{Gap, Staged, StagedFile};
pub use table::{
    CLUSTER_PROPERTY, GAP_OFFSETS_KEY, LoadedTable, RESCUED_ROWS_KEY, TABLE_NAME_PROPERTY, TAG,
    TOPIC_NAME_PROPERTY, TOPIC_PROPERTY, UNDECODABLE_ROWS_KEY,
};
pub(crate) use table::{is_compressed, metadata_file, read_metadata};

use crate::encode::DecodeCounts;
use crate::names;
use crate::place::TablePlace;
use crate::pointer::{TablePointer, TablePointers};
use bytes::Bytes;
use floe_env::{Env, Error, ErrorKind, Result};
use floe_store::ObjectStore;
use futures::stream::{self, StreamExt};
use iceberg::spec::{DataFile, ManifestFile, SnapshotRef, TableMetadata};
use kfs::{ClusterId, TopicId};
use kind::Kind;
use manifest::{Entries, encode_manifest};
use refs::Refs;
use rewrite::Rewriting;
use snapshot::{Addition, Version, empty_table, next_snapshot, next_version};
use std::collections::BTreeMap;
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
    cluster: ClusterId,
    rules: ExpiryRules,
    counts: Arc<CommitCounts>,
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Committer").field("cluster", &self.cluster).finish()
    }
}

/// All that one attempt needs, in memory.
struct Prepared {
    puts: Vec<(String, Bytes)>,
    snapshot_id: i64,
    metadata: TableMetadata,
    metadata_json: Bytes,
    metadata_file: Bytes,
    metadata_location: String,
    refs: Refs,
    manifests: Vec<ManifestFile>,
    expired: Vec<SnapshotRef>,
    old_metadata: Vec<String>,
}

/// The version that an attempt is made on: that of `base`, or of a table that is to be made.
struct Onto<'a> {
    place: &'a TablePlace,
    base: Option<&'a LoadedTable>,
    metadata: TableMetadata,
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
        Self { env, store, pointers, cluster, rules, counts }
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
        let staged = Staged { from, to, from_mapping, mapping, files, gaps, counts };
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
            let Some(prepared) = self.put_attempt(onto, &mut staged, kind).await? else {
                return Ok(CommitEnd::Overtaken);
            };
            let pointer = base.pointer.moved(prepared.metadata_location.clone());
            let moved =
                until_known(&self.env, || self.pointers.swap(&base.pointer, &pointer)).await;
            let moved = self.clean_up_after(moved, &staged, &prepared).await?;
            if moved == Moved::Applied {
                let place = base.place.clone();
                return Ok(self.committed(place, pointer, staged, prepared));
            }
            self.counts.conflicts.fetch_add(1, Ordering::Relaxed);
            let topic = base.progress.topic;
            let Some(current) = self.load_after(moved, topic, &staged, &prepared).await? else {
                self.discard(&staged, &prepared).await;
                return Ok(CommitEnd::Overtaken);
            };
            if current.metadata.snapshot_by_id(prepared.snapshot_id).is_some() {
                return Ok(CommitEnd::Committed(Arc::new(current)));
            }
            self.discard_attempt(&prepared).await;
            base = Arc::new(current);
        }
        self.discard_data(&staged).await;
        Err(Error::retry("others kept changing the table"))
    }

    /// The table after a move that was rejected. Where that fails, the attempt's files go, unless
    /// an earlier try of the move may have worked.
    async fn load_after(
        &self,
        moved: Moved,
        topic: TopicId,
        staged: &Staged,
        prepared: &Prepared,
    ) -> Result<Option<LoadedTable>> {
        let loaded = self.load(topic).await;
        match loaded {
            Err(error) if moved == Moved::Undecided => {
                let unknown = "whether the table has a commit that was made more than once";
                Err(Error::unknown_outcome(unknown).with_source(error))
            }
            Err(error) => {
                self.discard(staged, prepared).await;
                Err(error)
            }
            found => found,
        }
    }

    /// A topic's table was made by somebody: by us, if our snapshot is in it.
    async fn after_conflict(
        &self,
        current: LoadedTable,
        staged: Staged,
        prepared: &Prepared,
    ) -> Result<CommitEnd> {
        if current.metadata.snapshot_by_id(prepared.snapshot_id).is_some() {
            return Ok(CommitEnd::Committed(Arc::new(current)));
        }
        self.discard(&staged, prepared).await;
        Ok(CommitEnd::Overtaken)
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

    /// `None` where the table lacks a file that the commit takes out.
    async fn prepare(
        &self,
        Onto { place, base, metadata }: Onto<'_>,
        staged: &Staged,
        kind: &Kind,
    ) -> Result<Option<Prepared>> {
        let version = base.map_or(0, |base| base.pointer.metadata_version + 1);
        // Positive, as some readers expect.
        let snapshot_id = i64::try_from(self.env.random_u64() >> 1).expect("63 bits").max(1);
        let snapshot = next_snapshot(base, snapshot_id);
        let list_key = place.manifest_list_key(&self.env, snapshot_id);
        let list_url = place.url_of(&list_key)?;
        let addition = Addition {
            operation: kind.operation(),
            removed: kind.removed(),
            note: kind.note(),
            files: staged.files.iter().map(|file| &file.data_file).collect(),
            progress: &staged.to,
            gaps: &staged.gaps,
            mapping: &staged.mapping,
            counts: &staged.counts,
        };
        let location = base.map(|base| base.pointer.metadata_location.clone());
        let no_refs = Refs::new();
        let refs = base.map_or(&no_refs, |base| &base.refs);
        let next = next_version(
            Version { name: base.map(|base| base.pointer.name.as_str()), metadata, refs, location },
            snapshot,
            list_url.clone(),
            self.env.now_ms(),
            &self.rules,
            &addition,
        )?;
        let (metadata_json, metadata_file) = table::metadata_file(&next.built.metadata)?;
        let old_metadata = next.built.expired_metadata_logs.iter();
        let old_metadata = old_metadata.filter_map(|log| place.key_of(&log.metadata_file).ok());
        let is_compressed = table::is_compressed(&next.built.metadata);
        let metadata_key = place.metadata_key(&self.env, version, is_compressed);
        let mut prepared = Prepared {
            puts: Vec::new(),
            snapshot_id,
            metadata: next.built.metadata,
            metadata_location: place.url_of(&metadata_key)?,
            metadata_json,
            metadata_file: metadata_file.clone(),
            refs: next.refs,
            manifests: Vec::new(),
            expired: next.expired,
            old_metadata: old_metadata.collect(),
        };
        if !self.prepare_manifests(place, base, snapshot, staged, kind, &mut prepared).await? {
            return Ok(None);
        }
        let list = encode_list(&list_url, snapshot, &prepared.manifests).await?;
        prepared.puts.push((list_key, list));
        prepared.puts.push((metadata_key, metadata_file));
        Ok(Some(prepared))
    }

    /// False where the table lacks a file that the commit takes out.
    async fn prepare_manifests(
        &self,
        place: &TablePlace,
        base: Option<&LoadedTable>,
        snapshot: SnapshotPlace,
        staged: &Staged,
        kind: &Kind,
        prepared: &mut Prepared,
    ) -> Result<bool> {
        // Of the version that is being made: the files may have columns that are new.
        let metadata = prepared.metadata.clone();
        let mut by_spec: BTreeMap<i32, Vec<DataFile>> = BTreeMap::new();
        for file in &staged.files {
            let (spec_id, file) = (partition_spec_id(&file.data_file), file.data_file.clone());
            by_spec.entry(spec_id).or_default().push(file);
        }
        for (spec_id, files) in by_spec {
            let key = place.manifest_key(&self.env);
            let shape = merge::manifest_shape(&metadata, spec_id)?;
            let entries = Entries::Added(files);
            let url = place.url_of(&key)?;
            let (manifest, bytes) = encode_manifest(&url, snapshot, shape, entries).await?;
            prepared.puts.push((key, bytes));
            prepared.manifests.push(manifest);
        }
        let Some(base) = base else { return Ok(true) };
        if let Some(removed) = kind.taken_out() {
            let (env, store) = (&self.env, &self.store);
            let rewriting = Rewriting { env, store, place, metadata: &metadata, snapshot };
            let left = rewriting.manifests_without(&base.manifests, removed, prepared).await?;
            let Some(left) = left else { return Ok(false) };
            prepared.manifests.extend(left);
            return Ok(true);
        }
        let carried = merge::carried_manifests(
            &self.env,
            &self.store,
            place,
            &metadata,
            snapshot,
            &base.manifests,
            prepared,
        );
        let carried = carried.await?;
        prepared.manifests.extend(carried);
        Ok(true)
    }

    /// Puts everything at once. All keys are this attempt's own, so "exists" means that an earlier
    /// try was ours. Waits for all puts also where one fails, so that none comes after what is then
    /// deleted.
    async fn put_all(&self, staged: &mut Staged, prepared: &Prepared) -> Result<()> {
        let data = staged
            .files
            .iter()
            .filter_map(|file| file.bytes.as_ref().map(|bytes| (file.key.clone(), bytes.clone())));
        let all = data.chain(prepared.puts.iter().cloned());
        let puts: Vec<_> = all.map(|(key, bytes)| put(self.store.clone(), key, bytes)).collect();
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

    /// Deletes the attempt's files where the move certainly was not made.
    async fn clean_up_after(
        &self,
        moved: Result<Moved>,
        staged: &Staged,
        prepared: &Prepared,
    ) -> Result<Moved> {
        if moved.as_ref().is_err_and(|error| error.kind() != ErrorKind::UnknownOutcome) {
            self.discard(staged, prepared).await;
        }
        moved
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
            metadata_json: prepared.metadata_json,
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

    async fn discard(&self, staged: &Staged, prepared: &Prepared) {
        self.discard_data(staged).await;
        self.discard_attempt(prepared).await;
    }

    async fn discard_data(&self, staged: &Staged) {
        let keys: Vec<String> = staged.files.iter().map(|file| file.key.clone()).collect();
        delete_unnamed(self.store.as_ref(), &keys).await;
    }

    async fn discard_attempt(&self, prepared: &Prepared) {
        let keys: Vec<String> = prepared.puts.iter().map(|(key, _)| key.clone()).collect();
        delete_unnamed(self.store.as_ref(), &keys).await;
    }
}

fn partition_spec_id(file: &DataFile) -> i32 {
    if file.partition().fields().is_empty() {
        crate::schema::SPEC_UNPARTITIONED
    } else {
        crate::schema::SPEC_DAY
    }
}
