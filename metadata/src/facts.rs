//! Keyed facts: ordered keys with small values, read by key or by range and changed by atomic
//! batches of checks and writes. Everything that is not the log's own hot path stands on them:
//! topics, configs, groups, leases, catalog pointers.

use bytes::Bytes;
use kfs::TopicPartition;
use std::fmt::Write as _;

/// A fact's key: segments joined by `/`, so that a range of keys is a folder. Ordered by bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FactKey(String);

impl FactKey {
    /// The key of these segments. `/`, `%` and control characters within a segment are escaped.
    pub fn new(segments: &[&str]) -> Self {
        let escaped: Vec<String> = segments.iter().map(|segment| escape(segment)).collect();
        Self(escaped.join("/"))
    }

    /// A key as a backend stored it.
    pub fn from_stored(key: String) -> Self {
        Self(key)
    }

    /// The key as stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments, unescaped.
    pub fn segments(&self) -> Vec<String> {
        self.0.split('/').map(unescape).collect()
    }

    /// The range of all keys in the folder of this key, the key itself not among them.
    pub fn folder(&self) -> FactRange {
        FactRange { from: format!("{}/", self.0), until: format!("{}0", self.0) }
    }
}

fn escape(segment: &str) -> String {
    let mut escaped = String::with_capacity(segment.len());
    for character in segment.chars() {
        if character == '/' || character == '%' || character.is_ascii_control() {
            write!(escaped, "%{:02x}", u32::from(character)).expect("a string takes any text");
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn unescape(segment: &str) -> String {
    let mut parts = segment.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        text.push(char::from(code.unwrap_or(b'%')));
        text.push_str(part.get(2..).unwrap_or_default());
    }
    text
}

/// A half-open range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactRange {
    /// The first key.
    pub from: String,
    /// The first key beyond; must not be below `from`.
    pub until: String,
}

/// What must hold of a fact for a change to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No such fact.
    Absent,
    /// The fact has exactly this value.
    Value(Bytes),
}

/// A condition on one fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The fact.
    pub key: FactKey,
    /// What must hold.
    pub expect: Expect,
}

/// Proof that the writer still holds its role: a check that is made in the same transaction as the
/// write. If it fails, the write fails with [`ErrorKind::Fenced`](floe_env::ErrorKind::Fenced).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence(pub Check);

/// A change of one fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets it.
    Put(FactKey, Bytes),
    /// Removes it; removing what is absent is fine.
    Delete(FactKey),
}

/// A change of the set of partitions, so that a topic and its partitions begin and end in one
/// transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionChange {
    /// Begins an empty partition.
    Create(TopicPartition),
    /// Begins an empty partition whose first record gets this offset: those before it were lost.
    CreateAt(TopicPartition, i64),
    /// Ends a partition: its extents, producers and aborted entries go, its objects lose their
    /// references.
    Drop(TopicPartition),
}

/// An atomic batch: if the fence and every check holds, every write is made; otherwise none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Conditions; a key occurs once at most.
    pub checks: Vec<Check>,
    /// Writes; a key occurs once at most.
    pub writes: Vec<Write>,
    /// Partitions that begin or end.
    pub partitions: Vec<PartitionChange>,
    /// The role of whoever asks; where it is gone, the change fails with
    /// [`ErrorKind::Fenced`](floe_env::ErrorKind::Fenced) whatever its checks say.
    pub fence: Option<Fence>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// All of it was made.
    Applied,
    /// None of it was made: a check did not hold.
    Rejected,
}
