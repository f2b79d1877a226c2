//! The end of a transaction on one partition: one offset for the marker, the open row closed, the
//! marker's epoch in the producer's state, and what readers must know of an aborted one.

use super::CommitPartition;
use crate::rows::{AbortedTransaction, Extent, MarkerFacts, MarkerOutcome, Place, ProducerState};
use kfs::OffsetMode;

/// The rows that a marker brings, beside its partition's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkerRow {
    /// The marker itself.
    pub(crate) extent: Extent,
    /// Of an aborted transaction that wrote to the partition.
    pub(crate) aborted: Option<AbortedTransaction>,
}

/// Decides one marker and changes the partition's row; without an answer's offset nothing is
/// changed. The producer must be among the row's, where the partition remembers it. `now_ms` is
/// the store's clock.
pub(crate) fn decide_marker(
    row: &mut CommitPartition,
    marker: &MarkerFacts,
    now_ms: i64,
) -> (MarkerOutcome, Option<MarkerRow>) {
    let known = row.producers.get(marker.producer);
    let is_stale = |known: &ProducerState| {
        let must_raise = marker.raises_epoch && known.transaction_start.is_some();
        known.epoch > marker.epoch || (must_raise && known.epoch == marker.epoch)
    };
    if known.is_some_and(is_stale) {
        return (MarkerOutcome::StaleEpoch, None);
    }
    let offset = row.state.high_watermark;
    let mut producer = row.producers.take(marker.producer).unwrap_or_else(|| ProducerState {
        id: marker.producer,
        epoch: marker.epoch,
        batches: Vec::new(),
        transaction_start: None,
        last_written_ms: now_ms,
    });
    if producer.epoch != marker.epoch {
        // Sequences begin again with an epoch.
        producer.epoch = marker.epoch;
        producer.batches.clear();
    }
    let first_offset = producer.transaction_start.take();
    producer.last_written_ms = now_ms;
    row.producers.put_newest(producer);
    row.state.high_watermark = offset + 1;
    row.state.version += 1;
    row.settle_stable_offset();
    let aborted = first_offset.filter(|_| !marker.commit).map(|first_offset| AbortedTransaction {
        producer: marker.producer,
        first_offset,
        last_offset: offset,
        last_stable_offset: row.state.last_stable_offset,
    });
    let extent = marker_extent(marker, offset, now_ms);
    let outcome = MarkerOutcome::Written { marker: extent.clone(), state: row.state };
    (outcome, Some(MarkerRow { extent, aborted }))
}

fn marker_extent(marker: &MarkerFacts, offset: i64, now_ms: i64) -> Extent {
    Extent {
        base_offset: offset,
        last_offset: offset,
        place: Place::Marker {
            producer: marker.producer,
            epoch: marker.epoch,
            commit: marker.commit,
            coordinator_epoch: marker.coordinator_epoch,
            timestamp_ms: now_ms,
        },
        offset_mode: OffsetMode::Absolute,
        max_timestamp_ms: now_ms,
        timestamp_type: marker.timestamp_type,
        has_transactional: true,
    }
}
