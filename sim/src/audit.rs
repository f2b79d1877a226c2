//! Looks at both stores as they are, past all faults, in the very moment in which a change is
//! applied:
//!
//! * What a commit, a merge or a table's pointer names is there (durable before visible).
//! * A table's snapshots are one line: none is ever replaced by another.
//! * Nothing is deleted that an extent, or a table's newest version, names.
//! * A log start moves only forward, and only as far as somebody asked.
//! * No commit of a closed registration is applied.
//! * When all is over, nothing is left that nobody needs ([`Audit::leftovers`]).

use crate::metadata_server::MetadataServer;
use crate::model::Model;
use crate::object_server::ObjectServer;
use crate::table_files::{TableFiles, numbered_snapshots};
use crate::table_model::rewritten;
use floe_env::{Env, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::{Expect, Fence};
use floe_metadata::rows::{Extent, PartitionState, Place, SegmentFacts, SegmentOutcome};
use floe_store::ObjectStore;
use kfs::{PartitionIndex, TopicPartition};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Extents of one look at a partition.
const EXTENTS_PER_PAGE: usize = 1000;
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

    /// The root of all keys; `None` before the cluster has an id, and where nothing can be seen.
    async fn root(&self) -> Result<Option<String>> {
        if self.is_blind {
            return Ok(None);
        }
        Ok(self.store().await.cluster_id().await?.map(|id| id.to_string()))
    }

    /// What must be known before a commit: which of its segments are not decided yet, and whether
    /// its fence holds.
    pub async fn before_commit(&self, fence: &Fence, segments: &[SegmentFacts]) -> BeforeCommit {
        let backend = self.metadata.backend().await;
        let mut undecided = Vec::new();
        for segment in segments {
            let known = backend.segment_outcome(segment.id).await;
            undecided.push(matches!(known, Ok(None)));
        }
        let holder = backend.get(std::slice::from_ref(&fence.0.key)).await;
        let holder = holder.ok().and_then(|mut values| values.pop()).flatten();
        let expected = match &fence.0.expect {
            Expect::Absent => None,
            Expect::Value(value) => Some(value.clone()),
        };
        BeforeCommit { undecided, fence_holds: holder == expected }
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
            if !before.fence_holds {
                let id = segment.id;
                self.model.violation(format!("segment {id} of a closed registration is committed"));
            }
            self.must_exist("a commit", &segment.key).await;
        }
    }

    /// A merge was applied.
    pub async fn replaced(&self, replacement: &[Extent]) {
        let keys: BTreeSet<&String> = replacement.iter().filter_map(object_of).collect();
        for key in keys {
            self.must_exist("a merge", key).await;
        }
    }

    /// A table's pointer was moved to this.
    pub async fn table_moved(&self, pointer: &[u8]) {
        let pointer: Value = serde_json::from_slice(pointer).unwrap_or_default();
        let location = pointer["metadata_location"].as_str().unwrap_or_default();
        match self.tables.metadata(location).await {
            Ok(metadata) => {
                let (table, snapshots) = (metadata.uuid(), numbered_snapshots(&metadata));
                for finding in rewritten(&self.model, table, &snapshots) {
                    self.model.violation(format!("a table's pointer moves: {finding}"));
                }
            }
            Err(error) => {
                self.model.violation(format!("a table's pointer names {location}: {error}"));
            }
        }
    }

    async fn must_exist(&self, who: &str, key: &str) {
        let Ok(Some(root)) = self.root().await else { return };
        if !matches!(self.objects.head(&format!("{root}/{key}")).await, Ok(Some(_))) {
            self.model.violation(format!("{who} names {key}, which is not there"));
        }
    }

    /// A log start was asked to move, and is this now.
    pub fn log_start_moved(&self, partition: TopicPartition, state: &PartitionState) {
        self.model.log_start_moved(partition, state.log_start_offset);
    }

    /// Objects are about to be deleted.
    pub async fn deleting(&self, keys: &[String]) {
        let Ok(Some(root)) = self.root().await else { return };
        let (tables, log): (Vec<&String>, Vec<&String>) =
            keys.iter().partition(|key| key.starts_with(&format!("{root}/tables/")));
        let mut needed = BTreeSet::new();
        if !log.is_empty() {
            needed.extend(self.named(&root).await.unwrap_or_default());
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
        let locations = self.metadata.table_locations().await.unwrap_or_default();
        let mut needed = BTreeSet::new();
        for location in locations {
            match self.tables.files_of(&location).await {
                Ok(files) => needed.extend(files),
                Err(error) => self.model.violation(format!("table {location}: {error}")),
            }
        }
        needed
    }

    /// Objects of the log that nobody needs, when every registration but the newest is closed and
    /// the cleaner had its time. Each is a violation.
    ///
    /// # Errors
    /// Whatever the stores answer.
    pub async fn leftovers(&self, grace_ms: i64) -> Result<()> {
        let Some(root) = self.root().await? else { return Ok(()) };
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
        for key in needed {
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
        let Some(root) = self.root().await? else { return Ok(BTreeSet::new()) };
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

/// What was known before a commit was applied.
pub struct BeforeCommit {
    undecided: Vec<bool>,
    fence_holds: bool,
}

fn object_of(extent: &Extent) -> Option<&String> {
    match &extent.place {
        Place::Range { key, .. } => Some(key),
        Place::Marker { .. } | Place::Hole => None,
    }
}
