//! ConsumerGroupHeartbeat: what comes in and what goes out.

use std::collections::BTreeSet;

use thiserror::Error;
use uuid::Uuid;

use super::Partitions;
use crate::GroupError;

/// The member epoch with which a member joins, or joins again.
pub(super) const JOIN_EPOCH: i32 = 0;
/// The member epoch with which a member leaves.
pub(super) const LEAVE_EPOCH: i32 = -1;
/// The member epoch with which a static member leaves for a moment.
pub(super) const STATIC_LEAVE_EPOCH: i32 = -2;
/// No rebalance timeout in a request: as before.
pub(super) const UNCHANGED_TIMEOUT_MS: i32 = -1;

/// ConsumerGroupHeartbeat. `None` in a field means: as in the last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatRequest {
    /// Version of the request: at 0 the broker makes the member ids.
    pub version: i16,
    /// Empty for a member that wants an id.
    pub member_id: String,
    /// The member's epoch; 0 joins, -1 leaves, -2 leaves for a moment (static members).
    pub member_epoch: i32,
    /// Set for static members.
    pub instance_id: Option<String>,
    /// The member's rack.
    pub rack_id: Option<String>,
    /// From the request's header.
    pub client_id: String,
    /// The client's address, as it is described.
    pub client_host: String,
    /// A fresh UUID, used where this request needs a new member id.
    pub new_id: Uuid,
    /// How long the member may take to give up partitions, ms; -1: as before.
    pub rebalance_timeout_ms: i32,
    /// Topics by name.
    pub topic_names: Option<BTreeSet<String>>,
    /// Topics by a regular expression that the whole name must match; empty for none.
    pub topic_regex: Option<String>,
    /// The assignor that the member would like.
    pub server_assignor: Option<String>,
    /// What the member has.
    pub owned: Option<Partitions>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The member.
    pub member_id: String,
    /// Its epoch from now on.
    pub member_epoch: i32,
    /// When the next heartbeat is wanted, ms; 0 to one who leaves.
    pub heartbeat_interval_ms: i32,
    /// What the member has from now on; `None`: as before.
    pub assignment: Option<Partitions>,
}

/// A heartbeat that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// Why.
    pub error: GroupError,
    /// Why, in the words that clients show.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(error: GroupError, message: impl Into<String>) -> Self {
        Self { error, message: message.into() }
    }
}

impl From<GroupError> for Refusal {
    fn from(error: GroupError) -> Self {
        Self { error, message: error.to_string() }
    }
}
