//! ApiVersions: v0-4, answered from the table of APIs.
//!
//! The response header is version 0 at every version. A request of an unknown version is answered
//! before it gets here (KIP-511). v3 names the client's software; v4 shows features whose lowest
//! level is 0.

use super::{Handled, Reply, RequestContext, api};
use crate::broker::Broker;
use floe_wire::ErrorCode;
use floe_wire::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use floe_wire::messages::{self, ApiVersionsRequest, ApiVersionsResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ApiVersions, 0..=4, handle);

/// The first version that names the client's software.
const SOFTWARE_SINCE: i16 = 3;

/// A feature with the lowest and highest level that Floe has, and the level that is in force (0:
/// none).
struct Feature {
    name: &'static str,
    min: i16,
    max: i16,
    finalized: i16,
}

/// Kafka's levels as of 4.4 for what is built. `transaction.version` stays out until there are
/// transactions.
const FEATURES: &[Feature] =
    &[Feature { name: "metadata.version", min: 7, max: 33, finalized: 33 }];

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ApiVersionsRequest,
) -> Handled {
    let is_valid = context.version < SOFTWARE_SINCE
        || (is_software_text(&request.client_software_name)
            && is_software_text(&request.client_software_version));
    let response = if is_valid {
        ApiVersionsResponse::default()
            .with_api_keys(broker.registry.api_versions())
            .with_supported_features(FEATURES.iter().map(supported).collect())
            .with_finalized_features_epoch(0)
            .with_finalized_features(
                FEATURES.iter().filter(|feature| feature.finalized > 0).map(finalized).collect(),
            )
    } else {
        ApiVersionsResponse::default().with_error_code(ErrorCode::InvalidRequest.code())
    };
    messages::encode_api_versions(context.version, context.correlation_id, &response)
        .map(Reply::Ready)
}

fn supported(feature: &Feature) -> SupportedFeatureKey {
    SupportedFeatureKey::default()
        .with_name(StrBytes::from_static_str(feature.name))
        .with_min_version(feature.min)
        .with_max_version(feature.max)
}

fn finalized(feature: &Feature) -> FinalizedFeatureKey {
    FinalizedFeatureKey::default()
        .with_name(StrBytes::from_static_str(feature.name))
        .with_min_version_level(feature.finalized)
        .with_max_version_level(feature.finalized)
}

/// Letters and digits, with dots and dashes between them.
fn is_software_text(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_outer(bytes.first()) && is_outer(bytes.last()) && bytes.iter().copied().all(is_inner)
}
