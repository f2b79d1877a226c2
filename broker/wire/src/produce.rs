//! Views of a Produce request.
//!
//! The request is decoded like every other one ([`crate::request::decode`]); the records of each
//! partition are a slice of the frame. Nothing here looks into records: that is the log's work.

use bytes::Bytes;
use uuid::Uuid;

use crate::messages::{ProduceRequest, TopicName};

#[cfg(test)]
mod tests;

/// The records that one request sends to one partition.
#[derive(Debug, Clone, Copy)]
pub struct PartitionRecords<'a> {
    /// The topic's name; empty from version 13 on.
    pub topic: &'a TopicName,
    /// The topic's id; nil before version 13.
    pub topic_id: Uuid,
    /// The partition's index within the topic.
    pub partition: i32,
    /// Record batches, back to back, as sent; `None` where the client sent null.
    pub records: Option<&'a Bytes>,
}

/// All partitions of a request, in the order of the wire, in which the answer must list them.
pub fn partitions(request: &ProduceRequest) -> impl Iterator<Item = PartitionRecords<'_>> {
    request.topic_data.iter().flat_map(|topic| {
        topic.partition_data.iter().map(|partition| PartitionRecords {
            topic: &topic.name,
            topic_id: topic.topic_id,
            partition: partition.index,
            records: partition.records.as_ref(),
        })
    })
}

/// Bytes of records in a request: what its batches take in a segment.
pub fn records_bytes(request: &ProduceRequest) -> usize {
    partitions(request).filter_map(|partition| partition.records).map(Bytes::len).sum()
}
