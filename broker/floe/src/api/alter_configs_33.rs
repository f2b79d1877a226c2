//! AlterConfigs: v0-2.
//!
//! A topic's configs become those of the request and no others. Each resource succeeds or fails on
//! its own.

use super::config_resources::{self, Times};
use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::topic_configs::{self, ServerValues};
use floe_wire::messages::alter_configs_response::AlterConfigsResourceResponse;
use floe_wire::messages::{AlterConfigsRequest, AlterConfigsResponse};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const API: super::Api = api!(AlterConfigs, 0..=2, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: AlterConfigsRequest,
) -> Handled {
    let server = ServerValues::of(&broker.config);
    let named = request.resources.iter();
    let times =
        Times::of(named.map(|resource| (resource.resource_type, resource.resource_name.clone())));
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let (kind, name) = (resource.resource_type, resource.resource_name);
        let configs = resource
            .configs
            .into_iter()
            .map(|config| (config.name.to_string(), config.value.map(|value| value.to_string())));
        let configs: Vec<(String, Option<String>)> = configs.collect();
        let altered = match times.check(kind, &name) {
            Err(refused) => Err(refused),
            Ok(()) => {
                let replacement =
                    |_: &BTreeMap<String, String>| topic_configs::replacement(&configs, server);
                let (is_empty, validate_only) = (configs.is_empty(), request.validate_only);
                let resource = (kind, name.as_str());
                config_resources::alter(&broker, resource, is_empty, validate_only, replacement)
                    .await
            }
        };
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(kind)
            .with_resource_name(name);
        responses.push(match altered {
            Ok(()) => response.with_error_message(None),
            Err(refused) => {
                response.with_error_code(refused.code.code()).with_error_message(refused.text())
            }
        });
    }
    context.reply(&AlterConfigsResponse::default().with_responses(responses))
}
