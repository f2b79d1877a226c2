//! The short way of a record: read once, without a list of tokens, where each member goes straight
//! into a column that is there. Nearly every record is so. Any other (a new key, a list, a value of
//! another type, a doubled key, no JSON) is for the long way, which begins it again.

use crate::json::{PathIndex, RECORD_BYTES_MAX, Token, number};
use crate::mapping::{EXACT_DOUBLE_MAX, Fields, Kind, Mapping, NodeIndex, ROOT, SeenPaths};
use jiter::{Jiter, Peek};
use std::ops::Range;

/// Objects within each other that go the short way.
const NESTING_MAX: usize = 16;
/// Where records go the long way, the short one is tried again after so many of them, at most.
const PAUSE_RECORDS_MAX: u32 = 64;

/// One value and its column.
pub(super) struct Cell {
    pub(super) column: NodeIndex,
    pub(super) value: Value,
}

/// A value that is not null.
pub(super) enum Value {
    Long(i64),
    Double(f64),
    Bool(bool),
    /// A range of the record's texts.
    Text(Range<usize>),
    /// A struct is there; its members have cells of their own.
    Struct,
}

/// A record that goes the short way, and buffers for the next.
#[derive(Default)]
pub(super) struct Straight {
    pub(super) cells: Vec<Cell>,
    pub(super) texts: String,
    tape: Vec<u8>,
    /// By a key's place in its record: its path the last time. Records of a topic are alike.
    last_paths: Vec<PathIndex>,
    /// Records that go the long way before the short one is tried again, and how many that were.
    pause: (u32, u32),
}

/// An object that has begun.
struct Open<'a> {
    fields: &'a Fields,
    seen: SeenPaths,
    expected: PathIndex,
}

impl<'a> Open<'a> {
    fn new(mapping: &'a Mapping, node: NodeIndex) -> Self {
        Self { fields: &mapping.node(node).fields, seen: SeenPaths::default(), expected: 0 }
    }
}

impl Straight {
    /// Reads a record that looks like an object. `None` if it is for the long way, else whether it
    /// has any value but null.
    pub(super) fn read(&mut self, mapping: &Mapping, record: &[u8]) -> Option<bool> {
        if self.pause.0 > 0 {
            self.pause.0 -= 1;
            return None;
        }
        self.cells.clear();
        self.texts.clear();
        let read = self.record(mapping, record);
        let pause = if read.is_some() { 0 } else { (self.pause.1 * 2).clamp(1, PAUSE_RECORDS_MAX) };
        self.pause = (pause, pause);
        read
    }

    fn record(&mut self, mapping: &Mapping, record: &[u8]) -> Option<bool> {
        if record.len() > RECORD_BYTES_MAX {
            return None;
        }
        let mut parser = Jiter::with_tape(record, std::mem::take(&mut self.tape));
        let read = self.object(mapping, &mut parser);
        self.tape = parser.into_tape();
        read
    }

    fn object(&mut self, mapping: &Mapping, parser: &mut Jiter<'_>) -> Option<bool> {
        if parser.peek().ok()? != Peek::Object {
            return None;
        }
        let mut open = Vec::with_capacity(1);
        open.push(Open::new(mapping, ROOT));
        let mut key = parser.known_object().ok()?;
        let (mut keys, mut is_shown) = (0, false);
        while let Some(around) = open.last_mut() {
            let Some(name) = key else {
                open.pop();
                if !open.is_empty() {
                    key = parser.next_key().ok()?;
                }
                continue;
            };
            let path = self.path(around, name, keys)?;
            keys += 1;
            let peek = parser.peek().ok()?;
            is_shown |= peek != Peek::Null;
            match (peek, path) {
                (Peek::Null, _) => parser.known_null().ok()?,
                (_, None) => return None,
                (Peek::Object, Some(path)) => {
                    let column = around.fields.column(path, Kind::Struct)?;
                    self.cells.push(Cell { column, value: Value::Struct });
                    if open.len() == NESTING_MAX {
                        return None;
                    }
                    open.push(Open::new(mapping, column));
                    key = parser.known_object().ok()?;
                    continue;
                }
                (scalar, Some(path)) => self.scalar(around.fields, path, scalar, parser)?,
            }
            key = parser.next_key().ok()?;
        }
        parser.finish().ok()?;
        Some(is_shown)
    }

    /// A key's path if it has one, the outer `None` if the key is doubled. `keys` came before it.
    fn path(&mut self, around: &mut Open<'_>, key: &str, keys: usize) -> Option<Option<PathIndex>> {
        let last = self.last_paths.get(keys).copied().unwrap_or(around.expected);
        let Some(path) = around.fields.path_of(key, &[last, around.expected]) else {
            return Some(None);
        };
        if self.last_paths.len() <= keys {
            self.last_paths.resize(keys + 1, path);
        }
        self.last_paths[keys] = path;
        around.expected = path + 1;
        around.seen.insert(path).then_some(Some(path))
    }

    fn scalar(
        &mut self,
        fields: &Fields,
        path: PathIndex,
        peek: Peek,
        parser: &mut Jiter<'_>,
    ) -> Option<()> {
        let mut push = |column, value| self.cells.push(Cell { column, value });
        match peek {
            Peek::Array => return None,
            Peek::True | Peek::False => {
                let column = fields.column(path, Kind::Bool)?;
                push(column, Value::Bool(parser.known_bool(peek).ok()?));
            }
            Peek::String => {
                let column = fields.column(path, Kind::String)?;
                let start = self.texts.len();
                self.texts.push_str(parser.known_str().ok()?);
                push(column, Value::Text(start..self.texts.len()));
            }
            _ => match number(parser.known_number_bytes(peek).ok()?) {
                Token::Integer(number) => {
                    let double = fields.column(path, Kind::Double);
                    if double.is_some() && number.unsigned_abs() > EXACT_DOUBLE_MAX {
                        return None;
                    }
                    let long = fields.column(path, Kind::Long);
                    double.or(long)?;
                    long.into_iter().for_each(|column| push(column, Value::Long(number)));
                    let value = number as f64;
                    double.into_iter().for_each(|column| push(column, Value::Double(value)));
                }
                Token::Fraction(number) => {
                    push(fields.column(path, Kind::Double)?, Value::Double(number));
                }
                _ => return None,
            },
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
