//! The mapping from JSON paths to columns: which columns a table has beside the ten, and which
//! value goes where. Pure; its rules are in `MAPPING.md`.
//!
//! [`Mapping`] is the state, and part of the table (`pack`). Its `fold` adds the columns that one
//! record needs; `settle` decides where the record's values go. Columns are only ever added, so a
//! node's index is the same in every later state.

mod bind;
mod fold;
mod limits;
pub(crate) mod names;
mod pack;
mod seen;
mod settle;
#[cfg(test)]
mod tests;

pub use limits::{DEPTH_LIMIT, LimitsReached, MappingLimits};
pub use pack::MAPPING_STATE_PROPERTY;
pub(crate) use seen::SeenPaths;
pub(crate) use settle::{Rescued, Settled, settle};

use crate::json::PathIndex;
use crate::schema::{COLUMN_NAMES, FIXED_FIELD_ID_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the rules and of the packed form; kept in the table's properties.
pub const MAPPING_VERSION: u32 = 1;

/// Whole numbers beyond it, 2^53, are not all exact as doubles.
pub(crate) const EXACT_DOUBLE_MAX: u64 = 1 << 53;

/// A column's index among all columns; 0 is the record itself.
pub(crate) type NodeIndex = usize;
/// The record, which holds the columns at the top.
pub(crate) const ROOT: NodeIndex = 0;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Long,
    Double,
    String,
    Bool,
    Struct,
    List,
    /// JSON text of lists that did not fit.
    Json,
}

const KINDS: usize = 7;

impl Kind {
    /// The end of the name of a column that is not the first of its path.
    const fn name(self) -> &'static str {
        match self {
            Self::Long => "long",
            Self::Double => "double",
            Self::String => "string",
            Self::Bool => "bool",
            Self::Struct => "struct",
            Self::List => "list",
            Self::Json => "json",
        }
    }

    const ALL: [Self; KINDS] =
        [Self::Long, Self::Double, Self::String, Self::Bool, Self::Struct, Self::List, Self::Json];

    fn is_leaf(self) -> bool {
        !matches!(self, Self::Struct | Self::List)
    }
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) field_id: i32,
    parent: NodeIndex,
    /// Levels of the record down to it.
    depth: usize,
    pub(crate) kind: Kind,
    /// Empty for the element of a list.
    key: Box<str>,
    pub(crate) name: Box<str>,
    /// What a struct holds.
    pub(crate) fields: Fields,
    /// What a list holds. Not there only while the list is being made.
    pub(crate) element: Option<NodeIndex>,
}

/// The members of a struct.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields {
    /// In the order in which their keys were first seen.
    paths: Vec<Path>,
    by_key: BTreeMap<Box<str>, PathIndex>,
    /// Lower-cased.
    names: BTreeSet<String>,
    /// The columns, in the order in which they were made.
    pub(crate) columns: Vec<NodeIndex>,
}

/// A key of a struct, and its columns.
#[derive(Clone, Debug, PartialEq)]
struct Path {
    key: Box<str>,
    columns: [Option<NodeIndex>; KINDS],
}

impl Path {
    fn column(&self, kind: Kind) -> Option<NodeIndex> {
        self.columns[kind as usize]
    }
}

impl Fields {
    /// The path of a key, looked for first at the `likely` ones.
    pub(crate) fn path_of(&self, key: &str, likely: &[PathIndex]) -> Option<PathIndex> {
        let is_key =
            |at: &PathIndex| self.paths.get(*at as usize).is_some_and(|path| *path.key == *key);
        likely.iter().copied().find(is_key).or_else(|| self.by_key.get(key).copied())
    }

    /// The column of a settled path.
    pub(crate) fn column(&self, path: PathIndex, kind: Kind) -> Option<NodeIndex> {
        self.paths.get(path as usize)?.column(kind)
    }
}

/// The columns of a table beside the ten.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    nodes: Vec<Node>,
    leaves: usize,
    /// The greatest id that the table has given to a column, ours or not.
    last_field_id: i32,
}

