//! DescribeCluster: v0-2.
//!
//! v1 asks for brokers or controllers, of which a broker answers the first only; v2 for fenced
//! brokers, of which there are none. Every broker can do what a controller does, and names itself.

use super::{Handled, RequestContext, api};
use crate::authorized_operations::{CLUSTER_OPERATIONS, OPERATIONS_UNKNOWN, if_asked};
use crate::broker::Broker;
use floe_wire::ErrorCode;
use floe_wire::messages::describe_cluster_response::DescribeClusterBroker;
use floe_wire::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeCluster, 0..=2, handle);

const ENDPOINT_BROKERS: i8 = 1;
const ENDPOINT_CONTROLLERS: i8 = 2;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DescribeClusterRequest,
) -> Handled {
    let identity = &broker.identity;
    let response = DescribeClusterResponse::default()
        .with_cluster_id(StrBytes::from_string(identity.cluster.to_string()))
        .with_cluster_authorized_operations(OPERATIONS_UNKNOWN);
    if let Err((code, message)) = check_endpoint(request.endpoint_type) {
        let message = Some(StrBytes::from_string(message));
        let response = response.with_controller_id(BrokerId(-1));
        return context.reply(&response.with_error_code(code.code()).with_error_message(message));
    }
    let this = DescribeClusterBroker::default()
        .with_broker_id(BrokerId(identity.node_id))
        .with_host(StrBytes::from_string(identity.host.clone()))
        .with_port(identity.port.into())
        .with_rack(identity.rack.clone().map(StrBytes::from_string));
    let is_asked = request.include_cluster_authorized_operations;
    let response = response
        .with_controller_id(BrokerId(identity.node_id))
        .with_brokers(vec![this])
        .with_cluster_authorized_operations(if_asked(is_asked, CLUSTER_OPERATIONS));
    context.reply(&response)
}

fn check_endpoint(endpoint: i8) -> Result<(), (ErrorCode, String)> {
    match endpoint {
        ENDPOINT_BROKERS => Ok(()),
        ENDPOINT_CONTROLLERS => Err((
            ErrorCode::MismatchedEndpointType,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of \
             type CONTROLLER"
                .to_owned(),
        )),
        _ => Err((
            ErrorCode::UnsupportedEndpointType,
            format!("Unsupported endpoint type {endpoint}"),
        )),
    }
}
