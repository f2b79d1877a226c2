//! ListPartitionReassignments: v0. There never is one.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use floe_wire::messages::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ListPartitionReassignments, 0..=0, handle);

async fn handle(
    _broker: Arc<Broker>,
    context: RequestContext,
    _request: ListPartitionReassignmentsRequest,
) -> Handled {
    context.reply(&ListPartitionReassignmentsResponse::default().with_error_message(None))
}
