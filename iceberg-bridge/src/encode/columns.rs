//! Builders of a mapping's columns: settled tokens go straight in. A column that a row does not
//! mention costs nothing then; it is filled with nulls when the next value comes, or at the end, so
//! a column that is new has its nulls for the rows before.

use super::straight::{Cell, Straight, Value};
use crate::json::{DROPPED, Token, Tokens};
use crate::mapping::{Kind, Mapping, NodeIndex, ROOT};
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, NullBufferBuilder, StringBuilder,
};
use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, SchemaRef};
use floe_env::{Error, Result};
use std::sync::Arc;

enum Builder {
    Long(Int64Builder),
    Double(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
    Struct(NullBufferBuilder),
    /// Lengths, and how many elements there are.
    List {
        valid: NullBufferBuilder,
        lengths: Vec<usize>,
        elements: usize,
    },
}

impl Builder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Long => Self::Long(Int64Builder::new()),
            Kind::Double => Self::Double(Float64Builder::new()),
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::String | Kind::Json => Self::Text(StringBuilder::new()),
            Kind::Struct => Self::Struct(NullBufferBuilder::new(0)),
            Kind::List => {
                Self::List { valid: NullBufferBuilder::new(0), lengths: Vec::new(), elements: 0 }
            }
        }
    }

    fn len(&self) -> usize {
        use arrow_array::builder::ArrayBuilder;
        match self {
            Self::Long(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Struct(valid) | Self::List { valid, .. } => valid.len(),
        }
    }

    /// Nulls up to a length.
    fn pad(&mut self, length: usize) {
        let missing = length.saturating_sub(self.len());
        if missing == 0 {
            return;
        }
        match self {
            Self::Long(values) => values.append_nulls(missing),
            Self::Double(values) => values.append_nulls(missing),
            Self::Bool(values) => values.append_nulls(missing),
            Self::Text(values) => values.append_nulls(missing),
            Self::Struct(valid) => valid.append_n_nulls(missing),
            Self::List { valid, lengths, .. } => {
                valid.append_n_nulls(missing);
                lengths.resize(lengths.len() + missing, 0);
            }
        }
    }
}

/// The columns of a mapping, by its nodes.
#[derive(Default)]
pub(super) struct JsonColumns {
    /// By node, less the record.
    builders: Vec<Builder>,
}

/// What a settled record is made of.
#[derive(Clone, Copy)]
pub(super) struct SettledRecord<'a> {
    pub(super) mapping: &'a Mapping,
    pub(super) tokens: &'a Tokens,
    pub(super) bytes: &'a [u8],
}

impl JsonColumns {
    /// Adds a record as the row at `row`.
    pub(super) fn push(&mut self, record: SettledRecord<'_>, row: usize) {
        self.make_missing(record.mapping);
        self.members(record, ROOT, row, 0);
    }

    /// Adds a record that goes the short way as the row at `row`.
    pub(super) fn push_straight(&mut self, mapping: &Mapping, record: &Straight, row: usize) {
        self.make_missing(mapping);
        for Cell { column, value } in &record.cells {
            let builder = &mut self.builders[column - 1];
            builder.pad(row);
            match (builder, value) {
                (Builder::Long(values), Value::Long(number)) => values.append_value(*number),
                (Builder::Double(values), Value::Double(number)) => values.append_value(*number),
                (Builder::Bool(values), Value::Bool(flag)) => values.append_value(*flag),
                (Builder::Text(values), Value::Text(range)) => {
                    values.append_value(&record.texts[range.clone()]);
                }
                (Builder::Struct(valid), Value::Struct) => valid.append_non_null(),
                // The cell's column was chosen by its kind.
                _ => unreachable!("a value has a column of its kind"),
            }
        }
    }

    fn make_missing(&mut self, mapping: &Mapping) {
        for index in self.builders.len() + 1..mapping.node_count() {
            self.builders.push(Builder::new(mapping.node(index).kind));
        }
    }

    fn members(&mut self, record: SettledRecord<'_>, node: NodeIndex, slot: usize, object: usize) {
        let SettledRecord { mapping, tokens, .. } = record;
        let fields = &mapping.node(node).fields;
        let inside = tokens.inside(object);
        let mut at = inside.start;
        while at < inside.end {
            let value = at + 1;
            let next = tokens.behind(value);
            if let Token::Key(_, path) = tokens.at(at)
                && path != DROPPED
            {
                let kinds = kinds_of(tokens.at(value));
                for column in kinds.iter().filter_map(|kind| fields.column(path, *kind)) {
                    self.value(record, column, slot, value);
                }
            }
            at = next;
        }
    }

