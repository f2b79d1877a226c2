//! What goes into a group and what comes out of it: requests, answers, events, effects.

use bytes::Bytes;
use uuid::Uuid;

use super::Protocol;
use crate::GroupError;

/// Names one request whose answer is owed. The caller never uses one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResponseToken(pub u64);

/// JoinGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRequest {
    /// Version of the request: 4 and later hand out member ids first, 9 can skip the assignment.
    pub version: i16,
    /// Empty for a member without an id.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
    /// From the request's header; new member ids begin with it.
    pub client_id: String,
    /// The client's address, as DescribeGroups shows it.
    pub client_host: String,
    /// A fresh UUID, used where this request needs a new member id.
    pub new_id: Uuid,
    /// How long the member may be silent, in ms.
    pub session_timeout_ms: i32,
    /// How long a rebalance waits for the member, in ms. Ignored at version 0.
    pub rebalance_timeout_ms: i32,
    /// For example `consumer` or `connect`.
    pub protocol_type: String,
    /// Supported protocols, the preferred one first.
    pub protocols: Vec<Protocol>,
}

impl JoinRequest {
    /// The id of a member that has none yet.
    pub(crate) fn new_member_id(&self) -> String {
        let prefix = self.instance_id.as_ref().unwrap_or(&self.client_id);
        format!("{prefix}-{}", self.new_id)
    }

    /// How long a rebalance waits for the member, ms: version 0 has one timeout for both.
    pub(crate) fn rebalance_timeout_ms(&self) -> i32 {
        match self.version {
            0 => self.session_timeout_ms,
            _ => self.rebalance_timeout_ms,
        }
    }
}

/// SyncGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncRequest {
    /// Version of the request: from 5 on, both protocol fields are mandatory.
    pub version: i16,
    /// The member.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
    /// The generation that the member joined.
    pub generation: i32,
    /// Compared with the group's where present.
    pub protocol_type: Option<String>,
    /// Compared with the group's where present.
    pub protocol_name: Option<String>,
    /// Member id and assignment, from the leader; ignored from others.
    pub assignments: Vec<(String, Bytes)>,
}

/// Heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatRequest {
    /// The member.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
    /// The generation that the member is in.
    pub generation: i32,
}

/// LeaveGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaveRequest {
    /// Version of the request: below 3 there is one leaver, and its error is the answer's.
    pub version: i16,
    /// Who leaves.
    pub members: Vec<Leaver>,
}

/// One member that leaves, or is removed by an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaver {
    /// Empty to remove whoever holds the instance id.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
}

/// May this OffsetCommit or TxnOffsetCommit store its offsets?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitCheck {
    /// Version of the OffsetCommit request.
    pub version: i16,
    /// Empty for a consumer that assigns its partitions itself, or an administrator.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
    /// Below 0 for a consumer that assigns its partitions itself, or an administrator.
    pub generation: i32,
    /// Whether it is a TxnOffsetCommit.
    pub transactional: bool,
    /// The partitions, by topic id and index.
    pub partitions: Vec<(Uuid, i32)>,
}

/// Something that happens to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// JoinGroup; the answer may be held.
    Join {
        /// Answered with [`Response::Join`].
        token: ResponseToken,
        /// The request.
        request: JoinRequest,
    },
    /// SyncGroup; the answer may be held.
    Sync {
        /// Answered with [`Response::Sync`].
        token: ResponseToken,
        /// The request.
        request: SyncRequest,
    },
    /// Heartbeat; answered at once.
    Heartbeat {
        /// Answered with [`Response::Heartbeat`].
        token: ResponseToken,
        /// The request.
        request: HeartbeatRequest,
    },
    /// LeaveGroup; answered at once.
    Leave {
        /// Answered with [`Response::Leave`].
        token: ResponseToken,
        /// The request.
        request: LeaveRequest,
    },
    /// The check before an offset commit; answered at once.
    CheckCommit {
        /// Answered with [`Response::Commit`].
        token: ResponseToken,
        /// What the commit says of its sender.
        request: CommitCheck,
    },
    /// DeleteGroups, or the end of a group without members and offsets; answered at once.
    Delete {
        /// Answered with [`Response::Delete`].
        token: ResponseToken,
    },
    /// Time has passed.
    Tick,
}

/// What the caller must do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Store the group's record (or remove it, if the state is Dead) before any answer that
    /// follows is sent. If that fails or its outcome is unknown, send
    /// them as [`Response::refused`], [`super::Group::abandon`] the group, and load it again.
    Persist,
    /// Send an answer.
    Respond {
        /// The request.
        token: ResponseToken,
        /// Its answer.
        response: Response,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// To JoinGroup.
    Join(Result<Joined, JoinRefusal>),
    /// To SyncGroup. A refusal has empty bytes and no protocol.
    Sync(Result<Synced, GroupError>),
    /// To Heartbeat.
    Heartbeat(Result<(), GroupError>),
    /// To LeaveGroup.
    Leave(LeaveResponse),
    /// To an offset commit's check.
    Commit(Result<(), GroupError>),
    /// To DeleteGroups.
    Delete(Result<(), GroupError>),
}

impl Response {
    /// The same answer turned into a refusal: for answers that were not sent because what they
    /// promise could not be stored.
    pub fn refused(self, error: GroupError) -> Self {
        match self {
            Self::Join(answer) => {
                let member_id = match answer {
                    Ok(joined) => joined.member_id,
                    Err(refusal) => refusal.member_id,
                };
                Self::Join(Err(JoinRefusal { error, member_id }))
            }
            Self::Sync(_) => Self::Sync(Err(error)),
            Self::Heartbeat(_) => Self::Heartbeat(Err(error)),
            Self::Leave(_) => Self::Leave(LeaveResponse::refusal(error)),
            Self::Commit(_) => Self::Commit(Err(error)),
            Self::Delete(_) => Self::Delete(Err(error)),
        }
    }
}

/// A member's place in a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The generation.
    pub generation: i32,
    /// The group's protocol type.
    pub protocol_type: String,
    /// The protocol that was chosen.
    pub protocol_name: String,
    /// The leader's member id.
    pub leader: String,
    /// Whether a leader must not compute an assignment, because the stored one stays.
    pub skip_assignment: bool,
    /// The id of the member that is answered.
    pub member_id: String,
    /// All members for the leader; nothing for the others.
    pub members: Vec<JoinedMember>,
}

/// A member as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    /// The member.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
    /// Its metadata for the chosen protocol.
    pub metadata: Bytes,
}

/// A join that was refused. On the wire: generation -1, no leader, no members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRefusal {
    /// Why.
    pub error: GroupError,
    /// The member id of the answer: the request's, the new one, or empty.
    pub member_id: String,
}

/// A member's assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// The group's protocol type.
    pub protocol_type: String,
    /// The protocol that was chosen.
    pub protocol_name: String,
    /// Empty where the leader named none.
    pub assignment: Bytes,
}

/// The answer to LeaveGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaveResponse {
    /// Of the whole request; below version 3 that of its only member.
    pub error: Option<GroupError>,
    /// One per leaver, in order; for versions below 3 not sent.
    pub members: Vec<LeftMember>,
}

/// What became of one leaver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftMember {
    /// As in the request.
    pub member_id: String,
    /// As in the request.
    pub instance_id: Option<String>,
    /// `None` if it has left.
    pub error: Option<GroupError>,
}
