//! What of a log's transactions a pass must know: which batches were aborted, which markers have
//! nothing left to end, and which batch is the last of its producer.

use floe_metadata::rows::{AbortedTransaction, ProducerState};
use kfs::BatchHeader;
use std::collections::{BTreeMap, BTreeSet};

/// The aborted transactions of a range of offsets: of each producer by their markers. Those of one
/// producer do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Aborted(BTreeMap<i64, Vec<AbortedTransaction>>);

impl Aborted {
    /// From what the metadata store tells of the range, which is by markers.
    pub(crate) fn new(transactions: Vec<AbortedTransaction>) -> Self {
        let mut by_producer: BTreeMap<i64, Vec<AbortedTransaction>> = BTreeMap::new();
        for transaction in transactions {
            by_producer.entry(transaction.producer.0).or_default().push(transaction);
        }
        Self(by_producer)
    }

    /// The abort that this marker ends, if it does: the marker's offset.
    pub(crate) fn ending_at(&self, marker: &BatchHeader) -> Option<i64> {
        let offset = marker.last_offset();
        let of_producer = self.0.get(&marker.producer_id)?;
        of_producer.binary_search_by_key(&offset, |one| one.last_offset).ok().map(|_| offset)
    }

    /// True for a batch whose transaction was aborted.
    pub(crate) fn holds(&self, header: &BatchHeader) -> bool {
        if !header.is_transactional() || header.is_control() {
            return false;
        }
        let offset = header.base_offset;
        let ending_behind = self.0.get(&header.producer_id).and_then(|all| {
            let at = all.partition_point(|one| one.last_offset < offset);
            all.get(at)
        });
        ending_behind.is_some_and(|one| one.first_offset <= offset)
    }
}

/// Producers of whose transactions a batch was seen since their last marker. A marker stays for as
/// long as a batch of its transaction does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unended(BTreeSet<i64>);

impl Unended {
    /// Takes in a batch, in the log's order. True for a marker that ends nothing: no batch of its
    /// transaction is left.
    pub(crate) fn pass(&mut self, header: &BatchHeader) -> bool {
        if header.is_control() {
            // One without its record was cleaned before.
            return !self.0.remove(&header.producer_id) || header.record_count == 0;
        }
        if header.is_transactional() {
            self.0.insert(header.producer_id);
        }
        false
    }
}

/// The last batch of each producer that the partition remembers. It stays, without records if need
/// be, as long as the partition does not forget its producer: from such batches Kafka learns
/// sequences, and so may whoever reads the objects alone.
#[derive(Debug, Default)]
pub(crate) struct LastBatches(BTreeMap<i64, LastBatch>);

#[derive(Clone, Copy, Debug)]
struct LastBatch {
    /// Of the last batch with records; `None` where the producer has only ended a transaction.
    last_offset: Option<i64>,
    epoch: i16,
}

impl LastBatches {
    /// From what the partition remembers.
    pub(crate) fn new(producers: &[ProducerState]) -> Self {
        let last = |producer: &ProducerState| {
            let last_offset = producer.batches.last().map(|batch| batch.last_offset);
            (producer.id.0, LastBatch { last_offset, epoch: producer.epoch.0 })
        };
        Self(producers.iter().map(last).collect())
    }

    /// True for the last batch of its producer.
    pub(crate) fn holds(&self, header: &BatchHeader) -> bool {
        self.0.get(&header.producer_id).is_some_and(|last| match last.last_offset {
            Some(offset) => offset == header.last_offset(),
            None => header.is_control() && header.producer_epoch == last.epoch,
        })
    }
}
