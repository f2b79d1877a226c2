//! A table's schema: the ten flat columns that every table begins with, then those of its mapping;
//! and its two partition specs.
//!
//! Field ids are fixed: 1 to 10 at the top, 11 to 16 below, in the order in which a catalog that
//! assigns fresh ids gives them. All columns but partition and offset are optional, at every level.

use crate::error::iceberg_error;
use crate::mapping::{Kind, Mapping, NodeIndex, ROOT};
use arrow_schema::{Schema as ArrowSchema, SchemaRef as ArrowSchemaRef};
use floe_env::Result;
use iceberg::spec::{
    ListType, NestedField, NestedFieldRef, PrimitiveType, Schema, StructType, Transform, Type,
    UnboundPartitionSpec,
};
use std::sync::Arc;

/// The spec without partitions: takes the rows of days beyond those that a commit may open.
pub const SPEC_UNPARTITIONED: i32 = 0;
/// The default spec: one partition a day of `_kafka_timestamp`, in UTC.
pub const SPEC_DAY: i32 = 1;
/// Name of the day spec's only field.
pub const DAY_FIELD_NAME: &str = "_kafka_timestamp_day";

/// Field ids of the ten columns.
pub mod field {
    /// `_kafka_partition`.
    pub const PARTITION: i32 = 1;
    /// `_kafka_offset`.
    pub const OFFSET: i32 = 2;
    /// `_kafka_timestamp`.
    pub const TIMESTAMP: i32 = 3;
    /// `_kafka_timestamp_ms`.
    pub const TIMESTAMP_MS: i32 = 4;
    /// `_kafka_timestamp_type`.
    pub const TIMESTAMP_TYPE: i32 = 5;
    /// `_kafka_key`.
    pub const KEY: i32 = 6;
    /// `_kafka_value`.
    pub const VALUE: i32 = 7;
    /// `_kafka_headers`.
    pub const HEADERS: i32 = 8;
    /// `_kafka_rescued`.
    pub const RESCUED: i32 = 9;
    /// `_kafka_error`.
    pub const ERROR: i32 = 10;
    /// The element of `_kafka_headers`.
    pub const HEADER: i32 = 11;
    /// `key` of a header.
    pub const HEADER_KEY: i32 = 12;
    /// `value` of a header.
    pub const HEADER_VALUE: i32 = 13;
    /// `class` of `_kafka_error`.
    pub const ERROR_CLASS: i32 = 14;
    /// `message` of `_kafka_error`.
    pub const ERROR_MESSAGE: i32 = 15;
    /// `schema_id` of `_kafka_error`.
    pub const ERROR_SCHEMA_ID: i32 = 16;
}

/// The greatest id of the ten columns and what is in them.
pub const FIXED_FIELD_ID_MAX: i32 = field::ERROR_SCHEMA_ID;

/// Names of the ten columns; the one at index `i` has field id `i + 1`.
pub const COLUMN_NAMES: [&str; 10] = [
    "_kafka_partition",
    "_kafka_offset",
    "_kafka_timestamp",
    "_kafka_timestamp_ms",
    "_kafka_timestamp_type",
    "_kafka_key",
    "_kafka_value",
    "_kafka_headers",
    "_kafka_rescued",
    "_kafka_error",
];

/// The columns that have bounds in manifests and statistics in data files: small, ordered, and what
/// queries filter by. Keys, values and headers have none, so that no truncated bound can ever hide
/// a row.
pub const COLUMNS_WITH_BOUNDS: [i32; 5] =
    [field::PARTITION, field::OFFSET, field::TIMESTAMP, field::TIMESTAMP_MS, field::TIMESTAMP_TYPE];

/// The schema of a table with these columns beside the ten.
///
/// # Errors
/// None in practice; `Bug` if the library refuses the schema.
pub fn iceberg_schema(mapping: &Mapping) -> Result<Schema> {
    let fields = columns().into_iter().chain(members(mapping, ROOT));
    let builder = Schema::builder().with_schema_id(0).with_fields(fields);
    builder.build().map_err(|error| iceberg_error("build the table schema", error))
}

/// A table's schema with the columns that a mapping has beyond its first `known` nodes. What others
/// have made of the earlier ones stays; members of a struct that they have dropped are not made.
pub(crate) fn grown_schema(schema: &Schema, mapping: &Mapping, known: NodeIndex) -> Result<Schema> {
    let fields = grown_members(schema.as_struct().fields(), mapping, ROOT, known);
    let builder = Schema::builder().with_schema_id(0).with_fields(fields);
    let builder = builder.with_identifier_field_ids(schema.identifier_field_ids());
    builder.build().map_err(|error| iceberg_error("build the table schema", error))
}

fn grown_members(
    fields: &[NestedFieldRef],
    mapping: &Mapping,
    node: NodeIndex,
    known: NodeIndex,
) -> Vec<NestedFieldRef> {
    let by_id = mapping.columns_by_id(node);
    let grown = fields.iter().map(|field| match by_id.get(&field.id) {
        Some(column) if *column < known => grown_field(field, mapping, *column, known),
        _ => field.clone(),
    });
    let columns = mapping.node(node).fields.columns.iter();
    let added = columns.filter(|column| **column >= known).map(|column| member(mapping, *column));
    grown.chain(added).collect()
}

