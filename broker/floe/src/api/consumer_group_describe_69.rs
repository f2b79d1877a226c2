//! ConsumerGroupDescribe: v0-1.
//!
//! v1 which protocol a member uses. A group of the classic protocol is as good as missing: clients
//! then ask DescribeGroups.

use super::{Handled, RequestContext, api};
use crate::authorized_operations::{GROUP_OPERATIONS, if_asked};
use crate::broker::Broker;
use crate::error_codes::group_code;
use crate::groups::Described;
use floe_coordinator::GroupError;
use floe_coordinator::consumer::{ConsumerMemberView, ConsumerView, Partitions, TopicDirectory};
use floe_wire::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use floe_wire::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, GroupId, StrBytes, TopicName,
};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ConsumerGroupDescribe, 0..=1, handle);

/// The first version that tells the members' protocols.
const MEMBER_TYPE_SINCE: i16 = 1;
const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ConsumerGroupDescribeRequest,
) -> Handled {
    let mut groups = Vec::with_capacity(request.group_ids.len());
    for group_id in request.group_ids {
        let described = describe(&broker, context.version, &group_id).await;
        let is_asked = request.include_authorized_operations && described.error_code == 0;
        let operations = if_asked(is_asked, GROUP_OPERATIONS);
        groups.push(described.with_group_id(group_id).with_authorized_operations(operations));
    }
    context.reply(&ConsumerGroupDescribeResponse::default().with_groups(groups))
}

async fn describe(broker: &Broker, version: i16, group_id: &GroupId) -> DescribedGroup {
    if group_id.is_empty() {
        return refused(GroupError::InvalidGroupId, None);
    }
    let missing = |message: String| refused(GroupError::GroupIdNotFound, Some(message));
    let group = group_id.as_str();
    match broker.groups.describe(group_id).await {
        Ok(Described::Consumer(view)) => described(view, version, &broker.topics.directory()),
        Ok(Described::Classic(_)) => missing(format!("Group {group} is not a consumer group.")),
        Ok(Described::Missing) => missing(format!("Group {group} not found.")),
        Err(error) => refused(error, None),
    }
}

fn refused(error: GroupError, message: Option<String>) -> DescribedGroup {
    DescribedGroup::default()
        .with_error_code(group_code(error).code())
        .with_error_message(message.map(StrBytes::from_string))
}

fn described(view: ConsumerView, version: i16, topics: &TopicDirectory) -> DescribedGroup {
    let members = view.members.into_iter().map(|member| described_member(member, version, topics));
    DescribedGroup::default()
        .with_group_state(StrBytes::from_static_str(view.state.name()))
        .with_group_epoch(view.epoch)
        .with_assignment_epoch(view.assignment_epoch)
        .with_assignor_name(StrBytes::from_static_str(view.assignor.name()))
        .with_members(members.collect())
}

fn described_member(view: ConsumerMemberView, version: i16, topics: &TopicDirectory) -> Member {
    let names = view.topic_names.into_iter().map(|name| TopicName(StrBytes::from_string(name)));
    let member = Member::default()
        .with_member_id(StrBytes::from_string(view.member_id))
        .with_instance_id(view.instance_id.map(StrBytes::from_string))
        .with_rack_id(view.rack_id.map(StrBytes::from_string))
        .with_member_epoch(view.epoch)
        .with_client_id(StrBytes::from_string(view.client_id))
        .with_client_host(StrBytes::from_string(view.client_host))
        .with_subscribed_topic_names(names.collect())
        .with_subscribed_topic_regex(Some(StrBytes::from_string(view.topic_regex)))
        .with_assignment(assignment(view.assigned, topics))
        .with_target_assignment(assignment(view.target, topics));
    let member_type = if view.is_classic { CLASSIC_MEMBER } else { CONSUMER_MEMBER };
    match version >= MEMBER_TYPE_SINCE {
        true => member.with_member_type(member_type),
        false => member,
    }
}

/// Topics that are gone are left out, as members give them up with their next heartbeat.
fn assignment(partitions: Partitions, topics: &TopicDirectory) -> Assignment {
    let topics = partitions.into_iter().filter_map(|(id, indexes)| {
        let name = TopicName(StrBytes::from_string(topics.name(id)?.to_owned()));
        let topic = TopicPartitions::default().with_topic_id(id).with_topic_name(name);
        Some(topic.with_partitions(indexes.into_iter().collect()))
    });
    Assignment::default().with_topic_partitions(topics.collect())
}
