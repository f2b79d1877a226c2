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
mod kind;
mod manifest;
mod merge;
mod refs;
mod resume;
mod rewrite;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod tests_support;

pub(crate) use binding::foreign_schema;
pub use columns::MAPPING_PROPERTY;
pub use expiry::ExpiryRules;
pub(crate) use kind::Removed;
pub(crate) use manifest::{SnapshotPlace, encode_list, encode_relocated};
pub use resume::ResumeFrom;
pub use snapshot::Ownership;
pub use table::{CLUSTER_PROPERTY, GAP_OFFSETS_KEY, LoadedTable, TAG, TOPIC_PROPERTY};
pub(crate) use table::{is_compressed, metadata_file, read_metadata};

use crate::mapping::Mapping;
use crate::names;
use crate::place::TablePlace;
use crate::pointer::{TablePointer, TablePointers};
use crate::progress::Progress;
use bytes::Bytes;
use floe_env::{Env, Error, ErrorKind, Result};
use floe_metadata::facts::ChangeOutcome;
use floe_store::ObjectStore;
use futures::stream::{self, StreamExt, TryStreamExt};
use iceberg::spec::{DataFile, ManifestFile, SnapshotRef, TableMetadata};
use kfs::{ClusterId, TopicId};
use kind::Kind;
use manifest::{Entries, encode_manifest};
use refs::Refs;
use rewrite::Rewriting;
use serde::Serialize;
use snapshot::{Addition, Version, empty_table, next_snapshot, next_version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Summary key: how an operator let a stopped table go on.
pub const RESUMED_KEY: &str = "floe.resumed";

/// Attempts of one commit against others that move the pointer without moving progress.
const ATTEMPTS_MAX: usize = 5;
/// Times that a move of the pointer is made until its outcome is known.
const MOVES_MAX: u32 = 6;
/// First pause between two of these; doubles each time.
const MOVE_PAUSE: Duration = Duration::from_millis(50);
/// Objects that one commit puts at the same time.
const PUTS_PARALLEL_MAX: usize = 16;
/// Times that an object is put until its outcome is known.
const PUT_TRIES_MAX: usize = 3;

/// Offsets that can never be in the table, because the log had lost them before they were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The partition.
    pub partition: usize,
    /// The first lost offset.
    pub from: i64,
    /// The first offset that is there again.
    pub until: i64,
    /// Why.
    pub why: String,
}

/// A data file that no commit has named yet.
#[derive(Clone, Debug)]
pub struct StagedFile {
    /// Its manifest entry.
    pub data_file: DataFile,
    /// Its object key.
    pub key: String,
    /// Its bytes, until they are on the store.
    pub bytes: Option<Bytes>,
}

