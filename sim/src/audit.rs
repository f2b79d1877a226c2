//! Looks at both stores as they are, past all faults, in the very moment in which a change is
//! applied:
//!
//! * What a commit, a merge or a table's pointer names is there (durable before visible).
//! * So is every file that a table's version reaches, when the pointer moves and when all is over.
//! * A table's snapshots are one line: none is ever replaced by another.
//! * Nothing is deleted that an extent, or a table's newest version, names.
//! * A log start moves only forward, and only as far as somebody asked, or as retention may.
//! * No commit of a closed registration is applied, and no other change that clients or readers can
//!   see: each names a registration, which is open.
//! * Whatever the audit itself asks is answered: nothing of the world's own fails.
//! * When all is over, nothing is left that nobody needs ([`Audit::leftovers`]).

use crate::fault_metadata::{is_pointer, is_visible};
use crate::metadata_server::{MetadataServer, metadata_location};
use crate::model::{Keep, Model};
use crate::object_server::ObjectServer;
use crate::table_files::{TableFiles, numbered_snapshots};
use crate::table_model::rewritten;
use floe_env::{Env, ErrorKind, Result};
use floe_iceberg_bridge::progress::Progress;
use floe_metadata::MetadataStore;
use floe_metadata::facts::{Change, Expect, Fence, Write};
use floe_metadata::rows::{Extent, PartitionState, Place, SegmentFacts, SegmentOutcome};
use floe_store::ObjectStore;
use kfs::{PartitionIndex, TopicPartition};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Extents of one look at a partition.
const EXTENTS_PER_PAGE: usize = 1000;
/// What is over goes in this time, ms.
const AGED_OUT_MS_MAX: i64 = 10_000;
/// Rows of dead objects that are looked at.
const DEAD_ROWS_MAX: usize = 10_000;
/// The folders of the log's objects.
const LOG_FOLDERS: [&str; 2] = ["wal", "log"];

/// The audit of one run; clones are the same one.
#[derive(Clone)]
pub struct Audit {
    /// The world's own.
    env: Env,
    /// What is found goes here.
    pub model: Model,
    /// The metadata store behind all lives.
    pub metadata: Arc<MetadataServer>,
    /// The objects behind all lives.
    pub objects: ObjectServer,
    /// Reads tables.
    pub tables: TableFiles,
    /// A planted bug renames objects, so that nothing can be said about them.
    is_blind: bool,
}

impl Audit {
    /// An audit of these stores. `env` is the world's own.
    pub fn new(
        env: Env,
        model: Model,
        metadata: Arc<MetadataServer>,
        objects: ObjectServer,
        is_blind: bool,
    ) -> Self {
        let tables = TableFiles::new(objects.clone());
        Self { env, model, metadata, objects, tables, is_blind }
    }

    async fn store(&self) -> MetadataStore {
        MetadataStore::new(self.metadata.backend().await, self.env.clone())
    }

    /// An answer to the audit's own question; a violation where there is none.
    fn answered<T: Default>(&self, what: &str, answer: Result<T>) -> T {
        answer.unwrap_or_else(|error| {
            self.model.violation(format!("the audit cannot read {what}: {error}"));
            T::default()
        })
    }

    /// The root of all keys; `None` before the cluster has an id, and where nothing can be seen.
    async fn root(&self) -> Option<String> {
        if self.is_blind {
            return None;
        }
        let id = self.store().await.cluster_id().await;
        self.answered("the cluster's id", id).map(|id| id.to_string())
    }

    /// What a fence says right before a change.
    pub async fn standing(&self, fence: Option<&Fence>) -> Standing {
        let Some(Fence(check)) = fence else { return Standing::Absent };
        let backend = self.metadata.backend().await;
        let holder = backend.get(std::slice::from_ref(&check.key)).await;
        let holder = self.answered("a registration", holder).pop().flatten();
        let is_open = match &check.expect {
            Expect::Absent => holder.is_none(),
            Expect::Value(value) => holder.as_ref() == Some(value),
        };
        if is_open { Standing::Open } else { Standing::Closed }
    }

    /// A change that clients or readers can see was applied.
    pub fn applied(&self, standing: Standing, what: impl fmt::Display) {
        match standing {
            Standing::Open => {}
            Standing::Closed => {
                self.model.violation(format!("{what} of a closed registration is applied"));
            }
            Standing::Absent => {
                self.model.violation(format!("{what} without a registration is applied"));
            }
        }
    }

