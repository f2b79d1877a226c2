//! Files that no version names any more: manifest lists, manifests and data files of expired
//! snapshots, and old metadata files.
//!
//! Along one line of parents, a file that has gone never comes back. So what an expired snapshot
//! has is garbage unless the oldest snapshot of main's line has it, or one that stands apart from
//! the line. Where that cannot be told, the orphan sweep decides by reading everything.

use super::manifest::{parse_list, parse_manifest};
use super::table::{LoadedTable, get, main_line};
use crate::pointer::TablePointers;
use floe_env::{Env, Lane, Result};
use floe_store::ObjectStore;
use iceberg::spec::{ManifestFile, Operation, SnapshotRef, TableMetadata};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Deletes garbage in a task of its own, so that no look waits for it. What a crash leaves is an
/// orphan, and so is all of it while deletion is stopped.
pub(super) fn collect_later(
    env: &Env,
    store: Arc<dyn ObjectStore>,
    pointers: Arc<dyn TablePointers>,
    table: Arc<LoadedTable>,
    expired: Vec<SnapshotRef>,
    mut keys: Vec<String>,
) {
    if expired.is_empty() && keys.is_empty() {
        return;
    }
    // Nobody waits for the task; it reports its own failure.
    drop(env.spawn("table-garbage", Lane::Background, async move {
        match pointers.may_delete().await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "old files stay until the orphan sweep");
                return;
            }
        }
        let garbage = Garbage { store: store.as_ref(), table: &table };
        match garbage.of(&expired).await {
            Ok(unreachable) => keys.extend(unreachable),
            Err(error) => tracing::warn!(%error, "old files stay until the orphan sweep"),
        }
        if let Err(error) = store.delete(&keys).await {
            tracing::warn!(%error, "old files stay until the orphan sweep");
        }
    }));
}

type Manifests = BTreeMap<String, ManifestFile>;

struct Garbage<'a> {
    store: &'a dyn ObjectStore,
    table: &'a LoadedTable,
}

impl Garbage<'_> {
    /// The keys of all files that the expired snapshots, and no others, name.
    async fn of(&self, expired: &[SnapshotRef]) -> Result<BTreeSet<String>> {
        let mut garbage = BTreeSet::new();
        if expired.is_empty() {
            return Ok(garbage);
        }
        let line: Vec<&SnapshotRef> = main_line(&self.table.metadata).collect();
        let mut reachable: Manifests = BTreeMap::new();
        for snapshot in roots(&self.table.metadata, &line) {
            reachable.extend(self.manifests(snapshot).await?);
        }
        let (mut gone, mut common) = (Manifests::new(), None::<BTreeSet<String>>);
        for snapshot in expired {
            garbage.insert(self.table.place.key_of(snapshot.manifest_list())?);
            let listed = self.manifests(snapshot).await?;
            let keys: BTreeSet<String> = listed.keys().cloned().collect();
            common = Some(common.map_or_else(|| keys.clone(), |common| &common & &keys));
            gone.extend(listed.into_iter().filter(|(key, _)| !reachable.contains_key(key)));
        }
        if !only_appended(expired, line.last()) {
            let common = common.unwrap_or_default();
            // A manifest that every expired snapshot has lists no file of a manifest that is gone.
            reachable.retain(|key, _| !common.contains(key));
            let needed = self.files(&reachable).await?;
            garbage.extend(&self.files(&gone).await? - &needed);
        }
        garbage.extend(gone.into_keys());
        Ok(garbage)
    }

    async fn manifests(&self, snapshot: &SnapshotRef) -> Result<Manifests> {
        let url = snapshot.manifest_list();
        let bytes = get(self.store, &self.table.place.key_of(url)?).await?;
        let listed = parse_list(url, &bytes)?.into_iter();
        let keyed = listed
            .map(|manifest| Ok((self.table.place.key_of(&manifest.manifest_path)?, manifest)));
        keyed.collect()
    }

    async fn files(&self, manifests: &Manifests) -> Result<BTreeSet<String>> {
        let mut files = BTreeSet::new();
        for (key, manifest) in manifests {
            for file in parse_manifest(manifest, &get(self.store, key).await?)? {
                files.insert(self.table.place.key_of(file.data_file.file_path())?);
            }
        }
        Ok(files)
    }
}

/// Snapshots that together have every file that any snapshot has and an expired one may have: both
/// ends of main's line, and all that are not in it.
fn roots<'a>(metadata: &'a TableMetadata, line: &[&'a SnapshotRef]) -> Vec<&'a SnapshotRef> {
    let in_line: BTreeSet<i64> = line.iter().map(|snapshot| snapshot.snapshot_id()).collect();
    let apart = metadata.snapshots().filter(|other| !in_line.contains(&other.snapshot_id()));
    let mut apart: Vec<&SnapshotRef> = apart.collect();
    // The library's order is another with every run.
    apart.sort_by_key(|snapshot| (snapshot.sequence_number(), snapshot.snapshot_id()));
    line.first().into_iter().chain(line.last()).copied().chain(apart).collect()
}

/// True if no data file was taken out between the expired snapshots and the oldest of the line.
fn only_appended(expired: &[SnapshotRef], oldest: Option<&&SnapshotRef>) -> bool {
    let steps: Vec<&SnapshotRef> = expired.iter().chain(oldest.copied()).collect();
    steps.windows(2).all(|pair| {
        pair[1].parent_snapshot_id() == Some(pair[0].snapshot_id())
            && pair[1].summary().operation == Operation::Append
    })
}
