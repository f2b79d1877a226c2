//! Heartbeat: keeps a session, and tells a member that it must join again.

use super::Group;
use super::live::Turn;
use super::message::HeartbeatRequest;
use super::record::GroupState;
use crate::GroupError;

impl Group {
    pub(super) fn heartbeat(
        &mut self,
        request: &HeartbeatRequest,
        turn: &Turn,
    ) -> Result<(), GroupError> {
        if self.record.group_id.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        if self.record.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.check_member(&request.member_id, request.instance_id.as_deref())?;
        if request.generation != self.record.generation {
            return Err(GroupError::IllegalGeneration);
        }
        self.renew_session(&request.member_id, turn);
        match self.record.state {
            GroupState::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMemberId),
        }
    }
}
