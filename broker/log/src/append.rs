//! What a producer's request brings to the log, and what it gets back.

use bytes::Bytes;
use floe_metadata::rows::{ProducerBatch, Refusal, TransactionBatch};
use kfs::{TimestampType, TopicPartition};
use std::sync::Arc;
use tokio::sync::oneshot;

/// One validated batch for one partition.
#[derive(Clone, Debug)]
pub struct AppendBatch {
    /// The partition, by the topic id seen on arrival.
    pub partition: TopicPartition,
    /// The topic's name, for the segment's footer.
    pub topic_name: Arc<str>,
    /// The batch as it is to be stored.
    pub bytes: Bytes,
    /// How many offsets it takes.
    pub record_count: u32,
    /// The greatest timestamp of its records, ms.
    pub max_timestamp_ms: i64,
    /// Whose clock made the timestamps.
    pub timestamp_type: TimestampType,
    /// Present for idempotent producers.
    pub producer: Option<ProducerBatch>,
    /// Present for batches of a transaction.
    pub transaction: Option<TransactionBatch>,
}

/// A batch that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of its first record.
    pub base_offset: i64,
    /// The partition's log start.
    pub log_start_offset: i64,
    /// For a batch that had been written before: its greatest timestamp then, ms.
    pub duplicate_timestamp_ms: Option<i64>,
}

/// Why a batch is not in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The metadata store decided against it.
    Refused {
        /// Why.
        refusal: Refusal,
        /// The partition's log start, where it exists.
        log_start_offset: Option<i64>,
    },
    /// It did not get into the log; the same batch may be sent again.
    Retry(String),
    /// This broker may not write any more: another has taken its place.
    Fenced,
}

/// What became of one batch.
pub type AppendResult = Result<Appended, AppendError>;

/// The answer to an append, one result a batch in the order given; it is there once the batches are
/// durable and visible.
#[derive(Debug)]
pub struct Ticket(pub(crate) oneshot::Receiver<Vec<AppendResult>>);

impl Ticket {
    /// Waits for the outcome. `None` if the log went away without deciding: the outcome is not
    /// known.
    pub async fn outcome(self) -> Option<Vec<AppendResult>> {
        self.0.await.ok()
    }
}

/// What is told of the write path while it works, for metrics. Called on the hot path: must not
/// block.
pub trait Observer: Send + Sync + 'static {
    /// A segment of `bytes` with `sections` was cut.
    fn segment_cut(&self, reason: crate::cut::CutReason, bytes: u64, sections: usize);
    /// The first batch of a segment waited this long for the cut.
    fn waited_for_cut(&self, waited: std::time::Duration);
    /// The upload of a segment that was cut with so many bytes ended; `ok` is false where it was
    /// abandoned.
    fn uploaded(&self, took: std::time::Duration, bytes: u64, ok: bool);
    /// So many batches were committed together.
    fn committed(&self, took: std::time::Duration, batches: usize);
    /// A commit was not made, or nobody knows whether it was; most are asked for again.
    fn not_committed(&self, why: floe_env::ErrorKind);
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn segment_cut(&self, _: crate::cut::CutReason, _: u64, _: usize) {}
    fn waited_for_cut(&self, _: std::time::Duration) {}
    fn uploaded(&self, _: std::time::Duration, _: u64, _: bool) {}
    fn committed(&self, _: std::time::Duration, _: usize) {}
    fn not_committed(&self, _: floe_env::ErrorKind) {}
}
