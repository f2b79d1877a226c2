//! Control batches: the markers that end a producer's transaction in a partition.
//!
//! ```text
//! key:   version i16 (0) | type i16 (0 abort, 1 commit)
//! value: version i16 (0) | coordinator epoch i32
//! ```

use crate::bytes_io::Reader;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::record::Record;
use crate::writer::{BatchBuilder, NewRecord};
use bytes::Bytes;

/// Bytes of a marker's batch.
pub const MARKER_LEN: usize = 78;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Marker {
    /// Its records are taken back.
    Abort,
    /// Its records count.
    Commit,
}

/// A control record, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    /// The end of a transaction.
    End {
        /// How it ended.
        marker: Marker,
        /// The coordinator's epoch.
        coordinator_epoch: i32,
    },
    /// Another type, or a version that is not known; readers pass over it.
    Other,
}

impl ControlRecord {
    /// Parses a record of a control batch. What is not understood is `Other`.
    pub fn parse(record: &Record<'_>) -> Self {
        Self::parse_marker(record).unwrap_or(Self::Other)
    }

    fn parse_marker(record: &Record<'_>) -> Option<Self> {
        let mut key = Reader::new(record.key?);
        let mut value = Reader::new(record.value?);
        if key.u16().ok()? != 0 || value.u16().ok()? != 0 {
            return None;
        }
        let marker = match key.u16().ok()? {
            0 => Marker::Abort,
            1 => Marker::Commit,
            _ => return None,
        };
        Some(Self::End { marker, coordinator_epoch: value.u32().ok()? as i32 })
    }
}

/// The 78-byte batch with one marker, at base offset 0. `timestamp_ms` since the epoch.
pub fn control_batch(
    marker: Marker,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    coordinator_epoch: i32,
    timestamp_ms: i64,
) -> Bytes {
    let kind = match marker {
        Marker::Abort => 0,
        Marker::Commit => 1,
    };
    let key = [0, 0, 0, kind];
    let mut value = [0; 6];
    value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
    let mut builder =
        BatchBuilder::new().producer(producer_id, producer_epoch, -1).transactional().control();
    builder
        .push(&NewRecord { timestamp_ms, key: Some(&key), value: Some(&value), headers: &[] })
        .expect("a marker is small");
    builder.build().expect("a marker is small")
}
