//! The message layer under one name, and what it lacks.
//!
//! Requests and responses are the structures of the `kafka-protocol` crate (generated from Kafka
//! 4.1's schemas), re-exported here with their enums. Hand-written on top: response frames with the
//! right header, the answer to ApiVersions requests of an unknown version (KIP-511), the rule for
//! features whose lowest level is 0, and versions that Kafka has added since: ListOffsets 11, and
//! OffsetCommit 10 and OffsetFetch 10, which name topics by id.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::WireError;
use crate::error_code::ErrorCode;
use crate::frame::{LENGTH_BYTES, Response};

pub use kafka_protocol::messages::*;
pub use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Message, Request as RequestMessage, StrBytes, VersionRange,
};

#[cfg(test)]
mod tests;
mod topic_ids;

/// Bytes reserved for a response whose size is not computed first.
const KIND_BYTES_HINT: usize = 256;

/// The last version of ListOffsets that the message layer has. Version 11 differs in nothing but
/// the meaning of one timestamp.
const LIST_OFFSETS_STRUCTURE_MAX: i16 = ListOffsetsRequest::VERSIONS.max;

/// The version at which the message layer reads and writes what is `version` on the wire.
fn structure_version(api: ApiKey, version: i16) -> i16 {
    match api {
        ApiKey::ListOffsets => version.min(LIST_OFFSETS_STRUCTURE_MAX),
        _ => version,
    }
}

/// Decodes the body of a request, which `check` has accepted. What follows it stays in `body`.
pub(crate) fn decode_request(
    api: ApiKey,
    version: i16,
    body: &mut Bytes,
) -> Result<RequestKind, String> {
    let decoded = match api {
        ApiKey::OffsetCommit if version >= topic_ids::SINCE => topic_ids::offset_commit(body),
        ApiKey::OffsetFetch if version >= topic_ids::SINCE => topic_ids::offset_fetch(body),
        _ => {
            return RequestKind::decode(api, body, structure_version(api, version))
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

/// As [`encode_response`], for callers that hold any response in one type. ApiVersions responses
/// take the way of [`encode_api_versions`].
///
/// # Errors
/// As [`encode_response`]; `body` must be of the kind that belongs to `api`.
pub fn encode_response_kind(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &ResponseKind,
) -> Result<Response, WireError> {
    if let ResponseKind::ApiVersions(body) = body {
        return encode_api_versions(version, correlation_id, body);
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
