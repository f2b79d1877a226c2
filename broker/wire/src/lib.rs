//! Everything between TCP bytes and typed Kafka messages; no business logic.
//!
//! Flow of one request: [`frame::FrameReader`] cuts a frame out of any `AsyncRead` (its length is
//! checked before memory is allocated); [`request::decode`] reads the header, looks up the
//! version in the caller's [`request::Registry`], walks the body against its layout
//! (`check`, `schema`: every length and the memory that decoding will need), and only then lets the
//! `kafka-protocol` crate decode it. Byte fields are slices of the frame, never copies.
//!
//! Flow of one response: [`messages::encode_response`] (or [`fetch_response`], hand-written so that
//! records are never copied) makes a [`frame::Response`], and [`frame::FrameWriter`] sends queued
//! ones with vectored writes, in the order in which they were pushed.
//!
//! Bad input gives a [`WireError`], never a panic and never unbounded memory.

mod check;
pub mod error;
pub mod error_code;
pub mod fetch_response;
pub mod frame;
pub mod messages;
pub mod produce;
pub mod request;
mod schema;

pub use check::{DECODE_BYTES_FLOOR, DECODE_BYTES_MAX, DECODE_BYTES_PER_FRAME_BYTE};
pub use error::{CheckError, FrameError, WireError};
pub use error_code::ErrorCode;
pub use frame::{FRAME_BYTES_MAX, FrameReader, FrameWriter, Response};
pub use messages::ApiKey;
pub use request::{ParsedRequest, Registry, Request, RequestHeader};
