//! DescribeTopicPartitions: v0.
//!
//! Topics by name, in pages: an answer holds so many partitions at most, and a cursor from which
//! the next request goes on. No topic named means all.

use super::{Handled, RequestContext, api};
use crate::authorized_operations::{OPERATIONS_UNKNOWN, TOPIC_OPERATIONS};
use crate::broker::Broker;
use crate::topic_names;
use floe_log::LEADER_EPOCH;
use floe_wire::ErrorCode;
use floe_wire::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use floe_wire::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, StrBytes, TopicName,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeTopicPartitions, 0..=0, handle);

/// Kafka's default of `max.request.partition.size.limit`.
const PARTITIONS_PER_ANSWER_MAX: i32 = 2000;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> Handled {
    let response = DescribeTopicPartitionsResponse::default();
    if let Some(cursor) = request.cursor.as_ref().filter(|cursor| cursor.partition_index < 0) {
        let topic = failed(cursor.topic_name.clone(), ErrorCode::InvalidRequest)
            .with_topic_authorized_operations(OPERATIONS_UNKNOWN);
        return context.reply(&response.with_topics(vec![topic]));
    }
    if let Err(error) = broker.topics.refresh().await {
        tracing::warn!(%error, "topics are as last read");
    }
    let names: BTreeSet<TopicName> = if request.topics.is_empty() {
        let topics = broker.topics.all();
        topics.iter().map(|topic| name_of(&topic.name)).collect()
    } else {
        request.topics.into_iter().map(|topic| topic.name).collect()
    };
    let from = request.cursor.map(|cursor| (cursor.topic_name, cursor.partition_index));
    let counted = names.into_iter().map(|name| {
        let count = broker.topics.by_name(&name).map(|known| known.topic.partition_count);
        (name, count)
    });
    let page = page(counted, from, request.response_partition_limit);
    let topics = page.topics.into_iter().map(|(name, part)| match part {
        Some(partitions) => describe(&broker, name, partitions),
        None => missing(name),
    });
    let next_cursor = page.next.map(|(name, partition)| {
        Cursor::default().with_topic_name(name).with_partition_index(partition)
    });
    context.reply(&response.with_topics(topics.collect()).with_next_cursor(next_cursor))
}

/// What one answer holds: of each topic a range of partitions, `None` where there is no such topic.
#[derive(Debug, PartialEq, Eq)]
struct Page<Name> {
    topics: Vec<(Name, Option<Range<i32>>)>,
    /// Where the next page begins.
    next: Option<(Name, i32)>,
}

/// The page that begins at `from`. `topics`, by name, have a number of partitions or do not exist.
fn page<Name: Ord + Clone>(
    topics: impl Iterator<Item = (Name, Option<i32>)>,
    from: Option<(Name, i32)>,
    limit: i32,
) -> Page<Name> {
    let mut left = limit.clamp(1, PARTITIONS_PER_ANSWER_MAX);
    let mut page = Page { topics: Vec::new(), next: None };
    for (name, count) in topics {
        let first = match &from {
            Some((first_name, _)) if name < *first_name => continue,
            Some((first_name, partition)) if name == *first_name => *partition,
            _ => 0,
        };
        if left == 0 {
            page.next = Some((name, 0));
            break;
        }
        let Some(count) = count else {
            page.topics.push((name, None));
            continue;
        };
        let first = first.min(count);
        let end = count.min(first.saturating_add(left));
        left -= end - first;
        page.topics.push((name.clone(), Some(first..end)));
        if end < count {
            page.next = Some((name, end));
            break;
        }
    }
    page
}

fn name_of(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

fn describe(
    broker: &Broker,
    name: TopicName,
    partitions: Range<i32>,
) -> DescribeTopicPartitionsResponseTopic {
    let Some(known) = broker.topics.by_name(&name) else { return missing(name) };
    let leader = BrokerId(broker.identity.node_id);
    let partition = |index: i32| {
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(leader)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![leader])
            .with_isr_nodes(vec![leader])
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    };
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(name))
        .with_topic_id(known.topic.id.0)
        .with_partitions(partitions.map(partition).collect())
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}

fn missing(name: TopicName) -> DescribeTopicPartitionsResponseTopic {
    let code = if topic_names::is_valid(&name) {
        ErrorCode::UnknownTopicOrPartition
    } else {
        ErrorCode::InvalidTopicException
    };
    failed(name, code)
}

fn failed(name: TopicName, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(name))
        .with_error_code(code.code())
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition by its topic's name and its index.
    type At = (&'static str, i32);

    /// Partitions of the page of two topics, `a` with three and `b` with two, and where the next
    /// begins.
    fn paged(from: Option<At>, limit: i32) -> (Vec<At>, Option<At>) {
        let topics = [("a", Some(3)), ("b", Some(2))].into_iter();
        let page = page(topics, from, limit);
        let partitions = page.topics.into_iter().flat_map(|(name, part)| {
            part.unwrap_or_default().map(move |partition| (name, partition))
        });
        (partitions.collect(), page.next)
    }

    #[test]
    fn pages_are_those_of_kafka() {
        let (a, b) = ("a", "b");
        assert_eq!(paged(None, 2), (vec![(a, 0), (a, 1)], Some((a, 2))));
        assert_eq!(paged(None, 3), (vec![(a, 0), (a, 1), (a, 2)], Some((b, 0))));
        assert_eq!(paged(Some((a, 2)), 2), (vec![(a, 2), (b, 0)], Some((b, 1))));
        assert_eq!(paged(Some((b, 1)), 9), (vec![(b, 1)], None));
        assert_eq!(paged(Some((a, 7)), 9), (vec![(b, 0), (b, 1)], None));
        assert_eq!(paged(None, 0), (vec![(a, 0)], Some((a, 1))));
        assert_eq!(paged(None, i32::MIN).0, [(a, 0)]);
        assert_eq!(paged(Some((a, i32::MAX)), i32::MAX).0, [(b, 0), (b, 1)]);
    }

    #[test]
    fn every_partition_is_on_one_page() {
        for limit in 1..7 {
            let (mut all, mut from) = (Vec::new(), None);
            loop {
                let (partitions, next) = paged(from, limit);
                assert!(partitions.len() <= limit as usize);
                all.extend(partitions);
                match next {
                    Some(next) => from = Some(next),
                    None => break,
                }
            }
            assert_eq!(all, [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]);
        }
    }

    #[test]
    fn an_answer_has_a_limit_of_its_own_and_names_missing_topics() {
        let topics = [("a", None), ("b", Some(5000)), ("c", None)].into_iter();
        let page = page(topics, None, 10_000);
        assert_eq!(page.topics, [("a", None), ("b", Some(0..2000))]);
        assert_eq!(page.next, Some(("b", 2000)));
    }
}
