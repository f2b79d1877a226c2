//! DeleteGroups: v0-3. A group without members goes with its offsets; one that is named twice is
//! answered once. v3 has a message for each group, which is null.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::group_answer_code;
use floe_wire::messages::delete_groups_response::DeletableGroupResult;
use floe_wire::messages::{self, DeleteGroupsRequest, DeleteGroupsResponse, GroupId};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) const API: super::Api = api!(DeleteGroups, 0..=3, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DeleteGroupsRequest,
) -> Handled {
    let groups: BTreeSet<GroupId> = request.groups_names.into_iter().collect();
    let mut results = Vec::with_capacity(groups.len());
    for group_id in groups {
        let code = group_answer_code(broker.groups.delete(&group_id).await).code();
        let result = DeletableGroupResult::default();
        results.push(result.with_group_id(group_id).with_error_code(code));
    }
    let response = DeleteGroupsResponse::default().with_results(results);
    context.reply_by(&response, messages::encode_delete_groups)
}
