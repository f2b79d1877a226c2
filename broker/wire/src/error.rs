//! Errors of the wire, by what the connection must do.
//!
//! Every one of them means: close the connection, without an answer. That is what Kafka does for
//! frames that it cannot read, for unknown APIs, and for versions out of range. The one exception,
//! ApiVersions at an unknown version, is no error: see [`crate::ParsedRequest`].

use crate::messages::ApiKey;

/// A frame could not be read. The connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length prefix is zero or negative.
    #[error("frame length {0} is not positive")]
    NotPositive(i32),
    /// The length prefix is above the reader's limit.
    #[error("frame of {bytes} bytes is above the limit of {bytes_max}")]
    Oversized {
        /// The length that the peer announced, in bytes.
        bytes: usize,
        /// The reader's limit, in bytes.
        bytes_max: usize,
    },
    /// The peer closed the connection inside a frame or inside a length prefix.
    #[error("connection closed after {read} of {expected} bytes of a frame")]
    Torn {
        /// Bytes that had arrived of the frame, its length prefix included.
        read: usize,
        /// Bytes that were due, the length prefix included.
        expected: usize,
    },
    /// The transport failed.
    #[error("transport failed")]
    Io(#[from] std::io::Error),
}

/// Why a request's body was refused before it was decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// A field reaches beyond the end of the body.
    #[error("field {field} needs {needed} bytes and {left} are left")]
    Short {
        /// Name of the field.
        field: &'static str,
        /// Bytes (for an array: the least bytes that its elements take) that the field needs.
        needed: usize,
        /// Bytes that the body still has.
        left: usize,
    },
    /// A length is negative and not the null mark, or a varint has more than 32 bits.
    #[error("field {0} has an impossible length")]
    BadLength(&'static str),
    /// A text field of the header is not UTF-8.
    #[error("field {0} is not UTF-8")]
    NotText(&'static str),
    /// A field is null that must not be.
    #[error("field {0} must not be null")]
    Null(&'static str),
    /// A tagged field's content does not have the size that its tag names.
    #[error("tagged field {0} does not have the size that it names")]
    TagSize(&'static str),
    /// A tagged field came at a version that does not have it.
    #[error("tagged field {0} does not belong to this version")]
    TagVersion(&'static str),
    /// Decoding would take more memory than this body may.
    #[error("field {field} brings the decoded size above {bytes_max} bytes")]
    Memory {
        /// Name of the field that crossed the limit.
        field: &'static str,
        /// The limit for this body, in bytes.
        bytes_max: usize,
    },
}

/// A request could not be taken, or a response could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The header is cut short or malformed.
    #[error("request header is malformed: {0}")]
    Header(CheckError),
    /// The API is unknown, or not served by this broker.
    #[error("api {0} is not served")]
    UnknownApi(i16),
    /// The API is served, but not at this version.
    #[error("version {version} of {api:?} is not served")]
    UnsupportedVersion {
        /// The API.
        api: ApiKey,
        /// The version that the client used.
        version: i16,
    },
    /// The body does not fit its layout, or would need too much memory.
    #[error("body of {api:?} v{version} is malformed")]
    Malformed {
        /// The API.
        api: ApiKey,
        /// The version that the client used.
        version: i16,
        /// What is wrong with it.
        #[source]
        source: CheckError,
    },
    /// The body fits its layout, but the message layer refused it (text that is not UTF-8).
    #[error("body of {api:?} v{version} cannot be decoded: {reason}")]
    Decode {
        /// The API.
        api: ApiKey,
        /// The version that the client used.
        version: i16,
        /// The message layer's reason.
        reason: String,
    },
    /// A response cannot be expressed at the version asked for, or is above `i32::MAX` bytes. This
    /// is a bug of the caller.
    #[error("response of {api:?} v{version} cannot be encoded: {reason}")]
    Encode {
        /// The API.
        api: ApiKey,
        /// The version of the response.
        version: i16,
        /// The reason.
        reason: String,
    },
}
