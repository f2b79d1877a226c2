//! ApiVersions: v0-5, answered from the table of APIs.
//!
//! The response header is version 0 at every version. A request of an unknown version is answered
//! before it gets here (KIP-511). v3 names the client's software; v4 shows features whose lowest
//! level is 0; v5 says which broker is meant, and a client that reached another is told to look its
//! addresses up again (KIP-1242).

use super::{Handled, RequestContext, api};
use crate::broker::{Broker, Identity};
use floe_wire::ErrorCode;
use floe_wire::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use floe_wire::messages::{
    self, ApiVersionsRequest, ApiVersionsResponse, IntendedBroker, StrBytes,
};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ApiVersions, 0..=5, handle);

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

/// Kafka's levels as of 4.4 for what is built. By `transaction.version` 2 clients know that writing
/// adds a partition to a transaction, and that every end raises the epoch (KIP-890); by
/// `group.version` 1 that there are consumer groups of the newer protocol (KIP-848).
const FEATURES: &[Feature] = &[
    Feature { name: "group.version", min: 0, max: 1, finalized: 1 },
    Feature { name: "metadata.version", min: 7, max: 33, finalized: 33 },
    Feature { name: "transaction.version", min: 0, max: 2, finalized: 2 },
];

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ApiVersionsRequest,
) -> Handled {
    let is_named = context.version < SOFTWARE_SINCE
        || (is_software_text(&request.client_software_name)
            && is_software_text(&request.client_software_version));
    let code = if is_named {
        check_intended(&broker.identity, &context.beyond.intended)
    } else {
        ErrorCode::InvalidRequest
    };
    let response = if code.is_none() {
        ApiVersionsResponse::default()
            .with_api_keys(broker.registry.api_versions())
            .with_supported_features(FEATURES.iter().map(supported).collect())
            .with_finalized_features_epoch(0)
            .with_finalized_features(
                FEATURES.iter().filter(|feature| feature.finalized > 0).map(finalized).collect(),
            )
    } else {
        ApiVersionsResponse::default().with_error_code(code.code())
    };
    context.reply_by(&response, messages::encode_api_versions)
}

/// Whether this is the broker that the client means. It names the cluster and the broker, or
/// neither.
fn check_intended(own: &Identity, intended: &IntendedBroker) -> ErrorCode {
    match (&intended.cluster_id, intended.node_id) {
        (None, None) => ErrorCode::None,
        (Some(cluster), Some(node)) => {
            let is_own = **cluster == own.cluster.to_string() && node == own.node_id;
            if is_own { ErrorCode::None } else { ErrorCode::RebootstrapRequired }
        }
        _ => ErrorCode::InvalidRequest,
    }
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
