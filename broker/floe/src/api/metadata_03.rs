//! Metadata: v0-13.
//!
//! v1 null asks for all topics, empty for none (v0: empty for all); v4 says whether missing topics
//! are made; v10 topic ids in answers; v12 asks by id. Auto-creation answers when the topic is
//! there. The leader epoch is 0 for ever.

use super::{Handled, RequestContext, api};
use crate::authorized_operations::{
    CLUSTER_OPERATIONS, OPERATIONS_UNKNOWN, TOPIC_OPERATIONS, if_asked,
};
use crate::broker::Broker;
use crate::error_codes::error_code;
use crate::topic_names;
use crate::topics::KnownTopic;
use floe_log::LEADER_EPOCH;
use floe_metadata::topics::TopicCreation;
use floe_wire::ErrorCode;
use floe_wire::messages::metadata_request::MetadataRequestTopic;
use floe_wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use floe_wire::messages::{BrokerId, MetadataRequest, MetadataResponse, StrBytes, TopicName};
use kfs::TopicId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

pub(super) const API: super::Api = api!(Metadata, 0..=13, handle);

/// The first versions with a flag for auto-creation, with topic ids in requests, and where asking
/// by id works.
const AUTO_CREATE_FLAG_SINCE: i16 = 4;
const TOPIC_IDS_SINCE: i16 = 10;
const ASK_BY_ID_SINCE: i16 = 12;

async fn handle(broker: Arc<Broker>, context: RequestContext, request: MetadataRequest) -> Handled {
    let wants_all = match &request.topics {
        None => true,
        Some(topics) => context.version == 0 && topics.is_empty(),
    };
    let operations = if_asked(request.include_topic_authorized_operations, TOPIC_OPERATIONS);
    let topics = if wants_all {
        if let Err(error) = broker.topics.refresh().await {
            tracing::warn!(%error, "topics are as last read");
        }
        broker.topics.all().iter().map(|topic| describe(&broker, topic, operations)).collect()
    } else {
        let asked = request.topics.unwrap_or_default();
        let has_ids = asked.iter().any(|topic| !topic.topic_id.is_nil());
        if has_ids && (TOPIC_IDS_SINCE..ASK_BY_ID_SINCE).contains(&context.version) {
            return context.reply(&refuse_ids(asked));
        }
        let may_create =
            context.version < AUTO_CREATE_FLAG_SINCE || request.allow_auto_topic_creation;
        let mut topics = Vec::with_capacity(asked.len());
        // A topic that is named twice is answered once.
        let mut seen: BTreeSet<(Option<TopicName>, Uuid)> = BTreeSet::new();
        for topic in asked {
            if !seen.insert((topic.name.clone(), topic.topic_id)) {
                continue;
            }
            // If any topic has an id, names in the same request are left out, as in Kafka.
            if has_ids && topic.topic_id.is_nil() {
                continue;
            }
            topics.push(one(&broker, topic, may_create, operations).await);
        }
        topics
    };
    // Only versions 8 to 10 have the field in their requests.
    let is_asked = request.include_cluster_authorized_operations;
    let cluster_operations = if_asked(is_asked, CLUSTER_OPERATIONS);
    let cluster = with_cluster(&broker, &context);
    context
        .reply(&cluster.with_topics(topics).with_cluster_authorized_operations(cluster_operations))
}

fn with_cluster(broker: &Broker, context: &RequestContext) -> MetadataResponse {
    let identity = &broker.identity;
    let rack = identity.rack.clone().filter(|_| context.version >= 1);
    let this = MetadataResponseBroker::default()
        .with_node_id(BrokerId(identity.node_id))
        .with_host(StrBytes::from_string(identity.host.clone()))
        .with_port(identity.port.into())
        .with_rack(rack.map(StrBytes::from_string));
    MetadataResponse::default()
        .with_brokers(vec![this])
        .with_cluster_id(Some(StrBytes::from_string(identity.cluster.to_string())))
        .with_controller_id(BrokerId(identity.node_id))
}

