//! One record's JSON as a flat list of tokens, without a tree of values. Pure, no recursion, memory
//! bounded by the record.
//!
//! [`Tokens::read`] takes one JSON object and keeps its buffers for the next. What a token says of
//! its place in the record is in its span; a container says where it ends, so a value is skipped in
//! one step. [`Tokens::drop_duplicates`] leaves the last of doubled keys.

#[cfg(test)]
mod tests;

use jiter::{Jiter, JiterError, Peek};
use std::collections::BTreeMap;
use std::ops::Range;

/// Containers within each other that one record may have.
pub(crate) const NESTING_MAX: usize = 512;
/// Tokens that one record may have.
pub(crate) const TOKENS_MAX: usize = 1 << 20;
/// The longest record that is read as JSON, bytes.
pub(crate) const RECORD_BYTES_MAX: usize = 256 << 20;

/// Digits of which every number has 64 bits.
const SHORT_DIGITS_MAX: usize = 18;

/// A text of the record, without escapes: a range of [`Tokens`]' own buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Text {
    start: u32,
    end: u32,
}

/// Which path of its object a key names, once that is settled.
pub(crate) type PathIndex = u32;
/// The key is not settled yet.
pub(crate) const UNSETTLED: PathIndex = u32::MAX;
/// The key and its value are passed over.
pub(crate) const DROPPED: PathIndex = u32::MAX - 1;

/// One step through a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token {
    /// A key; its value follows.
    Key(Text, PathIndex),
    /// An object; its last token is the one before `end`.
    Object { end: u32 },
    /// A list; its last token is the one before `end`.
    Array { end: u32 },
    /// A list that goes to its column as JSON text; tokens up to `end` are passed over.
    Verbatim { end: u32 },
    /// A string.
    Text(Text),
    /// A number without fraction and exponent, of 64 bits.
    Integer(i64),
    /// A number with fraction or exponent.
    Fraction(f64),
    /// A number that neither 64-bit type holds.
    HugeNumber,
    /// `true` or `false`.
    Bool(bool),
    /// `null`
    Null,
}

/// Why a value is not read as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is no JSON.
    Invalid(String),
    /// It is more than is read.
    Excess(&'static str),
}

impl From<JiterError> for Unreadable {
    fn from(error: JiterError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// The tokens of one record, and buffers for the next.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    list: Vec<Token>,
    /// By token: its bytes in the record.
    spans: Vec<(u32, u32)>,
    texts: String,
    /// Containers that have begun: index of the token, and whether it is an object.
    open: Vec<(usize, bool)>,
    scratch: Vec<u8>,
}

/// True where the first byte that is no white space begins an object.
pub(crate) fn looks_like_object(record: &[u8]) -> bool {
    let first = record.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    first == Some(&b'{')
}

impl Tokens {
    /// Reads a record that looks like an object; it must be one, and nothing behind it.
    pub(crate) fn read(&mut self, record: &[u8]) -> Result<(), Unreadable> {
        self.list.clear();
        self.spans.clear();
        self.texts.clear();
        self.open.clear();
        if record.len() > RECORD_BYTES_MAX {
            return Err(Unreadable::Excess("the record is longer than 256 MiB"));
        }
        let mut parser = Jiter::with_tape(record, std::mem::take(&mut self.scratch));
        let read = self.read_value(&mut parser);
        self.scratch = parser.into_tape();
        read
    }

    fn read_value(&mut self, parser: &mut Jiter<'_>) -> Result<(), Unreadable> {
        let mut next = Some(parser.peek()?);
        loop {
            next = match next {
                Some(Peek::Object) => {
                    self.begin(parser, true)?;
                    let key = parser.known_object()?;
                    let key = key.map(|key| Text::push(&mut self.texts, key));
                    self.member(key, parser)?
                }
                Some(Peek::Array) => {
                    self.begin(parser, false)?;
                    let element = parser.known_array()?;
                    self.element(element, parser)
                }
                Some(scalar) => {
                    self.scalar(scalar, parser)?;
                    None
                }
                None => match self.open.last() {
                    Some((_, true)) => {
                        let key = parser.next_key()?;
                        let key = key.map(|key| Text::push(&mut self.texts, key));
                        self.member(key, parser)?
                    }
                    Some((_, false)) => {
                        let element = parser.array_step()?;
                        self.element(element, parser)
                    }
                    None => break,
                },
            };
            if self.list.len() > TOKENS_MAX {
                return Err(Unreadable::Excess("the record has more than 1048576 tokens"));
            }
        }
        Ok(parser.finish()?)
    }

    fn begin(&mut self, parser: &Jiter<'_>, is_object: bool) -> Result<(), Unreadable> {
        if self.open.len() >= NESTING_MAX {
            return Err(Unreadable::Excess("the record is nested deeper than 512"));
        }
        self.open.push((self.list.len(), is_object));
        let at = position(parser);
        let token = if is_object { Token::Object { end: 0 } } else { Token::Array { end: 0 } };
        self.push(token, (at, at));
        Ok(())
    }

