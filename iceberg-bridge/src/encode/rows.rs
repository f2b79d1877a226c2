//! Rows as Arrow columns, before they go into a Parquet file.

use super::Row;
use super::columns::JsonColumns;
use super::decode::Decoded;
use crate::mapping::Mapping;
use arrow_array::builder::{
    ArrayBuilder, Int32Builder, Int64Builder, LargeBinaryBuilder, ListBuilder, StringBuilder,
    StructBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
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

const ERROR_TEXTS: &str = "the error's first fields are two texts";
const ERROR_NUMBER: &str = "the error's third field is a number";

/// Builders of the ten columns, in their order, and of the mapping's. Where most rows have no value
/// (value, rescued, error), nulls are filled in when the next value comes, or at the end.
pub(super) struct RowColumns {
    partition: Int32Builder,
    offset: Int64Builder,
    timestamp: TimestampMicrosecondBuilder,
    timestamp_ms: Int64Builder,
    timestamp_type: Int32Builder,
    key: LargeBinaryBuilder,
    value: LargeBinaryBuilder,
    headers: ListBuilder<StructBuilder>,
    rescued: StringBuilder,
    error: StructBuilder,
    json: JsonColumns,
    rows: usize,
    bytes: usize,
}

/// What became of a row.
pub(super) struct Appended {
    /// Whether `_kafka_rescued` got a value.
    pub(super) is_rescued: bool,
    /// Whether `_kafka_error` got a value.
    pub(super) is_undecodable: bool,
}

impl RowColumns {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        Self {
            partition: Int32Builder::new(),
            offset: Int64Builder::new(),
            timestamp: TimestampMicrosecondBuilder::new().with_timezone("+00:00"),
            timestamp_ms: Int64Builder::new(),
            timestamp_type: Int32Builder::new(),
            key: LargeBinaryBuilder::new(),
            value: LargeBinaryBuilder::new(),
            headers: headers_builder(schema),
            rescued: StringBuilder::new(),
            error: error_builder(schema),
            json: JsonColumns::default(),
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

    pub(super) fn push(&mut self, row: &Row<'_>, decoded: Decoded<'_>) -> Appended {
        self.partition.append_value(row.partition);
        self.offset.append_value(row.offset);
        self.timestamp.append_option(row.timestamp_us());
        self.timestamp_ms.append_value(row.timestamp_ms);
        self.timestamp_type.append_value(timestamp_type_code(row.timestamp_type));
        self.key.append_option(row.record.key);
        let mut rescued = self.push_headers(row);
        let mut failure = None;
        match decoded {
            Decoded::Raw(Some(value)) => self.push_value(value),
            Decoded::Raw(None) => {}
            Decoded::Undecodable { value, class, message } => {
                self.push_value(value);
                failure = Some((class, message));
            }
            Decoded::Straight { mapping, record } => {
                self.json.push_straight(mapping, record, self.rows);
            }
            Decoded::Columns { record, rescued: of_value } => {
                self.json.push(record, self.rows);
                rescued.extend(of_value);
            }
        }
        let is_rescued = !rescued.is_empty();
        if is_rescued {
            self.rescued.append_nulls(self.rows - self.rescued.len());
            self.rescued.append_value(format!("{{{}}}", rescued.join(",")));
        }
        let is_undecodable = failure.is_some();
        if let Some((class, message)) = failure {
            self.push_failure(class, &message);
        }
        let bytes = row.record.key.map_or(0, <[u8]>::len)
            + row.record.value.map_or(0, <[u8]>::len)
            + row.record.headers.bytes().len();
        self.rows += 1;
        self.bytes += bytes;
        Appended { is_rescued, is_undecodable }
    }

    fn push_value(&mut self, value: &[u8]) {
        self.value.append_nulls(self.rows - self.value.len());
        self.value.append_value(value);
    }

    fn push_failure(&mut self, class: &str, message: &str) {
        self.pad_errors();
        for (at, text) in [(0, class), (1, message)] {
            let texts = self.error.field_builder::<StringBuilder>(at).expect(ERROR_TEXTS);
            texts.append_value(text);
        }
        self.error.field_builder::<Int32Builder>(2).expect(ERROR_NUMBER).append_null();
        self.error.append(true);
    }

    /// Nulls for the rows without an error.
    fn pad_errors(&mut self) {
        let missing = self.rows - self.error.len();
        for at in [0, 1] {
            let texts = self.error.field_builder::<StringBuilder>(at).expect(ERROR_TEXTS);
            texts.append_nulls(missing);
        }
        self.error.field_builder::<Int32Builder>(2).expect(ERROR_NUMBER).append_nulls(missing);
        self.error.append_nulls(missing);
    }

    /// Header keys are text in the table. One that is not UTF-8 is shown with replacement
    /// characters, and its bytes go into the answer: members for `_kafka_rescued`.
    fn push_headers(&mut self, row: &Row<'_>) -> Vec<String> {
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
        let odd_keys = (!odd_keys.is_empty()).then_some(odd_keys);
        odd_keys.into_iter().map(|keys| format!("\"header_keys_hex\":{{{keys}}}")).collect()
    }

    /// Takes all rows out, with the columns that the mapping has now.
    pub(super) fn take(&mut self, mapping: &Mapping, schema: &SchemaRef) -> Result<RecordBatch> {
        self.value.append_nulls(self.rows - self.value.len());
        self.rescued.append_nulls(self.rows - self.rescued.len());
        self.pad_errors();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.partition.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.timestamp.finish()),
            Arc::new(self.timestamp_ms.finish()),
            Arc::new(self.timestamp_type.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.value.finish()),
            Arc::new(self.headers.finish()),
            Arc::new(self.rescued.finish()),
            Arc::new(self.error.finish()),
        ];
        columns.extend(self.json.take(mapping, schema, self.rows)?);
        self.rows = 0;
        self.bytes = 0;
        RecordBatch::try_new(schema.clone(), columns)
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

fn error_builder(schema: &SchemaRef) -> StructBuilder {
    let DataType::Struct(fields) = schema.field(9).data_type() else {
        unreachable!("an error is a struct")
    };
    StructBuilder::new(
        fields.clone(),
        vec![
            Box::new(StringBuilder::new()),
            Box::new(StringBuilder::new()),
            Box::new(Int32Builder::new()),
        ],
    )
}
