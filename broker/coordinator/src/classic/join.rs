//! JoinGroup: the checks in Kafka's order, then what the join does in each state.

use super::live::Turn;
use super::members::refuse_join;
use super::message::{JoinRequest, Response, ResponseToken};
use super::record::GroupState;
use super::{Group, GroupConfig};
use crate::GroupError;

/// From this version on, a dynamic member joins twice: first for its id, then with it.
const KNOWN_ID_VERSION_MIN: i16 = 4;
/// From this version on, a static leader that came back can be told to skip the assignment.
const SKIP_ASSIGNMENT_VERSION_MIN: i16 = 9;
/// Ids handed out and not used yet, per group: beyond these the group counts as full.
const PENDING_IDS_MAX: usize = 10_000;

/// Whether the answer is a member id, with which the client shall join again.
pub(crate) fn hands_out_id(request: &JoinRequest) -> bool {
    request.member_id.is_empty()
        && request.instance_id.is_none()
        && request.version >= KNOWN_ID_VERSION_MIN
}

/// The checks that need no group.
pub(crate) fn check_request(
    group_id: &str,
    request: &JoinRequest,
    config: &GroupConfig,
) -> Result<(), GroupError> {
    let session_timeouts = config.session_timeout_ms_min..=config.session_timeout_ms_max;
    if group_id.is_empty() {
        return Err(GroupError::InvalidGroupId);
    }
    if !session_timeouts.contains(&request.session_timeout_ms) {
        return Err(GroupError::InvalidSessionTimeout);
    }
    Ok(())
}

impl Group {
    pub(super) fn join(&mut self, token: ResponseToken, request: JoinRequest, turn: &mut Turn) {
        if let Err(error) = self.check_join(&request) {
            let mut member_id = request.member_id.as_str();
            if error == GroupError::GroupMaxSizeReached {
                self.turn_away(member_id, turn);
                member_id = "";
            }
            return refuse_join(token, error, member_id, turn);
        }
        match request.member_id.is_empty() {
            true => self.join_without_id(token, request, turn),
            false => self.join_with_id(token, request, turn),
        }
    }

