//! The schema's change inside a commit: columns that a mapping has gained, and which mapping a
//! table's version has. Pure.

use super::binding::bound;
use crate::error::iceberg_error;
use crate::mapping::{MAPPING_STATE_PROPERTY, MAPPING_VERSION, Mapping};
use crate::schema::grown_schema;
use floe_env::{Error, Result};
use iceberg::spec::{Schema, SchemaRef, TableMetadata, TableMetadataBuilder};
use std::collections::BTreeSet;

/// Table property: the version of the mapping from records to columns.
pub const MAPPING_PROPERTY: &str = "floe.mapping-version";

/// The mapping that a version has recorded, or why nobody knows it.
pub(super) fn recorded_mapping(metadata: &TableMetadata) -> Result<Mapping, String> {
    let property = |key| metadata.properties().get(key).map(String::as_str);
    let version = property(MAPPING_PROPERTY).unwrap_or("none");
    if version != MAPPING_VERSION.to_string() {
        return Err(format!("mapping version {version} is not known to this release"));
    }
    let mapping = property(MAPPING_STATE_PROPERTY).map_or(Ok(Mapping::new()), Mapping::unpack);
    mapping.map_err(|error| error.to_string())
}

/// The mapping of a version, bound to its schema, or why its rows cannot be written.
pub(super) fn mapping_of(metadata: &TableMetadata) -> Result<Mapping, String> {
    bound(recorded_mapping(metadata)?, metadata)
}

/// A builder of the version after `metadata` with the columns that `mapping` has gained, and the id
/// of its schema. Schemas that no kept snapshot was made with are left out.
pub(super) fn with_columns(
    metadata: TableMetadata,
    metadata_location: Option<String>,
    mapping: &Mapping,
    expired_snapshots: &[i64],
) -> Result<(TableMetadataBuilder, i32)> {
    let failed = |error| iceberg_error("change a table's columns", error);
    let packed = mapping.pack();
    let known = metadata.properties().get(MAPPING_STATE_PROPERTY);
    let is_same = known == Some(&packed) || known.is_none() && mapping.leaves() == 0;
    let ids = |schema: &SchemaRef| schema.schema_id();
    let grown = if is_same { None } else { grown_of(&metadata, mapping)? };
    let newest = metadata.schemas_iter().map(ids).max().unwrap_or(0);
    let schema_id = if grown.is_some() { newest + 1 } else { metadata.current_schema_id() };
    let unused = unused_schemas(&metadata, schema_id, expired_snapshots);
    let mut builder = metadata.into_builder(metadata_location);
    if let Some(schema) = grown {
        let schema = schema.into_builder().with_schema_id(schema_id).build().map_err(failed)?;
        builder = builder.add_schema(schema).map_err(failed)?;
        builder = builder.set_current_schema(schema_id).map_err(failed)?;
    }
    if !is_same {
        let properties = [(MAPPING_STATE_PROPERTY.to_owned(), packed)].into_iter().collect();
        builder = builder.set_properties(properties).map_err(failed)?;
    }
    Ok((builder.remove_schemas(&unused).map_err(failed)?, schema_id))
}

/// Schemas that are neither `current` nor those of snapshots that stay.
fn unused_schemas(metadata: &TableMetadata, current: i32, expired_snapshots: &[i64]) -> Vec<i32> {
    let others = metadata.schemas_iter().map(|schema| schema.schema_id());
    let mut unused: BTreeSet<i32> = others.filter(|id| *id != current).collect();
    for snapshot in metadata.snapshots() {
        if unused.is_empty() {
            break;
        }
        let used = snapshot.schema_id().filter(|id| unused.contains(id));
        if let Some(id) = used
            && !expired_snapshots.contains(&snapshot.snapshot_id())
        {
            unused.remove(&id);
        }
    }
    unused.into_iter().collect()
}

/// The schema with what the mapping has gained. `None` where that is nothing: others have dropped
/// the struct that it would be in.
fn grown_of(metadata: &TableMetadata, mapping: &Mapping) -> Result<Option<Schema>> {
    let known = recorded_mapping(metadata).map_err(Error::corrupt)?.node_count();
    let schema = metadata.current_schema();
    let grown = grown_schema(schema, mapping, known)?;
    Ok((grown.as_struct() != schema.as_struct()).then_some(grown))
}