/// What a commit is to bring.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The map that the table must have.
    pub from: Progress,
    /// The map that it will have.
    pub to: Progress,
    /// The columns that the table must have beside the ten.
    pub from_mapping: Mapping,
    /// Those that it will have: the same, or more.
    pub mapping: Mapping,
    /// Everything between the two.
    pub files: Vec<StagedFile>,
    /// Less this.
    pub gaps: Vec<Gap>,
}

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
    metadata_location: String,
    refs: Refs,
    manifests: Vec<ManifestFile>,
    /// Files that the commit takes out are not in the table any more.
    is_overtaken: bool,
    expired: Vec<SnapshotRef>,
    old_metadata: Vec<String>,
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
        LoadedTable::load(self.store.as_ref(), self.cluster, pointer).await.map(Some)
    }

    /// Makes a topic's table with its first rows, under the first free of its names. `staged`
    /// starts from nothing.
    ///
    /// # Errors `UnknownOutcome` where the table may have been made; all others mean that it was
    /// not.
    pub async fn create(
        &self,
        namespace: &str,
        topic_name: &str,
        owner: Ownership,
        mut staged: Staged,
    ) -> Result<CommitEnd> {
        let place = self.place(owner.topic, owner.table);
        let empty = empty_table(&owner, place.url())?;
        let prepared = self.prepare(&place, None, empty, 0, &staged, &Kind::Append).await?;
        self.put_all(&mut staged, &prepared).await?;
        for name in names::candidates(topic_name, owner.topic) {
            let place_in_catalog = (namespace, name.as_str());
            let pointer = TablePointer::new(
                place_in_catalog,
                owner.topic,
                owner.table,
                prepared.metadata_location.clone(),
            );
            let made = self.until_known(|| self.pointers.create(&pointer)).await;
            match self.clean_up_after(made, &staged, &prepared).await? {
                ChangeOutcome::Applied => {
                    return Ok(self.committed(place, pointer, staged, prepared));
                }
                ChangeOutcome::Rejected => {}
            }
            if let Some(current) = self.load(owner.topic).await? {
                return self.after_conflict(current, staged, &prepared).await;
            }
        }
        self.discard(&staged, &prepared).await;
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
        let (from, to) = (base.progress.clone(), base.progress.clone());
        let (from_mapping, mapping) = (base.mapping.clone(), base.mapping.clone());
        let staged = Staged { from, to, from_mapping, mapping, files, gaps: Vec::new() };
        self.commit(base, staged, &Kind::Replace(removed)).await
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
            if let Kind::Replace(_) = kind {
                // The rows are the same, however far the table has got meanwhile, and so are the
                // columns that they have.
                staged.to = base.progress.clone();
                staged.mapping = base.mapping.clone();
            }
            let version = base.pointer.metadata_version + 1;
            let metadata = base.metadata.clone();
            let prepared =
                self.prepare(&base.place, Some(&base), metadata, version, &staged, kind).await?;
            if prepared.is_overtaken {
                self.discard_data(&staged).await;
                return Ok(CommitEnd::Overtaken);
            }
            self.put_all(&mut staged, &prepared).await?;
            let pointer = base.pointer.moved(prepared.metadata_location.clone());
            let moved = self.until_known(|| self.pointers.swap(&base.pointer, &pointer)).await;
            match self.clean_up_after(moved, &staged, &prepared).await? {
                ChangeOutcome::Applied => {
                    let place = base.place.clone();
                    return Ok(self.committed(place, pointer, staged, prepared));
                }
                ChangeOutcome::Rejected => {}
            }
            self.counts.conflicts.fetch_add(1, Ordering::Relaxed);
            let Some(current) = self.load(base.progress.topic).await? else {
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

    async fn prepare(
        &self,
        place: &TablePlace,
        base: Option<&LoadedTable>,
        metadata: TableMetadata,
        version: u64,
        staged: &Staged,
        kind: &Kind,
    ) -> Result<Prepared> {
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
        };
        let location = base.map(|base| base.pointer.metadata_location.clone());
        let no_refs = Refs::new();
        let refs = base.map_or(&no_refs, |base| &base.refs);
        let next = next_version(
            Version { metadata: metadata.clone(), refs, location },
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
            refs: next.refs,
            manifests: Vec::new(),
            is_overtaken: false,
            expired: next.expired,
            old_metadata: old_metadata.collect(),
        };
        self.prepare_manifests(place, base, snapshot, staged, kind, &mut prepared).await?;
        let list = encode_list(&list_url, snapshot, &prepared.manifests).await?;
        prepared.puts.push((list_key, list));
        prepared.puts.push((metadata_key, metadata_file));
        Ok(prepared)
    }

    async fn prepare_manifests(
        &self,
        place: &TablePlace,
        base: Option<&LoadedTable>,
        snapshot: SnapshotPlace,
        staged: &Staged,
        kind: &Kind,
        prepared: &mut Prepared,
    ) -> Result<()> {
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
        let Some(base) = base else { return Ok(()) };
        if let Kind::Replace(removed) = kind {
            let (env, store) = (&self.env, self.store.as_ref());
            let rewriting = Rewriting { env, store, place, metadata: &metadata, snapshot };
            match rewriting.manifests_without(&base.manifests, removed, prepared).await? {
                Some(left) => prepared.manifests.extend(left),
                None => prepared.is_overtaken = true,
            }
            return Ok(());
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
        Ok(())
    }

    /// Puts everything at once. All keys are this attempt's own, so "exists" means that an earlier
    /// try was ours.
    async fn put_all(&self, staged: &mut Staged, prepared: &Prepared) -> Result<()> {
        let data = staged
            .files
            .iter()
            .filter_map(|file| file.bytes.as_ref().map(|bytes| (file.key.clone(), bytes.clone())));
        let all = data.chain(prepared.puts.iter().cloned());
        let puts: Vec<_> = all.map(|(key, bytes)| put(self.store.clone(), key, bytes)).collect();
        self.counts.puts.fetch_add(puts.len() as u64, Ordering::Relaxed);
        stream::iter(puts).buffer_unordered(PUTS_PARALLEL_MAX).try_collect::<Vec<()>>().await?;
        for file in &mut staged.files {
            file.bytes = None;
        }
        Ok(())
    }

    /// Makes a move until its outcome is known.
    async fn until_known<Moving>(&self, mut make: impl FnMut() -> Moving) -> Result<ChangeOutcome>
    where
        Moving: Future<Output = Result<ChangeOutcome>>,
    {
        let mut pause = MOVE_PAUSE;
        let mut unknown: Option<Error> = None;
        for _ in 0..MOVES_MAX {
            match make().await {
                Ok(outcome) => return Ok(outcome),
                Err(error) if error.kind() == ErrorKind::UnknownOutcome => unknown = Some(error),
                // Once a try may have worked, only an answer tells.
                Err(error) if unknown.is_none() => return Err(error),
                Err(error) => tracing::debug!(%error, "asking again for a commit's outcome"),
            }
            self.env.sleep(pause).await;
            pause *= 2;
        }
        Err(unknown.unwrap_or_else(|| Error::unknown_outcome("move a table's pointer")))
    }

    /// Deletes the attempt's files where the move certainly was not made.
    async fn clean_up_after(
        &self,
        moved: Result<ChangeOutcome>,
        staged: &Staged,
        prepared: &Prepared,
    ) -> Result<ChangeOutcome> {
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
        let table = Arc::new(LoadedTable {
            pointer,
            place,
            metadata: prepared.metadata,
            metadata_json: prepared.metadata_json,
            refs: prepared.refs,
            manifests: prepared.manifests,
            progress: staged.to,
            mapping,
            stopped: None,
        });
        garbage::collect_later(
            &self.env,
            self.store.clone(),
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
        self.delete(&keys).await;
    }

    async fn discard_attempt(&self, prepared: &Prepared) {
        let keys: Vec<String> = prepared.puts.iter().map(|(key, _)| key.clone()).collect();
        self.delete(&keys).await;
    }

    /// Best effort: what stays behind is an orphan, which the sweep finds.
    async fn delete(&self, keys: &[String]) {
        if let Err(error) = self.store.delete(keys).await {
            tracing::warn!(%error, "files of a failed commit stay until the orphan sweep");
        }
    }
}

fn partition_spec_id(file: &DataFile) -> i32 {
    if file.partition().fields().is_empty() {
        crate::schema::SPEC_UNPARTITIONED
    } else {
        crate::schema::SPEC_DAY
    }
}

/// Puts an object under a key that nobody else uses.
pub(crate) async fn put(store: Arc<dyn ObjectStore>, key: String, bytes: Bytes) -> Result<()> {
    let mut tried = 1;
    loop {
        match store.put(&key, vec![bytes.clone()]).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome && tried < PUT_TRIES_MAX => {
                tried += 1;
            }
            Err(error) => return Err(error.context("put a table's file")),
        }
    }
}
