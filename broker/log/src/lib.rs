//! The log: from batches to committed segments, and from offsets back to batches.
//!
//! A **batch** is what a producer sends. Batches of many partitions fill the **open segment**; a
//! **cut** seals it, its **upload** makes it durable, and its **commit** in the metadata store
//! gives its batches their offsets and makes them visible; then their requests are
//! **acknowledged**. An **extent** is a run of offsets of one partition in one object; a
//! **block** is a piece of an extent in memory, as readers get it.
//!
//! In the background, adjacent small extents are **merged** into one object, old ones leave the log
//! by **retention**, topics that ask for it are **compacted** to the newest record of each key, and
//! what is left over is **cleaned** up.
#![forbid(unsafe_code)]

pub mod append;
mod blocks;
mod chunks;
pub mod clean;
mod commit;
pub mod compaction;
pub mod cut;
mod extents;
mod keys;
mod load_budget;
mod loads;
mod log;
mod lost;
pub mod merge;
mod open_segment;
mod partitions;
#[cfg(test)]
mod planned;
mod producer_expiry;
pub mod read;
pub mod retention;
mod rewrite;
mod segment_object;
mod together;
mod upload;
mod writer;

pub use append::{AppendBatch, AppendError, AppendResult, Appended, NoObserver, Observer, Ticket};
pub use blocks::CacheStats;
pub use clean::{CleanRules, Cleaner, LOCAL_GRACE, SnapshotMoment};
pub use compaction::{
    CompactionCounts, CompactionPolicy, CompactionRules, CompactionTerms, Compactor,
    REMOTE_DIRT_BYTES_MIN,
};
pub use cut::{BudgetRules, CutReason, CutRules, Pace};
pub use extents::LEADER_EPOCH;
pub use keys::segment_key;
pub use log::{Log, LogConfig};
pub use merge::{MergeRules, Merger, REMOTE_BYTES_MIN};
pub use partitions::Waiter;
pub use producer_expiry::{expire_producers, start_producer_expiry};
pub use read::{FetchError, FetchFrom, Fetched, Looked, RecordsOrigin, TimedOffset};
pub use retention::{
    FUTURE_MS, Kept, Retention, RetentionCounts, RetentionPolicy, RetentionRules, RetentionTerms,
    TableHold,
};
pub use together::LogRange;
