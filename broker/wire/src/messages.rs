//! The message layer under one name, and what it lacks.
//!
//! Requests and responses are the structures of the `kafka-protocol` crate (generated from Kafka
//! 4.1's schemas), re-exported here with their enums. Hand-written on top: response frames with the
//! right header, the answer to ApiVersions requests of an unknown version (KIP-511), the rule for
//! features whose lowest level is 0, and versions that Kafka has added since: ListOffsets 11,
//! OffsetCommit 10, OffsetFetch 10 and TxnOffsetCommit 6, which name topics by id, ApiVersions 5,
//! which names the broker that is meant, WriteTxnMarkers 2, which names the version of
//! transactions, DeleteGroups 3 and DescribeLogDirs 5.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::WireError;
use crate::error_code::ErrorCode;
use crate::frame::{LENGTH_BYTES, Response};
use uuid::Uuid;

pub use kafka_protocol::messages::*;
pub use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Message, Request as RequestMessage, StrBytes, VersionRange,
};

mod beyond;
mod intended_broker;
mod marker_versions;
mod newer_answers;
mod reader;
#[cfg(test)]
mod tests;
mod topic_ids;

pub use beyond::Beyond;
pub use intended_broker::IntendedBroker;

/// Bytes reserved for a response whose size is not computed first.
const KIND_BYTES_HINT: usize = 256;

/// The last versions that the message layer has of APIs whose structures go on unchanged where it
/// is used: version 11 of ListOffsets differs in nothing but the meaning of one timestamp, and the
/// requests of DeleteGroups 3 and DescribeLogDirs 5 are the older ones.
const LIST_OFFSETS_STRUCTURE_MAX: i16 = ListOffsetsRequest::VERSIONS.max;
const DELETE_GROUPS_STRUCTURE_MAX: i16 = DeleteGroupsRequest::VERSIONS.max;
const DESCRIBE_LOG_DIRS_STRUCTURE_MAX: i16 = DescribeLogDirsRequest::VERSIONS.max;
/// The answer of ApiVersions 5 is that of version 4.
const API_VERSIONS_STRUCTURE_MAX: i16 = ApiVersionsResponse::VERSIONS.max;
/// The answer of WriteTxnMarkers 2 is that of version 1.
const WRITE_TXN_MARKERS_STRUCTURE_MAX: i16 = WriteTxnMarkersResponse::VERSIONS.max;

/// The version at which the message layer reads and writes what is `version` on the wire.
fn structure_version(api: ApiKey, version: i16) -> i16 {
    match api {
        ApiKey::ListOffsets => version.min(LIST_OFFSETS_STRUCTURE_MAX),
        ApiKey::ApiVersions => version.min(API_VERSIONS_STRUCTURE_MAX),
        ApiKey::WriteTxnMarkers => version.min(WRITE_TXN_MARKERS_STRUCTURE_MAX),
        ApiKey::DeleteGroups => version.min(DELETE_GROUPS_STRUCTURE_MAX),
        ApiKey::DescribeLogDirs => version.min(DESCRIBE_LOG_DIRS_STRUCTURE_MAX),
        _ => version,
    }
}

/// Decodes the body of a request, which `check` has accepted. What follows it stays in `body`.
pub(crate) fn decode_request(
    api: ApiKey,
    version: i16,
    body: &mut Bytes,
) -> Result<(RequestKind, Beyond), String> {
    let whole = |request| (request, Beyond::default());
    let decoded = match api {
        ApiKey::OffsetCommit if version >= topic_ids::SINCE => {
            topic_ids::offset_commit(body).map(whole)
        }
        ApiKey::OffsetFetch if version >= topic_ids::SINCE => {
            topic_ids::offset_fetch(body).map(whole)
        }
        ApiKey::TxnOffsetCommit if version >= topic_ids::TXN_SINCE => {
            topic_ids::txn_offset_commit(body)
        }
        ApiKey::WriteTxnMarkers if version >= marker_versions::SINCE => {
            marker_versions::write_txn_markers(body)
        }
        ApiKey::ApiVersions if version >= intended_broker::SINCE => {
            intended_broker::api_versions(body)
        }
        _ => {
            return RequestKind::decode(api, body, structure_version(api, version))
                .map(whole)
                .map_err(|error| format!("{error:#}"));
        }
    };
    decoded.map_err(|error| error.to_string())
}

/// A response frame: length prefix, header of the version that `api` has at `version`, and `body`.
///
/// # Errors
/// [`WireError::Encode`] when a field is set that `version` cannot carry, when `version` needs more
/// than the structure of the message layer holds, or when the frame is above `i32::MAX` bytes.
pub fn encode_response(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &impl Encodable,
) -> Result<Response, WireError> {
    let failed = |reason: String| WireError::Encode { api, version, reason };
    let body_version = structure_version(api, version);
    let body_bytes = body.compute_size(body_version).map_err(|error| failed(error.to_string()))?;
    let mut frame = start_response(api, version, correlation_id, body_bytes);
    body.encode(&mut frame, body_version).map_err(|error| failed(error.to_string()))?;
    finish_response(frame).ok_or_else(|| failed("frame is too large".to_owned()))
}