    fn value(&mut self, record: SettledRecord<'_>, node: NodeIndex, slot: usize, value: usize) {
        let SettledRecord { tokens, bytes, .. } = record;
        let builder = &mut self.builders[node - 1];
        builder.pad(slot);
        match (builder, tokens.at(value)) {
            (Builder::Long(values), Token::Integer(number)) => values.append_value(number),
            (Builder::Double(values), Token::Integer(number)) => values.append_value(number as f64),
            (Builder::Double(values), Token::Fraction(number)) => values.append_value(number),
            (Builder::Bool(values), Token::Bool(flag)) => values.append_value(flag),
            (Builder::Text(values), Token::Text(text)) => values.append_value(tokens.text(text)),
            (Builder::Text(values), Token::Verbatim { .. }) => {
                values.append_value(tokens.source(bytes, value));
            }
            (Builder::Struct(valid), Token::Object { .. }) => {
                valid.append_non_null();
                self.members(record, node, slot, value);
            }
            (Builder::List { valid, .. }, Token::Array { .. }) => {
                valid.append_non_null();
                self.elements(record, node, value);
            }
            // A null, which the next value or the end fills in.
            _ => {}
        }
    }

    fn elements(&mut self, record: SettledRecord<'_>, list: NodeIndex, value: usize) {
        let SettledRecord { mapping, tokens, .. } = record;
        let Builder::List { elements, .. } = &self.builders[list - 1] else { return };
        let first = *elements;
        let mut slot = first;
        let inside = tokens.inside(value);
        let mut at = inside.start;
        while at < inside.end {
            if let Some(element) = mapping.node(list).element {
                self.value(record, element, slot, at);
            }
            slot += 1;
            at = tokens.behind(at);
        }
        if let Builder::List { elements, lengths, .. } = &mut self.builders[list - 1] {
            *elements = slot;
            lengths.push(slot - first);
        }
    }

    /// Takes `rows` rows out, as the columns behind the ten of `schema`.
    pub(super) fn take(
        &mut self,
        mapping: &Mapping,
        schema: &SchemaRef,
        rows: usize,
    ) -> Result<Vec<ArrayRef>> {
        self.make_missing(mapping);
        let columns = &mapping.node(ROOT).fields.columns;
        let fields = schema.fields().iter().skip(crate::schema::COLUMN_NAMES.len());
        let arrays = columns.iter().zip(fields);
        arrays.map(|(node, field)| self.take_one(mapping, *node, field, rows)).collect()
    }

    fn take_one(
        &mut self,
        mapping: &Mapping,
        node: NodeIndex,
        field: &Arc<Field>,
        rows: usize,
    ) -> Result<ArrayRef> {
        let column = mapping.node(node);
        let mut builder =
            std::mem::replace(&mut self.builders[node - 1], Builder::new(column.kind));
        builder.pad(rows);
        Ok(match builder {
            Builder::Long(mut values) => Arc::new(values.finish()),
            Builder::Double(mut values) => Arc::new(values.finish()),
            Builder::Bool(mut values) => Arc::new(values.finish()),
            Builder::Text(mut values) => Arc::new(values.finish()),
            Builder::Struct(mut valid) => {
                let DataType::Struct(fields) = field.data_type() else {
                    return Err(other_type(field));
                };
                let children = column.fields.columns.iter().zip(fields);
                let children: Result<Vec<ArrayRef>> = children
                    .map(|(node, field)| self.take_one(mapping, *node, field, rows))
                    .collect();
                let made = StructArray::try_new(fields.clone(), children?, valid.finish());
                Arc::new(made.map_err(arrow_error)?)
            }
            Builder::List { mut valid, lengths, elements } => {
                let (DataType::List(item), Some(element)) = (field.data_type(), column.element)
                else {
                    return Err(other_type(field));
                };
                let items = self.take_one(mapping, element, item, elements)?;
                let offsets = OffsetBuffer::from_lengths(lengths);
                let made = ListArray::try_new(item.clone(), offsets, items, valid.finish());
                Arc::new(made.map_err(arrow_error)?)
            }
        })
    }
}

/// The columns of a path that take a value: a number has two.
fn kinds_of(token: Token) -> &'static [Kind] {
    match token {
        Token::Integer(_) => &[Kind::Long, Kind::Double],
        Token::Fraction(_) => &[Kind::Double],
        Token::Text(_) => &[Kind::String],
        Token::Bool(_) => &[Kind::Bool],
        Token::Object { .. } => &[Kind::Struct],
        Token::Array { .. } => &[Kind::List],
        Token::Verbatim { .. } => &[Kind::Json],
        _ => &[],
    }
}

fn other_type(field: &Field) -> Error {
    Error::bug(format!("column {} has another type than its mapping", field.name()))
}

fn arrow_error(error: arrow_schema::ArrowError) -> Error {
    Error::bug("columns of a record's values").with_source(error)
}
