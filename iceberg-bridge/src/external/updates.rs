//! Requirements and updates of the REST specification, applied to a table's metadata. Pure.

use super::{Rejection, TableName};
use crate::place::TablePlace;
use crate::progress::{PROGRESS_KEY, Progress};
use floe_env::Error;
use iceberg::spec::{
    FormatVersion, PartitionSpec, Schema, SortOrder, TableMetadata, TableMetadataBuilder,
    UnboundPartitionSpec,
};
use iceberg::{TableRequirement, TableUpdate};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Property by which clients choose a new table's format; it is not kept as one.
const FORMAT_VERSION_PROPERTY: &str = "format-version";

/// By how much a new snapshot's sequence number may be greater than the last one's: clients add
/// one. Numbers near the greatest there is would be the table's last.
const SEQUENCE_LEAP_MAX: i64 = 1000;

/// A table that an engine wants.
#[derive(Debug)]
pub(crate) struct NewTable {
    pub(crate) schema: Schema,
    pub(crate) spec: Option<UnboundPartitionSpec>,
    pub(crate) order: Option<SortOrder>,
    pub(crate) properties: BTreeMap<String, String>,
}

/// A change of one table.
#[derive(Debug)]
pub(crate) struct TableCommit {
    pub(crate) name: TableName,
    pub(crate) requirements: Vec<TableRequirement>,
    pub(crate) updates: Vec<TableUpdate>,
}

fn invalid(error: iceberg::Error) -> Rejection {
    Rejection::Invalid(error.to_string())
}

/// Whether all requirements hold; `None` for a table that is not there.
pub(super) fn check_requirements(
    commit: &TableCommit,
    metadata: Option<&TableMetadata>,
    name: &TableName,
) -> Result<(), Rejection> {
    let makes_table =
        commit.requirements.iter().any(|each| matches!(each, TableRequirement::NotExist));
    if metadata.is_none() && !makes_table {
        return Err(Rejection::NoSuchTable(name.clone()));
    }
    for requirement in &commit.requirements {
        requirement.check(metadata).map_err(|error| match metadata {
            Some(_) if makes_table => Rejection::AlreadyExists(name.to_string()),
            _ => Rejection::Conflict(error.message().to_owned()),
        })?;
    }
    Ok(())
}

/// The metadata of a new table, with fresh field ids.
pub(super) fn new_table(
    table: NewTable,
    id: Uuid,
    location: &str,
) -> Result<TableMetadata, Rejection> {
    let NewTable { schema, spec, order, mut properties } = table;
    let version = match properties.remove(FORMAT_VERSION_PROPERTY).as_deref() {
        None | Some("2") => FormatVersion::V2,
        Some("1") => FormatVersion::V1,
        Some("3") => FormatVersion::V3,
        Some(other) => return Err(Rejection::Invalid(format!("no format version {other}"))),
    };
    let spec = spec.unwrap_or_else(|| PartitionSpec::unpartition_spec().into_unbound());
    let order = order.unwrap_or_else(SortOrder::unsorted_order);
    let properties = properties.into_iter().collect();
    let location = location.to_owned();
    let builder = TableMetadataBuilder::new(schema, spec, order, location, version, properties);
    let built = builder.map_err(invalid)?.assign_uuid(id).build().map_err(invalid)?;
    Ok(built.metadata)
}

/// The uuid that a commit which makes a table gives it.
pub(super) fn created_id(commit: &TableCommit) -> Result<Uuid, Rejection> {
    let ids = commit.updates.iter().filter_map(|update| match update {
        TableUpdate::AssignUuid { uuid } => Some(*uuid),
        _ => None,
    });
    let ids: BTreeSet<Uuid> = ids.collect();
    match ids.first() {
        Some(id) if ids.len() == 1 => Ok(*id),
        _ => Err(Rejection::Invalid("a table is made with assign-uuid of one uuid".to_owned())),
    }
}

/// Checks the numbers that new snapshots bring: an engine takes them from the version that it
/// knows. Too low they are of one that is no more, which its requirements need not tell (a branch
/// has not moved, and the table has); so it tries again.
fn check_snapshots(updates: &[TableUpdate], metadata: &TableMetadata) -> Result<(), Rejection> {
    let (mut version, mut last) = (metadata.format_version(), metadata.last_sequence_number());
    let mut next_row = metadata.next_row_id();
    for update in updates {
        let snapshot = match update {
            TableUpdate::UpgradeFormatVersion { format_version } => {
                version = version.max(*format_version);
                continue;
            }
            TableUpdate::AddSnapshot { snapshot } if version > FormatVersion::V1 => snapshot,
            _ => continue,
        };
        let number = snapshot.sequence_number();
        if number <= last {
            let newest = format!("the table's newest snapshot has number {last}");
            return Err(Rejection::Conflict(format!("{newest}, the new one {number}")));
        }
        if number > last.saturating_add(SEQUENCE_LEAP_MAX) {
            let why = format!("sequence number {number} is too far behind {last}");
            return Err(Rejection::Invalid(why));
        }
        last = number;
        let Some((first_row, rows)) = snapshot.row_range() else { continue };
        if first_row < next_row {
            let why = format!("rows of the new snapshot begin at {first_row}, not {next_row}");
            return Err(Rejection::Conflict(why));
        }
        next_row = first_row.saturating_add(rows);
    }
    Ok(())
}

