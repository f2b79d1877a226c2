//! From a record's value to what its row shows: columns, or raw bytes with the reason. The mapping
//! grows here, record by record.

use super::columns::SettledRecord;
use super::straight::Straight;
use crate::json::{Tokens, Unreadable, looks_like_object};
use crate::mapping::{LimitsReached, Mapping, MappingLimits, Rescued, Settled, settle};

/// Topic setting: how values become rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueFormat {
    /// A JSON object becomes columns, anything else stays raw.
    #[default]
    Auto,
    /// Everything stays raw.
    Raw,
}

/// What became of the values so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeCounts {
    /// Rows with something in `_kafka_rescued`.
    pub rescued_rows: u64,
    /// Rows with a `_kafka_error`.
    pub undecodable_rows: u64,
    /// Values that had no column because of a limit.
    pub limits: LimitsReached,
}

impl DecodeCounts {
    /// Adds another count.
    pub fn add(&mut self, other: &Self) {
        self.rescued_rows += other.rescued_rows;
        self.undecodable_rows += other.undecodable_rows;
        self.limits.add(&other.limits);
    }
}

/// A row's value.
pub(super) enum Decoded<'a> {
    /// It stays in `_kafka_value`.
    Raw(Option<&'a [u8]>),
    /// It stays in `_kafka_value`, and this is why.
    Undecodable { value: &'a [u8], class: &'static str, message: String },
    /// It goes the short way into columns.
    Straight { mapping: &'a Mapping, record: &'a Straight },
    /// It is in columns, and members of `_kafka_rescued`.
    Columns { record: SettledRecord<'a>, rescued: Option<String> },
}

/// Decodes values one after the other.
pub(super) struct Decoder {
    format: ValueFormat,
    limits: MappingLimits,
    pub(super) mapping: Mapping,
    pub(super) limits_reached: LimitsReached,
    pub(super) straight: Straight,
    tokens: Tokens,
}

impl Decoder {
    pub(super) fn new(format: ValueFormat, limits: MappingLimits, mapping: Mapping) -> Self {
        let (limits_reached, tokens) = (LimitsReached::default(), Tokens::default());
        Self { format, limits, mapping, limits_reached, straight: Straight::default(), tokens }
    }

    pub(super) fn decode<'a>(&'a mut self, value: Option<&'a [u8]>) -> Decoded<'a> {
        let Some(bytes) = value else { return Decoded::Raw(None) };
        if self.format == ValueFormat::Raw || !looks_like_object(bytes) {
            return Decoded::Raw(value);
        }
        match self.straight.read(&self.mapping, bytes) {
            Some(true) => {
                return Decoded::Straight { mapping: &self.mapping, record: &self.straight };
            }
            Some(false) => return Decoded::Raw(value),
            None => {}
        }
        match self.tokens.read(bytes) {
            Ok(()) => {}
            Err(Unreadable::Invalid(message)) => {
                return Decoded::Undecodable { value: bytes, class: "json", message };
            }
            Err(Unreadable::Excess(message)) => {
                let message = message.to_owned();
                return Decoded::Undecodable { value: bytes, class: "limit", message };
            }
        }
        let (settled, rescued) = match settle(&self.mapping, &mut self.tokens, None) {
            Ok(settled) => (settled, None),
            Err(_) => self.grow(bytes),
        };
        if settled == Settled::Hollow && rescued.is_none() {
            return Decoded::Raw(value);
        }
        let record = SettledRecord { mapping: &self.mapping, tokens: &self.tokens, bytes };
        Decoded::Columns { record, rescued }
    }

    /// Adds the columns that the record needs, and rescues what still has none.
    fn grow(&mut self, bytes: &[u8]) -> (Settled, Option<String>) {
        let is_doubled = self.tokens.drop_duplicates();
        let reached = self.mapping.fold(&self.tokens, self.limits);
        self.limits_reached.add(&reached);
        let mut rescued = Rescued::new(bytes);
        let settled = settle(&self.mapping, &mut self.tokens, Some(&mut rescued));
        let settled = settled.unwrap_or(Settled::Shown);
        let mut members = String::new();
        if !rescued.values.is_empty() {
            members = format!("\"values\":{{{}}}", rescued.values);
        }
        if is_doubled {
            let record = String::from_utf8_lossy(bytes);
            let comma = if members.is_empty() { "" } else { "," };
            members.push_str(&format!("{comma}\"record\":{}", serde_json::Value::from(record)));
        }
        (settled, (!members.is_empty()).then_some(members))
    }
}
