//! CreateTopics: v2-7.
//!
//! v4 defaults of -1 for partitions and replication factor; v5 the topic's configs in the answer;
//! v7 its id. The topic is visible when the answer comes.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::described_config::DescribedConfig;
use crate::refused::Refused;
use crate::topic_configs::{self, ServerValues};
use crate::{replica_assignment, topic_names};
use floe_metadata::topics::TopicCreation;
use floe_wire::ErrorCode;
use floe_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use floe_wire::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use floe_wire::messages::{CreateTopicsRequest, CreateTopicsResponse, StrBytes, TopicName};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

pub(super) const API: super::Api = api!(CreateTopics, 2..=7, handle);

/// Partitions that one request may make, as in Kafka.
const PARTITIONS_PER_REQUEST_MAX: usize = 10_000;
/// The one name that Kafka keeps for itself.
const CLUSTER_METADATA: &str = "__cluster_metadata";

/// A topic that was made, or would be.
struct Made {
    id: Uuid,
    partitions: i32,
    factor: i16,
    configs: Vec<DescribedConfig>,
}

/// The topics before the request: names by what they collide on. Two colliding names in one request
/// are both made.
type Taken = BTreeMap<String, Arc<str>>;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: CreateTopicsRequest,
) -> Handled {
    let mut times: BTreeMap<TopicName, u32> = BTreeMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.clone()).or_default() += 1;
    }
    let is_too_many = requested_partitions(&broker, &request) > PARTITIONS_PER_REQUEST_MAX;
    let taken = taken(&broker).await;
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let name = topic.name.clone();
        let made = match (times.remove(&name), &taken) {
            (None, _) => continue,
            (_, Err(refused)) => Err(refused.clone()),
            (Some(1), _) if is_too_many => {
                let message = "Excessively large number of partitions per request.";
                Err(Refused::new(ErrorCode::PolicyViolation, message))
            }
            (Some(1), Ok(taken)) => create(&broker, &topic, taken, request.validate_only).await,
            _ => Err(Refused::new(ErrorCode::InvalidRequest, "Duplicate topic name.")),
        };
        results.push(result(name, made));
    }
    context.reply(&CreateTopicsResponse::default().with_topics(results))
}

fn requested_partitions(broker: &Broker, request: &CreateTopicsRequest) -> usize {
    let default = broker.config.kafka.num_partitions;
    let counts = request.topics.iter().map(|topic| match topic.num_partitions {
        -1 if topic.assignments.is_empty() => usize::try_from(default).unwrap_or_default(),
        -1 => topic.assignments.len(),
        count => usize::try_from(count).unwrap_or_default(),
    });
    counts.fold(0, usize::saturating_add)
}

async fn taken(broker: &Broker) -> Result<Taken, Refused> {
    broker.topics.refresh().await.map_err(|error| Refused::failed(&error))?;
    let topics = broker.topics.all();
    let keyed =
        topics.iter().map(|topic| (topic_names::collision_key(&topic.name), topic.name.clone()));
    Ok(keyed.collect())
}

fn result(name: TopicName, made: Result<Made, Refused>) -> CreatableTopicResult {
    let result = CreatableTopicResult::default().with_name(name);
    match made {
        Ok(made) => result
            .with_error_message(None)
            .with_topic_id(made.id)
            .with_num_partitions(made.partitions)
            .with_replication_factor(made.factor)
            .with_configs(Some(made.configs.into_iter().map(tell).collect())),
        Err(refused) => result
            .with_error_code(refused.code.code())
            .with_error_message(refused.text())
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_configs(Some(Vec::new())),
    }
}

fn tell(config: DescribedConfig) -> CreatableTopicConfigs {
    CreatableTopicConfigs::default()
        .with_name(StrBytes::from_static_str(config.name))
        .with_value(config.value.map(StrBytes::from_string))
        .with_read_only(config.is_read_only)
        .with_config_source(config.source as i8)
}