/// The metadata of a table that a commit makes, as it was staged before.
pub(super) fn created(
    commit: &TableCommit,
    place: &TablePlace,
) -> Result<TableMetadata, Rejection> {
    let (mut schema, mut spec, mut order) = (None, None, None);
    let mut version = FormatVersion::V2;
    for update in &commit.updates {
        match update {
            TableUpdate::AddSchema { schema: added } => {
                schema.get_or_insert(added);
            }
            TableUpdate::AddSpec { spec: added } => {
                spec.get_or_insert(added);
            }
            TableUpdate::AddSortOrder { sort_order } => {
                order.get_or_insert(sort_order);
            }
            TableUpdate::UpgradeFormatVersion { format_version } => version = *format_version,
            TableUpdate::SetLocation { location } => {
                super::rules::check_location(location, place)?;
            }
            _ => {}
        }
    }
    let schema = schema.ok_or_else(|| Rejection::Invalid("no schema is added".to_owned()))?;
    let properties =
        BTreeMap::from([(FORMAT_VERSION_PROPERTY.to_owned(), (version as u8).to_string())]);
    let table =
        NewTable { schema: schema.clone(), spec: spec.cloned(), order: order.cloned(), properties };
    let empty = new_table(table, created_id(commit)?, place.url())?;
    // The library gives fresh ids; files that were written already have the staged ones.
    if empty.current_schema().as_struct() != schema.as_struct() {
        let why = "field ids are not those that a table made by this catalog has";
        return Err(Rejection::Invalid(why.to_owned()));
    }
    super::rules::check_files(commit, place)?;
    Ok(next(&commit.updates, empty, None)?.0)
}

/// The updates of a topic's table, where snapshots that go on from main carry on what the topic has
/// got to: whatever others delete, compact and let expire, main goes on saying how far it is.
pub(super) fn with_progress(
    updates: &[TableUpdate],
    metadata: &TableMetadata,
    progress: &Progress,
) -> Result<Vec<TableUpdate>, Rejection> {
    let mut line: BTreeSet<Option<i64>> = BTreeSet::from([metadata.current_snapshot_id()]);
    let carried = updates.iter().map(|update| match update {
        TableUpdate::AddSnapshot { snapshot } if line.contains(&snapshot.parent_snapshot_id()) => {
            line.insert(Some(snapshot.snapshot_id()));
            carrying(update, progress)
        }
        _ => Ok(update.clone()),
    });
    carried.collect()
}

/// A snapshot cannot be changed but as JSON.
fn carrying(update: &TableUpdate, progress: &Progress) -> Result<TableUpdate, Rejection> {
    let failed = |error| Error::bug("a snapshot as JSON").with_source(error);
    let mut json = serde_json::to_value(update).map_err(failed)?;
    json["snapshot"]["summary"][PROGRESS_KEY] = progress.pack().into();
    Ok(serde_json::from_value(json).map_err(failed)?)
}

/// The version that a commit makes of another, and addresses of metadata files that it does not
/// list any more. `location` is the other's own.
pub(super) fn next(
    updates: &[TableUpdate],
    metadata: TableMetadata,
    location: Option<String>,
) -> Result<(TableMetadata, Vec<String>), Rejection> {
    check_snapshots(updates, &metadata)?;
    let mut builder = metadata.into_builder(location);
    for update in updates.iter().cloned() {
        let removed = match &update {
            TableUpdate::RemoveSnapshots { snapshot_ids } => snapshot_ids.clone(),
            _ => Vec::new(),
        };
        builder = update.apply(builder).map_err(invalid)?;
        // Not every client asks for that.
        for id in removed {
            builder = builder.remove_statistics(id).remove_partition_statistics(id);
        }
    }
    let built = builder.build().map_err(invalid)?;
    let outdated = built.expired_metadata_logs.into_iter().map(|log| log.metadata_file);
    Ok((built.metadata, outdated.collect()))
}