/// As [`encode_response`], for callers that hold any response in one type. Responses with a
/// function of their own, such as [`encode_api_versions`], take its way.
///
/// # Errors
/// As [`encode_response`]; `body` must be of the kind that belongs to `api`.
pub fn encode_response_kind(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &ResponseKind,
) -> Result<Response, WireError> {
    match body {
        ResponseKind::ApiVersions(body) => {
            return encode_api_versions(version, correlation_id, body);
        }
        ResponseKind::DeleteGroups(body) => {
            return encode_delete_groups(version, correlation_id, body);
        }
        ResponseKind::DescribeLogDirs(body) => {
            return encode_describe_log_dirs(version, correlation_id, body);
        }
        _ => {}
    }
    let failed = |reason: String| WireError::Encode { api, version, reason };
    let body_version = structure_version(api, version);
    if body.header_version(body_version) != api.response_header_version(body_version) {
        return Err(failed("the response is of another kind".to_owned()));
    }
    let mut frame = start_response(api, version, correlation_id, KIND_BYTES_HINT);
    body.encode(&mut frame, body_version).map_err(|error| failed(format!("{error:#}")))?;
    finish_response(frame).ok_or_else(|| failed("frame is too large".to_owned()))
}

/// An ApiVersions response. Versions up to 3 leave out supported features whose lowest level is 0:
/// their clients cannot read them (KAFKA-17011).
///
/// # Errors
/// As [`encode_response`].
pub fn encode_api_versions(
    version: i16,
    correlation_id: i32,
    body: &ApiVersionsResponse,
) -> Result<Response, WireError> {
    if version >= 4 || body.supported_features.iter().all(|feature| feature.min_version != 0) {
        return encode_response(ApiKey::ApiVersions, version, correlation_id, body);
    }
    let mut body = body.clone();
    body.supported_features.retain(|feature| feature.min_version != 0);
    encode_response(ApiKey::ApiVersions, version, correlation_id, &body)
}

/// A DeleteGroups response; that of version 3 has a null message for each group.
///
/// # Errors
/// As [`encode_response`].
pub fn encode_delete_groups(
    version: i16,
    correlation_id: i32,
    body: &DeleteGroupsResponse,
) -> Result<Response, WireError> {
    if version < newer_answers::DELETE_GROUPS_SINCE {
        return encode_response(ApiKey::DeleteGroups, version, correlation_id, body);
    }
    let put = |frame: &mut BytesMut| newer_answers::delete_groups(frame, body);
    encode_by_hand(ApiKey::DeleteGroups, version, correlation_id, put)
}

/// A DescribeLogDirs response; that of version 5 says that no directory is cordoned.
///
/// # Errors
/// As [`encode_response`].
pub fn encode_describe_log_dirs(
    version: i16,
    correlation_id: i32,
    body: &DescribeLogDirsResponse,
) -> Result<Response, WireError> {
    if version < newer_answers::DESCRIBE_LOG_DIRS_SINCE {
        return encode_response(ApiKey::DescribeLogDirs, version, correlation_id, body);
    }
    let put = |frame: &mut BytesMut| newer_answers::describe_log_dirs(frame, body);
    encode_by_hand(ApiKey::DescribeLogDirs, version, correlation_id, put)
}

/// A TxnOffsetCommit response; that of version 6 has topics' ids, which are these, for their names.
///
/// # Errors
/// As [`encode_response`], and where there is not an id for each topic.
pub fn encode_txn_offset_commit(
    version: i16,
    correlation_id: i32,
    body: &TxnOffsetCommitResponse,
    topic_ids: &[Uuid],
) -> Result<Response, WireError> {
    if version < topic_ids::TXN_SINCE {
        return encode_response(ApiKey::TxnOffsetCommit, version, correlation_id, body);
    }
    let put = |frame: &mut BytesMut| newer_answers::txn_offset_commit(frame, body, topic_ids);
    encode_by_hand(ApiKey::TxnOffsetCommit, version, correlation_id, put)
}

/// A response frame whose body `put` writes.
fn encode_by_hand(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    put: impl FnOnce(&mut BytesMut) -> Result<(), String>,
) -> Result<Response, WireError> {
    let failed = |reason: String| WireError::Encode { api, version, reason };
    let mut frame = start_response(api, version, correlation_id, KIND_BYTES_HINT);
    put(&mut frame).map_err(failed)?;
    finish_response(frame).ok_or_else(|| failed("frame is too large".to_owned()))
}

/// The answer to an ApiVersions request of an unknown version (KIP-511): a body of version 0 with
/// UNSUPPORTED_VERSION and only the range of ApiVersions itself, from which the client takes the
/// version of its next try. The connection stays open.
pub fn unsupported_api_versions(correlation_id: i32, served: VersionRange) -> Response {
    let mut frame = start_response(ApiKey::ApiVersions, 0, correlation_id, 12);
    frame.put_i16(ErrorCode::UnsupportedVersion.code());
    frame.put_i32(1);
    frame.put_i16(ApiKey::ApiVersions as i16);
    frame.put_i16(served.min);
    frame.put_i16(served.max);
    finish_response(frame).expect("the frame has 20 bytes")
}

/// The bytes of a response before its body; the length prefix is filled in by [`finish_response`].
fn start_response(api: ApiKey, version: i16, correlation_id: i32, body_bytes: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(LENGTH_BYTES + 5 + body_bytes);
    frame.put_i32(0);
    put_response_header(&mut frame, api, version, correlation_id);
    frame
}

/// Puts the response header. ApiVersions has header 0 at every version, so that a client that
/// guessed the version wrongly can read the answer.
pub(crate) fn put_response_header(
    frame: &mut BytesMut,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
) {
    frame.put_i32(correlation_id);
    if api != ApiKey::ApiVersions && api.response_header_version(version) >= 1 {
        frame.put_u8(0);
    }
}

/// Fills in the length prefix; `None` when the frame is too large for it.
fn finish_response(mut frame: BytesMut) -> Option<Response> {
    let length = i32::try_from(frame.len() - LENGTH_BYTES).ok()?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Some(Response::whole(frame))
}
