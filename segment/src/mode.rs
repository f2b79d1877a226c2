//! The two small enums that the batch format, the container and the metadata store share.

/// Whose clock a batch's timestamps come from (attribute bit 3 of a record batch).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimestampType {
    /// The producer's: each record carries its own.
    CreateTime,
    /// The broker's, taken at the append: the batch's maximum timestamp stands for every record.
    LogAppendTime,
}

/// How the base offsets inside a section's batches are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OffsetMode {
    /// They are zero; only the metadata store knows the offsets (fresh segments).
    Relative,
    /// They are the log's own offsets (merged objects).
    Absolute,
}
