//! Heartbeat: v0-4.
//!
//! v3 static members.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::group_answer_code;
use floe_coordinator::classic;
use floe_wire::messages::{HeartbeatRequest, HeartbeatResponse};
use std::sync::Arc;

pub(super) const API: super::Api = api!(Heartbeat, 0..=4, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: HeartbeatRequest,
) -> Handled {
    let heartbeat = classic::HeartbeatRequest {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        generation: request.generation_id,
    };
    let answer = broker.groups.heartbeat(&request.group_id, heartbeat).await;
    let code = group_answer_code(answer).code();
    context.reply(&HeartbeatResponse::default().with_error_code(code))
}
