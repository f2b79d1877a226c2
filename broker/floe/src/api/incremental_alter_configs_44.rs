//! IncrementalAlterConfigs: v0-1.
//!
//! Sets, deletes, and for lists appends and subtracts. All changes of a resource are made or none;
//! each resource succeeds or fails on its own.

use super::config_resources::{self, Times};
use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::topic_configs::{self, Operation, RequestedChange, ServerValues};
use floe_wire::messages::incremental_alter_configs_request::AlterableConfig;
use floe_wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use floe_wire::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const API: super::Api = api!(IncrementalAlterConfigs, 0..=1, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> Handled {
    let server = ServerValues::of(&broker.config);
    let named = request.resources.iter();
    let times =
        Times::of(named.map(|resource| (resource.resource_type, resource.resource_name.clone())));
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let (kind, name) = (resource.resource_type, resource.resource_name);
        let changes: Vec<RequestedChange> = resource.configs.iter().map(change).collect();
        let altered = match times.check(kind, &name) {
            Err(refused) => Err(refused),
            Ok(()) => {
                let changed = |current: &BTreeMap<String, String>| {
                    topic_configs::incremental(current, &changes, server)
                };
                let (is_empty, validate_only) = (changes.is_empty(), request.validate_only);
                let resource = (kind, name.as_str());
                config_resources::alter(&broker, resource, is_empty, validate_only, changed).await
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
    context.reply(&IncrementalAlterConfigsResponse::default().with_responses(responses))
}

fn change(config: &AlterableConfig) -> RequestedChange {
    RequestedChange {
        name: config.name.to_string(),
        operation: Operation::of(config.config_operation),
        value: config.value.as_ref().map(ToString::to_string),
    }
}
