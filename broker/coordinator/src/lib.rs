//! The coordinator's state machines: data and `apply`, nothing else.
//!
//! Pure: no input or output, no async, no clock, no randomness. The time is an argument
//! (`now_ms`, milliseconds of a clock that the caller chooses), ids are handed in by the event,
//! and what shall happen outside comes back as a list of effects. The shell around it (in
//! `broker/floe`) stores, answers and waits.
//!
//! - [`classic`]: classic consumer groups (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).
//! - [`consumer`]: consumer groups of the newer protocol (ConsumerGroupHeartbeat).
//! - [`group`]: a group of either kind, and how one becomes the other.
//! - [`offsets`]: which committed offsets expire, which may be deleted, what metadata is too long.
//! - [`transactions`]: what each request makes of a transactional id.
//! - [`protocol_metadata`]: the topics in a consumer's opaque subscription bytes.

mod base64_bytes;
pub mod classic;
pub mod consumer;
mod error;
pub mod group;
pub mod offsets;
pub mod protocol_metadata;
pub mod transactions;

pub use error::GroupError;
