//! The segment that is being filled: batches grouped by partition, each section contiguous and in
//! order of arrival, and the requests that wait for it.

use crate::append::{AppendBatch, AppendResult};
use crate::chunks::gather;
use crate::extents::LEADER_EPOCH;
use bytes::Bytes;
use floe_env::Instant;
use floe_metadata::rows::BatchFacts;
use kfs::TopicPartition;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Batches of one request, with the way to answer them.
pub(crate) struct AppendRequest {
    pub(crate) batches: Vec<AppendBatch>,
    pub(crate) reply: oneshot::Sender<Vec<AppendResult>>,
    /// Its share of the write path's memory, given back once it is answered.
    pub(crate) memory: OwnedSemaphorePermit,
}

/// A request whose batches are in a segment.
pub(crate) struct WaitingRequest {
    /// Where its batches are: the section, and which of the section's batches.
    pub(crate) places: Vec<(TopicPartition, usize)>,
    pub(crate) reply: oneshot::Sender<Vec<AppendResult>>,
    pub(crate) memory: OwnedSemaphorePermit,
}

/// One partition's batches.
pub(crate) struct OpenSection {
    pub(crate) topic_name: Arc<str>,
    /// Each batch as it came, in its request's frame.
    pub(crate) sent: Vec<Bytes>,
    pub(crate) bytes: u64,
    /// Positions are relative to the section.
    pub(crate) batches: Vec<BatchFacts>,
}

/// The segment.
pub(crate) struct OpenSegment {
    pub(crate) sections: BTreeMap<TopicPartition, OpenSection>,
    pub(crate) waiting: Vec<WaitingRequest>,
    pub(crate) bytes: u64,
    pub(crate) first_batch: Instant,
}

impl OpenSegment {
    /// An empty segment whose first batch comes now.
    pub(crate) fn new(now: Instant) -> Self {
        Self { sections: BTreeMap::new(), waiting: Vec::new(), bytes: 0, first_batch: now }
    }

    /// Takes a request's batches in.
    pub(crate) fn push(&mut self, request: AppendRequest) {
        let mut places = Vec::with_capacity(request.batches.len());
        for batch in request.batches {
            self.bytes += batch.bytes.len() as u64;
            places.push(self.push_batch(batch));
        }
        let AppendRequest { reply, memory, .. } = AppendRequest { batches: Vec::new(), ..request };
        self.waiting.push(WaitingRequest { places, reply, memory });
    }

    fn push_batch(&mut self, batch: AppendBatch) -> (TopicPartition, usize) {
        let section = self.sections.entry(batch.partition).or_insert_with(|| OpenSection {
            topic_name: batch.topic_name.clone(),
            sent: Vec::new(),
            bytes: 0,
            batches: Vec::new(),
        });
        section.batches.push(facts_of(&batch, section.bytes));
        section.bytes += batch.bytes.len() as u64;
        section.sent.push(batch.bytes);
        (batch.partition, section.batches.len() - 1)
    }
}

fn facts_of(batch: &AppendBatch, position: u64) -> BatchFacts {
    BatchFacts {
        position,
        length: u32::try_from(batch.bytes.len()).expect("a batch is at most a frame, 2 GiB"),
        record_count: batch.record_count,
        max_timestamp_ms: batch.max_timestamp_ms,
        timestamp_type: batch.timestamp_type,
        producer: batch.producer,
        transaction: batch.transaction.clone(),
    }
}

/// One partition's part of a sealed segment.
pub(crate) struct SealedSection {
    pub(crate) partition: TopicPartition,
    pub(crate) topic_name: Arc<str>,
    /// The batches' bytes, in pieces of whole batches.
    pub(crate) pieces: Vec<Bytes>,
    /// Positions are relative to the section.
    pub(crate) batches: Vec<BatchFacts>,
}

impl SealedSection {
    /// Copies the batches together, with the offset and the epoch of a fresh segment.
    pub(crate) fn seal(partition: TopicPartition, section: OpenSection) -> Self {
        let pieces = gather(section.sent, |copy| {
            kfs::set_base_offset(copy, 0);
            kfs::set_leader_epoch(copy, LEADER_EPOCH);
        });
        Self { partition, topic_name: section.topic_name, pieces, batches: section.batches }
    }

    /// Each batch's own bytes, in order.
    pub(crate) fn batch_slices(&self) -> Vec<Bytes> {
        let mut slices = Vec::with_capacity(self.batches.len());
        let mut lengths = self.batches.iter().map(|batch| batch.length as usize);
        for piece in &self.pieces {
            let mut position = 0;
            while position < piece.len() {
                let Some(length) = lengths.next() else { return slices };
                slices.push(piece.slice(position..position + length));
                position += length;
            }
        }
        slices
    }
}

impl OpenSegment {
    /// The sections, by partition, and who waits for them. What the batches bring is copied once,
    /// when a section is sealed.
    pub(crate) fn close(self) -> (Vec<(TopicPartition, OpenSection)>, Vec<WaitingRequest>) {
        (self.sections.into_iter().collect(), self.waiting)
    }
}
