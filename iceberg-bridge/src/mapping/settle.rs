//! Where the values of one record go: every key is given its path, lists that do not fit become
//! JSON text, and what has no column is rescued.
//!
//! Most records need nothing but the first: [`settle`] without a place for rescued values stops at
//! the first one that does not go straight into its column, and at doubled keys.

use super::seen::SeenPaths;
use super::{EXACT_DOUBLE_MAX, Kind, Mapping, Node, NodeIndex, ROOT};
use crate::json::{DROPPED, PathIndex, Text, Token, Tokens};

/// Values that have no column, as JSON members by JSON Pointer.
#[derive(Debug)]
pub(crate) struct Rescued<'a> {
    record: &'a [u8],
    /// `"/a":1,"/b":2`
    pub(crate) values: String,
}

impl<'a> Rescued<'a> {
    pub(crate) fn new(record: &'a [u8]) -> Self {
        Self { record, values: String::new() }
    }
}

/// A settled record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Some value is in a column, or rescued.
    Shown,
    /// All that the record has is null.
    Hollow,
}

/// The record needs more than its columns have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit;

struct Settling<'a, 'r> {
    mapping: &'a Mapping,
    tokens: &'a mut Tokens,
    rescued: Option<&'a mut Rescued<'r>>,
    /// The keys above a value, where it may be rescued.
    keys: Vec<Text>,
    is_shown: bool,
}

/// Settles a record. With `rescued`, doubled keys must be dropped before, and it never is a
/// [`Misfit`].
pub(crate) fn settle(
    mapping: &Mapping,
    tokens: &mut Tokens,
    rescued: Option<&mut Rescued<'_>>,
) -> Result<Settled, Misfit> {
    let mut settling = Settling { mapping, tokens, rescued, keys: Vec::new(), is_shown: false };
    settling.object(ROOT, 0)?;
    Ok(if settling.is_shown { Settled::Shown } else { Settled::Hollow })
}

impl Settling<'_, '_> {
    fn object(&mut self, node: NodeIndex, object: usize) -> Result<(), Misfit> {
        let around = self.mapping.node(node);
        self.members(around, object, |settling, key, path, value| {
            if settling.rescued.is_none() {
                return settling.value(around, path, value);
            }
            settling.keys.push(key);
            let is_placed = settling.value(around, path, value)?;
            settling.keys.pop();
            Ok(is_placed)
        })
    }

    /// Gives each key of an object its path. `settle` is handed the key, its path if it has one,
    /// and the place of its value; a key for which it answers false is dropped.
    fn members(
        &mut self,
        around: &Node,
        object: usize,
        mut settle: impl FnMut(&mut Self, Text, Option<PathIndex>, usize) -> Result<bool, Misfit>,
    ) -> Result<(), Misfit> {
        let inside = self.tokens.inside(object);
        let (mut at, mut expected, mut seen) = (inside.start, 0, SeenPaths::default());
        while at < inside.end {
            let value = at + 1;
            // Asked before the value is settled, which may make it one token.
            let next = self.tokens.behind(value);
            if let Token::Key(text, settled) = self.tokens.at(at)
                && settled != DROPPED
            {
                let path = around.fields.path_of(self.tokens.text(text), &[expected]);
                if let Some(path) = path {
                    if self.rescued.is_none() && !seen.insert(path) {
                        return Err(Misfit);
                    }
                    expected = path + 1;
                }
                let is_placed = settle(self, text, path, value)?;
                let path = path.filter(|_| is_placed).unwrap_or(DROPPED);
                self.tokens.set(at, Token::Key(text, path));
            }
            at = next;
        }
        Ok(())
    }

    /// True if the value, or the part of it that has columns, is to be encoded.
    fn value(
        &mut self,
        around: &Node,
        path: Option<PathIndex>,
        value: usize,
    ) -> Result<bool, Misfit> {
        let column = |kind| path.and_then(|path| around.fields.column(path, kind));
        let token = self.tokens.at(value);
        self.is_shown |= token != Token::Null;
        match token {
            Token::Null => Ok(true),
            Token::Integer(number) => {
                let double = column(Kind::Double);
                if double.is_some() && number.unsigned_abs() > EXACT_DOUBLE_MAX {
                    self.rescue(value)?;
                    return Ok(true);
                }
                self.placed_or_rescued(double.or(column(Kind::Long)), value)
            }
            Token::Fraction(_) => self.placed_or_rescued(column(Kind::Double), value),
            Token::Text(_) => self.placed_or_rescued(column(Kind::String), value),
            Token::Bool(_) => self.placed_or_rescued(column(Kind::Bool), value),
            Token::Object { .. } => match column(Kind::Struct) {
                Some(node) => self.object(node, value).map(|()| true),
                None => self.placed_or_rescued(None, value),
            },
            Token::Array { end } => self.list(column(Kind::List), column(Kind::Json), value, end),
            _ => self.placed_or_rescued(None, value),
        }
    }

