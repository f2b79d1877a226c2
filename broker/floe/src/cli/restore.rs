//! `floe restore`: the metadata store was put back, from a backup by its own tools or from a
//! snapshot in the object store. A new incarnation closes all that brokers of the lost part may
//! still do, and nothing is deleted until `floe doctor --reconcile`.

use super::arguments::RestoreArguments;
use super::assembly::{Assembly, Backup, SnapshotView};
use super::{Outcome, print, progress, runtime};
use crate::text::{bytes, table};
use floe_env::date::utc_text;
use std::sync::Arc;

pub(super) fn run(arguments: RestoreArguments, assembly: Arc<dyn Assembly>) -> Outcome {
    let config = arguments.settings.config()?;
    if arguments.list {
        let found = runtime::run_command(async |env| assembly.snapshots(&env, &config).await)??;
        return print(&listing(&found));
    }
    let backup = match (arguments.from_store, arguments.snapshot) {
        (false, _) => Backup::InPlace,
        (true, None) => Backup::Newest,
        (true, Some(name)) => Backup::Snapshot(name),
    };
    let restoring = async |env| assembly.restore(&env, &config, &backup, &progress::show).await;
    let done = runtime::run_command(restoring)?;
    progress::clear();
    print(&format!(
        "{} has begun. Nothing is deleted from the object store now: `floe doctor` shows what \
         is lost,\nand `floe doctor --reconcile` lets what nobody names be deleted.\n",
        done?
    ))
}

/// The snapshots, newest first.
pub(super) fn listing(found: &[SnapshotView]) -> String {
    if found.is_empty() {
        return "There is no snapshot of the metadata in the object store.\n".to_owned();
    }
    let rows = found.iter().rev().map(|snapshot| {
        vec![snapshot.name.clone(), utc_text(snapshot.taken_ms), bytes(snapshot.bytes)]
    });
    table(&["SNAPSHOT", "TAKEN", "BYTES"], rows.collect())
}