fn grown_field(
    field: &NestedFieldRef,
    mapping: &Mapping,
    node: NodeIndex,
    known: NodeIndex,
) -> NestedFieldRef {
    let kind = match (field.field_type.as_ref(), mapping.node(node).element) {
        (Type::Struct(members), None) => {
            let members = grown_members(members.fields(), mapping, node, known);
            Type::Struct(StructType::new(members))
        }
        (Type::List(list), Some(element)) => {
            let element = grown_field(&list.element_field, mapping, element, known);
            Type::List(ListType::new(element))
        }
        _ => return field.clone(),
    };
    Arc::new(NestedField { field_type: Box::new(kind), ..field.as_ref().clone() })
}

/// The same columns as Arrow fields that carry their field ids.
///
/// # Errors
/// None in practice; `Bug` if the library refuses the schema.
pub fn arrow_schema(mapping: &Mapping) -> Result<ArrowSchemaRef> {
    as_arrow(&iceberg_schema(mapping)?)
}

/// A table's columns as Arrow fields that carry their field ids.
pub(crate) fn as_arrow(schema: &Schema) -> Result<ArrowSchemaRef> {
    let schema: ArrowSchema = iceberg::arrow::schema_to_arrow_schema(schema)
        .map_err(|error| iceberg_error("map the table schema to Arrow", error))?;
    Ok(Arc::new(schema))
}

/// The default partition spec, not yet bound to a table.
///
/// # Errors
/// None in practice; `Bug` if the library refuses the fixed spec.
pub fn day_spec() -> Result<UnboundPartitionSpec> {
    let builder = UnboundPartitionSpec::builder()
        .with_spec_id(SPEC_DAY)
        .add_partition_field(field::TIMESTAMP, DAY_FIELD_NAME, Transform::Day)
        .map_err(|error| iceberg_error("build the day spec", error))?;
    Ok(builder.build())
}

fn columns() -> Vec<NestedFieldRef> {
    use PrimitiveType::{Binary, Int, Long, String, Timestamptz};
    let types = [
        Type::Primitive(Int),
        Type::Primitive(Long),
        Type::Primitive(Timestamptz),
        Type::Primitive(Long),
        Type::Primitive(Int),
        Type::Primitive(Binary),
        Type::Primitive(Binary),
        headers_type(),
        Type::Primitive(String),
        error_type(),
    ];
    let named = COLUMN_NAMES.into_iter().zip(types).zip(1..);
    named
        .map(|((name, kind), id)| {
            let required = id == field::PARTITION || id == field::OFFSET;
            Arc::new(NestedField::new(id, name, kind, required))
        })
        .collect()
}

/// The columns of a struct, or of the record.
fn members(mapping: &Mapping, node: NodeIndex) -> Vec<NestedFieldRef> {
    let columns = mapping.node(node).fields.columns.iter();
    columns.map(|column| member(mapping, *column)).collect()
}

fn member(mapping: &Mapping, index: NodeIndex) -> NestedFieldRef {
    let column = mapping.node(index);
    let kind = column_type(mapping, index);
    Arc::new(NestedField::optional(column.field_id, &*column.name, kind))
}

fn column_type(mapping: &Mapping, index: NodeIndex) -> Type {
    let column = mapping.node(index);
    match column.kind {
        Kind::Long => Type::Primitive(PrimitiveType::Long),
        Kind::Double => Type::Primitive(PrimitiveType::Double),
        Kind::String | Kind::Json => Type::Primitive(PrimitiveType::String),
        Kind::Bool => Type::Primitive(PrimitiveType::Boolean),
        Kind::Struct => Type::Struct(StructType::new(members(mapping, index))),
        Kind::List => {
            let element = column.element.expect("a list is made with its element");
            let id = mapping.node(element).field_id;
            let element = NestedField::list_element(id, column_type(mapping, element), false);
            Type::List(ListType::new(Arc::new(element)))
        }
    }
}

fn headers_type() -> Type {
    let header = StructType::new(vec![
        optional(field::HEADER_KEY, "key", PrimitiveType::String),
        optional(field::HEADER_VALUE, "value", PrimitiveType::Binary),
    ]);
    let element = NestedField::list_element(field::HEADER, Type::Struct(header), false);
    Type::List(ListType::new(Arc::new(element)))
}

fn error_type() -> Type {
    Type::Struct(StructType::new(vec![
        optional(field::ERROR_CLASS, "class", PrimitiveType::String),
        optional(field::ERROR_MESSAGE, "message", PrimitiveType::String),
        optional(field::ERROR_SCHEMA_ID, "schema_id", PrimitiveType::Int),
    ]))
}

fn optional(id: i32, name: &str, kind: PrimitiveType) -> NestedFieldRef {
    Arc::new(NestedField::optional(id, name, Type::Primitive(kind)))
}
