//! AlterConfigs: v0-2.
//!
//! A topic's configs become those of the request and no others. Each resource succeeds or fails on
//! its own.

use super::config_resources::{self, Altered, ToAlter};
use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::topic_configs::{self, ServerValues};
use floe_wire::messages::alter_configs_request::AlterableConfig;
use floe_wire::messages::alter_configs_response::AlterConfigsResourceResponse;
use floe_wire::messages::{AlterConfigsRequest, AlterConfigsResponse};
use std::sync::Arc;

pub(super) const API: super::Api = api!(AlterConfigs, 0..=2, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: AlterConfigsRequest,
) -> Handled {
    let server = ServerValues::of(&broker.config);
    let resources = request.resources.into_iter().map(|resource| ToAlter {
        kind: resource.resource_type,
        name: resource.resource_name,
        changes: resource.configs.into_iter().map(pair).collect(),
    });
    let altered = config_resources::alter_each(
        &broker,
        resources.collect(),
        request.validate_only,
        |_, configs| topic_configs::replacement(configs, server),
    );
    let responses = altered.await.into_iter().map(tell).collect();
    context.reply(&AlterConfigsResponse::default().with_responses(responses))
}

fn pair(config: AlterableConfig) -> (String, Option<String>) {
    (config.name.to_string(), config.value.map(|value| value.to_string()))
}

fn tell(altered: Altered) -> AlterConfigsResourceResponse {
    AlterConfigsResourceResponse::default()
        .with_resource_type(altered.kind)
        .with_resource_name(altered.name)
        .with_error_code(altered.code.code())
        .with_error_message(altered.message)
}