    /// A key and what its value is, or the end of the object.
    fn member(
        &mut self,
        key: Option<Text>,
        parser: &mut Jiter<'_>,
    ) -> Result<Option<Peek>, Unreadable> {
        let Some(key) = key else {
            self.end(parser);
            return Ok(None);
        };
        let at = position(parser);
        self.push(Token::Key(key, UNSETTLED), (at, at));
        Ok(Some(parser.peek()?))
    }

    fn element(&mut self, element: Option<Peek>, parser: &Jiter<'_>) -> Option<Peek> {
        if element.is_none() {
            self.end(parser);
        }
        element
    }

    fn end(&mut self, parser: &Jiter<'_>) {
        let Some((index, is_object)) = self.open.pop() else { return };
        let end = index_u32(self.list.len());
        self.list[index] = if is_object { Token::Object { end } } else { Token::Array { end } };
        self.spans[index].1 = position(parser);
    }

    fn scalar(&mut self, peek: Peek, parser: &mut Jiter<'_>) -> Result<(), Unreadable> {
        let start = position(parser);
        let token = match peek {
            Peek::Null => {
                parser.known_null()?;
                Token::Null
            }
            Peek::True | Peek::False => Token::Bool(parser.known_bool(peek)?),
            Peek::String => Token::Text(Text::push(&mut self.texts, parser.known_str()?)),
            _ => number(parser.known_number_bytes(peek)?),
        };
        self.push(token, (start, position(parser)));
        Ok(())
    }

    fn push(&mut self, token: Token, span: (u32, u32)) {
        self.list.push(token);
        self.spans.push(span);
    }

    /// The token at an index.
    pub(crate) fn at(&self, index: usize) -> Token {
        self.list[index]
    }

    /// Changes the token at an index.
    pub(crate) fn set(&mut self, index: usize, token: Token) {
        self.list[index] = token;
    }

    /// The index behind the value at an index.
    pub(crate) fn behind(&self, index: usize) -> usize {
        match self.list[index] {
            Token::Object { end } | Token::Array { end } | Token::Verbatim { end } => end as usize,
            _ => index + 1,
        }
    }

    /// What is inside the container at an index.
    pub(crate) fn inside(&self, index: usize) -> Range<usize> {
        index + 1..self.behind(index)
    }

    /// A text without escapes.
    pub(crate) fn text(&self, text: Text) -> &str {
        &self.texts[text.start as usize..text.end as usize]
    }

    /// The bytes of the value at an index, as they came.
    pub(crate) fn source<'a>(&self, record: &'a [u8], index: usize) -> &'a str {
        let (start, end) = self.spans[index];
        let bytes = &record[start as usize..end as usize];
        // The parser has seen that strings are UTF-8; all else is ASCII.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// True if a value has a type: any scalar but null is in it.
    pub(crate) fn has_type(&self, index: usize) -> bool {
        let behind = self.behind(index);
        let mut at = index;
        while at < behind {
            at = match self.list[at] {
                Token::Key(_, DROPPED) => self.behind(at + 1),
                Token::Key(..) | Token::Object { .. } | Token::Array { .. } | Token::Null => at + 1,
                _ => return true,
            };
        }
        false
    }

    /// Of doubled keys all but the last are dropped with their values. True if there were any.
    pub(crate) fn drop_duplicates(&mut self) -> bool {
        let mut found = false;
        for index in 0..self.list.len() {
            if let Token::Object { .. } = self.list[index] {
                found |= self.drop_duplicates_of(index);
            }
        }
        found
    }

    fn drop_duplicates_of(&mut self, object: usize) -> bool {
        let inside = self.inside(object);
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        let mut doubled = Vec::new();
        let mut at = inside.start;
        while at < inside.end {
            if let Token::Key(text, _) = self.list[at] {
                let key = &self.texts[text.start as usize..text.end as usize];
                doubled.extend(last.insert(key, at));
            }
            at = self.behind(at + 1);
        }
        for at in &doubled {
            if let Token::Key(text, _) = self.list[*at] {
                self.list[*at] = Token::Key(text, DROPPED);
            }
        }
        !doubled.is_empty()
    }
}

impl Text {
    fn push(texts: &mut String, text: &str) -> Self {
        let start = index_u32(texts.len());
        texts.push_str(text);
        Self { start, end: index_u32(texts.len()) }
    }
}

/// A number of the record.
pub(crate) fn number(text: &[u8]) -> Token {
    if let Some(value) = short_integer(text) {
        return Token::Integer(value);
    }
    let text = std::str::from_utf8(text).unwrap_or_default();
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return text.parse().map_or(Token::HugeNumber, Token::Integer);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Token::Fraction(value),
        _ => Token::HugeNumber,
    }
}

/// A whole number of so few digits that it fits: nearly all are, and this is quicker.
fn short_integer(text: &[u8]) -> Option<i64> {
    let (digits, sign) = match text {
        [b'-', digits @ ..] => (digits, -1),
        digits => (digits, 1),
    };
    if digits.is_empty() || digits.len() > SHORT_DIGITS_MAX {
        return None;
    }
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(value * sign)
}

fn position(parser: &Jiter<'_>) -> u32 {
    index_u32(parser.current_index())
}

/// Records are shorter than [`RECORD_BYTES_MAX`], so every index in one has 32 bits.
fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("a record is shorter than 4 GiB")
}
