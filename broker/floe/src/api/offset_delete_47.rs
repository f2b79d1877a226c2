//! OffsetDelete: v0. Offsets of topics to which the group is subscribed stay.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::{group_answer_code, group_code};
use floe_coordinator::GroupError;
use floe_wire::ErrorCode;
use floe_wire::messages::offset_delete_request::OffsetDeleteRequestTopic;
use floe_wire::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use floe_wire::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use kfs::TopicPartition;
use std::sync::Arc;

pub(super) const API: super::Api = api!(OffsetDelete, 0..=0, handle);

/// A topic of the request with those of its partitions that exist.
struct Asked {
    topic: OffsetDeleteRequestTopic,
    existing: Vec<TopicPartition>,
}

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: OffsetDeleteRequest,
) -> Handled {
    let asked: Vec<Asked> = request.topics.into_iter().map(|topic| find(&broker, topic)).collect();
    let existing = asked.iter().filter(|asked| !asked.existing.is_empty());
    let doomed: Vec<(String, Vec<TopicPartition>)> =
        existing.map(|asked| (asked.topic.name.to_string(), asked.existing.clone())).collect();
    let deleted = match doomed.is_empty() {
        // As in Kafka, the group is not looked at.
        true => Ok(Vec::new()),
        false => broker.groups.delete_offsets(&request.group_id, doomed).await,
    };
    let response = OffsetDeleteResponse::default();
    let mut results = match deleted {
        Ok(results) => results.into_iter(),
        Err(error) => return context.reply(&response.with_error_code(group_code(error).code())),
    };
    let topics = asked.into_iter().map(|asked| {
        let result = match asked.existing.is_empty() {
            true => Ok(()),
            false => results.next().unwrap_or(Err(GroupError::NotCoordinator)),
        };
        answer(asked, result)
    });
    context.reply(&response.with_topics(topics.collect()))
}

fn find(broker: &Broker, topic: OffsetDeleteRequestTopic) -> Asked {
    let known = broker.topics.by_name(&topic.name);
    let partitions = topic.partitions.iter();
    let existing = partitions.filter_map(|asked| known.as_ref()?.partition(asked.partition_index));
    Asked { existing: existing.collect(), topic }
}

fn answer(asked: Asked, result: Result<(), GroupError>) -> OffsetDeleteResponseTopic {
    let partitions = asked.topic.partitions.iter().map(|partition| {
        let index = partition.partition_index;
        let exists = asked.existing.iter().any(|existing| existing.partition.0 == index);
        let code = match exists {
            true => group_answer_code(result),
            false => ErrorCode::UnknownTopicOrPartition,
        };
        let response = OffsetDeleteResponsePartition::default();
        response.with_partition_index(index).with_error_code(code.code())
    });
    let partitions = partitions.collect();
    OffsetDeleteResponseTopic::default().with_name(asked.topic.name).with_partitions(partitions)
}
