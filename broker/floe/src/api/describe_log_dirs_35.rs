//! DescribeLogDirs: v1-5.
//!
//! One directory, the object store, with the bytes of each partition as the metadata store counts
//! them. v3 an error for the whole answer; v4 the sizes of the disk, which an object store does not
//! have; v5 whether it is cordoned, which it never is. Topics null asks for all.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::broker_configs::log_dir;
use crate::error_codes::error_code;
use floe_env::Result as FloeResult;
use floe_wire::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use floe_wire::messages::{
    self, DescribeLogDirsRequest, DescribeLogDirsResponse, StrBytes, TopicName,
};
use kfs::TopicPartition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeLogDirs, 1..=5, handle);

/// Partitions whose states are asked for at once.
const PARTITIONS_PER_READ: usize = 1000;
/// What "not known" is in the sizes of a disk.
const BYTES_UNKNOWN: i64 = -1;

/// Partitions to describe, by topic and index.
type Asked = BTreeMap<TopicName, BTreeSet<i32>>;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DescribeLogDirsRequest,
) -> Handled {
    let result = DescribeLogDirsResult::default()
        .with_log_dir(StrBytes::from_string(log_dir(&broker.config)))
        .with_total_bytes(BYTES_UNKNOWN)
        .with_usable_bytes(BYTES_UNKNOWN);
    let result = match describe(&broker, request).await {
        Ok(topics) => result.with_topics(topics),
        Err(error) => {
            tracing::warn!(%error, "sizes of partitions could not be read");
            result.with_error_code(error_code(&error).code())
        }
    };
    let response = DescribeLogDirsResponse::default().with_results(vec![result]);
    context.reply_by(&response, messages::encode_describe_log_dirs)
}

async fn describe(
    broker: &Broker,
    request: DescribeLogDirsRequest,
) -> FloeResult<Vec<DescribeLogDirsTopic>> {
    broker.topics.refresh().await?;
    let mut partitions: Vec<(TopicName, TopicPartition)> = Vec::new();
    for (name, indexes) in asked(broker, request) {
        if let Some(known) = broker.topics.by_name(&name) {
            let known = indexes.into_iter().filter_map(|index| known.partition(index));
            partitions.extend(known.map(|partition| (name.clone(), partition)));
        }
    }
    let mut described: BTreeMap<TopicName, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for chunk in partitions.chunks(PARTITIONS_PER_READ) {
        let ids: Vec<TopicPartition> = chunk.iter().map(|(_, partition)| *partition).collect();
        let states = broker.metadata.partition_states(&ids).await?;
        for ((name, partition), state) in chunk.iter().zip(states) {
            // Deleted since the topics were read.
            let Some(state) = state else { continue };
            let one = DescribeLogDirsPartition::default()
                .with_partition_index(partition.partition.0)
                .with_partition_size(i64::try_from(state.bytes).unwrap_or(i64::MAX));
            described.entry(name.clone()).or_default().push(one);
        }
    }
    let topic = |(name, partitions)| {
        DescribeLogDirsTopic::default().with_name(name).with_partitions(partitions)
    };
    Ok(described.into_iter().map(topic).collect())
}

fn asked(broker: &Broker, request: DescribeLogDirsRequest) -> Asked {
    let Some(topics) = request.topics else {
        let all = broker.topics.all();
        let every = all.iter().map(|known| {
            let name = TopicName(StrBytes::from_string(known.topic.name.clone()));
            (name, (0..known.topic.partition_count).collect())
        });
        return every.collect();
    };
    let mut asked = Asked::new();
    for topic in topics {
        asked.entry(topic.topic).or_default().extend(topic.partitions);
    }
    asked
}
