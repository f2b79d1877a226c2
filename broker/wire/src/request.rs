//! From a frame to a typed request.
//!
//! Contract of [`decode`]: it never panics, whatever the bytes, and decoding never takes more
//! memory than [`crate::DECODE_BYTES_MAX`] on top of the frame. An error means that the connection
//! must be closed without an answer. Bytes behind the body are ignored, as Kafka does.
//!
//! The [`Registry`] says which APIs and versions are served. It is also what ApiVersions answers
//! from, so that the two cannot disagree.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use bytes::{Buf, Bytes};

use crate::check;
use crate::error::{CheckError, WireError};
use crate::messages::api_versions_response::ApiVersion;
use crate::messages::{self, ApiKey, Beyond, RequestKind, StrBytes, VersionRange};
use crate::schema;

#[cfg(test)]
mod tests;

/// The fixed part of a request header: key, version, correlation id.
const HEADER_FIXED_BYTES: usize = 8;

/// The header of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API's key.
    pub api_key: i16,
    /// The version of the body.
    pub api_version: i16,
    /// What the answer must repeat.
    pub correlation_id: i32,
    /// The client's own name for itself.
    pub client_id: Option<StrBytes>,
}

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The header.
    pub header: RequestHeader,
    /// The API of the header's key.
    pub api: ApiKey,
    /// The body. Its byte fields are slices of the frame, which lives as long as they do: copy what
    /// must outlive the request.
    pub body: RequestKind,
    /// What the body's structure has no place for.
    pub beyond: Beyond,
    /// Bytes of the whole frame, without its length prefix.
    pub frame_bytes: usize,
}

/// What a frame turned out to be.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one, and it soon moves on")]
pub enum ParsedRequest {
    /// A request that is served.
    Request(Request),
    /// ApiVersions at a version that is not served. It is answered with
    /// [`messages::unsupported_api_versions`], and the connection stays open.
    UnsupportedApiVersions(RequestHeader),
}

/// The versions of one API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Served {
    advertised_min: i16,
    min: i16,
    max: i16,
}

/// The APIs and versions that a broker serves.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    served: BTreeMap<i16, Served>,
}

impl Registry {
    /// A registry that serves nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves `api` at `versions`.
    ///
    /// # Panics
    /// When the range is empty or this crate cannot decode all of it: a mistake in the broker's
    /// table of APIs, which every start shows.
    pub fn serve(mut self, api: ApiKey, versions: RangeInclusive<i16>) -> Self {
        let (min, max) = versions.into_inner();
        let (known_min, known_max) = decodable_versions(api).expect("the API has a layout");
        assert!(min <= max, "no version of {api:?} is served");
        assert!(known_min <= min && max <= known_max, "{api:?} {min}-{max} cannot be decoded");
        self.served.insert(api as i16, Served { advertised_min: min, min, max });
        self
    }

    /// Advertises `api` from `min` on, although older versions than the served ones close the
    /// connection: librdkafka before 2.0 switches compression off unless it sees Produce from 0
    /// (Kafka does the same, KAFKA-18659).
    ///
    /// # Panics
    /// When `api` is not served.
    pub fn advertise_from(mut self, api: ApiKey, min: i16) -> Self {
        let served = self.served.get_mut(&(api as i16)).expect("the API is served");
        served.advertised_min = min;
        self
    }

    /// The versions of the API with this key that are decoded; `None` if it is not served.
    pub fn versions(&self, api_key: i16) -> Option<VersionRange> {
        self.served.get(&api_key).map(|served| VersionRange { min: served.min, max: served.max })
    }

    /// The list for an ApiVersions answer, in the order of the keys.
    pub fn api_versions(&self) -> Vec<ApiVersion> {
        let entry = |(key, served): (&i16, &Served)| {
            ApiVersion::default()
                .with_api_key(*key)
                .with_min_version(served.advertised_min)
                .with_max_version(served.max)
        };
        self.served.iter().map(entry).collect()
    }
}

/// The first and last version of `api`'s requests that this crate decodes; `None` for APIs that it
/// has no layout for.
pub fn decodable_versions(api: ApiKey) -> Option<(i16, i16)> {
    schema::layout(api as i16).map(|layout| layout.versions)
}

/// Decodes one frame (without its length prefix). See the module's contract.
///
/// # Errors
/// Any [`WireError`] but [`WireError::Encode`]; the connection must be closed without an answer.
pub fn decode(frame: Bytes, supported: &Registry) -> Result<ParsedRequest, WireError> {
    let frame_bytes = frame.len();
    let mut rest = frame;
    let mut header = take_fixed_header(&mut rest).map_err(WireError::Header)?;
    let (key, version) = (header.api_key, header.api_version);
    let known = ApiKey::try_from(key).ok().zip(supported.versions(key));
    let (api, range) = known.ok_or(WireError::UnknownApi(key))?;
    let is_served = range.min <= version && version <= range.max;
    if !is_served && api != ApiKey::ApiVersions {
        return Err(WireError::UnsupportedVersion { api, version });
    }
    let layout = schema::layout(key).ok_or(WireError::UnknownApi(key))?;
    // An unknown version of ApiVersions has a flexible header, as all newer versions do.
    let is_flexible = !is_served || layout.is_flexible(version);
    header.client_id = take_client_id(&mut rest, is_flexible).map_err(WireError::Header)?;
    if !is_served {
        return Ok(ParsedRequest::UnsupportedApiVersions(header));
    }
    check::check(layout, version, &rest).map_err(|source| WireError::Malformed {
        api,
        version,
        source,
    })?;
    let (body, beyond) = messages::decode_request(api, version, &mut rest)
        .map_err(|reason| WireError::Decode { api, version, reason })?;
    Ok(ParsedRequest::Request(Request { header, api, body, beyond, frame_bytes }))
}

/// Takes key, version and correlation id off the front of `rest`.
fn take_fixed_header(rest: &mut Bytes) -> Result<RequestHeader, CheckError> {
    need(rest, "request header", HEADER_FIXED_BYTES)?;
    Ok(RequestHeader {
        api_key: rest.get_i16(),
        api_version: rest.get_i16(),
        correlation_id: rest.get_i32(),
        client_id: None,
    })
}

/// Takes the client id (never compact) and, behind it, the tagged fields of a flexible header.
fn take_client_id(rest: &mut Bytes, is_flexible: bool) -> Result<Option<StrBytes>, CheckError> {
    const FIELD: &str = "client_id";
    need(rest, FIELD, 2)?;
    let client_id = match rest.get_i16() {
        -1 => None,
        length => {
            let length = usize::try_from(length).map_err(|_| CheckError::BadLength(FIELD))?;
            need(rest, FIELD, length)?;
            let text = StrBytes::from_utf8(rest.split_to(length));
            Some(text.map_err(|_| CheckError::NotText(FIELD))?)
        }
    };
    if is_flexible {
        let tagged_bytes = check::skip_tagged_fields(rest)?;
        rest.advance(tagged_bytes);
    }
    Ok(client_id)
}

/// Fails unless `rest` has `needed` bytes.
fn need(rest: &Bytes, field: &'static str, needed: usize) -> Result<(), CheckError> {
    let left = rest.len();
    if left < needed { Err(CheckError::Short { field, needed, left }) } else { Ok(()) }
}
