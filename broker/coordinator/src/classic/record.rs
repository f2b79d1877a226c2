//! The durable part of a group: what a restarted broker needs to go on without a rebalance.
//!
//! Stored as JSON with a format number; opaque bytes are base64. [`GroupRecord::decode`] refuses
//! what [`GroupRecord::encode`] could not have written, so a loaded group keeps every invariant.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base64_bytes;

/// The format that this version writes, and the only one it reads.
const RECORD_FORMAT: u32 = 1;

/// Where a group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GroupState {
    /// No members; maybe offsets.
    Empty,
    /// Members are joining the next generation.
    PreparingRebalance,
    /// The leader computes the assignment.
    CompletingRebalance,
    /// Every member may fetch its assignment.
    Stable,
    /// Deleted.
    Dead,
}

impl GroupState {
    /// The name in DescribeGroups and ListGroups.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// A protocol that a member supports: an assignor of consumers, a version of Connect's workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protocol {
    /// The name that members vote for.
    pub name: String,
    /// Opaque to the broker; the leader gets it.
    #[serde(with = "base64_bytes")]
    pub metadata: Bytes,
}

/// A member, without what is volatile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) instance_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) session_timeout_ms: i32,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) protocols: Vec<Protocol>,
    /// Of the last generation in which the group was stable.
    #[serde(with = "base64_bytes")]
    pub(super) assignment: Bytes,
}

impl Member {
    /// The metadata for a protocol, if the member supports it.
    pub(super) fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        self.protocols.iter().find(|own| own.name == protocol).map(|own| &own.metadata)
    }
}

/// The durable part of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    format: u32,
    pub(super) group_id: String,
    pub(super) state: GroupState,
    /// When the group entered its state: offsets of an empty group expire from here.
    pub(super) state_since_ms: i64,
    pub(super) generation: i32,
    /// `None` until somebody joins; stays when the group becomes empty.
    pub(super) protocol_type: Option<String>,
    /// Chosen by the last generation with members.
    pub(super) protocol_name: Option<String>,
    pub(super) leader: Option<String>,
    /// By member id.
    pub(super) members: BTreeMap<String, Member>,
}

/// Bytes that are not a group record.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Written by a later version.
    #[error("group record of format {0}; this version reads format {RECORD_FORMAT}")]
    UnknownFormat(u32),
    /// Not JSON, or fields are missing.
    #[error("unreadable group record")]
    Unreadable(#[from] serde_json::Error),
    /// Readable, but no group can be like this.
    #[error("inconsistent group record: {0}")]
    Inconsistent(&'static str),
}

impl GroupRecord {
    pub(super) fn new(group_id: String, now_ms: i64) -> Self {
        Self {
            format: RECORD_FORMAT,
            group_id,
            state: GroupState::Empty,
            state_since_ms: now_ms,
            generation: 0,
            protocol_type: None,
            protocol_name: None,
            leader: None,
            members: BTreeMap::new(),
        }
    }

    /// The group's id.
    pub fn group_id(&self) -> &str {
        &self.group_id
    }

    /// When the group entered its state, in ms.
    pub(crate) fn state_since_ms(&self) -> i64 {
        self.state_since_ms
    }

    /// Each member's metadata for the chosen protocol; `None` where it has none, or none is chosen.
    pub(crate) fn chosen_metadata(&self) -> impl Iterator<Item = Option<&Bytes>> {
        let chosen = self.protocol_name.as_deref();
        self.members.values().map(move |member| chosen.and_then(|name| member.metadata(name)))
    }

    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, numbers and maps with string keys always encode")
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// [`RecordError`] if the bytes are no record, one of another format, or contradict themselves.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Header {
            format: u32,
        }
        let header: Header = serde_json::from_slice(bytes)?;
        if header.format != RECORD_FORMAT {
            return Err(RecordError::UnknownFormat(header.format));
        }
        let record: Self = serde_json::from_slice(bytes)?;
        record.contradiction().map_or(Ok(record), |found| Err(RecordError::Inconsistent(found)))
    }

    /// The largest rebalance timeout of the members, in ms and at least 1.
    pub(super) fn rebalance_timeout_ms(&self) -> i64 {
        let largest = self.members.values().map(|member| member.rebalance_timeout_ms).max();
        i64::from(largest.unwrap_or(0).max(1))
    }

    pub(super) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    /// Whether every member supports the protocol.
    pub(super) fn is_common(&self, protocol: &str) -> bool {
        self.members.values().all(|member| member.metadata(protocol).is_some())
    }

    /// The protocol with the most votes. Each member votes for the first of its protocols that all
    /// support; the first name in the alphabet wins a tie.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let any = self.members.values().next()?;
        let names = any.protocols.iter().map(|protocol| protocol.name.as_str());
        let common: BTreeSet<&str> = names.filter(|name| self.is_common(name)).collect();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut own = member.protocols.iter().map(|protocol| protocol.name.as_str());
            *votes.entry(own.find(|name| common.contains(name))?).or_default() += 1;
        }
        let most = *votes.values().max()?;
        votes.into_iter().find(|&(_, count)| count == most).map(|(name, _)| name.to_owned())
    }

    fn contradiction(&self) -> Option<&'static str> {
        use GroupState::{CompletingRebalance, Dead, Empty, Stable};
        let mut instances = BTreeSet::new();
        let statics = self.members.values().filter_map(|member| member.instance_id.as_ref());
        let leads = |leader: &String| self.members.contains_key(leader);
        let chosen = self.protocol_name.as_deref().is_some_and(|name| self.is_common(name));
        let cases = [
            (self.generation < 0, "negative generation"),
            (!statics.into_iter().all(|id| instances.insert(id)), "an instance id twice"),
            (self.leader.is_some() == self.members.is_empty(), "members and leader disagree"),
            (!self.leader.as_ref().is_none_or(leads), "the leader is no member"),
            (matches!(self.state, Empty | Dead) && !self.members.is_empty(), "empty with members"),
            (
                matches!(self.state, CompletingRebalance | Stable)
                    && (self.members.is_empty() || !chosen),
                "a generation without members, or without a protocol of all of them",
            ),
            (
                !self.members.is_empty()
                    && (self.protocol_type.is_none() || self.select_protocol().is_none()),
                "members without a common protocol",
            ),
        ];
        cases.into_iter().find(|&(wrong, _)| wrong).map(|(_, what)| what)
    }
}
