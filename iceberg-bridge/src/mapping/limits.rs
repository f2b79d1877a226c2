//! How far a mapping may grow, and how often records wanted more.

/// The most that a table's columns may be. What is beyond stays in `_kafka_rescued`, or inside a
/// list in the list's JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingLimits {
    /// Columns that hold values themselves, beside the ten.
    pub leaf_columns: usize,
    /// Different keys that the objects of one path may have.
    pub object_keys: usize,
    /// Levels.
    pub depth: usize,
    /// Bytes of a key.
    pub key_bytes: usize,
}

/// The deepest that any setting may go: a schema is read and written by recursion.
pub const DEPTH_LIMIT: usize = 32;

impl Default for MappingLimits {
    fn default() -> Self {
        Self { leaf_columns: 1000, object_keys: 100, depth: 16, key_bytes: 128 }
    }
}

/// How many values had no column because of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsReached {
    /// By [`MappingLimits::leaf_columns`].
    pub leaf_columns: u64,
    /// By [`MappingLimits::object_keys`].
    pub object_keys: u64,
    /// By [`MappingLimits::depth`].
    pub depth: u64,
    /// By [`MappingLimits::key_bytes`].
    pub key_bytes: u64,
}

impl LimitsReached {
    /// Adds another count.
    pub fn add(&mut self, other: &Self) {
        self.leaf_columns += other.leaf_columns;
        self.object_keys += other.object_keys;
        self.depth += other.depth;
        self.key_bytes += other.key_bytes;
    }

    /// Each limit's name, as metrics have it, and its count.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("columns", self.leaf_columns),
            ("object_keys", self.object_keys),
            ("depth", self.depth),
            ("key_bytes", self.key_bytes),
        ]
    }
}