    /// What must be known before a commit: which of its segments are not decided yet, and whether
    /// its registration is open.
    pub async fn before_commit(&self, fence: &Fence, segments: &[SegmentFacts]) -> BeforeCommit {
        let backend = self.metadata.backend().await;
        let mut undecided = Vec::new();
        for segment in segments {
            undecided.push(match backend.segment_outcome(segment.id).await {
                // It was decided, and the outcome has been forgotten.
                Err(error) if error.kind() == ErrorKind::Invalid => false,
                outcome => self.answered("a segment's outcome", outcome).is_none(),
            });
        }
        BeforeCommit { undecided, standing: self.standing(Some(fence)).await }
    }

    /// A commit was applied.
    pub async fn committed(
        &self,
        before: &BeforeCommit,
        segments: &[SegmentFacts],
        outcomes: &[SegmentOutcome],
    ) {
        for ((segment, outcome), is_new) in segments.iter().zip(outcomes).zip(&before.undecided) {
            if !is_new || *outcome == SegmentOutcome::Abandoned {
                continue;
            }
            self.applied(before.standing, format_args!("segment {}", segment.id));
            self.must_exist("a commit", std::slice::from_ref(&segment.key)).await;
        }
    }

    /// A merge was applied.
    pub async fn replaced(&self, replacement: &[Extent]) {
        let keys: BTreeSet<&String> = replacement.iter().filter_map(object_of).collect();
        self.must_exist("a merge", keys).await;
    }

    /// A change of facts was applied. `what` says which.
    pub async fn changed(&self, standing: Standing, change: &Change, what: &str) {
        if change.fence.is_some() || is_visible(change) {
            self.applied(standing, format_args!("a change ({what})"));
        }
        for write in change.writes.iter().filter(|write| is_pointer(write)) {
            if let Write::Put(_, pointer) = write {
                self.table_moved(pointer).await;
            }
        }
    }

    /// A table's pointer was moved to this.
    async fn table_moved(&self, pointer: &[u8]) {
        let location = self.answered("a table's pointer", metadata_location(pointer));
        if let Err(error) = self.check_version(&location).await {
            self.model.violation(format!("a table's pointer names {location}: {error}"));
        }
    }

    async fn check_version(&self, location: &str) -> Result<(), String> {
        let metadata = self.tables.metadata(location).await?;
        let snapshots = numbered_snapshots(&metadata);
        for finding in rewritten(&self.model, metadata.uuid(), &snapshots) {
            self.model.violation(format!("a table's pointer moves: {finding}"));
        }
        let files = self.tables.files_of(location, &metadata).await?;
        self.must_be_there("a table's pointer", files).await;
        Ok(())
    }

