//! AlterPartitionReassignments: v0-1.
//!
//! Nothing is replicated between brokers: replicas that exist are where the partition is already,
//! and there never is a reassignment to cancel.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::refused::Refused;
use crate::replica_assignment;
use floe_wire::ErrorCode;
use floe_wire::messages::alter_partition_reassignments_request::ReassignablePartition;
use floe_wire::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use floe_wire::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};
use std::sync::Arc;

pub(super) const API: super::Api = api!(AlterPartitionReassignments, 0..=1, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> Handled {
    let mut responses = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let partition = |asked: &ReassignablePartition| {
            let response = ReassignablePartitionResponse::default()
                .with_partition_index(asked.partition_index);
            match reassign(&broker, &topic.name, asked) {
                Ok(()) => response.with_error_message(None),
                Err(refused) => {
                    response.with_error_code(refused.code.code()).with_error_message(refused.text())
                }
            }
        };
        let partitions = topic.partitions.iter().map(partition).collect();
        let response = ReassignableTopicResponse::default().with_partitions(partitions);
        responses.push(response.with_name(topic.name));
    }
    let response = AlterPartitionReassignmentsResponse::default()
        .with_error_message(None)
        .with_responses(responses);
    context.reply(&response)
}

fn reassign(broker: &Broker, topic: &str, asked: &ReassignablePartition) -> Result<(), Refused> {
    let missing = |message: String| Refused::new(ErrorCode::UnknownTopicOrPartition, message);
    let known = broker
        .topics
        .by_name(topic)
        .ok_or_else(|| missing(format!("Unable to find a topic named {topic}.")))?;
    let index = asked.partition_index;
    if known.partition(index).is_none() {
        return Err(missing(format!("Unable to find partition {topic}:{index}.")));
    }
    let Some(replicas) = &asked.replicas else {
        return Err(Refused::wordless(ErrorCode::NoReassignmentInProgress));
    };
    replica_assignment::check(replicas, broker.identity.node_id)
        .map_err(|message| Refused::new(ErrorCode::InvalidReplicaAssignment, message))
}
