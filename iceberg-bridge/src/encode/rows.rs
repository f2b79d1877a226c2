//! Rows as Arrow columns, before they go into a Parquet file.

use super::Row;
use arrow_array::builder::{
    Int32Builder, Int64Builder, LargeBinaryBuilder, ListBuilder, StringBuilder, StructBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, SchemaRef};
use floe_env::{Error, Result};
use kfs::TimestampType;
use std::fmt::Write as _;
use std::sync::Arc;

/// The number that stands for a timestamp type, as in Kafka's record attributes.
pub(super) fn timestamp_type_code(timestamp_type: TimestampType) -> i32 {
    match timestamp_type {
        TimestampType::CreateTime => 0,
        TimestampType::LogAppendTime => 1,
    }
}

/// Builders of the ten columns, in their order.
pub(super) struct RowColumns {
    schema: SchemaRef,
    partition: Int32Builder,
    offset: Int64Builder,
    timestamp: TimestampMicrosecondBuilder,
    timestamp_ms: Int64Builder,
    timestamp_type: Int32Builder,
    key: LargeBinaryBuilder,
    value: LargeBinaryBuilder,
    headers: ListBuilder<StructBuilder>,
    rescued: StringBuilder,
    rows: usize,
    bytes: usize,
}

/// What the row left for the statistics of its file.
pub(super) struct Appended {
    /// Bytes of key, value and headers.
    pub(super) bytes: usize,
    /// Whether `_kafka_rescued` got a value.
    pub(super) rescued: bool,
}

impl RowColumns {
    pub(super) fn new(schema: SchemaRef) -> Self {
        let headers = headers_builder(&schema);
        Self {
            schema,
            partition: Int32Builder::new(),
            offset: Int64Builder::new(),
            timestamp: TimestampMicrosecondBuilder::new().with_timezone("+00:00"),
            timestamp_ms: Int64Builder::new(),
            timestamp_type: Int32Builder::new(),
            key: LargeBinaryBuilder::new(),
            value: LargeBinaryBuilder::new(),
            headers,
            rescued: StringBuilder::new(),
            rows: 0,
            bytes: 0,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of keys, values and headers that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, row: &Row<'_>) -> Appended {
        self.partition.append_value(row.partition);
        self.offset.append_value(row.offset);
        self.timestamp.append_option(row.timestamp_us());
        self.timestamp_ms.append_value(row.timestamp_ms);
        self.timestamp_type.append_value(timestamp_type_code(row.timestamp_type));
        self.key.append_option(row.record.key);
        self.value.append_option(row.record.value);
        let rescued = self.push_headers(row);
        self.rescued.append_option(rescued.as_deref());
        let bytes = row.record.key.map_or(0, <[u8]>::len)
            + row.record.value.map_or(0, <[u8]>::len)
            + row.record.headers.bytes().len();
        self.rows += 1;
        self.bytes += bytes;
        Appended { bytes, rescued: rescued.is_some() }
    }

    /// Header keys are text in the table. One that is not UTF-8 is shown with replacement
    /// characters, and its bytes go into the answer, which is what `_kafka_rescued` gets.
    fn push_headers(&mut self, row: &Row<'_>) -> Option<String> {
        let mut odd_keys = String::new();
        for (index, (key, value)) in row.record.headers.enumerate() {
            let shown = String::from_utf8_lossy(key);
            if matches!(shown, std::borrow::Cow::Owned(_)) {
                push_odd_key(&mut odd_keys, index, key);
            }
            let header = self.headers.values();
            let keys = header.field_builder::<StringBuilder>(0).expect("first field is text");
            keys.append_value(shown);
            let values = header.field_builder::<LargeBinaryBuilder>(1);
            values.expect("second field is binary").append_option(value);
            header.append(true);
        }
        self.headers.append(true);
        (!odd_keys.is_empty()).then(|| format!("{{\"header_keys_hex\":{{{odd_keys}}}}}"))
    }

    /// Takes all rows out.
    pub(super) fn take(&mut self) -> Result<RecordBatch> {
        let error_type = self.schema.field(self.schema.fields().len() - 1).data_type();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.partition.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.timestamp.finish()),
            Arc::new(self.timestamp_ms.finish()),
            Arc::new(self.timestamp_type.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.value.finish()),
            Arc::new(self.headers.finish()),
            Arc::new(self.rescued.finish()),
            new_null_array(error_type, self.rows),
        ];
        self.rows = 0;
        self.bytes = 0;
        RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| Error::bug("columns of a table").with_source(error))
    }
}

fn push_odd_key(text: &mut String, index: usize, key: &[u8]) {
    if !text.is_empty() {
        text.push(',');
    }
    write!(text, "\"{index}\":\"").expect("a string takes any text");
    for byte in key {
        write!(text, "{byte:02x}").expect("a string takes any text");
    }
    text.push('"');
}

fn headers_builder(schema: &SchemaRef) -> ListBuilder<StructBuilder> {
    let headers = schema.field(7).data_type();
    let DataType::List(element) = headers else { unreachable!("headers are a list") };
    let DataType::Struct(fields) = element.data_type() else {
        unreachable!("a header is a struct")
    };
    let header = StructBuilder::new(
        fields.clone(),
        vec![Box::new(StringBuilder::new()), Box::new(LargeBinaryBuilder::new())],
    );
    ListBuilder::new(header).with_field(element.clone())
}
