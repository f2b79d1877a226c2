//! IncrementalAlterConfigs: v0-1.
//!
//! Sets, deletes, and for lists appends and subtracts. All changes of a resource are made or none;
//! each resource succeeds or fails on its own.

use super::config_resources::{self, Altered, ToAlter};
use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::topic_configs::{self, Operation, RequestedChange, ServerValues};
use floe_wire::messages::incremental_alter_configs_request::AlterableConfig;
use floe_wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use floe_wire::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use std::sync::Arc;

pub(super) const API: super::Api = api!(IncrementalAlterConfigs, 0..=1, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> Handled {
    let server = ServerValues::of(&broker.config);
    let resources = request.resources.into_iter().map(|resource| ToAlter {
        kind: resource.resource_type,
        name: resource.resource_name,
        changes: resource.configs.iter().map(change).collect(),
    });
    let altered = config_resources::alter_each(
        &broker,
        resources.collect(),
        request.validate_only,
        |current, changes| topic_configs::incremental(current, changes, server),
    );
    let responses = altered.await.into_iter().map(tell).collect();
    context.reply(&IncrementalAlterConfigsResponse::default().with_responses(responses))
}

fn change(config: &AlterableConfig) -> RequestedChange {
    RequestedChange {
        name: config.name.to_string(),
        operation: Operation::of(config.config_operation),
        value: config.value.as_ref().map(ToString::to_string),
    }
}

fn tell(altered: Altered) -> AlterConfigsResourceResponse {
    AlterConfigsResourceResponse::default()
        .with_resource_type(altered.kind)
        .with_resource_name(altered.name)
        .with_error_code(altered.code.code())
        .with_error_message(altered.message)
}
