//! Folding: small data files become larger ones, in a commit of its own that has the same rows.
//!
//! Readers that follow a table's appends skip such a commit (`replace`). It carries the progress
//! map of the version that it lands on, moves the tag, and goes through only if every file that it
//! replaces is still in the table; so it never conflicts with appends, it only comes before or
//! after one. Replaced files live until the snapshots that name them expire.
//!
//! | file | does |
//! |---|---|
//! | `plan.rs` | chooses what is folded; a byte at most three times before its file is full |
//! | `rows.rs` | merges sorted files into one sorted file, or into one a day |
//! | `file.rs` | writes it, and its manifest entry from those of its sources |
//!
//! One fold runs at a time. It holds its sources, their next rows and its result in memory, each
//! about as large as a full file at most, and is the upkeep's, so that no commit waits for it but
//! for the moment of its own. A source that cannot be read is left out of further folds; readers of
//! the table will meet it. Cost: a GET a source, a PUT for the file, and what a commit costs.

mod file;
mod plan;
mod rows;
#[cfg(test)]
mod tests;

pub use plan::FoldRules;

use crate::bridge::Bridge;
use crate::commit::{CommitEnd, LoadedTable, Removed, StagedFile, delete_unnamed, put};
use crate::encode::{json_ids, writer_properties};
use crate::projection::arrow_schema_of;
use crate::worker::Worker;
use file::{Merged, data_file_of};
use floe_env::{Error, Instant, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use iceberg::spec::{DataFile, ManifestContentType};
use kfs::TopicId;
use plan::{Candidate, Fold, plan};
use rows::{Failure, Job, merge};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Manifests that are looked through for small files, the newest first.
const MANIFESTS_MAX: usize = 200;
/// Objects that a fold reads at the same time.
const READS_MAX: usize = 8;
/// Unreadable files that are known of a table. With more of them it is not folded.
const UNREADABLE_MAX: usize = 1000;
/// Table property: how large a full file is, bytes.
const FILE_BYTES_PROPERTY: &str = "write.target-file-size-bytes";

/// What folds have done since the broker started.
#[derive(Debug, Default)]
pub struct FoldCounts {
    /// Folds that were committed.
    pub folds: AtomicU64,
    /// Files that they took out.
    pub files: AtomicU64,
    /// Bytes of the files that they made.
    pub bytes: AtomicU64,
}

/// The files of a table.
struct Found {
    /// Those that may be folded: Floe's own, while nobody has written deletes, which belong to the
    /// files that they were written for.
    candidates: Vec<Candidate>,
    /// How many are as large as they get.
    full_files: u64,
}

/// What is known of folding.
#[derive(Debug, Default)]
pub(crate) struct FoldState {
    /// The table that was looked at last.
    at: Option<TopicId>,
    /// The tables in which there was nothing to fold.
    idle: BTreeMap<TopicId, Idle>,
    /// Addresses of files that cannot be read.
    unreadable: BTreeMap<TopicId, BTreeSet<String>>,
}

/// A table in which there was nothing to fold when it was looked at.
#[derive(Debug)]
struct Idle {
    version: u64,
    at: Instant,
    /// It had files that only were too young.
    has_young: bool,
}

/// What came of looking at a table.
#[derive(Debug)]
enum Looked {
    /// Something was done; there may be more.
    Folded,
    /// There was nothing to do, for now if there are files that only are too young.
    Idle { has_young: bool },
}

impl FoldState {
    /// Without the files that are known to be unreadable.
    fn readable(&self, topic: TopicId, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        if let Some(unreadable) = self.unreadable.get(&topic) {
            candidates.retain(|candidate| !unreadable.contains(candidate.file.file_path()));
        }
        candidates
    }

    /// False if there are too many.
    fn note_unreadable(&mut self, topic: TopicId, file: &DataFile) -> bool {
        let known = self.unreadable.entry(topic).or_default();
        known.len() < UNREADABLE_MAX && known.insert(file.file_path().to_owned())
    }
}

impl Bridge {
    /// Looks at the next table that may have something to fold, and folds it. True if there may be
    /// more to fold in it.
    pub(crate) async fn fold_next(&self) -> Result<bool> {
        let Some(worker) = self.next_to_fold() else { return Ok(false) };
        let Some(base) = worker.newest().await? else { return Ok(false) };
        let version = base.pointer.metadata_version;
        let looked = self.fold(&worker, base).await;
        let has_young = match looked {
            Ok(Looked::Folded) => return Ok(true),
            Ok(Looked::Idle { has_young }) => has_young,
            Err(_) => false,
        };
        let idle = Idle { version, at: self.env().monotonic(), has_young };
        self.fold_state().lock().idle.insert(worker.topic, idle);
        let failed =
            |error: Error| error.context(&format!("fold the table of {}", worker.topic_name));
        looked.map(|_| false).map_err(failed)
    }

    /// The next table, in the order of topic ids, that has changed enough since it was looked at.
    fn next_to_fold(&self) -> Option<Arc<Worker>> {
        let (now, rules) = (self.env().monotonic(), &self.config().fold);
        let workers = self.workers();
        let mut state = self.fold_state().lock();
        state.idle.retain(|topic, _| workers.contains_key(topic));
        state.unreadable.retain(|topic, _| workers.contains_key(topic));
        let is_due = |worker: &Arc<Worker>| {
            let Some(table) = worker.head().filter(|table| table.stopped.is_none()) else {
                return false;
            };
            let Some(idle) = state.idle.get(&worker.topic) else { return true };
            let commits = table.pointer.metadata_version.saturating_sub(idle.version);
            commits >= rules.fresh_files as u64
                || ((commits > 0 || idle.has_young) && now >= idle.at + rules.fresh_age)
                || now >= idle.at + rules.quiet
        };
        let due: Vec<&Arc<Worker>> = workers.values().filter(|worker| is_due(worker)).collect();
        let behind = due.iter().find(|worker| state.at.is_none_or(|at| worker.topic > at));
        let next = behind.or(due.first()).map(|worker| Arc::clone(worker));
        state.at = next.as_ref().map(|worker| worker.topic);
        next
    }

    async fn fold(&self, worker: &Worker, base: Arc<LoadedTable>) -> Result<Looked> {
        let rules = self.config().fold.for_files_of(full_file_bytes(&base));
        let Found { candidates, full_files } = self.look_through(&base, &rules).await?;
        worker.note_full_files(full_files);
        let candidates = self.fold_state().lock().readable(worker.topic, candidates);
        let has_young = plan::has_young(&candidates, &rules);
        let Some(fold) = plan(candidates, &rules, self.env().now_ms()) else {
            return Ok(Looked::Idle { has_young });
        };
        let merged = match self.merged(&base, &fold).await {
            Ok(merged) => merged,
            Err(Failure { source, error }) => {
                let file = source.and_then(|source| fold.files.get(source));
                let is_new = |file| self.fold_state().lock().note_unreadable(worker.topic, file);
                let Some(file) = file.filter(|file| is_new(file)) else { return Err(error) };
                let (topic, file) = (&worker.topic_name, file.file_path());
                tracing::error!(%topic, file, %error, "a table's file cannot be read");
                return Ok(Looked::Folded);
            }
        };
        let mut removed: Removed = fold.files.iter().cloned().collect();
        // Before the commit, so that no look waits for it.
        removed.locate(&self.shared_store(), &base).await?;
        let files = self.put_merged(&base, &fold, merged).await?;
        worker.count_puts(files.len() as u64);
        let bytes: u64 = files.iter().map(|file| file.data_file.file_size_in_bytes()).sum();
        let count = removed.len();
        let CommitEnd::Committed(table) = worker.replace(base, removed, files).await? else {
            return Ok(Looked::Idle { has_young: true });
        };
        let counts = self.fold_counts();
        counts.folds.fetch_add(1, Ordering::Relaxed);
        counts.files.fetch_add(count as u64, Ordering::Relaxed);
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        tracing::debug!(table = %table.pointer.name, files = count, bytes, "files folded");
        Ok(Looked::Folded)
    }

    /// Puts the files; none is left where one fails.
    async fn put_merged(
        &self,
        base: &LoadedTable,
        fold: &Fold,
        merged: Vec<Merged>,
    ) -> Result<Vec<StagedFile>> {
        let mut files = Vec::with_capacity(merged.len());
        let mut puts = Vec::with_capacity(merged.len());
        for merged in merged {
            let key = base.place.folded_key(self.env(), fold.generation + 1);
            let data_file = data_file_of(&merged, &fold.files, base.place.url_of(&key)?)?;
            puts.push((key.clone(), merged.bytes));
            files.push(StagedFile { data_file, key, bytes: None });
        }
        for (key, bytes) in puts {
            if let Err(error) = put(self.shared_store(), key, vec![bytes]).await {
                let keys: Vec<String> = files.into_iter().map(|file| file.key).collect();
                delete_unnamed(self.store(), &keys).await;
                return Err(error);
            }
        }
        Ok(files)
    }

    /// Reads which files the table has.
    async fn look_through(&self, base: &LoadedTable, rules: &FoldRules) -> Result<Found> {
        let data = base.manifests.iter();
        let data = data.filter(|manifest| manifest.content == ManifestContentType::Data);
        let mut manifests: Vec<_> = data.collect();
        manifests.sort_by_key(|manifest| std::cmp::Reverse(manifest.sequence_number));
        let (mut candidates, mut full_files) = (Vec::new(), 0);
        for manifest in manifests.into_iter().take(MANIFESTS_MAX) {
            for file in base.files_of(self.store(), manifest).await? {
                let is_full = file.data_file.file_size_in_bytes() >= rules.full_bytes();
                full_files += u64::from(is_full);
                let Some(generation) = base.place.generation_of(file.data_file.file_path()) else {
                    continue;
                };
                let snapshot = base.metadata.snapshot_by_id(file.snapshot_id);
                candidates.push(Candidate {
                    spec_id: manifest.partition_spec_id,
                    generation,
                    sequence_number: file.sequence_number,
                    // A snapshot that has expired is old enough for everything.
                    committed_ms: snapshot.map_or(0, |snapshot| snapshot.timestamp_ms()),
                    file: file.data_file,
                });
            }
        }
        if base.has_deletes() {
            candidates.clear();
        }
        Ok(Found { candidates, full_files })
    }

    async fn merged(&self, base: &LoadedTable, fold: &Fold) -> Result<Vec<Merged>, Failure> {
        let (store, place) = (self.shared_store(), &base.place);
        let reads = fold.files.iter().enumerate().map(|(source, file)| {
            let (store, key) = (store.clone(), place.key_of(file.file_path()));
            async move {
                let key = key?;
                let missing = || Error::corrupt(format!("object `{key}` is missing"));
                let found = store.get(&key).await?;
                found.ok_or_else(missing).map_err(Failure::of(source))
            }
        });
        let reads: Vec<_> = reads.collect();
        let sources = stream::iter(reads).buffered(READS_MAX).try_collect().await?;
        let schema = arrow_schema_of(base.metadata.current_schema())?;
        let properties = writer_properties(&schema, &json_ids(&base.mapping), file::ZSTD_LEVEL);
        let decoded_bytes_max = usize::try_from(self.config().fold.file_bytes_max);
        let decoded_bytes_max = decoded_bytes_max.unwrap_or(usize::MAX);
        let job = Job { schema, properties, spec_id: fold.spec_id, decoded_bytes_max };
        let expected: u64 = fold.files.iter().map(DataFile::record_count).sum();
        let merged = self.env().blocking(move || merge(&job, sources)).await?;
        let rows: u64 = merged.iter().map(|merged| merged.rows).sum();
        if rows != expected {
            return Err(Error::bug(format!("{expected} rows became {rows}")).into());
        }
        Ok(merged)
    }
}

fn full_file_bytes(table: &LoadedTable) -> Option<u64> {
    table.metadata.properties().get(FILE_BYTES_PROPERTY)?.parse().ok()
}
