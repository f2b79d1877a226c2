//! The fold: one record's tokens add the columns that the record needs. What a limit forbids, or
//! what has no type yet, adds nothing; `settle` then finds no place for it.

use super::settle::list_fits;
use super::{Kind, LimitsReached, Mapping, MappingLimits, NodeIndex, ROOT};
use crate::json::{DROPPED, Token, Tokens};

/// A list cannot be a column of one type.
struct Unfit;

/// One record's step.
struct Fold<'a> {
    mapping: &'a mut Mapping,
    tokens: &'a Tokens,
    limits: MappingLimits,
    reached: LimitsReached,
}

impl Mapping {
    /// Adds the columns that a record needs; doubled keys are dropped already. Answers how many of
    /// its values have no column because of a limit.
    pub(crate) fn fold(&mut self, tokens: &Tokens, limits: MappingLimits) -> LimitsReached {
        let reached = LimitsReached::default();
        let mut fold = Fold { mapping: self, tokens, limits, reached };
        fold.object(ROOT, 0);
        fold.reached
    }
}

impl Fold<'_> {
    fn object(&mut self, node: NodeIndex, object: usize) {
        let inside = self.tokens.inside(object);
        let mut at = inside.start;
        while at < inside.end {
            if let Token::Key(text, path) = self.tokens.at(at)
                && path != DROPPED
            {
                self.member(node, self.tokens.text(text), at + 1);
            }
            at = self.tokens.behind(at + 1);
        }
    }

    fn member(&mut self, node: NodeIndex, key: &str, value: usize) {
        let kind = match self.tokens.at(value) {
            Token::Integer(_) if self.has(node, key, Kind::Double) => return,
            Token::Object { .. } if self.tokens.has_type(value) => {
                return self.object_member(node, key, value);
            }
            Token::Array { .. } if self.tokens.has_type(value) => {
                return self.list_member(node, key, value);
            }
            token => scalar_kind(token),
        };
        if let Some(kind) = kind {
            self.column(node, key, kind);
        }
    }

    fn object_member(&mut self, node: NodeIndex, key: &str, value: usize) {
        let mark = self.mapping.node_count();
        let Some(column) = self.column(node, key, Kind::Struct) else { return };
        self.object(column, value);
        if self.mapping.node(column).fields.columns.is_empty() {
            self.mapping.undo_to(mark);
        }
    }

    fn list_member(&mut self, node: NodeIndex, key: &str, value: usize) {
        let mark = self.mapping.node_count();
        let Some(list) = self.column(node, key, Kind::List) else { return };
        let folded = self.elements(list, value, mark);
        let fits = folded.is_ok() && list_fits(self.mapping, self.tokens, list, value);
        if !fits {
            self.mapping.undo_to(mark);
            self.column(node, key, Kind::Json);
        }
    }

    /// Columns from `mark` on are the list's own: their type may still change.
    fn elements(&mut self, list: NodeIndex, value: usize, mark: NodeIndex) -> Result<(), Unfit> {
        let inside = self.tokens.inside(value);
        let mut at = inside.start;
        while at < inside.end {
            let known = self.mapping.node(list).element;
            self.in_list(list, known, None, at, mark)?;
            at = self.tokens.behind(at);
        }
        Ok(())
    }

    /// A value inside a list: an element (without a key) or a member of an object.
    fn in_list(
        &mut self,
        parent: NodeIndex,
        known: Option<NodeIndex>,
        key: Option<&str>,
        value: usize,
        mark: NodeIndex,
    ) -> Result<(), Unfit> {
        let token = self.tokens.at(value);
        if !self.tokens.has_type(value) {
            return Ok(());
        }
        let wanted = match token {
            Token::Object { .. } => Kind::Struct,
            Token::Array { .. } => Kind::List,
            token => scalar_kind(token).ok_or(Unfit)?,
        };
        let node = match known {
            Some(node) => node,
            None => self.new_in_list(parent, key, wanted)?,
        };
        match (self.mapping.node(node).kind, wanted) {
            (Kind::Struct, Kind::Struct) => self.object_in_list(node, value, mark),
            (Kind::List, Kind::List) => self.elements(node, value, mark),
            (Kind::Double, Kind::Long) => Ok(()),
            (Kind::Long, Kind::Double) if node >= mark => {
                self.widen(node);
                Ok(())
            }
            (has, wanted) if has == wanted => Ok(()),
            _ => Err(Unfit),
        }
    }

    fn object_in_list(
        &mut self,
        node: NodeIndex,
        object: usize,
        mark: NodeIndex,
    ) -> Result<(), Unfit> {
        let inside = self.tokens.inside(object);
        let mut at = inside.start;
        while at < inside.end {
            if let Token::Key(text, path) = self.tokens.at(at)
                && path != DROPPED
            {
                let key = self.tokens.text(text);
                let fields = &self.mapping.node(node).fields;
                let known =
                    fields.path_of(key, &[]).map(|path| fields.paths[path as usize].columns);
                let known = known.and_then(|columns| columns.into_iter().flatten().next());
                self.in_list(node, known, Some(key), at + 1, mark)?;
            }
            at = self.tokens.behind(at + 1);
        }
        Ok(())
    }

    fn new_in_list(
        &mut self,
        parent: NodeIndex,
        key: Option<&str>,
        kind: Kind,
    ) -> Result<NodeIndex, Unfit> {
        match key {
            Some(key) => self.column(parent, key, kind).ok_or(Unfit),
            None if self.is_allowed(parent, None, kind) => {
                Ok(self.mapping.add_element(parent, kind))
            }
            None => Err(Unfit),
        }
    }

    /// A column of this record's own list becomes one of doubles.
    fn widen(&mut self, node: NodeIndex) {
        let Some(column) = self.mapping.nodes.get_mut(node) else { return };
        column.kind = Kind::Double;
        let parent = column.parent;
        for path in &mut self.mapping.nodes[parent].fields.paths {
            let long = &mut path.columns[Kind::Long as usize];
            if *long == Some(node) {
                *long = None;
                path.columns[Kind::Double as usize] = Some(node);
            }
        }
    }

    fn has(&self, node: NodeIndex, key: &str, kind: Kind) -> bool {
        self.find(node, key, kind).is_some()
    }

    fn find(&self, node: NodeIndex, key: &str, kind: Kind) -> Option<NodeIndex> {
        let fields = &self.mapping.node(node).fields;
        fields.column(fields.path_of(key, &[])?, kind)
    }

    /// The column of a member, made where it is missing and allowed.
    fn column(&mut self, node: NodeIndex, key: &str, kind: Kind) -> Option<NodeIndex> {
        if let Some(found) = self.find(node, key, kind) {
            return Some(found);
        }
        self.is_allowed(node, Some(key), kind).then(|| self.mapping.add_column(node, key, kind))
    }

    fn is_allowed(&mut self, parent: NodeIndex, key: Option<&str>, kind: Kind) -> bool {
        let around = self.mapping.node(parent);
        // A container must have room for what it holds.
        let depth = around.depth + if kind.is_leaf() { 1 } else { 2 };
        let is_new_key = key.is_some_and(|key| around.fields.path_of(key, &[]).is_none());
        let reached = &mut self.reached;
        let count = if key.is_some_and(|key| key.len() > self.limits.key_bytes) {
            &mut reached.key_bytes
        } else if depth > self.limits.depth {
            &mut reached.depth
        } else if is_new_key && around.fields.paths.len() >= self.limits.object_keys {
            &mut reached.object_keys
        } else if self.mapping.leaves >= self.limits.leaf_columns {
            &mut reached.leaf_columns
        } else {
            return true;
        };
        *count += 1;
        false
    }
}

fn scalar_kind(token: Token) -> Option<Kind> {
    match token {
        Token::Integer(_) => Some(Kind::Long),
        Token::Fraction(_) => Some(Kind::Double),
        Token::Text(_) => Some(Kind::String),
        Token::Bool(_) => Some(Kind::Bool),
        _ => None,
    }
}
