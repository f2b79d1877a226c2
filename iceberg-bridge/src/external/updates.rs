//! Requirements and updates of the REST specification, applied to a table's metadata. Pure.

use super::{Rejection, TableName};
use crate::place::TablePlace;
use iceberg::spec::{
    FormatVersion, PartitionSpec, Schema, SortOrder, TableMetadata, TableMetadataBuilder,
    UnboundPartitionSpec,
};
use iceberg::{TableRequirement, TableUpdate};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Property by which clients choose a new table's format; it is not kept as one.
const FORMAT_VERSION_PROPERTY: &str = "format-version";

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
    let id = commit.updates.iter().find_map(|update| match update {
        TableUpdate::AssignUuid { uuid } => Some(*uuid),
        _ => None,
    });
    id.ok_or_else(|| Rejection::Invalid("a table is made with assign-uuid".to_owned()))
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
    Ok(next(commit, empty, None)?.0)
}

/// The version that a commit makes of another, and addresses of metadata files that it does not
/// list any more. `location` is the other's own.
pub(super) fn next(
    commit: &TableCommit,
    metadata: TableMetadata,
    location: Option<String>,
) -> Result<(TableMetadata, Vec<String>), Rejection> {
    let mut builder = metadata.into_builder(location);
    for update in commit.updates.iter().cloned() {
        builder = update.apply(builder).map_err(invalid)?;
    }
    let built = builder.build().map_err(invalid)?;
    let outdated = built.expired_metadata_logs.into_iter().map(|log| log.metadata_file);
    Ok((built.metadata, outdated.collect()))
}
