//! The log as the bridge reads it.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_iceberg_bridge::log_reader::LogRange;
use floe_iceberg_bridge::{LogRead, LogReader, PartitionCut};
use floe_log::{FetchError, FetchFrom, Log};
use floe_metadata::MetadataStore;
use floe_metadata::rows::AbortedTransaction;
use kfs::{BatchHeader, PartitionIndex, TopicId, TopicPartition};

/// Partitions whose ends one read of the metadata store brings, or those of one topic: a cut is of
/// one moment, so that each transaction is in it as a whole. No bound where all must be of one.
const CUT_PARTITIONS_MAX: usize = 1000;

/// Hands the log to the bridge.
pub struct BridgeLog {
    /// The log.
    pub log: Log,
    /// For a cut over all partitions of a topic in one read.
    pub metadata: MetadataStore,
}

#[async_trait]
impl LogReader for BridgeLog {
    async fn cut(&self, topic: TopicId) -> Result<Option<Vec<PartitionCut>>> {
        let Some(known) = self.metadata.topic_by_id(topic).await? else { return Ok(None) };
        let cuts = self.cuts(&[(topic, known.partition_count)]).await?;
        Ok(cuts.into_iter().next().flatten())
    }

    async fn cuts(&self, topics: &[(TopicId, i32)]) -> Result<Vec<Option<Vec<PartitionCut>>>> {
        self.cuts_in_reads_of(CUT_PARTITIONS_MAX, topics).await
    }

    async fn cuts_at_once(
        &self,
        topics: &[(TopicId, i32)],
    ) -> Result<Vec<Option<Vec<PartitionCut>>>> {
        self.cuts_in_reads_of(usize::MAX, topics).await
    }

    async fn read(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
        bytes_max: usize,
    ) -> Result<LogRead> {
        self.know(partition, until).await?;
        let asked = FetchFrom { partition, offset: from, bytes_max, committed_only: true };
        let fetched = self.log.fetch(asked).await.map_err(|error| match error {
            FetchError::Failed(error) => error,
            FetchError::UnknownPartition => Error::invalid(format!("{partition} is gone")),
            // What was deleted while it was read is a gap, which the next cut tells.
            FetchError::OffsetOutOfRange(_) => {
                Error::retry(format!("{partition} has no offset {from} any more"))
            }
        })?;
        let mut batches: Vec<Bytes> = Vec::new();
        let mut next_offset = from;
        for slice in fetched.records {
            next_offset = next_offset.max(end_of(&slice)?);
            push_committed(&mut batches, &slice, &fetched.aborted)?;
            if next_offset >= until {
                break;
            }
        }
        if next_offset == from {
            // A hole without batches up to the end of what was read: nothing to give, but nothing
            // to wait for either. Behind that end there may be more.
            next_offset = fetched.end;
        }
        if next_offset <= from {
            return Err(Error::retry(format!("{partition} is not known to reach {until} yet")));
        }
        Ok(LogRead { batches, next_offset: next_offset.min(until) })
    }

    async fn load_together(&self, ranges: &[LogRange]) -> Result<()> {
        let range = |range: &LogRange| floe_log::LogRange {
            partition: range.partition,
            from: range.from,
            until: range.until,
        };
        let ranges: Vec<_> = ranges.iter().map(range).collect();
        self.log.load_together(&ranges).await
    }

    fn together_bytes_max(&self) -> Option<usize> {
        Some(self.log.together_bytes_max()).filter(|bytes| *bytes > 0)
    }
}

impl BridgeLog {
    /// The cuts of several topics, in reads of so many partitions at most, but of whole topics.
    async fn cuts_in_reads_of(
        &self,
        partitions_max: usize,
        topics: &[(TopicId, i32)],
    ) -> Result<Vec<Option<Vec<PartitionCut>>>> {
        let mut states = Vec::new();
        let mut page: Vec<TopicPartition> = Vec::new();
        for (at, (topic, count)) in topics.iter().enumerate() {
            let topic = *topic;
            let partition = |index| TopicPartition { topic, partition: PartitionIndex(index) };
            page.extend((0..*count).map(partition));
            let next = topics.get(at + 1).map(|(_, count)| usize::try_from(*count).unwrap_or(0));
            if next.is_none_or(|next| page.len().saturating_add(next) > partitions_max) {
                states.extend(self.metadata.partition_states(&page).await?);
                page.clear();
            }
        }
        let mut states = states.into_iter().map(|state| {
            state.map(|state| PartitionCut {
                log_start_offset: state.log_start_offset,
                last_stable_offset: state.last_stable_offset,
            })
        });
        let cut = |(_, count): &(TopicId, i32)| {
            let of_topic: Vec<_> =
                states.by_ref().take(usize::try_from(*count).unwrap_or(0)).collect();
            // A partition is missing only where the topic was deleted meanwhile.
            of_topic.into_iter().collect()
        };
        Ok(topics.iter().map(cut).collect())
    }

    /// Lets the log know of a partition's ends up to `until`, which come from the metadata store: a
    /// commit that is applied there may not have been answered here yet, or another broker's.
    async fn know(&self, partition: TopicPartition, until: i64) -> Result<()> {
        let known = self.log.known_state(partition);
        if known.is_none_or(|state| state.last_stable_offset < until) {
            self.log.state(partition).await?;
        }
        Ok(())
    }
}

/// Adds the batches of a run that are neither markers nor of aborted transactions, in runs again.
fn push_committed(
    batches: &mut Vec<Bytes>,
    slice: &Bytes,
    aborted: &[AbortedTransaction],
) -> Result<()> {
    let (mut start, mut position) = (0, 0);
    for batch in kfs::batches(slice) {
        let header: BatchHeader = batch.map_err(corrupt)?.header;
        let end = position + header.total_len();
        if header.is_control() || is_aborted(&header, aborted) {
            if position > start {
                batches.push(slice.slice(start..position));
            }
            start = end;
        }
        position = end;
    }
    if position > start {
        batches.push(slice.slice(start..position));
    }
    Ok(())
}

fn is_aborted(header: &BatchHeader, aborted: &[AbortedTransaction]) -> bool {
    let is_of = |one: &AbortedTransaction| {
        one.producer.0 == header.producer_id
            && (one.first_offset..=one.last_offset).contains(&header.base_offset)
    };
    header.is_transactional() && aborted.iter().any(is_of)
}

fn corrupt(error: kfs::BatchError) -> Error {
    Error::corrupt("a batch in the log").with_source(error)
}

/// The offset behind the last batch of a run of batches.
fn end_of(batches: &[u8]) -> Result<i64> {
    let mut end = 0;
    for batch in kfs::batches(batches) {
        let header: BatchHeader = batch.map_err(corrupt)?.header;
        end = header.last_offset() + 1;
    }
    Ok(end)
}
