//! DescribeGroups: v0-6.
//!
//! v3 authorized operations; v4 instance ids; v6 a missing group is an error, with a message. A
//! group of another protocol is as good as missing: clients then ask ConsumerGroupDescribe.

use super::{Handled, RequestContext, api};
use crate::authorized_operations::{GROUP_OPERATIONS, if_asked};
use crate::broker::Broker;
use crate::error_codes::group_code;
use crate::groups::Described;
use floe_coordinator::classic::{GroupView, MemberView, describe_missing_group};
use floe_wire::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use floe_wire::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeGroups, 0..=6, handle);

/// The first version with messages.
const MESSAGE_SINCE: i16 = 6;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DescribeGroupsRequest,
) -> Handled {
    let mut groups = Vec::with_capacity(request.groups.len());
    for group_id in request.groups {
        let described = describe(&broker, context.version, &group_id).await;
        let is_asked = request.include_authorized_operations && described.error_code == 0;
        let operations = if_asked(is_asked, GROUP_OPERATIONS);
        groups.push(described.with_group_id(group_id).with_authorized_operations(operations));
    }
    context.reply(&DescribeGroupsResponse::default().with_groups(groups))
}

async fn describe(broker: &Broker, version: i16, group_id: &GroupId) -> DescribedGroup {
    let found = match broker.groups.describe(group_id).await {
        Ok(found) => found,
        Err(error) => {
            return DescribedGroup::default().with_error_code(group_code(error).code());
        }
    };
    let message = match found {
        Described::Classic(view) => return group(view),
        Described::Consumer(_) => format!("Group {} is not a classic group.", group_id.as_str()),
        Described::Missing => format!("Group {} not found.", group_id.as_str()),
    };
    let (error, view) = describe_missing_group(version);
    let described = group(view);
    let Some(error) = error else { return described };
    let described = described.with_error_code(group_code(error).code());
    if version < MESSAGE_SINCE {
        return described;
    }
    described.with_error_message(Some(StrBytes::from_string(message)))
}

fn group(view: GroupView) -> DescribedGroup {
    DescribedGroup::default()
        .with_group_state(StrBytes::from_static_str(view.state.name()))
        .with_protocol_type(StrBytes::from_string(view.protocol_type))
        .with_protocol_data(StrBytes::from_string(view.protocol_data))
        .with_members(view.members.into_iter().map(member).collect())
}

fn member(view: MemberView) -> DescribedGroupMember {
    DescribedGroupMember::default()
        .with_member_id(StrBytes::from_string(view.member_id))
        .with_group_instance_id(view.instance_id.map(StrBytes::from_string))
        .with_client_id(StrBytes::from_string(view.client_id))
        .with_client_host(StrBytes::from_string(view.client_host))
        .with_member_metadata(view.metadata)
        .with_member_assignment(view.assignment)
}
