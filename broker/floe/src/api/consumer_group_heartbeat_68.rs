//! ConsumerGroupHeartbeat: v0-1.
//!
//! v1 a regular expression to subscribe by, and member ids that the client makes. A heartbeat that
//! changes nothing stores nothing.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::group_code;
use floe_coordinator::consumer::{self, Heartbeat, Partitions, Refusal};
use floe_wire::messages::consumer_group_heartbeat_request;
use floe_wire::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use floe_wire::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, StrBytes,
};
use std::sync::Arc;

pub(super) const API: super::Api = api!(ConsumerGroupHeartbeat, 0..=1, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> Handled {
    let text = |text: Option<StrBytes>| text.map(|text| text.to_string());
    let names = request.subscribed_topic_names;
    let heartbeat = consumer::HeartbeatRequest {
        version: context.version,
        member_id: request.member_id.to_string(),
        member_epoch: request.member_epoch,
        instance_id: text(request.instance_id),
        rack_id: text(request.rack_id),
        client_id: context.client_id.as_ref().to_owned(),
        // Kafka shows addresses as Java prints them.
        client_host: format!("/{}", context.client_host),
        new_id: broker.env.uuid(),
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        topic_names: names.map(|names| names.iter().map(|name| name.to_string()).collect()),
        topic_regex: text(request.subscribed_topic_regex),
        server_assignor: text(request.server_assignor),
        owned: request.topic_partitions.map(owned),
    };
    let response = match broker.groups.consumer_heartbeat(&request.group_id, heartbeat).await {
        Ok(heartbeat) => accepted(heartbeat),
        Err(refusal) => refused(refusal),
    };
    context.reply(&response)
}

fn owned(topics: Vec<consumer_group_heartbeat_request::TopicPartitions>) -> Partitions {
    let mut owned = Partitions::new();
    for topic in topics.into_iter().filter(|topic| !topic.partitions.is_empty()) {
        owned.entry(topic.topic_id).or_default().extend(topic.partitions);
    }
    owned
}

fn accepted(heartbeat: Heartbeat) -> ConsumerGroupHeartbeatResponse {
    let assignment = heartbeat.assignment.map(|assigned| {
        let topics = assigned.into_iter().map(|(id, indexes)| {
            let indexes = indexes.into_iter().collect();
            TopicPartitions::default().with_topic_id(id).with_partitions(indexes)
        });
        Assignment::default().with_topic_partitions(topics.collect())
    });
    ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(StrBytes::from_string(heartbeat.member_id)))
        .with_member_epoch(heartbeat.member_epoch)
        .with_heartbeat_interval_ms(heartbeat.heartbeat_interval_ms)
        .with_assignment(assignment)
}

fn refused(refusal: Refusal) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse::default()
        .with_error_code(group_code(refusal.error).code())
        .with_error_message(Some(StrBytes::from_string(refusal.message)))
}
