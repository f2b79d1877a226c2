//! What an engine may change of a table that is there. Pure.

use super::{Rejection, TableCommit};
use crate::commit::TAG;
use crate::place::TablePlace;
use crate::schema::{SPEC_DAY, SPEC_UNPARTITIONED};
use iceberg::TableUpdate;
use iceberg::spec::{FormatVersion, TableMetadata};

/// Properties that begin so are Floe's.
const OWN_PROPERTIES: &str = "floe.";
/// Properties that say where files are written.
const PATH_PROPERTIES: [&str; 4] = [
    "write.data.path",
    "write.metadata.path",
    "write.folder-storage.path",
    "write.object-storage.path",
];

/// The greatest id of a column; the specification has those above for itself.
const FIELD_ID_MAX: i32 = i32::MAX - 200;
/// The greatest id of a column of a topic's table, whose own columns get the next ones.
const TOPICS_FIELD_ID_MAX: i32 = i32::MAX / 2;

fn refuse(why: impl Into<String>) -> Result<(), Rejection> {
    Err(Rejection::Invalid(why.into()))
}

/// Checks the updates of a table in `place`; `is_topics` for one that shows a topic.
pub(super) fn check(
    commit: &TableCommit,
    metadata: &TableMetadata,
    place: &TablePlace,
    is_topics: bool,
) -> Result<(), Rejection> {
    check_files(commit, place)?;
    let field_id_max = if is_topics { TOPICS_FIELD_ID_MAX } else { FIELD_ID_MAX };
    for update in &commit.updates {
        match update {
            TableUpdate::AddSchema { schema } if schema.highest_field_id() > field_id_max => {
                return refuse(format!("field id {} is too great", schema.highest_field_id()));
            }
            TableUpdate::AssignUuid { uuid } if *uuid != metadata.uuid() => {
                return refuse("a table keeps its uuid");
            }
            TableUpdate::SetLocation { location } => check_location(location, place)?,
            _ if is_topics => check_topics(update, metadata)?,
            _ => {}
        }
    }
    Ok(())
}

/// A table's location is its folder.
pub(super) fn check_location(location: &str, place: &TablePlace) -> Result<(), Rejection> {
    match location.trim_end_matches('/') == place.url() {
        true => Ok(()),
        false => refuse(format!("a table stays in its folder, {}", place.url())),
    }
}

/// All files of a table lie in its folder: what engines are given to read goes no further.
pub(super) fn check_files(commit: &TableCommit, place: &TablePlace) -> Result<(), Rejection> {
    for update in &commit.updates {
        let file = match update {
            TableUpdate::AddSnapshot { snapshot } => snapshot.manifest_list(),
            TableUpdate::SetStatistics { statistics } => &statistics.statistics_path,
            TableUpdate::SetPartitionStatistics { partition_statistics } => {
                &partition_statistics.statistics_path
            }
            TableUpdate::SetProperties { updates } => {
                check_paths(|key| updates.get(key), place)?;
                continue;
            }
            _ => continue,
        };
        if !is_inside(file, place) {
            return refuse(format!("{file} is not in the table's folder, {}", place.url()));
        }
    }
    Ok(())
}

/// Checks what properties say of where files are written.
pub(super) fn check_paths<'a>(
    property: impl Fn(&str) -> Option<&'a String>,
    place: &TablePlace,
) -> Result<(), Rejection> {
    let leaves = |key: &&str| property(key).is_some_and(|path| !is_inside(path, place));
    match PATH_PROPERTIES.into_iter().find(leaves) {
        Some(key) => refuse(format!("{key} leaves the table's folder, {}", place.url())),
        None => Ok(()),
    }
}

fn is_inside(url: &str, place: &TablePlace) -> bool {
    place.key_of(url).is_ok_and(|key| !key.split('/').any(|segment| segment == ".."))
}

/// What a topic's table keeps, so that its topic can go on.
fn check_topics(update: &TableUpdate, metadata: &TableMetadata) -> Result<(), Rejection> {
    match update {
        TableUpdate::UpgradeFormatVersion { format_version }
            if *format_version != FormatVersion::V2 =>
        {
            refuse("a topic's table has format version 2")
        }
        TableUpdate::SetProperties { updates } => {
            let changed = updates.iter().find(|(key, value)| {
                key.starts_with(OWN_PROPERTIES) && metadata.properties().get(*key) != Some(*value)
            });
            changed.map_or(Ok(()), |(key, _)| refuse(format!("property {key} is Floe's")))
        }
        TableUpdate::RemoveProperties { removals } => {
            let removed = removals.iter().find(|key| key.starts_with(OWN_PROPERTIES));
            removed.map_or(Ok(()), |key| refuse(format!("property {key} is Floe's")))
        }
        TableUpdate::RemovePartitionSpecs { spec_ids } => {
            let own = spec_ids.iter().find(|id| [SPEC_UNPARTITIONED, SPEC_DAY].contains(*id));
            own.map_or(Ok(()), |id| refuse(format!("new files may be of partition spec {id}")))
        }
        TableUpdate::SetSnapshotRef { ref_name, .. }
        | TableUpdate::RemoveSnapshotRef { ref_name }
            if ref_name == TAG =>
        {
            refuse(format!("the tag {TAG} is Floe's"))
        }
        TableUpdate::RemoveSnapshots { snapshot_ids } => {
            let tagged = metadata.snapshot_for_ref(TAG).map(|tagged| tagged.snapshot_id());
            match tagged.is_some_and(|tagged| snapshot_ids.contains(&tagged)) {
                true => refuse(format!("the snapshot of the tag {TAG} stays")),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
