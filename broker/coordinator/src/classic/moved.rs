//! A group's members on their way from one protocol to the other.

use super::live::Turn;
use super::record::{GroupRecord, GroupState, Member, Protocol};
use super::{Group, GroupConfig};
use bytes::Bytes;

/// What both protocols know of a group.
pub(crate) struct MovedGroup {
    pub(crate) group_id: String,
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) members: Vec<MovedMember>,
}

/// What both protocols know of a member.
pub(crate) struct MovedMember {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    /// The chosen one first, if one was chosen.
    pub(crate) protocols: Vec<Protocol>,
    pub(crate) assignment: Bytes,
}

impl Group {
    /// The group without what only the classic protocol knows.
    pub(crate) fn moved(&self) -> MovedGroup {
        let chosen = self.record.protocol_name.as_deref();
        let members = self.record.members.iter().map(|(member_id, member)| {
            let mut protocols = member.protocols.clone();
            // Stable, so that the others keep the member's order.
            protocols.sort_by_key(|protocol| Some(protocol.name.as_str()) != chosen);
            MovedMember {
                member_id: member_id.clone(),
                instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                session_timeout_ms: member.session_timeout_ms,
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                protocols,
                assignment: member.assignment.clone(),
            }
        });
        MovedGroup {
            group_id: self.record.group_id.clone(),
            generation: self.record.generation,
            protocol_type: self.protocol_type().to_owned(),
            members: members.collect(),
        }
    }

    /// A group out of moved members, which waits for them to join. `None` if they have no protocol
    /// in common.
    pub(crate) fn of_moved(moved: MovedGroup, config: GroupConfig, now_ms: i64) -> Option<Self> {
        let mut record = GroupRecord::new(moved.group_id, now_ms);
        record.generation = moved.generation;
        record.protocol_type = Some(moved.protocol_type);
        for member in moved.members {
            let kept = Member {
                instance_id: member.instance_id,
                client_id: member.client_id,
                client_host: member.client_host,
                session_timeout_ms: member.session_timeout_ms,
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                protocols: member.protocols,
                assignment: member.assignment,
            };
            record.members.insert(member.member_id, kept);
        }
        record.leader = record.members.keys().next().cloned();
        record.protocol_name = Some(record.select_protocol()?);
        record.state = GroupState::Stable;
        let mut group = Self::load(record, config, now_ms);
        let mut turn = Turn::new(now_ms);
        group.prepare_rebalance(&mut turn);
        Some(group)
    }

    /// A group without members in the place of one whose last epoch was `generation`.
    pub(crate) fn succeeding(
        group_id: String,
        generation: i32,
        config: GroupConfig,
        now_ms: i64,
    ) -> Self {
        let mut record = GroupRecord::new(group_id, now_ms);
        record.generation = generation;
        Self::load(record, config, now_ms)
    }
}
