//! DescribeAcls: v1-3. There is no authorizer, and so there are no access control lists; tools know
//! the error.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use floe_wire::ErrorCode;
use floe_wire::messages::{DescribeAclsRequest, DescribeAclsResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeAcls, 1..=3, handle);

async fn handle(
    _broker: Arc<Broker>,
    context: RequestContext,
    _request: DescribeAclsRequest,
) -> Handled {
    let message = StrBytes::from_static_str("No Authorizer is configured on the broker");
    let response = DescribeAclsResponse::default()
        .with_error_code(ErrorCode::SecurityDisabled.code())
        .with_error_message(Some(message));
    context.reply(&response)
}
