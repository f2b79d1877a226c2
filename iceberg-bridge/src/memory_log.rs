//! A log in memory, for tests and samples: batches as producers make them, last stable offsets, and
//! log starts.

use crate::log_reader::{LogRange, LogRead, LogReader, PartitionCut};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::{Error, Result};
use kfs::{BatchView, TopicId, TopicPartition};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The log.
#[derive(Debug, Default)]
pub struct MemoryLog {
    topics: Mutex<BTreeMap<TopicId, Vec<Partition>>>,
}

#[derive(Clone, Debug, Default)]
struct Partition {
    batches: Vec<(i64, Bytes)>,
    log_start_offset: i64,
    next_offset: i64,
    /// Where an open transaction holds the last stable offset back.
    held_at: Option<i64>,
}

impl MemoryLog {
    /// Adds a topic, or partitions to it.
    pub fn add_topic(&self, topic: TopicId, partitions: usize) {
        self.topics.lock().entry(topic).or_default().resize(partitions, Partition::default());
    }

    /// Removes a topic.
    pub fn remove_topic(&self, topic: TopicId) {
        self.topics.lock().remove(&topic);
    }

    /// Appends a batch with base offset 0; answers the offset that it got.
    ///
    /// # Errors
    /// `Invalid` for an unknown partition or bytes that are no batch.
    pub fn append(&self, partition: TopicPartition, batch: &Bytes) -> Result<i64> {
        let header = BatchView::parse(batch)
            .map_err(|error| Error::invalid("a batch").with_source(error))?
            .header;
        self.with(partition, |log| {
            let base_offset = log.next_offset;
            let mut stored = batch.to_vec();
            kfs::set_base_offset(&mut stored, base_offset);
            log.batches.push((base_offset, Bytes::from(stored)));
            log.next_offset += i64::from(header.last_offset_delta) + 1;
            base_offset
        })
    }

    /// Passes offsets without records, as markers and aborted records do.
    ///
    /// # Errors
    /// `Invalid` for an unknown partition.
    pub fn skip(&self, partition: TopicPartition, offsets: i64) -> Result<()> {
        self.with(partition, |log| log.next_offset += offsets)
    }

    /// Holds the last stable offset where it is, or lets it go.
    ///
    /// # Errors
    /// `Invalid` for an unknown partition.
    pub fn hold(&self, partition: TopicPartition, is_held: bool) -> Result<()> {
        self.with(partition, |log| log.held_at = is_held.then_some(log.next_offset))
    }

    /// Moves the log start, as retention does.
    ///
    /// # Errors
    /// `Invalid` for an unknown partition.
    pub fn advance_log_start(&self, partition: TopicPartition, offset: i64) -> Result<()> {
        self.with(partition, |log| log.log_start_offset = log.log_start_offset.max(offset))
    }

    fn with<T>(&self, place: TopicPartition, act: impl FnOnce(&mut Partition) -> T) -> Result<T> {
        let mut topics = self.topics.lock();
        let partitions = topics.get_mut(&place.topic);
        let index = usize::try_from(place.partition.0).ok();
        let partition = partitions.zip(index).and_then(|(all, index)| all.get_mut(index));
        let partition = partition.ok_or_else(|| Error::invalid(format!("no partition {place}")))?;
        Ok(act(partition))
    }
}

#[async_trait]
impl LogReader for MemoryLog {
    async fn cut(&self, topic: TopicId) -> Result<Option<Vec<PartitionCut>>> {
        Ok(self.topics.lock().get(&topic).map(|partitions| cut_of(partitions)))
    }

    async fn cuts_at_once(
        &self,
        wanted: &[(TopicId, i32)],
    ) -> Result<Vec<Option<Vec<PartitionCut>>>> {
        let topics = self.topics.lock();
        let cut = |(topic, _): &(TopicId, i32)| topics.get(topic).map(|of| cut_of(of));
        Ok(wanted.iter().map(cut).collect())
    }

    async fn read(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
        bytes_max: usize,
    ) -> Result<LogRead> {
        self.with(partition, |log| log.read(from, until, bytes_max))?
    }

    async fn load_together(&self, _: &[LogRange]) -> Result<()> {
        Ok(())
    }

    fn together_bytes_max(&self) -> Option<usize> {
        None
    }
}

fn cut_of(partitions: &[Partition]) -> Vec<PartitionCut> {
    let cut = |log: &Partition| PartitionCut {
        log_start_offset: log.log_start_offset,
        last_stable_offset: log.held_at.unwrap_or(log.next_offset),
    };
    partitions.iter().map(cut).collect()
}

impl Partition {
    fn read(&self, from: i64, until: i64, bytes_max: usize) -> Result<LogRead> {
        if from < self.log_start_offset {
            let start = self.log_start_offset;
            return Err(Error::invalid(format!("offset {from} is below log start {start}")));
        }
        let mut read = LogRead { batches: Vec::new(), next_offset: until };
        let mut bytes = 0;
        // The last batch that begins at or below the offset may reach it.
        let behind = self.batches.partition_point(|(base_offset, _)| *base_offset <= from);
        for (base_offset, batch) in &self.batches[behind.saturating_sub(1)..] {
            let view = BatchView::parse(batch)
                .map_err(|error| Error::corrupt("a batch").with_source(error))?;
            if *base_offset >= until {
                break;
            }
            if view.header.last_offset() < from {
                continue;
            }
            if !read.batches.is_empty() && bytes + batch.len() > bytes_max {
                read.next_offset = *base_offset;
                break;
            }
            bytes += batch.len();
            read.batches.push(batch.clone());
        }
        Ok(read)
    }
}