impl Default for Mapping {
    fn default() -> Self {
        Self::new()
    }
}

impl Mapping {
    /// No columns.
    pub fn new() -> Self {
        let names = COLUMN_NAMES.iter().map(|name| (*name).to_owned()).collect();
        let root = Node {
            field_id: 0,
            parent: ROOT,
            depth: 0,
            kind: Kind::Struct,
            key: Box::default(),
            name: Box::default(),
            fields: Fields { names, ..Fields::default() },
            element: None,
        };
        Self { nodes: vec![root], leaves: 0, last_field_id: FIXED_FIELD_ID_MAX }
    }

    /// Columns that hold values themselves.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// All columns, structs and lists too, and the record. Only ever grows.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, index: NodeIndex) -> &Node {
        &self.nodes[index]
    }

    /// Columns in the order of their field ids.
    fn columns(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().skip(1)
    }

    /// The id that the next column gets: the next of the table.
    fn next_field_id(&self) -> i32 {
        let last = self.nodes.last().map_or(0, |node| node.field_id);
        last.max(self.last_field_id) + 1
    }

    /// Adds a column to a struct, with the next id.
    fn add_column(&mut self, parent: NodeIndex, key: &str, kind: Kind) -> NodeIndex {
        let fields = &self.nodes[parent].fields;
        let path = fields.by_key.get(key).map(|path| &fields.paths[*path as usize]);
        // JSON text never takes the plain name, so it never keeps a type from it either.
        let is_first = path.is_none_or(|path| {
            Kind::ALL.iter().all(|kind| *kind == Kind::Json || path.column(*kind).is_none())
        });
        let suffix = (!is_first || kind == Kind::Json).then(|| kind.name());
        let name = names::column_name(key, suffix, &fields.names);
        self.push(parent, key, &name, kind, self.next_field_id())
    }

    /// Gives a list its element, with the next id.
    fn add_element(&mut self, list: NodeIndex, kind: Kind) -> NodeIndex {
        self.push(list, "", "", kind, self.next_field_id())
    }

    fn push(
        &mut self,
        parent: NodeIndex,
        key: &str,
        name: &str,
        kind: Kind,
        field_id: i32,
    ) -> NodeIndex {
        let index = self.nodes.len();
        let depth = self.nodes[parent].depth + 1;
        let around = &mut self.nodes[parent];
        if around.kind == Kind::List {
            around.element = Some(index);
        } else {
            let fields = &mut around.fields;
            let next = PathIndex::try_from(fields.paths.len()).expect("paths are limited");
            let path = *fields.by_key.entry(key.into()).or_insert(next);
            if path == next {
                fields.paths.push(Path { key: key.into(), columns: [None; KINDS] });
            }
            fields.paths[path as usize].columns[kind as usize] = Some(index);
            fields.names.insert(name.to_lowercase());
            fields.columns.push(index);
        }
        self.leaves += usize::from(kind.is_leaf());
        let (key, name) = (key.into(), name.into());
        let (fields, element) = (Fields::default(), None);
        self.nodes.push(Node { field_id, parent, depth, kind, key, name, fields, element });
        index
    }

    /// Takes back the columns from `mark` on, which are the newest.
    fn undo_to(&mut self, mark: NodeIndex) {
        for node in self.nodes.split_off(mark).into_iter().rev() {
            self.leaves -= usize::from(node.kind.is_leaf());
            let Some(around) = self.nodes.get_mut(node.parent) else { continue };
            if around.kind == Kind::List {
                around.element = None;
                continue;
            }
            let fields = &mut around.fields;
            fields.names.remove(&node.name.to_lowercase());
            fields.columns.pop();
            let Some(path) = fields.by_key.get(&node.key).copied() else { continue };
            let columns = &mut fields.paths[path as usize].columns;
            columns[node.kind as usize] = None;
            if columns.iter().all(Option::is_none) {
                fields.by_key.remove(&node.key);
                fields.paths.truncate(path as usize);
            }
        }
    }
}