    fn list(
        &mut self,
        list: Option<NodeIndex>,
        json: Option<NodeIndex>,
        value: usize,
        end: u32,
    ) -> Result<bool, Misfit> {
        if let Some(list) = list.filter(|list| list_fits(self.mapping, self.tokens, *list, value)) {
            self.elements(list, value)?;
            return Ok(true);
        }
        if self.rescued.is_none() {
            // Only the fold says whether the list may still change its columns.
            return Err(Misfit);
        }
        if json.is_some() {
            self.tokens.set(value, Token::Verbatim { end });
        }
        self.placed_or_rescued(json, value)
    }

    /// Settles the keys inside a list that fits.
    fn elements(&mut self, list: NodeIndex, value: usize) -> Result<(), Misfit> {
        let Some(element) = self.mapping.node(list).element else { return Ok(()) };
        let inside = self.tokens.inside(value);
        let mut at = inside.start;
        while at < inside.end {
            self.in_list(element, at)?;
            at = self.tokens.behind(at);
        }
        Ok(())
    }

    fn in_list(&mut self, node: NodeIndex, value: usize) -> Result<(), Misfit> {
        match self.tokens.at(value) {
            Token::Array { .. } => self.elements(node, value),
            Token::Object { .. } => self.object_in_list(node, value),
            _ => Ok(()),
        }
    }

    fn object_in_list(&mut self, node: NodeIndex, object: usize) -> Result<(), Misfit> {
        let around = self.mapping.node(node);
        self.members(around, object, |settling, _, path, value| {
            let Some(path) = path else { return Ok(false) };
            let columns = around.fields.paths[path as usize].columns;
            for column in columns.into_iter().flatten() {
                settling.in_list(column, value)?;
            }
            Ok(true)
        })
    }

    fn placed_or_rescued(
        &mut self,
        column: Option<NodeIndex>,
        value: usize,
    ) -> Result<bool, Misfit> {
        if column.is_none() {
            self.rescue(value)?;
        }
        Ok(column.is_some())
    }

    fn rescue(&mut self, value: usize) -> Result<(), Misfit> {
        let Some(rescued) = self.rescued.as_deref_mut() else { return Err(Misfit) };
        let mut pointer = String::new();
        for key in &self.keys {
            pointer.push('/');
            pointer.push_str(&self.tokens.text(*key).replace('~', "~0").replace('/', "~1"));
        }
        if !rescued.values.is_empty() {
            rescued.values.push(',');
        }
        rescued.values.push_str(&serde_json::Value::from(pointer).to_string());
        rescued.values.push(':');
        rescued.values.push_str(self.tokens.source(rescued.record, value));
        Ok(())
    }
}

/// True if all that a list holds goes into its column.
pub(super) fn list_fits(mapping: &Mapping, tokens: &Tokens, list: NodeIndex, value: usize) -> bool {
    let element = mapping.node(list).element;
    let inside = tokens.inside(value);
    let mut at = inside.start;
    while at < inside.end {
        let fits = element.is_some_and(|element| value_fits(mapping, tokens, element, at));
        if !fits && tokens.at(at) != Token::Null {
            return false;
        }
        at = tokens.behind(at);
    }
    true
}

fn value_fits(mapping: &Mapping, tokens: &Tokens, column: NodeIndex, value: usize) -> bool {
    let kind = mapping.node(column).kind;
    match tokens.at(value) {
        Token::Null => true,
        Token::Integer(number) if kind == Kind::Double => number.unsigned_abs() <= EXACT_DOUBLE_MAX,
        Token::Integer(_) => kind == Kind::Long,
        Token::Fraction(_) => kind == Kind::Double,
        Token::Text(_) => kind == Kind::String,
        Token::Bool(_) => kind == Kind::Bool,
        Token::Array { .. } => kind == Kind::List && list_fits(mapping, tokens, column, value),
        Token::Object { .. } => kind == Kind::Struct && members_fit(mapping, tokens, column, value),
        _ => false,
    }
}

fn members_fit(mapping: &Mapping, tokens: &Tokens, column: NodeIndex, object: usize) -> bool {
    let fields = &mapping.node(column).fields;
    let inside = tokens.inside(object);
    let (mut at, mut expected) = (inside.start, 0);
    while at < inside.end {
        let value = at + 1;
        if let Token::Key(text, settled) = tokens.at(at)
            && settled != DROPPED
            && tokens.at(value) != Token::Null
        {
            let Some(path) = fields.path_of(tokens.text(text), &[expected]) else { return false };
            expected = path + 1;
            let mut columns = fields.paths[path as usize].columns.into_iter().flatten();
            if !columns.all(|column| value_fits(mapping, tokens, column, value)) {
                return false;
            }
        }
        at = tokens.behind(value);
    }
    true
}
