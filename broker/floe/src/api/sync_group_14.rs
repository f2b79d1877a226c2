//! SyncGroup: v0-5.
//!
//! v3 static members; v5 protocol type and name. It takes effect in order of arrival, and its
//! answer comes with the leader's assignment.

use super::{Handled, Reply, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::group_code;
use bytes::Bytes;
use floe_coordinator::classic::SyncRequest;
use floe_wire::messages::{StrBytes, SyncGroupRequest, SyncGroupResponse};
use std::sync::Arc;

pub(super) const API: super::Api = api!(SyncGroup, 0..=5, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: SyncGroupRequest,
) -> Handled {
    let assignments = request.assignments.iter().map(|assigned| {
        // Copied: it outlives the request's frame by far.
        (assigned.member_id.to_string(), Bytes::copy_from_slice(&assigned.assignment))
    });
    let sync = SyncRequest {
        version: context.version,
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        generation: request.generation_id,
        protocol_type: request.protocol_type.map(|name| name.to_string()),
        protocol_name: request.protocol_name.map(|name| name.to_string()),
        assignments: assignments.collect(),
    };
    let answer = broker.groups.sync(&request.group_id, sync).await;
    Ok(Reply::Later(Box::pin(async move {
        let response = match answer.await {
            Ok(synced) => SyncGroupResponse::default()
                .with_protocol_type(Some(StrBytes::from_string(synced.protocol_type)))
                .with_protocol_name(Some(StrBytes::from_string(synced.protocol_name)))
                .with_assignment(synced.assignment),
            Err(error) => SyncGroupResponse::default()
                .with_error_code(group_code(error).code())
                .with_protocol_type(None)
                .with_protocol_name(None),
        };
        context.late_reply(&response)
    })))
}