    fn check_join(&self, request: &JoinRequest) -> Result<(), GroupError> {
        check_request(&self.record.group_id, request, &self.config)?;
        if self.record.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        if !self.has_room_for(request) {
            return Err(GroupError::GroupMaxSizeReached);
        }
        if !self.supports(request) {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// Whether the member is in already, or fits in. While joining, only those who have joined
    /// count: the others may be gone, and if the limit was lowered the last to come are left out.
    fn has_room_for(&self, request: &JoinRequest) -> bool {
        let replaced = request.instance_id.as_ref().and_then(|id| self.live.statics.get(id));
        let known = match request.member_id.is_empty() {
            true => replaced,
            false => Some(&request.member_id),
        };
        let live = known.and_then(|member_id| self.live.members.get(member_id));
        match self.record.state {
            GroupState::Empty | GroupState::Dead => true,
            GroupState::PreparingRebalance => {
                let joined = self.live.members.values().filter(|it| it.join.is_some()).count();
                live.is_some_and(|it| it.join.is_some()) || joined < self.config.group_members_max
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                live.is_some() || self.record.members.len() < self.config.group_members_max
            }
        }
    }

    fn supports(&self, request: &JoinRequest) -> bool {
        if self.record.members.is_empty() {
            return !request.protocol_type.is_empty() && !request.protocols.is_empty();
        }
        self.record.protocol_type.as_ref() == Some(&request.protocol_type)
            && request.protocols.iter().any(|protocol| self.record.is_common(&protocol.name))
    }

    /// Forgets whoever does not fit into the group.
    fn turn_away(&mut self, member_id: &str, turn: &mut Turn) {
        self.live.pending_ids.remove(member_id);
        self.remove_member(member_id, turn);
        self.maybe_complete_join(turn);
    }

    fn join_without_id(&mut self, token: ResponseToken, request: JoinRequest, turn: &mut Turn) {
        let new_id = request.new_member_id();
        let is_taken = self.record.members.contains_key(&new_id)
            || self.live.pending_ids.contains_key(&new_id);
        if is_taken {
            // The caller handed in a UUID twice; the client's next try brings another.
            return refuse_join(token, GroupError::CoordinatorNotAvailable, "", turn);
        }
        let replaced = request.instance_id.as_ref().and_then(|id| self.live.statics.get(id));
        if let Some(old_id) = replaced.cloned() {
            self.join_in_place_of(&old_id, new_id, token, request, turn);
        } else if hands_out_id(&request) {
            self.hand_out_id(new_id, token, &request, turn);
        } else {
            self.add_member(new_id, token, request, turn);
            self.rebalance_or_complete(turn);
        }
    }

    fn hand_out_id(
        &mut self,
        new_id: String,
        token: ResponseToken,
        request: &JoinRequest,
        turn: &mut Turn,
    ) {
        if self.live.pending_ids.len() >= PENDING_IDS_MAX {
            return refuse_join(token, GroupError::GroupMaxSizeReached, "", turn);
        }
        refuse_join(token, GroupError::MemberIdRequired, &new_id, turn);
        let deadline_ms = turn.deadline_ms(i64::from(request.session_timeout_ms));
        self.live.pending_ids.insert(new_id, deadline_ms);
    }

    /// A static member came back with an empty id. If the group is stable and chooses the same
    /// protocol as before, nothing changes but the id, so that a restart causes no rebalance.
    fn join_in_place_of(
        &mut self,
        old_id: &str,
        new_id: String,
        token: ResponseToken,
        request: JoinRequest,
        turn: &mut Turn,
    ) {
        let version = request.version;
        let old_leader = self.record.leader.clone().unwrap_or_default();
        let instance_id = request.instance_id.clone().unwrap_or_default();
        self.replace_member(&instance_id, old_id, &new_id, turn);
        self.update_member(&new_id, token, request, turn);

        let is_unchanged = self.record.state == GroupState::Stable
            && self.record.select_protocol() == self.record.protocol_name;
        if !is_unchanged {
            return self.rebalance_or_complete(turn);
        }
        self.live_mut(&new_id).join = None;
        self.renew_session(&new_id, turn);
        let is_leader = self.record.is_leader(&new_id);
        let mut joined = self.joined(&new_id, is_leader);
        if version < SKIP_ASSIGNMENT_VERSION_MIN {
            // Such a client would compute an assignment if it saw itself as the leader.
            joined.skip_assignment = false;
            joined.leader = old_leader;
            joined.members.clear();
        }
        turn.respond(token, Response::Join(Ok(joined)));
    }

    fn join_with_id(&mut self, token: ResponseToken, request: JoinRequest, turn: &mut Turn) {
        let member_id = request.member_id.clone();
        if self.live.pending_ids.contains_key(&member_id) {
            if request.instance_id.is_some() {
                // Pending ids belong to dynamic members.
                return refuse_join(token, GroupError::UnknownMemberId, &member_id, turn);
            }
            self.add_member(member_id, token, request, turn);
            return self.rebalance_or_complete(turn);
        }
        if let Err(error) = self.check_member(&member_id, request.instance_id.as_deref()) {
            return refuse_join(token, error, &member_id, turn);
        }
        let is_same = self.record.members[&member_id].protocols == request.protocols;
        let is_answered = match self.record.state {
            // The answer was lost on its way.
            GroupState::CompletingRebalance => is_same,
            // The leader joins again to make a rebalance: it saw new partitions, for example.
            GroupState::Stable => is_same && !self.record.is_leader(&member_id),
            _ => false,
        };
        if is_answered {
            self.renew_session(&member_id, turn);
            turn.respond(token, Response::Join(Ok(self.joined(&member_id, false))));
        } else {
            self.update_member(&member_id, token, request, turn);
            self.rebalance_or_complete(turn);
        }
    }
}