/// Versions 10 and 11 have a field for ids that they do not support: Kafka answers without any
/// broker.
fn refuse_ids(asked: Vec<MetadataRequestTopic>) -> MetadataResponse {
    let topics = asked.into_iter().map(|topic| {
        let name = Some(topic.name.unwrap_or_default());
        failed(name, topic.topic_id, ErrorCode::InvalidRequest)
    });
    MetadataResponse::default().with_controller_id(BrokerId(-1)).with_topics(topics.collect())
}

async fn one(
    broker: &Broker,
    asked: MetadataRequestTopic,
    may_create: bool,
    operations: i32,
) -> MetadataResponseTopic {
    let found = match &asked.name {
        Some(name) if asked.topic_id.is_nil() => by_name(broker, name, may_create).await,
        _ => by_id(broker, TopicId(asked.topic_id)).await,
    };
    match found {
        Ok(topic) => describe(broker, &topic, operations),
        // Whoever asked by id is told no name; without either there is no topic to be null.
        Err(code) if asked.topic_id.is_nil() => {
            failed(Some(asked.name.unwrap_or_default()), asked.topic_id, code)
        }
        Err(code) => failed(None, asked.topic_id, code),
    }
}

async fn by_id(broker: &Broker, id: TopicId) -> Result<Arc<KnownTopic>, ErrorCode> {
    if id.0.is_nil() {
        return Err(ErrorCode::InvalidRequest);
    }
    broker
        .topic_by_id(id)
        .await
        .map_err(|error| error_code(&error))?
        .ok_or(ErrorCode::UnknownTopicId)
}

async fn by_name(
    broker: &Broker,
    name: &str,
    may_create: bool,
) -> Result<Arc<KnownTopic>, ErrorCode> {
    let failed = |error: floe_env::Error| {
        tracing::warn!(topic = name, %error, "metadata of a topic failed");
        match error.kind() {
            floe_env::ErrorKind::Limit => ErrorCode::PolicyViolation,
            _ => error_code(&error),
        }
    };
    if let Some(topic) = broker.topic_by_name(name).await.map_err(failed)? {
        return Ok(topic);
    }
    if !topic_names::is_valid(name) {
        return Err(ErrorCode::InvalidTopicException);
    }
    if topic_names::is_internal(name) {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    let kafka = &broker.config.kafka;
    if !may_create || !kafka.auto_create_topics {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    if broker.collides(name) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let (partitions, factor) = (kafka.num_partitions, kafka.default_replication_factor);
    let made = broker.metadata.create_topic(name, partitions, factor, BTreeMap::new()).await;
    if let TopicCreation::Created(topic) = made.map_err(failed)? {
        tracing::info!(topic = name, id = %topic.id, partitions, "topic created on first use");
    }
    let topic = broker.topic_by_name(name).await.map_err(failed)?;
    topic.ok_or(ErrorCode::UnknownTopicOrPartition)
}

fn describe(broker: &Broker, topic: &KnownTopic, operations: i32) -> MetadataResponseTopic {
    let leader = BrokerId(broker.identity.node_id);
    let partition = |index: i32| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(leader)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![leader])
            .with_isr_nodes(vec![leader])
    };
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(topic.topic.name.clone()))))
        .with_topic_id(topic.topic.id.0)
        .with_is_internal(topic_names::is_internal(&topic.name))
        .with_partitions((0..topic.topic.partition_count).map(partition).collect())
        .with_topic_authorized_operations(operations)
}

fn failed(name: Option<TopicName>, id: Uuid, code: ErrorCode) -> MetadataResponseTopic {
    let is_internal = name.as_ref().is_some_and(|name| topic_names::is_internal(name));
    MetadataResponseTopic::default()
        .with_name(name)
        .with_is_internal(is_internal)
        .with_topic_id(id)
        .with_error_code(code.code())
        .with_topic_authorized_operations(OPERATIONS_UNKNOWN)
}
