//! WriteTxnMarkers 2: each marker says which version of transactions it is of (KIP-1228).

use bytes::Bytes;

use super::reader::{array, array_length, boolean, int8, int16, int32, int64, skip_tags, text};
use super::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use super::{Beyond, ProducerId, RequestKind, WriteTxnMarkersRequest};
use crate::error::CheckError;

/// The first version with this field.
pub(super) const SINCE: i16 = 2;

/// Reads WriteTxnMarkers 2 off the front of `body`.
pub(super) fn write_txn_markers(body: &mut Bytes) -> Result<(RequestKind, Beyond), CheckError> {
    let count = array_length(body, "markers")?;
    let mut markers = Vec::with_capacity(count);
    let mut transaction_versions = Vec::with_capacity(count);
    for _ in 0..count {
        let marker = WritableTxnMarker::default()
            .with_producer_id(ProducerId(int64(body, "producer_id")?))
            .with_producer_epoch(int16(body, "producer_epoch")?)
            .with_transaction_result(boolean(body, "transaction_result")?)
            .with_topics(array(body, "topics", topic)?)
            .with_coordinator_epoch(int32(body, "coordinator_epoch")?);
        markers.push(marker);
        transaction_versions.push(int8(body, "transaction_version")?);
        skip_tags(body)?;
    }
    skip_tags(body)?;
    let request = WriteTxnMarkersRequest::default().with_markers(markers);
    let beyond = Beyond { transaction_versions, ..Beyond::default() };
    Ok((RequestKind::WriteTxnMarkers(request), beyond))
}

fn topic(body: &mut Bytes) -> Result<WritableTxnMarkerTopic, CheckError> {
    let topic = WritableTxnMarkerTopic::default()
        .with_name(text(body, "name")?.into())
        .with_partition_indexes(array(body, "partition_indexes", partition_index)?);
    skip_tags(body)?;
    Ok(topic)
}

fn partition_index(body: &mut Bytes) -> Result<i32, CheckError> {
    int32(body, "partition_indexes")
}
