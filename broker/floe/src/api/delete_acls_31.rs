//! DeleteAcls: v1-3. There is no authorizer: every filter is refused.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use floe_wire::ErrorCode;
use floe_wire::messages::delete_acls_response::DeleteAclsFilterResult;
use floe_wire::messages::{DeleteAclsRequest, DeleteAclsResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(DeleteAcls, 1..=3, handle);

async fn handle(
    _broker: Arc<Broker>,
    context: RequestContext,
    request: DeleteAclsRequest,
) -> Handled {
    let refused = DeleteAclsFilterResult::default()
        .with_error_code(ErrorCode::SecurityDisabled.code())
        .with_error_message(Some(StrBytes::from_static_str("No Authorizer is configured.")));
    let results = vec![refused; request.filters.len()];
    context.reply(&DeleteAclsResponse::default().with_filter_results(results))
}
