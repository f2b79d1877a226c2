//! DescribeConfigs: v1-4.
//!
//! v1 sources and synonyms; v3 types and documentation. Keys null or empty mean all; unknown keys
//! are left out. Topics and this broker have configs; the broker's loggers and the defaults of all
//! brokers are empty.

use super::config_resources::{self, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::broker_configs;
use crate::described_config::DescribedConfig;
use crate::refused::{MALFORMED_REQUEST, Refused};
use crate::topic_configs::{self, ServerValues};
use floe_wire::ErrorCode;
use floe_wire::messages::describe_configs_request::DescribeConfigsResource;
use floe_wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use floe_wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeConfigs, 1..=4, handle);

/// Resources that one request is told of: an answer is hundreds of times as long as what asks for
/// it.
const RESOURCES_PER_REQUEST_MAX: usize = 10_000;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DescribeConfigsRequest,
) -> Handled {
    let mut results = Vec::with_capacity(request.resources.len());
    for (at, resource) in request.resources.into_iter().enumerate() {
        let described = if at < RESOURCES_PER_REQUEST_MAX {
            describe(&broker, &resource).await
        } else {
            let message = format!("a request describes {RESOURCES_PER_REQUEST_MAX} resources");
            Err(Refused::new(ErrorCode::InvalidRequest, message))
        };
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        results.push(match described {
            // Here Kafka's lack of words is an empty text.
            Err(refused) => result
                .with_error_code(refused.code.code())
                .with_error_message(Some(refused.text().unwrap_or_default())),
            Ok(configs) => {
                let asked = configs.into_iter().filter(|config| is_asked(&resource, config.name));
                let told = asked.map(|config| {
                    tell(config, request.include_synonyms, request.include_documentation)
                });
                result.with_configs(told.collect())
            }
        });
    }
    context.reply(&DescribeConfigsResponse::default().with_results(results))
}

fn is_asked(resource: &DescribeConfigsResource, name: &str) -> bool {
    let keys = resource.configuration_keys.as_deref().unwrap_or_default();
    keys.is_empty() || keys.iter().any(|key| key.as_str() == name)
}

async fn describe(
    broker: &Broker,
    resource: &DescribeConfigsResource,
) -> Result<Vec<DescribedConfig>, Refused> {
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        TOPIC => {
            let known = config_resources::topic(broker, name).await?;
            let server = ServerValues::of_topic(&broker.config, name);
            Ok(topic_configs::describe(&known.topic.configs, server))
        }
        BROKER if name.is_empty() => Ok(Vec::new()),
        BROKER => {
            config_resources::check_broker(broker, name, " or empty string,")?;
            Ok(broker_configs::describe(&broker.config, &broker.identity))
        }
        BROKER_LOGGER => config_resources::check_broker(broker, name, "").map(|()| Vec::new()),
        kind @ (CLIENT_METRICS | GROUP) => Err(config_resources::not_kept(kind)),
        _ => Err(Refused::new(ErrorCode::InvalidRequest, MALFORMED_REQUEST)),
    }
}

fn tell(
    config: DescribedConfig,
    with_synonyms: bool,
    with_documentation: bool,
) -> DescribeConfigsResourceResult {
    let synonyms = config.synonyms.into_iter().filter(|_| with_synonyms).map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(StrBytes::from_static_str(synonym.name))
            .with_value(Some(StrBytes::from_string(synonym.value)))
            .with_source(synonym.source as i8)
    });
    let documentation = with_documentation.then(|| StrBytes::from_string(config.documentation));
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(config.name))
        .with_value(config.value.map(StrBytes::from_string))
        .with_read_only(config.is_read_only)
        .with_config_source(config.source as i8)
        .with_synonyms(synonyms.collect())
        .with_config_type(config.kind as i8)
        .with_documentation(documentation)
}
