//! SyncGroup: the leader hands in the assignment, every member fetches its part.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Group;
use super::live::Turn;
use super::message::{Response, ResponseToken, SyncRequest, Synced};
use super::record::GroupState;
use crate::GroupError;

/// From this version on, protocol type and name are mandatory.
const PROTOCOL_VERSION_MIN: i16 = 5;

/// The checks that need no group.
pub(crate) fn check_request(group_id: &str, request: &SyncRequest) -> Result<(), GroupError> {
    let has_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    if request.version >= PROTOCOL_VERSION_MIN && !has_protocol {
        return Err(GroupError::InconsistentGroupProtocol);
    }
    if group_id.is_empty() {
        return Err(GroupError::InvalidGroupId);
    }
    Ok(())
}

impl Group {
    pub(super) fn sync(&mut self, token: ResponseToken, request: SyncRequest, turn: &mut Turn) {
        if let Err(error) = self.check_sync(&request) {
            return turn.respond(token, Response::Sync(Err(error)));
        }
        let member_id = request.member_id.as_str();
        self.live.pending_syncs.remove(member_id);
        if self.live.pending_syncs.is_empty() {
            self.live.sync_deadline_ms = None;
        }
        if self.record.state == GroupState::CompletingRebalance {
            let superseded = self.live_mut(member_id).sync.replace(token);
            if let Some(superseded) = superseded {
                let error = GroupError::RebalanceInProgress;
                turn.respond(superseded, Response::Sync(Err(error)));
            }
            if self.record.is_leader(member_id) {
                self.assign(request.assignments, turn);
            }
        } else {
            turn.respond(token, Response::Sync(Ok(self.synced(member_id))));
            self.renew_session(member_id, turn);
        }
    }

    fn check_sync(&self, request: &SyncRequest) -> Result<(), GroupError> {
        check_request(&self.record.group_id, request)?;
        if self.record.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.check_member(&request.member_id, request.instance_id.as_deref())?;
        if request.generation != self.record.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let is_other =
            |theirs: &Option<String>, ours: &Option<String>| theirs.is_some() && theirs != ours;
        if is_other(&request.protocol_type, &self.record.protocol_type)
            || is_other(&request.protocol_name, &self.record.protocol_name)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        match self.record.state {
            GroupState::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMemberId),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }

    /// Takes the leader's assignment: the group is stable, and all who wait get their part.
    /// Strangers in it are ignored; members missing in it get nothing.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>, turn: &mut Turn) {
        let mut assignments: BTreeMap<String, Bytes> = assignments.into_iter().collect();
        for (member_id, member) in &mut self.record.members {
            member.assignment = assignments.remove(member_id).unwrap_or_default();
        }
        self.set_state(GroupState::Stable, turn);
        let member_ids: Vec<String> = self.record.members.keys().cloned().collect();
        for member_id in member_ids {
            if let Some(token) = self.live_mut(&member_id).sync.take() {
                turn.respond(token, Response::Sync(Ok(self.synced(&member_id))));
                self.renew_session(&member_id, turn);
            }
        }
    }

    fn synced(&self, member_id: &str) -> Synced {
        let member = self.record.members.get(member_id);
        Synced {
            protocol_type: self.record.protocol_type.clone().unwrap_or_default(),
            protocol_name: self.record.protocol_name.clone().unwrap_or_default(),
            assignment: member.map(|member| member.assignment.clone()).unwrap_or_default(),
        }
    }
}