async fn create(
    broker: &Broker,
    topic: &CreatableTopic,
    taken: &Taken,
    validate_only: bool,
) -> Result<Made, Refused> {
    let name = topic.name.as_str();
    let exists = || {
        let message = format!("Topic '{name}' already exists.");
        Refused::new(ErrorCode::TopicAlreadyExists, message)
    };
    check_name(name)?;
    if broker.topics.by_name(name).is_some() {
        return Err(exists());
    }
    if let Some(other) = taken.get(&topic_names::collision_key(name)) {
        let message = format!("Topic '{name}' collides with existing topic: {other}");
        return Err(Refused::new(ErrorCode::InvalidTopicException, message));
    }
    let server = ServerValues::of_topic(&broker.config, name);
    let configs = configs(&topic.configs, server)?;
    let (partitions, factor) = shape(broker, topic)?;
    let described = topic_configs::describe(&configs, server);
    if validate_only {
        let id = broker.env.uuid();
        return Ok(Made { id, partitions, factor, configs: described });
    }
    let failed = |error: floe_env::Error| match error.kind() {
        floe_env::ErrorKind::Limit => Refused::new(ErrorCode::PolicyViolation, error.to_string()),
        _ => Refused::failed(&error),
    };
    let created = broker.metadata.create_topic(name, partitions, factor, configs).await;
    match created.map_err(failed)? {
        TopicCreation::AlreadyExists(_) => Err(exists()),
        TopicCreation::Created(topic) => {
            broker.topics.refresh().await.map_err(failed)?;
            tracing::info!(topic = name, id = %topic.id, partitions, "topic created");
            Ok(Made { id: topic.id.0, partitions, factor, configs: described })
        }
    }
}

fn check_name(name: &str) -> Result<(), Refused> {
    if let Some(complaint) = topic_names::complaint(name) {
        return Err(Refused::new(ErrorCode::InvalidTopicException, complaint));
    }
    if name == CLUSTER_METADATA || topic_names::is_internal(name) {
        let message = format!("Creation of internal topic {name} is prohibited.");
        return Err(Refused::new(ErrorCode::InvalidRequest, message));
    }
    Ok(())
}

/// The configs in their plain form. Of one that is named twice the last counts, as in Kafka.
fn configs(
    configs: &[CreatableTopicConfig],
    server: ServerValues,
) -> Result<BTreeMap<String, String>, Refused> {
    let invalid = |message: String| Refused::new(ErrorCode::InvalidConfig, message);
    let mut given = BTreeMap::new();
    for config in configs {
        let Some(value) = &config.value else {
            let name = config.name.as_str();
            return Err(invalid(format!("Null value not supported for topic configs: {name}")));
        };
        given.insert(config.name.to_string(), value.to_string());
    }
    topic_configs::check(given, server).map_err(invalid)
}

/// Partitions and replication factor, with the broker's defaults. Any factor is taken: it has no
/// effect.
fn shape(broker: &Broker, topic: &CreatableTopic) -> Result<(i32, i16), Refused> {
    let kafka = &broker.config.kafka;
    if !topic.assignments.is_empty() {
        return assigned(topic, broker.identity.node_id);
    }
    let partitions = match topic.num_partitions {
        -1 => kafka.num_partitions,
        count if count < 1 => {
            let message = "Number of partitions was set to an invalid non-positive value.";
            return Err(Refused::new(ErrorCode::InvalidPartitions, message));
        }
        count => count,
    };
    let factor = match topic.replication_factor {
        -1 => kafka.default_replication_factor,
        factor if factor < 1 => {
            let message =
                "Replication factor must be larger than 0, or -1 to use the default value.";
            return Err(Refused::new(ErrorCode::InvalidReplicationFactor, message));
        }
        factor => factor,
    };
    Ok((partitions, factor))
}

