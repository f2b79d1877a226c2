//! Files that no version names any more: manifest lists and manifests of expired snapshots, and old
//! metadata files. Data files are not among them: an append-only table still names every one.
//!
//! A manifest that a merge has replaced never comes back, so what an expired snapshot lists and the
//! oldest kept one does not is garbage.

use super::manifest::parse_list;
use super::table::{LoadedTable, get};
use floe_env::{Env, Lane, Result};
use floe_store::ObjectStore;
use iceberg::spec::SnapshotRef;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Deletes garbage in a task of its own, so that no look waits for it. What a crash leaves is an
/// orphan.
pub(super) fn collect_later(
    env: &Env,
    store: Arc<dyn ObjectStore>,
    table: Arc<LoadedTable>,
    expired: Vec<SnapshotRef>,
    mut keys: Vec<String>,
) {
    if expired.is_empty() && keys.is_empty() {
        return;
    }
    // Nobody waits for the task; it reports its own failure.
    drop(env.spawn("table-garbage", Lane::Background, async move {
        match unreachable_files(store.as_ref(), &table, &expired).await {
            Ok(unreachable) => keys.extend(unreachable),
            Err(error) => tracing::warn!(%error, "manifests stay until the orphan sweep"),
        }
        if let Err(error) = store.delete(&keys).await {
            tracing::warn!(%error, "old metadata stays until the orphan sweep");
        }
    }));
}

async fn unreachable_files(
    store: &dyn ObjectStore,
    table: &LoadedTable,
    expired: &[SnapshotRef],
) -> Result<Vec<String>> {
    let kept = table.metadata.snapshots().min_by_key(|snapshot| snapshot.sequence_number());
    let (Some(kept), false) = (kept, expired.is_empty()) else { return Ok(Vec::new()) };
    let reachable = manifest_keys(store, table, kept).await?;
    let mut unreachable = BTreeSet::new();
    for snapshot in expired {
        unreachable.insert(table.place.key_of(snapshot.manifest_list())?);
        let listed = manifest_keys(store, table, snapshot).await?;
        unreachable.extend(listed.difference(&reachable).cloned());
    }
    Ok(unreachable.into_iter().collect())
}

async fn manifest_keys(
    store: &dyn ObjectStore,
    table: &LoadedTable,
    snapshot: &SnapshotRef,
) -> Result<BTreeSet<String>> {
    let url = snapshot.manifest_list();
    let list = parse_list(url, &get(store, &table.place.key_of(url)?).await?)?;
    list.iter().map(|manifest| table.place.key_of(&manifest.manifest_path)).collect()
}
