//! How the bridge reads the log: a trait of its own, which the broker hands in.

use async_trait::async_trait;
use bytes::Bytes;
use floe_env::Result;
use kfs::{TopicId, TopicPartition};

/// The ends of one partition at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionCut {
    /// The first offset that still can be read.
    pub log_start_offset: i64,
    /// Everything below is decided: no open transaction reaches below it.
    pub last_stable_offset: i64,
}

/// A piece of one partition as a read_committed consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRead {
    /// Whole record batches by offset, with absolute base offsets, without aborted records and
    /// control batches. The first may begin before the asked offset and the last may reach past the
    /// end: the reader leaves such records out.
    pub batches: Vec<Bytes>,
    /// Where the next read begins. Everything between the asked offset and this one has been given,
    /// or is no data.
    pub next_offset: i64,
}

/// A part of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset.
    pub from: i64,
    /// The offset behind the last one.
    pub until: i64,
}

/// The log as the bridge sees it.
#[async_trait]
pub trait LogReader: Send + Sync + 'static {
    /// The ends of all partitions of a topic, by partition index, in one read of the metadata
    /// store. `None` once the topic is gone.
    async fn cut(&self, topic: TopicId) -> Result<Option<Vec<PartitionCut>>>;

    /// The cuts of several topics, each given with the number of its partitions, in few reads of
    /// the metadata store. `None` for one that is gone.
    async fn cuts(&self, topics: &[(TopicId, i32)]) -> Result<Vec<Option<Vec<PartitionCut>>>> {
        let mut cuts = Vec::with_capacity(topics.len());
        for (topic, _) in topics {
            cuts.push(self.cut(*topic).await?);
        }
        Ok(cuts)
    }

    /// The same, all of one moment, so that a transaction over several topics is in all of them or
    /// in none: one read, however many partitions it has.
    async fn cuts_at_once(
        &self,
        topics: &[(TopicId, i32)],
    ) -> Result<Vec<Option<Vec<PartitionCut>>>>;

    /// Reads from `from`, which is at or above the log start, up to `until` at most, about
    /// `bytes_max` bytes at most but at least one batch. Answers `next_offset > from` whenever
    /// `from < until`.
    async fn read(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
        bytes_max: usize,
    ) -> Result<LogRead>;

    /// Gets ready what is about to be read of many partitions, so that what they have in one object
    /// is read once for all of them. Whatever is not got ready is read when it is asked for.
    async fn load_together(&self, ranges: &[LogRange]) -> Result<()>;

    /// Bytes of log that may be got ready at once. `None` where that gains nothing.
    fn together_bytes_max(&self) -> Option<usize>;
}
