//! Columns of another schema brought to the table's own: matched by field id at every level, what
//! is missing null, and narrow numbers widened. For files that were written with an older schema,
//! and for rows of a table whose schema others have changed. Pure.

use crate::error::iceberg_error;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, ListArray, MapArray, RecordBatch, StructArray, new_null_array};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use floe_env::{Error, Result};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use std::sync::Arc;

/// The table's schema as its files are read: the one that a Parquet reader gives if nothing else
/// tells it.
pub(crate) fn arrow_schema_of(schema: &iceberg::spec::Schema) -> Result<SchemaRef> {
    let arrow = iceberg::arrow::schema_to_arrow_schema(schema)
        .map_err(|error| iceberg_error("map the table schema to Arrow", error))?;
    Ok(Arc::new(Schema::new(as_read_fields(arrow.fields()))))
}

fn as_read_fields(fields: &Fields) -> Fields {
    fields.iter().map(as_read).collect()
}

fn as_read(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::LargeBinary => DataType::Binary,
        DataType::LargeUtf8 => DataType::Utf8,
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("UTC".into())),
        DataType::List(element) => DataType::List(as_read(element)),
        DataType::Map(entries, is_sorted) => DataType::Map(as_read(entries), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(as_read_fields(fields)),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

fn field_id(field: &Field) -> Option<&str> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY).map(String::as_str)
}

/// The column of a field id at the top of a schema.
pub(crate) fn index_of(schema: &Schema, id: i32) -> Option<usize> {
    let id = id.to_string();
    schema.fields().iter().position(|field| field_id(field) == Some(id.as_str()))
}

/// A batch of a file in the table's schema.
pub(crate) fn project(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = project_fields(
        batch.schema_ref().fields(),
        batch.columns(),
        schema.fields(),
        batch.num_rows(),
    )?;
    RecordBatch::try_new(schema.clone(), columns)
        .map_err(|error| Error::corrupt("rows of a data file").with_source(error))
}

fn project_fields(
    from: &Fields,
    columns: &[ArrayRef],
    to: &Fields,
    rows: usize,
) -> Result<Vec<ArrayRef>> {
    let project = |target: &FieldRef| {
        let position = from
            .iter()
            .position(|field| field_id(field).is_some() && field_id(field) == field_id(target));
        match position {
            Some(position) => project_column(&columns[position], target),
            None if target.is_nullable() => Ok(new_null_array(target.data_type(), rows)),
            None => Err(Error::corrupt(format!("a data file lacks column {}", target.name()))),
        }
    };
    to.iter().map(project).collect()
}

fn project_column(column: &ArrayRef, target: &FieldRef) -> Result<ArrayRef> {
    if column.data_type() == target.data_type() {
        return Ok(column.clone());
    }
    let nulls = column.nulls().cloned();
    let projected: ArrayRef = match (column.data_type(), target.data_type()) {
        (DataType::Struct(from), DataType::Struct(to)) => {
            let columns = project_fields(from, column.as_struct().columns(), to, column.len())?;
            Arc::new(StructArray::try_new(to.clone(), columns, nulls).map_err(corrupt)?)
        }
        (DataType::List(_), DataType::List(element)) => {
            let list = column.as_list::<i32>();
            let values = project_column(list.values(), element)?;
            let offsets = list.offsets().clone();
            let list = ListArray::try_new(element.clone(), offsets, values, nulls);
            Arc::new(list.map_err(corrupt)?)
        }
        (DataType::Map(..), DataType::Map(entries, is_sorted)) => {
            let map = column.as_map();
            let values: ArrayRef = Arc::new(map.entries().clone());
            let values = project_column(&values, entries)?.as_struct().clone();
            let offsets = map.offsets().clone();
            let map = MapArray::try_new(entries.clone(), offsets, values, nulls, *is_sorted);
            Arc::new(map.map_err(corrupt)?)
        }
        (DataType::Int32, DataType::Int64) => {
            Arc::new(column.as_primitive::<Int32Type>().unary::<_, Int64Type>(i64::from))
        }
        (DataType::Float32, DataType::Float64) => {
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float64Type>(f64::from))
        }
        (from, to) => {
            let name = target.name();
            return Err(Error::corrupt(format!(
                "column {name} of a data file is {from}, not {to}"
            )));
        }
    };
    Ok(projected)
}

fn corrupt(error: arrow_schema::ArrowError) -> Error {
    Error::corrupt("a column of a data file").with_source(error)
}