    /// Keys below the cluster's root that somebody names.
    async fn must_exist<'a>(&self, who: &str, keys: impl IntoIterator<Item = &'a String>) {
        let Some(root) = self.root().await else { return };
        let keys = keys.into_iter().map(|key| format!("{root}/{key}"));
        self.must_be_there(who, keys.collect()).await;
    }

    async fn must_be_there(&self, who: &str, keys: BTreeSet<String>) {
        for key in keys {
            let found = self.objects.head(&key).await;
            if self.answered("an object's size", found).is_none() {
                self.model.violation(format!("{who} names {key}, which is not there"));
            }
        }
    }

    /// A log start was asked to move, and is this now.
    pub async fn log_start_moved(&self, partition: TopicPartition, state: &PartitionState) {
        if self.model.ages_behind_table(partition) {
            self.check_table_has(partition, state.log_start_offset).await;
        }
        if !self.model.aged(partition, state, self.env.now_ms()) {
            self.model.log_start_moved(partition, state.log_start_offset);
        }
    }

    /// A table has read all below an offset of its topic's partition.
    async fn check_table_has(&self, partition: TopicPartition, offset: i64) {
        let copy = self.store().await.table_progress(partition.topic).await;
        let copy = self.answered("a table's progress", copy).unwrap_or_default();
        let progress = Progress::unpack(&String::from_utf8_lossy(&copy));
        let index = usize::try_from(partition.partition.0).unwrap_or(usize::MAX);
        let has = progress.map_or(0, |progress| progress.next_offset(index));
        if offset > has {
            self.model.violation(format!(
                "{partition}: log start {offset} passes its table, which has {has}"
            ));
        }
    }

    /// What retention should have taken when it had its time. Each is a violation.
    ///
    /// # Errors
    /// Whatever the store answers.
    pub async fn aged_out(&self) -> Result<()> {
        let (store, now_ms) = (self.store().await, self.env.now_ms());
        for (partition, keep) in self.model.aging() {
            let Some(page) = store.extents(partition, 0, 1).await? else { continue };
            let Some(first) = page.extents.first() else { continue };
            let is_over = match keep {
                Keep::Time(kept_ms) => now_ms - first.max_timestamp_ms > kept_ms + AGED_OUT_MS_MAX,
                Keep::Size(kept) => page.state.bytes - first.bytes() >= kept,
            };
            if is_over {
                let offset = first.base_offset;
                self.model.violation(format!("{partition} {offset}: is over and still there"));
            }
        }
        Ok(())
    }

    /// Objects are about to be deleted.
    pub async fn deleting(&self, keys: &[String]) {
        let Some(root) = self.root().await else { return };
        let (tables, log): (Vec<&String>, Vec<&String>) =
            keys.iter().partition(|key| key.starts_with(&format!("{root}/tables/")));
        let mut needed = BTreeSet::new();
        if !log.is_empty() {
            needed.extend(self.answered("all extents", self.named(&root).await));
        }
        if !tables.is_empty() {
            needed.extend(self.named_by_tables().await);
        }
        for key in keys.iter().filter(|key| needed.contains(*key)) {
            self.model.violation(format!("{key} is deleted while it is needed"));
        }
    }

    /// The keys of all objects that extents name.
    async fn named(&self, root: &str) -> Result<BTreeSet<String>> {
        let store = self.store().await;
        let mut named = BTreeSet::new();
        for topic in store.topics().await? {
            for index in 0..topic.partition_count {
                let partition =
                    TopicPartition { topic: topic.id, partition: PartitionIndex(index) };
                let mut offset = 0;
                while let Some(page) = store.extents(partition, offset, EXTENTS_PER_PAGE).await? {
                    let Some(last) = page.extents.last() else { break };
                    offset = last.last_offset + 1;
                    named.extend(page.extents.iter().filter_map(object_of).cloned());
                }
            }
        }
        Ok(named.into_iter().map(|key| format!("{root}/{key}")).collect())
    }

    async fn named_by_tables(&self) -> BTreeSet<String> {
        let locations = self.metadata.table_locations().await;
        let mut needed = BTreeSet::new();
        for location in self.answered("the tables' pointers", locations) {
            match self.named_by(&location).await {
                Ok(files) => needed.extend(files),
                Err(error) => self.model.violation(format!("table {location}: {error}")),
            }
        }
        needed
    }

    async fn named_by(&self, location: &str) -> Result<BTreeSet<String>, String> {
        let metadata = self.tables.metadata(location).await?;
        self.tables.files_of(location, &metadata).await
    }

    /// Objects of the log that nobody needs, when every registration but the newest is closed and
    /// the cleaner had its time, and objects of the log and of tables that are needed and are not
    /// there. Each is a violation.
    ///
    /// # Errors
    /// Whatever the stores answer.
    pub async fn leftovers(&self, grace_ms: i64) -> Result<()> {
        let Some(root) = self.root().await else { return Ok(()) };
        let store = self.store().await;
        let needed = self.named(&root).await?;
        let newest = self.env.now_ms() - grace_ms;
        let dead = store.dead_objects(i64::MAX, DEAD_ROWS_MAX).await?;
        for object in dead.iter().filter(|object| object.dead_since_ms < newest) {
            self.model.violation(format!("{} is dead for long and still known", object.key));
        }
        let dying: BTreeSet<String> =
            dead.iter().map(|object| format!("{root}/{}", object.key)).collect();
        for folder in LOG_FOLDERS {
            for key in self.objects.keys(&format!("{root}/{folder}")).await? {
                if !needed.contains(&key) && !dying.contains(&key) {
                    self.model.violation(format!("{key} is left over"));
                }
            }
        }
        for key in needed.into_iter().chain(self.named_by_tables().await) {
            if self.objects.head(&key).await?.is_none() {
                self.model.violation(format!("{key} is needed and gone"));
            }
        }
        Ok(())
    }

    /// Objects of tables that no newest version reaches, and that wait for no retention either:
    /// what failed commits have left.
    ///
    /// # Errors
    /// Whatever the stores answer.
    pub async fn table_orphans(&self) -> Result<BTreeSet<String>> {
        let Some(root) = self.root().await else { return Ok(BTreeSet::new()) };
        let removed = self.metadata.removed_tables().await?;
        let is_removed = |key: &String| {
            let folder = key.split('/').nth(2).unwrap_or_default();
            removed.contains(folder)
        };
        let needed = self.named_by_tables().await;
        let keys = self.objects.keys(&format!("{root}/tables")).await?;
        let orphans = keys.into_iter().filter(|key| !needed.contains(key) && !is_removed(key));
        Ok(orphans.collect())
    }
}

/// Whether whoever asks for a change still holds its registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It names none.
    Absent,
    /// It does.
    Open,
    /// It does not any more.
    Closed,
}

/// What was known before a commit was applied.
pub struct BeforeCommit {
    undecided: Vec<bool>,
    standing: Standing,
}

fn object_of(extent: &Extent) -> Option<&String> {
    match &extent.place {
        Place::Range { key, .. } => Some(key),
        Place::Marker { .. } | Place::Hole => None,
    }
}
