//! ListGroups: v0-5.
//!
//! v4 states and a filter for them; v5 types and a filter for them.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::groups::ListFilter;
use floe_wire::ErrorCode;
use floe_wire::messages::list_groups_response::ListedGroup;
use floe_wire::messages::{GroupId, ListGroupsRequest, ListGroupsResponse, StrBytes};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ListGroups, 0..=5, handle);

/// The first version that tells states.
const STATES_SINCE: i16 = 4;
/// The first version that tells types.
const TYPES_SINCE: i16 = 5;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ListGroupsRequest,
) -> Handled {
    let names = |filter: Vec<StrBytes>| filter.iter().map(ToString::to_string).collect();
    let filter =
        ListFilter { states: names(request.states_filter), types: names(request.types_filter) };
    let listed = match broker.groups.list(filter).await {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(%error, "consumer groups could not be listed");
            let code = ErrorCode::CoordinatorNotAvailable.code();
            return context.reply(&ListGroupsResponse::default().with_error_code(code));
        }
    };
    let groups = listed.into_iter().map(|group| {
        let mut line = ListedGroup::default()
            .with_group_id(GroupId(StrBytes::from_string(group.group_id)))
            .with_protocol_type(StrBytes::from_string(group.protocol_type));
        if context.version >= STATES_SINCE {
            line.group_state = StrBytes::from_static_str(group.state);
        }
        if context.version >= TYPES_SINCE {
            line.group_type = StrBytes::from_static_str(group.group_type);
        }
        line
    });
    context.reply(&ListGroupsResponse::default().with_groups(groups.collect()))
}
