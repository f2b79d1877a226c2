//! ElectLeaders: v0-2.
//!
//! Every broker serves every partition, so that no election is ever needed. v1 says which kind of
//! leader; null asks for all partitions, of which nothing is to be told but the topics' names.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use floe_wire::ErrorCode;
use floe_wire::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use floe_wire::messages::{ElectLeadersRequest, ElectLeadersResponse, StrBytes, TopicName};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ElectLeaders, 0..=2, handle);

/// The first version with an error for the whole answer.
const ERROR_SINCE: i16 = 1;
/// Preferred and unclean leaders.
const ELECTION_TYPES: [i8; 2] = [0, 1];

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ElectLeadersRequest,
) -> Handled {
    let is_known_type = ELECTION_TYPES.contains(&request.election_type);
    let mut results = Vec::new();
    if request.topic_partitions.is_none() {
        results.extend(broker.topics.all().iter().map(|topic| {
            let name = TopicName(StrBytes::from_string(topic.topic.name.clone()));
            ReplicaElectionResult::default().with_topic(name)
        }));
    }
    for topic in request.topic_partitions.unwrap_or_default() {
        let partition = |index: i32| {
            let (code, message) = if is_known_type {
                elect(&broker, &topic.topic, index)
            } else {
                let message = format!("Unknown election type {}", request.election_type);
                (ErrorCode::InvalidRequest, message)
            };
            PartitionResult::default()
                .with_partition_id(index)
                .with_error_code(code.code())
                .with_error_message(Some(StrBytes::from_string(message)))
        };
        let partitions = topic.partitions.iter().copied().map(partition).collect();
        let result = ReplicaElectionResult::default().with_partition_result(partitions);
        results.push(result.with_topic(topic.topic));
    }
    let mut response = ElectLeadersResponse::default().with_replica_election_results(results);
    if !is_known_type && context.version >= ERROR_SINCE {
        response.error_code = ErrorCode::InvalidRequest.code();
    }
    context.reply(&response)
}

fn elect(broker: &Broker, topic: &TopicName, index: i32) -> (ErrorCode, String) {
    let missing = |what: String| (ErrorCode::UnknownTopicOrPartition, format!("No such {what}"));
    match broker.topics.by_name(topic) {
        None => missing(format!("topic as {}", topic.as_str())),
        Some(known) if known.partition(index).is_none() => {
            missing(format!("partition as {}-{index}", topic.as_str()))
        }
        Some(_) => {
            let message = "Leader election not needed for topic partition.";
            (ErrorCode::ElectionNotNeeded, message.to_owned())
        }
    }
}
