//! Layouts of request bodies: which fields stand in which order at which versions.
//!
//! One table per API, by theme in the submodules, in a small notation: `f(name, kind)` is a field
//! of all versions; `.since(v)` and `.until(v)` narrow it, `.null()` allows null, `.tag(t)` makes
//! it a tagged field (these stand behind the others). [`rows`] is an array of structures, [`list`]
//! an array of a simple kind, [`part`] a nested structure, [`maybe`] one that may be absent.
//!
//! A layout says nothing about meaning: it is there so that `check` can find every length. Tests
//! generate bodies from the layouts and compare them with the message layer at every version.

// The tables are for reading: one field a line, nested as on the wire.
#[rustfmt::skip]
mod admin;
#[rustfmt::skip]
mod group;
#[rustfmt::skip]
mod log;
#[rustfmt::skip]
mod security;
#[rustfmt::skip]
mod share;
#[rustfmt::skip]
mod transaction;

#[cfg(test)]
pub(crate) mod random;
#[cfg(test)]
mod tests;

/// "At no version", for [`Layout::new`].
const NEVER: i16 = i16::MAX;

/// Heap bytes that the message layer takes for the first unknown tagged field of a structure: one
/// leaf of a `BTreeMap<i32, Bytes>` (11 keys, 11 values, a parent, two counts), rounded up.
pub(crate) const TAGS_BYTES: usize = 448;

/// Heap bytes for each of them: a leaf is at least half full, and inner nodes come on top.
pub(crate) const TAG_BYTES: usize = 128;

/// How a value stands on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// This many bytes.
    Fixed(u8),
    /// A string, compact at flexible versions.
    Text,
    /// Bytes or records, compact at flexible versions.
    Bytes,
    /// An array of a simple kind, compact at flexible versions.
    List(&'static Kind),
    /// An array of structures, compact at flexible versions.
    Rows(Struct),
    /// A structure.
    Part(Struct),
    /// A byte (1 or -1), and a structure behind a 1.
    Maybe(Struct),
}

impl Kind {
    /// An upper bound of the bytes of the value itself in memory, without what it points to.
    pub(crate) const fn memory_bytes(&self) -> usize {
        match self {
            Kind::Fixed(bytes) => *bytes as usize,
            Kind::Text | Kind::Bytes => size_of::<bytes::Bytes>(),
            Kind::List(_) | Kind::Rows(_) => size_of::<Vec<u8>>(),
            Kind::Part(structure) => structure.memory_bytes,
            Kind::Maybe(structure) => structure.memory_bytes + 8,
        }
    }
}

/// The fields of a structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Struct {
    /// All fields of all versions, tagged ones last.
    pub(crate) fields: &'static [Field],
    /// An upper bound of the structure's size in memory, which is the same at all versions.
    pub(crate) memory_bytes: usize,
}

impl Struct {
    const fn new(fields: &'static [Field]) -> Self {
        // The map of unknown tagged fields, which every structure has.
        let mut bytes = size_of::<std::collections::BTreeMap<i32, bytes::Bytes>>();
        let mut index = 0;
        while index < fields.len() {
            bytes += fields[index].kind.memory_bytes();
            index += 1;
        }
        Self { fields, memory_bytes: bytes.next_multiple_of(8) }
    }
}

/// One field of a structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// Its name, for errors.
    pub(crate) name: &'static str,
    /// How it stands on the wire.
    pub(crate) kind: Kind,
    /// Whether it may be null. The message layer does not tell versions apart here.
    pub(crate) nullable: bool,
    /// The tag of a tagged field.
    pub(crate) tag: Option<u32>,
    since: i16,
    until: i16,
}

impl Field {
    const fn since(mut self, version: i16) -> Self {
        self.since = version;
        self
    }

    const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    const fn null(mut self) -> Self {
        self.nullable = true;
        self
    }

    const fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Whether the field is there at `version`.
    pub(crate) const fn exists_at(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }

    /// The field as its elements see it: an element is never null.
    pub(crate) const fn element(&self) -> Field {
        Field { nullable: false, ..*self }
    }
}

/// The layout of one API's request.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The API's key.
    pub(crate) key: i16,
    /// The first and the last version that the layout describes.
    pub(crate) versions: (i16, i16),
    /// The body.
    pub(crate) body: Struct,
    flexible_since: i16,
}

impl Layout {
    const fn new(
        key: i16,
        versions: (i16, i16),
        flexible_since: i16,
        fields: &'static [Field],
    ) -> Self {
        Self { key, versions, flexible_since, body: Struct::new(fields) }
    }

    /// Whether lengths are compact and structures end with tagged fields at `version`.
    pub(crate) const fn is_flexible(&self, version: i16) -> bool {
        self.flexible_since <= version
    }
}

const TABLES: [&[&Layout]; 6] =
    [log::ALL, group::ALL, transaction::ALL, admin::ALL, security::ALL, share::ALL];

/// The layout of an API's requests; `None` for APIs that this crate does not serve.
pub(crate) fn layout(key: i16) -> Option<&'static Layout> {
    TABLES.into_iter().flatten().copied().find(|layout| layout.key == key)
}

/// Every layout, in no order.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Layout> {
    TABLES.into_iter().flatten().copied()
}

const BOOL: Kind = Kind::Fixed(1);
const I8: Kind = Kind::Fixed(1);
const I16: Kind = Kind::Fixed(2);
const I32: Kind = Kind::Fixed(4);
const I64: Kind = Kind::Fixed(8);
const F64: Kind = Kind::Fixed(8);
const UUID: Kind = Kind::Fixed(16);
const TEXT: Kind = Kind::Text;
const BYTES: Kind = Kind::Bytes;

/// A field of all versions that is not nullable.
const fn f(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, nullable: false, tag: None, since: 0, until: i16::MAX }
}

/// An array of a simple kind.
const fn list(element: &'static Kind) -> Kind {
    Kind::List(element)
}

/// An array of structures.
const fn rows(fields: &'static [Field]) -> Kind {
    Kind::Rows(Struct::new(fields))
}

/// A structure within a structure.
const fn part(fields: &'static [Field]) -> Kind {
    Kind::Part(Struct::new(fields))
}

/// A structure that may be absent.
const fn maybe(fields: &'static [Field]) -> Kind {
    Kind::Maybe(Struct::new(fields))
}
