//! ListConfigResources: v0-1.
//!
//! v0 asks for subscriptions to clients' metrics, of which there are none; v1 for resources of any
//! kinds, none named meaning all.

use super::config_resources::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use floe_wire::ErrorCode;
use floe_wire::messages::list_config_resources_response::ConfigResource;
use floe_wire::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ListConfigResources, 0..=1, handle);

/// The first version that asks for other kinds than clients' metrics.
const KINDS_SINCE: i16 = 1;
const KINDS: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ListConfigResourcesRequest,
) -> Handled {
    let response = ListConfigResourcesResponse::default();
    if context.version < KINDS_SINCE {
        return context.reply(&response);
    }
    let asked = &request.resource_types;
    if asked.iter().any(|kind| !KINDS.contains(kind)) {
        return context.reply(&response.with_error_code(ErrorCode::UnsupportedVersion.code()));
    }
    let is_asked = |kind: i8| asked.is_empty() || asked.contains(&kind);
    let resource = |kind: i8, name: String| {
        ConfigResource::default()
            .with_resource_type(kind)
            .with_resource_name(StrBytes::from_string(name))
    };
    let mut resources = Vec::new();
    if is_asked(TOPIC) {
        if let Err(error) = broker.topics.refresh().await {
            tracing::warn!(%error, "topics are as last read");
        }
        let topics = broker.topics.all();
        resources.extend(topics.iter().map(|topic| resource(TOPIC, topic.name.to_string())));
    }
    for kind in [BROKER, BROKER_LOGGER] {
        if is_asked(kind) {
            resources.push(resource(kind, broker.identity.node_id.to_string()));
        }
    }
    context.reply(&response.with_config_resources(resources))
}
