//! CreateAcls: v1-3. There is no authorizer: every item is refused.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use floe_wire::ErrorCode;
use floe_wire::messages::create_acls_response::AclCreationResult;
use floe_wire::messages::{CreateAclsRequest, CreateAclsResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(CreateAcls, 1..=3, handle);

async fn handle(
    _broker: Arc<Broker>,
    context: RequestContext,
    request: CreateAclsRequest,
) -> Handled {
    let refused = AclCreationResult::default()
        .with_error_code(ErrorCode::SecurityDisabled.code())
        .with_error_message(Some(StrBytes::from_static_str("No Authorizer is configured.")));
    let results = vec![refused; request.creations.len()];
    context.reply(&CreateAclsResponse::default().with_results(results))
}
