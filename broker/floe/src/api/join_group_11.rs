//! JoinGroup: v0-9.
//!
//! v1 rebalance timeout; v4 the member id is handed out first; v5 static members; v7 protocol
//! type, and protocol names may be null; v9 skip assignment. The join takes effect in order of
//! arrival, and its answer comes with the rebalance.

use super::{Handled, Reply, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::group_code;
use bytes::Bytes;
use floe_coordinator::classic::{JoinRefusal, JoinRequest, Joined, Protocol};
use floe_wire::messages::join_group_response::JoinGroupResponseMember;
use floe_wire::messages::{JoinGroupRequest, JoinGroupResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(JoinGroup, 0..=9, handle);

/// The first version in which a protocol's name may be null.
const NULL_PROTOCOL_SINCE: i16 = 7;
const NO_GENERATION: i32 = -1;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: JoinGroupRequest,
) -> Handled {
    let protocols = request.protocols.iter().map(|protocol| Protocol {
        name: protocol.name.to_string(),
        // Copied: it outlives the request's frame by far.
        metadata: Bytes::copy_from_slice(&protocol.metadata),
    });
    let join = JoinRequest {
        version: context.version,
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        client_id: context.client_id.as_ref().to_owned(),
        // Kafka shows addresses as Java prints them.
        client_host: format!("/{}", context.client_host),
        new_id: broker.env.uuid(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols.collect(),
    };
    let answer = broker.groups.join(&request.group_id, join).await;
    Ok(Reply::Later(Box::pin(async move {
        let response = match answer.await {
            Ok(joined) => joined_response(joined),
            Err(refusal) => refused_response(refusal, context.version),
        };
        context.late_reply(&response)
    })))
}

fn joined_response(joined: Joined) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|member| {
        JoinGroupResponseMember::default()
            .with_member_id(StrBytes::from_string(member.member_id))
            .with_group_instance_id(member.instance_id.map(StrBytes::from_string))
            .with_metadata(member.metadata)
    });
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type(Some(StrBytes::from_string(joined.protocol_type)))
        .with_protocol_name(Some(StrBytes::from_string(joined.protocol_name)))
        .with_leader(StrBytes::from_string(joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(StrBytes::from_string(joined.member_id))
        .with_members(members.collect())
}

fn refused_response(refusal: JoinRefusal, version: i16) -> JoinGroupResponse {
    let no_protocol = (version < NULL_PROTOCOL_SINCE).then(StrBytes::default);
    JoinGroupResponse::default()
        .with_error_code(group_code(refusal.error).code())
        .with_generation_id(NO_GENERATION)
        .with_protocol_type(None)
        .with_protocol_name(no_protocol)
        .with_member_id(StrBytes::from_string(refusal.member_id))
}