/// Partitions and replication factor of an assignment by hand.
fn assigned(topic: &CreatableTopic, node_id: i32) -> Result<(i32, i16), Refused> {
    let beside = |what: &str| {
        let message =
            format!("A manual partition assignment was specified, but {what} was not set to -1.");
        Refused::new(ErrorCode::InvalidRequest, message)
    };
    if topic.replication_factor != -1 {
        return Err(beside("replication factor"));
    }
    if topic.num_partitions != -1 {
        return Err(beside("numPartitions"));
    }
    let refused = |message: String| Refused::new(ErrorCode::InvalidReplicaAssignment, message);
    for assignment in &topic.assignments {
        replica_assignment::check(&assignment.broker_ids, node_id).map_err(refused)?;
    }
    let mut indexes: Vec<i32> =
        topic.assignments.iter().map(|assignment| assignment.partition_index).collect();
    indexes.sort_unstable();
    let count = i32::try_from(indexes.len()).unwrap_or(i32::MAX);
    if !indexes.into_iter().eq(0..count) {
        let message = "partitions should be a consecutive 0-based integer sequence";
        return Err(refused(message.to_owned()));
    }
    Ok((count, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogRetention;
    use floe_wire::messages::BrokerId;
    use floe_wire::messages::create_topics_request::CreatableReplicaAssignment;

    const SERVER: ServerValues = ServerValues {
        message_max_bytes: 1_048_588,
        log_retention: LogRetention::PRESET,
        iceberg_enable: true,
        table_by_default: true,
    };

    fn assigning(parts: &[(i32, &[i32])]) -> CreatableTopic {
        let assignment = |&(index, ids): &(i32, &[i32])| {
            CreatableReplicaAssignment::default()
                .with_partition_index(index)
                .with_broker_ids(ids.iter().map(|&id| BrokerId(id)).collect())
        };
        CreatableTopic::default()
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_assignments(parts.iter().map(assignment).collect())
    }

    #[test]
    fn assignments_are_checked_as_in_kafka() {
        assert_eq!(assigned(&assigning(&[(1, &[7]), (0, &[7])]), 7), Ok((2, 1)));
        for (topic, code, words) in [
            (assigning(&[(0, &[987])]), ErrorCode::InvalidReplicaAssignment, "broker 987"),
            (assigning(&[(0, &[7]), (2, &[7])]), ErrorCode::InvalidReplicaAssignment, "0-based"),
            (assigning(&[(0, &[])]), ErrorCode::InvalidReplicaAssignment, "empty replica list"),
            (assigning(&[(0, &[7, 7])]), ErrorCode::InvalidReplicaAssignment, "more than once"),
            (
                assigning(&[(0, &[7])]).with_num_partitions(1),
                ErrorCode::InvalidRequest,
                "numPartitions was not set to -1",
            ),
            (
                assigning(&[(0, &[7])]).with_replication_factor(1),
                ErrorCode::InvalidRequest,
                "replication factor was not set to -1",
            ),
        ] {
            let refused = assigned(&topic, 7).unwrap_err();
            assert_eq!(refused.code, code);
            assert!(refused.message.contains(words), "{}", refused.message);
        }
    }

    #[test]
    fn configs_are_checked_and_the_last_of_a_name_counts() {
        let config = |name: &'static str, value: Option<&'static str>| {
            CreatableTopicConfig::default()
                .with_name(StrBytes::from_static_str(name))
                .with_value(value.map(StrBytes::from_static_str))
        };
        let twice = [config("retention.ms", Some("1")), config("retention.ms", Some(" 2 "))];
        let kept = configs(&twice, SERVER).unwrap();
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [("retention.ms".into(), "2".into())]);
        let refused = configs(&[config("retention.ms", None)], SERVER).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidConfig);
        assert_eq!(refused.message, "Null value not supported for topic configs: retention.ms");
        let refused = configs(&[config("no.such", Some("1"))], SERVER).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidConfig);
    }

    #[test]
    fn names_are_checked() {
        let code = |name: &str| check_name(name).err().map(|refused| refused.code);
        assert_eq!(code("a.b"), None);
        assert_eq!(code("a b"), Some(ErrorCode::InvalidTopicException));
        for internal in [CLUSTER_METADATA, "__consumer_offsets"] {
            assert_eq!(code(internal), Some(ErrorCode::InvalidRequest), "{internal}");
        }
    }
}
