//! FindCoordinator: v0-6.
//!
//! v1 key types (0 group, 1 transaction); v4 several keys; v6 share groups (type 2). This broker
//! coordinates every group, and any broker every transactional id.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::refused::MALFORMED_REQUEST;
use floe_wire::ErrorCode;
use floe_wire::messages::find_coordinator_response::Coordinator;
use floe_wire::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(FindCoordinator, 0..=6, handle);

/// The first version with several keys.
const KEYS_SINCE: i16 = 4;
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> Handled {
    let (code, message) = match request.key_type {
        GROUP | TRANSACTION => (ErrorCode::None, None),
        // There are no share groups, and versions before them do not know the type.
        SHARE => (ErrorCode::InvalidRequest, None),
        _ => (ErrorCode::InvalidRequest, Some(MALFORMED_REQUEST)),
    };
    let identity = &broker.identity;
    let (node_id, host, port) = if code.is_none() {
        (identity.node_id, identity.host.clone(), i32::from(identity.port))
    } else {
        (-1, String::new(), -1)
    };
    if context.version >= KEYS_SINCE {
        let coordinator = |key: StrBytes| {
            Coordinator::default()
                .with_key(key)
                .with_node_id(BrokerId(node_id))
                .with_host(StrBytes::from_string(host.clone()))
                .with_port(port)
                .with_error_code(code.code())
                .with_error_message(Some(StrBytes::from_static_str(message.unwrap_or_default())))
        };
        let coordinators = request.coordinator_keys.into_iter().map(coordinator).collect();
        return context.reply(&FindCoordinatorResponse::default().with_coordinators(coordinators));
    }
    let message = message.unwrap_or(if code.is_none() { "NONE" } else { "" });
    context.reply(
        &FindCoordinatorResponse::default()
            .with_error_code(code.code())
            .with_error_message((context.version >= 1).then(|| StrBytes::from_static_str(message)))
            .with_node_id(BrokerId(node_id))
            .with_host(StrBytes::from_string(host))
            .with_port(port),
    )
}
