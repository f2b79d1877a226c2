//! A data file's rows as JSON: what an engine would show, without the columns that are null.

use crate::schema::field;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field};
use bytes::Bytes;
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The columns that every row has; a test of values looks at the others.
const PLACE_COLUMNS: usize = 6;

pub(crate) fn read_batches(bytes: Bytes) -> Vec<RecordBatch> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    reader.build().unwrap().map(Result::unwrap).collect()
}

/// By row: offset, and what is behind the key but headers.
pub(crate) fn json_rows(bytes: Bytes) -> Vec<(i64, Value)> {
    let mut rows = Vec::new();
    for batch in read_batches(bytes) {
        let offsets = batch.column(1).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let mut members = Map::new();
            for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
                let is_place = batch.schema().index_of(field.name()).unwrap() < PLACE_COLUMNS;
                if !is_place && field.name() != "_kafka_headers" && column.is_valid(row) {
                    members.insert(field.name().clone(), cell(column.as_ref(), row));
                }
            }
            rows.push((offsets.value(row), Value::Object(members)));
        }
    }
    rows
}

/// By row: offset, and the values of columns that are not null by field id, but for those of its
/// place, key and headers.
pub(crate) fn json_rows_by_id(bytes: Bytes) -> Vec<(i64, BTreeMap<i32, Value>)> {
    let mut rows = Vec::new();
    for batch in read_batches(bytes) {
        let schema = batch.schema();
        let ids: Vec<i32> = schema.fields().iter().map(|field| id_of(field)).collect();
        let offsets = ids.iter().position(|id| *id == field::OFFSET).unwrap();
        let offsets = batch.column(offsets).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let columns = ids.iter().zip(batch.columns());
            let shown = columns.filter(|(id, column)| {
                **id > field::KEY && **id != field::HEADERS && column.is_valid(row)
            });
            let members = shown.map(|(id, column)| (*id, cell(column.as_ref(), row)));
            rows.push((offsets.value(row), members.collect()));
        }
    }
    rows
}

fn id_of(field: &Field) -> i32 {
    field.metadata()[PARQUET_FIELD_ID_META_KEY].parse().unwrap()
}

fn cell(column: &dyn Array, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::Binary => String::from_utf8_lossy(column.as_binary::<i32>().value(row)).into(),
        DataType::Struct(fields) => {
            // A file that is older than a member lacks it, which engines show as null.
            let members = fields.iter().zip(column.as_struct().columns());
            members
                .filter(|(_, column)| column.is_valid(row))
                .map(|(field, column)| (field.name().clone(), cell(column, row)))
                .collect()
        }
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            (0..items.len()).map(|item| cell(items.as_ref(), item)).collect()
        }
        other => panic!("no test has a column of type {other}"),
    }
}
