//! LeaveGroup: members go, or an administrator removes them.

use super::Group;
use super::live::Turn;
use super::message::{LeaveRequest, LeaveResponse, Leaver, LeftMember, Response, ResponseToken};
use super::record::GroupState;
use crate::GroupError;

/// From this version on, every leaver has its own error.
const MEMBER_LIST_VERSION_MIN: i16 = 3;

impl LeaveResponse {
    /// An answer to the request as a whole.
    pub(crate) fn refusal(error: GroupError) -> Self {
        Self { error: Some(error), members: Vec::new() }
    }

    /// An answer with the results of its leavers, in the form of the request's version.
    pub(crate) fn of(version: i16, members: Vec<LeftMember>) -> Self {
        let is_single = version < MEMBER_LIST_VERSION_MIN;
        let error = members.first().and_then(|member| member.error).filter(|_| is_single);
        Self { error, members }
    }
}

impl LeftMember {
    pub(crate) fn of(leaver: &Leaver, result: Result<(), GroupError>) -> Self {
        Self {
            member_id: leaver.member_id.clone(),
            instance_id: leaver.instance_id.clone(),
            error: result.err(),
        }
    }
}

impl Group {
    pub(super) fn leave(&mut self, token: ResponseToken, request: &LeaveRequest, turn: &mut Turn) {
        let response = if self.record.group_id.is_empty() {
            LeaveResponse::refusal(GroupError::InvalidGroupId)
        } else if self.record.state == GroupState::Dead {
            LeaveResponse::refusal(GroupError::CoordinatorNotAvailable)
        } else {
            LeaveResponse::of(request.version, self.remove_leavers(request, turn))
        };
        turn.respond(token, Response::Leave(response));
    }

    fn remove_leavers(&mut self, request: &LeaveRequest, turn: &mut Turn) -> Vec<LeftMember> {
        let members_before = self.record.members.len();
        let mut results = Vec::with_capacity(request.members.len());
        for leaver in &request.members {
            results.push(LeftMember::of(leaver, self.remove_leaver(leaver, turn)));
        }
        if self.record.members.len() < members_before {
            turn.is_promised = true;
            self.after_removal(turn);
        } else {
            // A pending id that left may have been the last that the rebalance waited for.
            self.maybe_complete_join(turn);
        }
        results
    }

    fn remove_leaver(&mut self, leaver: &Leaver, turn: &mut Turn) -> Result<(), GroupError> {
        if leaver.member_id.is_empty() {
            let holder = leaver.instance_id.as_ref().and_then(|id| self.live.statics.get(id));
            let holder = holder.cloned().ok_or(GroupError::UnknownMemberId)?;
            self.remove_member(&holder, turn);
            return Ok(());
        }
        if self.live.pending_ids.remove(&leaver.member_id).is_some() {
            return Ok(());
        }
        self.check_member(&leaver.member_id, leaver.instance_id.as_deref())?;
        self.remove_member(&leaver.member_id, turn);
        Ok(())
    }
}
