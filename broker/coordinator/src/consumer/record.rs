//! The durable part of a consumer group: what a restarted broker needs to go on.
//!
//! Stored as JSON under format number 2; 1 is a classic group's record, under the same key.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::assign::Assignor;
use super::message::STATIC_LEAVE_EPOCH;
use super::partitions::{Held, Partitions, pairs};
use crate::classic::{Protocol, RecordError};

/// The format of a consumer group's record.
pub(crate) const RECORD_FORMAT: u32 = 2;

/// The epochs of a group that nobody has joined. A member can so be told an epoch before the first
/// target is computed: 0 would mean that it joins.
pub(super) const FIRST_EPOCH: i32 = 1;

/// Where a consumer group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConsumerState {
    /// No members; maybe offsets.
    Empty,
    /// A new target is to be computed.
    Assigning,
    /// Members are on their way to the target.
    Reconciling,
    /// Every member has its target.
    Stable,
}

impl ConsumerState {
    /// The name in ConsumerGroupDescribe and ListGroups.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

/// How far a member is on its way to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemberState {
    /// It has all of its target at its epoch.
    Stable,
    /// It was told to give up partitions and has not said that it did.
    Unrevoked,
    /// It waits for partitions that others hold.
    Unreleased,
}

/// What is known of a member of the classic protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClassicMember {
    pub(super) session_timeout_ms: i32,
    /// As in its last join; the first one's metadata is its subscription.
    pub(super) protocols: Vec<Protocol>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) instance_id: Option<String>,
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) topic_names: BTreeSet<String>,
    pub(super) topic_regex: Option<String>,
    pub(super) server_assignor: Option<Assignor>,
    /// `None` for members of the newer protocol.
    pub(super) classic: Option<ClassicMember>,
    /// -2 for a static member that is away.
    pub(super) epoch: i32,
    /// The epoch before this one: its heartbeat is accepted once more, if the answer was lost.
    pub(super) previous_epoch: i32,
    pub(super) state: MemberState,
    pub(super) assigned: Held,
    /// What it must give up, and holds until it says so.
    pub(super) revoking: Held,
    /// What it shall have, by the last target.
    pub(super) target: Partitions,
}

impl Member {
    /// Whether it has all of its target.
    pub(super) fn is_settled(&self, assignment_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == assignment_epoch
    }

    /// What nobody else may have: assigned, or not given up yet.
    pub(super) fn held(&self) -> impl Iterator<Item = (Uuid, i32)> + '_ {
        let held = self.assigned.iter().chain(self.revoking.iter());
        held.map(|(topic, index, _)| (topic, index))
    }
}

/// The durable part of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerRecord {
    format: u32,
    pub(super) group_id: String,
    pub(super) epoch: i32,
    pub(super) assignment_epoch: i32,
    /// The topics that members are subscribed to and that exist, with their numbers of partitions,
    /// as of the group epoch.
    pub(super) topics: BTreeMap<Uuid, i32>,
    /// By member id.
    pub(super) members: BTreeMap<String, Member>,
}

impl ConsumerRecord {
    pub(super) fn new(group_id: String, epoch: i32) -> Self {
        Self {
            format: RECORD_FORMAT,
            group_id,
            epoch,
            assignment_epoch: epoch,
            topics: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }

    /// The group's id.
    pub fn group_id(&self) -> &str {
        &self.group_id
    }

    /// The group epoch.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Where the group stands.
    pub fn state(&self) -> ConsumerState {
        let mut members = self.members.values();
        if self.members.is_empty() {
            ConsumerState::Empty
        } else if self.epoch > self.assignment_epoch {
            ConsumerState::Assigning
        } else if members.all(|member| member.is_settled(self.assignment_epoch)) {
            ConsumerState::Stable
        } else {
            ConsumerState::Reconciling
        }
    }

    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, numbers and maps with string keys always encode")
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// [`RecordError`] if the bytes are no record of this format, or contradict themselves.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = serde_json::from_slice(bytes)?;
        if record.format != RECORD_FORMAT {
            return Err(RecordError::UnknownFormat(record.format));
        }
        record.contradiction().map_or(Ok(record), |found| Err(RecordError::Inconsistent(found)))
    }

    /// What cannot be in any group; `None` in all that this machine makes.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let members = || self.members.values();
        let mut instances = BTreeSet::new();
        let mut held = BTreeSet::new();
        let mut targets = BTreeSet::new();
        let is_epoch = |epoch: i32| {
            (FIRST_EPOCH..=self.assignment_epoch).contains(&epoch) || epoch == STATIC_LEAVE_EPOCH
        };
        let cases = [
            (
                self.assignment_epoch < FIRST_EPOCH || self.epoch < self.assignment_epoch,
                "epochs in no order",
            ),
            (members().any(|member| !is_epoch(member.epoch)), "a member ahead of its group"),
            (
                !members().filter_map(|it| it.instance_id.as_ref()).all(|id| instances.insert(id)),
                "an instance id twice",
            ),
            (
                !members().flat_map(Member::held).all(|partition| held.insert(partition)),
                "a partition with two members",
            ),
            (
                !members().flat_map(|it| pairs(&it.target)).all(|place| targets.insert(place)),
                "a partition for two members",
            ),
            (
                members().any(|it| (it.state == MemberState::Unrevoked) == it.revoking.is_empty()),
                "state and revocation disagree",
            ),
        ];
        cases.into_iter().find(|&(wrong, _)| wrong).map(|(_, what)| what)
    }
}
