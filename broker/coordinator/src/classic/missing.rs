//! Answers for a group that is not stored.

use super::message::{
    CommitCheck, Event, JoinRefusal, JoinRequest, LeaveRequest, LeaveResponse, LeftMember,
    Response, ResponseToken,
};
use super::{GroupConfig, join, sync};
use crate::GroupError;

/// From these versions on, OffsetCommit and TxnOffsetCommit say that the group is missing.
const GROUP_ID_NOT_FOUND_VERSION_MIN: i16 = 9;
const TXN_GROUP_ID_NOT_FOUND_VERSION_MIN: i16 = 6;

/// The answer to an event for a group that does not exist, or `None` where the event makes the
/// group: the caller then makes [`super::Group::new`] and applies the event to it.
pub fn answer_for_missing_group(
    group_id: &str,
    event: &Event,
    config: &GroupConfig,
) -> Option<(ResponseToken, Response)> {
    let no_member = match group_id.is_empty() {
        true => GroupError::InvalidGroupId,
        false => GroupError::UnknownMemberId,
    };
    let (token, response) = match event {
        Event::Join { token, request } => {
            let error = refusal_of_join(group_id, request, config)?;
            let refusal = JoinRefusal { error, member_id: request.member_id.clone() };
            (token, Response::Join(Err(refusal)))
        }
        Event::Sync { token, request } => {
            let error = sync::check_request(group_id, request).err().unwrap_or(no_member);
            (token, Response::Sync(Err(error)))
        }
        Event::Heartbeat { token, .. } => (token, Response::Heartbeat(Err(no_member))),
        Event::Leave { token, request } => (token, leave(group_id, request)),
        Event::CheckCommit { token, request } => {
            (token, Response::Commit(Err(refusal_of_commit(request)?)))
        }
        Event::Delete { token } => (token, Response::Delete(Err(GroupError::GroupIdNotFound))),
        Event::Tick => return None,
    };
    Some((*token, response))
}

fn refusal_of_join(
    group_id: &str,
    request: &JoinRequest,
    config: &GroupConfig,
) -> Option<GroupError> {
    if let Err(error) = join::check_request(group_id, request, config) {
        return Some(error);
    }
    (!request.member_id.is_empty()).then_some(GroupError::UnknownMemberId)
}

fn leave(group_id: &str, request: &LeaveRequest) -> Response {
    if group_id.is_empty() {
        return Response::Leave(LeaveResponse::refusal(GroupError::InvalidGroupId));
    }
    let unknown = |leaver| LeftMember::of(leaver, Err(GroupError::UnknownMemberId));
    let members = request.members.iter().map(unknown).collect();
    Response::Leave(LeaveResponse::of(request.version, members))
}

fn refusal_of_commit(request: &CommitCheck) -> Option<GroupError> {
    if request.generation < 0 {
        return None;
    }
    let version_min = match request.transactional {
        true => TXN_GROUP_ID_NOT_FOUND_VERSION_MIN,
        false => GROUP_ID_NOT_FOUND_VERSION_MIN,
    };
    match request.version >= version_min {
        true => Some(GroupError::GroupIdNotFound),
        false => Some(GroupError::IllegalGeneration),
    }
}
