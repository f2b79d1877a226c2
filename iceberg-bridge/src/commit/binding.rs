//! Whether the rows of a topic go into the schema that its table has now. Pure.
//!
//! Others may rename, drop, reorder and widen columns, make them optional, and add optional ones of
//! their own: columns are bound by field id. A dropped one is not made again, and one of theirs is
//! null in our rows. A column that they have made required, or given a type that our values do not
//! have, stops the table, by name.

use crate::mapping::Mapping;
use crate::schema::{DAY_FIELD_NAME, field, iceberg_schema};
use iceberg::spec::{
    FormatVersion, NestedFieldRef, PrimitiveType, SchemaRef, StructType, TableMetadata, Type,
};

/// Columns that nothing works without: the order of rows, and the partition of a file.
const NEEDED: [(i32, &str); 3] = [
    (field::PARTITION, "_kafka_partition"),
    (field::OFFSET, "_kafka_offset"),
    (field::TIMESTAMP, "_kafka_timestamp"),
];

/// Binds a mapping to a version's schema, or says why its rows cannot be written.
pub(super) fn bound(mut mapping: Mapping, metadata: &TableMetadata) -> Result<Mapping, String> {
    if metadata.format_version() != FormatVersion::V2 {
        let version = metadata.format_version();
        return Err(format!("format version {version} is not written, only v2"));
    }
    let theirs = metadata.current_schema().as_struct();
    let ours = iceberg_schema(&mapping).map_err(|error| error.to_string())?;
    for (id, name) in NEEDED {
        if theirs.field_by_id(id).is_none() {
            return Err(format!("column {name} (field id {id}) is not there any more"));
        }
    }
    check_members(ours.as_struct(), theirs, "")?;
    // A column must not have the name of a partition either.
    let partitions = metadata.partition_specs_iter().flat_map(|spec| spec.fields());
    let names = partitions.map(|field| field.name.clone()).filter(|name| name != DAY_FIELD_NAME);
    mapping.bind(theirs, names, metadata.last_column_id());
    Ok(mapping)
}

/// The table's schema, if it is not the one that a mapping alone would have.
pub(crate) fn foreign_schema(mapping: &Mapping, metadata: &TableMetadata) -> Option<SchemaRef> {
    let theirs = metadata.current_schema();
    let ours = iceberg_schema(mapping).ok()?;
    (ours.as_struct() != theirs.as_struct()).then(|| theirs.clone())
}

fn check_members(ours: &StructType, theirs: &StructType, around: &str) -> Result<(), String> {
    for field in theirs.fields() {
        let name = format!("{around}{}", field.name);
        match ours.field_by_id(field.id) {
            None if field.required => {
                return Err(format!("column {name} is required, and no record has it"));
            }
            None => {}
            Some(own) => check_field(own, field, &name)?,
        }
    }
    Ok(())
}

fn check_field(own: &NestedFieldRef, theirs: &NestedFieldRef, name: &str) -> Result<(), String> {
    if theirs.required && !own.required {
        return Err(format!("column {name} is required, and records may lack it"));
    }
    match (own.field_type.as_ref(), theirs.field_type.as_ref()) {
        (Type::Primitive(own), Type::Primitive(theirs)) if is_wide_enough(own, theirs) => Ok(()),
        (Type::Struct(own), Type::Struct(theirs)) => {
            check_members(own, theirs, &format!("{name}."))
        }
        (Type::List(own), Type::List(theirs))
            if own.element_field.id == theirs.element_field.id =>
        {
            check_field(&own.element_field, &theirs.element_field, &format!("{name}.element"))
        }
        (own, theirs) => Err(format!("column {name} is {theirs} now, and records have {own}")),
    }
}

fn is_wide_enough(own: &PrimitiveType, theirs: &PrimitiveType) -> bool {
    own == theirs || matches!((own, theirs), (PrimitiveType::Int, PrimitiveType::Long))
}
