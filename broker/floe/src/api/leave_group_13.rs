//! LeaveGroup: v0-5.
//!
//! v0-2 one member; v3 several, also by instance id; v5 a reason, which goes to the log.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::group_code;
use floe_coordinator::GroupError;
use floe_coordinator::classic::{LeaveRequest, Leaver, LeftMember};
use floe_wire::ErrorCode;
use floe_wire::messages::leave_group_response::MemberResponse;
use floe_wire::messages::{LeaveGroupRequest, LeaveGroupResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(LeaveGroup, 0..=5, handle);

/// The first version with several members.
const MEMBERS_SINCE: i16 = 3;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: LeaveGroupRequest,
) -> Handled {
    let group: &str = &request.group_id;
    let members = if context.version >= MEMBERS_SINCE {
        let leavers = request.members.iter().map(|member| {
            let reason = member.reason.as_deref().unwrap_or_default();
            tracing::debug!(group, member = %*member.member_id, reason, "leaves");
            let instance_id = member.group_instance_id.as_ref().map(|id| id.to_string());
            Leaver { member_id: member.member_id.to_string(), instance_id }
        });
        leavers.collect()
    } else {
        vec![Leaver { member_id: request.member_id.to_string(), instance_id: None }]
    };
    let leave = LeaveRequest { version: context.version, members };
    let answer = broker.groups.leave(group, leave).await;
    let response = LeaveGroupResponse::default().with_error_code(code(answer.error));
    if context.version < MEMBERS_SINCE {
        return context.reply(&response);
    }
    context.reply(&response.with_members(answer.members.into_iter().map(member).collect()))
}

fn member(left: LeftMember) -> MemberResponse {
    MemberResponse::default()
        .with_member_id(StrBytes::from_string(left.member_id))
        .with_group_instance_id(left.instance_id.map(StrBytes::from_string))
        .with_error_code(code(left.error))
}

fn code(error: Option<GroupError>) -> i16 {
    error.map_or(ErrorCode::None, group_code).code()
}
