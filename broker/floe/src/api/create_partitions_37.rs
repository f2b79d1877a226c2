//! CreatePartitions: v0-3.
//!
//! Raises the number of a topic's partitions. The new ones are there when the answer comes.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::refused::Refused;
use crate::replica_assignment;
use floe_metadata::topics::{PARTITIONS_PER_TOPIC_MAX, TopicChange};
use floe_wire::ErrorCode;
use floe_wire::messages::create_partitions_request::CreatePartitionsTopic;
use floe_wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use floe_wire::messages::{CreatePartitionsRequest, CreatePartitionsResponse, TopicName};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const API: super::Api = api!(CreatePartitions, 0..=3, handle);

/// Partitions that one request may add, as in Kafka.
const ADDED_PER_REQUEST_MAX: i32 = 10_000;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: CreatePartitionsRequest,
) -> Handled {
    let mut times: BTreeMap<TopicName, u32> = BTreeMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.clone()).or_default() += 1;
    }
    let mut left = ADDED_PER_REQUEST_MAX;
    let mut results = Vec::with_capacity(times.len());
    for topic in request.topics {
        let created = match times.remove(&topic.name) {
            None => continue,
            Some(1) => create(&broker, &topic, &mut left, request.validate_only).await,
            Some(_) => Err(Refused::new(ErrorCode::InvalidRequest, "Duplicate topic name.")),
        };
        let result = CreatePartitionsTopicResult::default().with_name(topic.name);
        results.push(match created {
            Ok(()) => result,
            Err(refused) => {
                result.with_error_code(refused.code.code()).with_error_message(refused.text())
            }
        });
    }
    context.reply(&CreatePartitionsResponse::default().with_results(results))
}

/// `left`: how many partitions the request may still add.
async fn create(
    broker: &Broker,
    asked: &CreatePartitionsTopic,
    left: &mut i32,
    validate_only: bool,
) -> Result<(), Refused> {
    let failed = |error: floe_env::Error| Refused::failed(&error);
    let name = asked.name.as_str();
    // Others may have added partitions since the topic was last read.
    broker.topics.refresh().await.map_err(failed)?;
    let known = broker.topics.by_name(name).ok_or_else(unknown_topic)?;
    let added = added(name, known.topic.partition_count, asked.count)?;
    if added > *left {
        let message = "Excessively large number of additional partitions per request.";
        return Err(Refused::new(ErrorCode::PolicyViolation, message));
    }
    check_assignments(asked, added, broker.identity.node_id)?;
    if asked.count > PARTITIONS_PER_TOPIC_MAX {
        let message = format!("A topic has at most {PARTITIONS_PER_TOPIC_MAX} partitions.");
        return Err(Refused::new(ErrorCode::InvalidPartitions, message));
    }
    *left -= added;
    if validate_only {
        return Ok(());
    }
    let change = broker.metadata.create_partitions(known.topic.id, asked.count).await;
    match change.map_err(failed)? {
        TopicChange::Changed(topic) => {
            broker.topics.refresh().await.map_err(failed)?;
            tracing::info!(topic = name, partitions = topic.partition_count, "partitions added");
            Ok(())
        }
        TopicChange::Refused(topic) => self::added(name, topic.partition_count, asked.count).and(
            Err(Refused::new(ErrorCode::InvalidPartitions, "The topic was changed meanwhile.")),
        ),
        TopicChange::NoSuchTopic => Err(unknown_topic()),
    }
}

fn unknown_topic() -> Refused {
    Refused::wordless(ErrorCode::UnknownTopicOrPartition)
}

/// How many partitions are added.
fn added(name: &str, existing: i32, count: i32) -> Result<i32, Refused> {
    let refused = |message: String| Err(Refused::new(ErrorCode::InvalidPartitions, message));
    if count == existing {
        return refused(format!("Topic already has {existing} partition(s)."));
    }
    if count < existing {
        return refused(format!(
            "The topic {name} currently has {existing} partition(s); {count} would not be an \
             increase."
        ));
    }
    Ok(count - existing)
}

fn check_assignments(
    asked: &CreatePartitionsTopic,
    added: i32,
    node_id: i32,
) -> Result<(), Refused> {
    let Some(assignments) = &asked.assignments else { return Ok(()) };
    let refused = |message: String| Refused::new(ErrorCode::InvalidReplicaAssignment, message);
    if i32::try_from(assignments.len()) != Ok(added) {
        return Err(refused(format!(
            "Attempted to add {added} additional partition(s), but only {} assignment(s) were \
             specified.",
            assignments.len()
        )));
    }
    let mut checks = assignments
        .iter()
        .map(|assignment| replica_assignment::check(&assignment.broker_ids, node_id));
    checks.try_for_each(|checked| checked.map_err(refused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_wire::messages::BrokerId;
    use floe_wire::messages::create_partitions_request::CreatePartitionsAssignment;

    #[test]
    fn only_a_greater_number_is_an_increase() {
        for (count, words) in [
            (2, "currently has 3 partition(s); 2 would not be an increase."),
            (3, "Topic already has 3 partition(s)."),
            (-1, "-1 would not be an increase."),
        ] {
            let refused = added("t", 3, count).unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidPartitions);
            assert!(refused.message.ends_with(words), "{}", refused.message);
        }
        assert_eq!(added("t", 3, 10_004), Ok(10_001));
    }

    #[test]
    fn assignments_are_one_for_each_new_partition() {
        let asked = |replicas: Option<&[&[i32]]>| {
            let assignment = |ids: &&[i32]| {
                let ids = ids.iter().map(|&id| BrokerId(id)).collect();
                CreatePartitionsAssignment::default().with_broker_ids(ids)
            };
            let assignments = replicas.map(|all| all.iter().map(assignment).collect());
            CreatePartitionsTopic::default().with_assignments(assignments)
        };
        let words = |replicas, added| {
            check_assignments(&asked(replicas), added, 1).err().map(|refused| refused.message)
        };
        assert_eq!(words(None, 5), None);
        assert_eq!(words(Some(&[&[1]]), 1), None);
        assert!(words(Some(&[&[1]]), 2).unwrap().contains("add 2 additional"));
        assert!(words(Some(&[&[987]]), 1).unwrap().contains("broker 987"));
        assert!(words(Some(&[&[1, 987]]), 1).unwrap().contains("broker 987"));
    }
}
