//! DescribeProducers: v0.
//!
//! The idempotent and transactional producers that partitions remember, with their last sequence
//! and the first offset of their open transaction.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::refused::Refused;
use crate::topic_names;
use floe_metadata::rows::ProducerState as Remembered;
use floe_wire::ErrorCode;
use floe_wire::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use floe_wire::messages::{
    DescribeProducersRequest, DescribeProducersResponse, ProducerId, TopicName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeProducers, 0..=0, handle);

/// The epoch of the coordinator in every marker.
const COORDINATOR_EPOCH: i32 = 0;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DescribeProducersRequest,
) -> Handled {
    // Each partition once: an answer is far longer than what asks for it.
    let mut asked: BTreeMap<TopicName, BTreeSet<i32>> = BTreeMap::new();
    for topic in request.topics {
        asked.entry(topic.name).or_default().extend(topic.partition_indexes);
    }
    let mut topics = Vec::with_capacity(asked.len());
    for (name, indexes) in asked {
        let mut partitions = Vec::with_capacity(indexes.len());
        for index in indexes {
            let partition = PartitionResponse::default().with_partition_index(index);
            partitions.push(match producers(&broker, &name, index).await {
                Ok(active) => {
                    let active = active.iter().map(describe).collect();
                    partition.with_active_producers(active)
                }
                Err(refused) => partition
                    .with_error_code(refused.code.code())
                    .with_error_message(refused.text()),
            });
        }
        topics.push(TopicResponse::default().with_name(name).with_partitions(partitions));
    }
    context.reply(&DescribeProducersResponse::default().with_topics(topics))
}

async fn producers(broker: &Broker, topic: &str, index: i32) -> Result<Vec<Remembered>, Refused> {
    if let Some(complaint) = topic_names::complaint(topic) {
        return Err(Refused::new(ErrorCode::InvalidTopicException, complaint));
    }
    let known = broker.topics.by_name(topic).ok_or_else(Refused::unknown_topic)?;
    let missing = || Refused::wordless(ErrorCode::UnknownTopicOrPartition);
    let partition = known.partition(index).ok_or_else(missing)?;
    broker.metadata.producers(partition).await.map_err(|error| Refused::failed(&error))
}

fn describe(producer: &Remembered) -> ProducerState {
    // A producer whose batches are forgotten wrote a marker last.
    let last = producer.batches.last();
    ProducerState::default()
        .with_producer_id(ProducerId(producer.id.0))
        .with_producer_epoch(producer.epoch.0.into())
        .with_last_sequence(last.map_or(-1, |batch| batch.last_sequence))
        .with_last_timestamp(last.map_or(producer.last_written_ms, |batch| batch.max_timestamp_ms))
        .with_coordinator_epoch(if last.is_none() { COORDINATOR_EPOCH } else { -1 })
        .with_current_txn_start_offset(producer.transaction_start.unwrap_or(-1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_metadata::rows::RememberedBatch;
    use kfs::ProducerEpoch;

    #[test]
    fn a_producer_is_described_by_its_last_batch() {
        let batch = |last_sequence: i32| RememberedBatch {
            first_sequence: last_sequence,
            last_sequence,
            base_offset: 0,
            last_offset: 0,
            max_timestamp_ms: 100 + i64::from(last_sequence),
        };
        let mut producer = Remembered {
            id: kfs::ProducerId(8),
            epoch: ProducerEpoch(1),
            batches: vec![batch(1), batch(2)],
            transaction_start: Some(3),
            last_written_ms: 7,
        };
        let described = describe(&producer);
        assert_eq!((described.producer_id.0, described.producer_epoch), (8, 1));
        assert_eq!((described.last_sequence, described.last_timestamp), (2, 102));
        assert_eq!((described.coordinator_epoch, described.current_txn_start_offset), (-1, 3));
        producer.batches.clear();
        producer.transaction_start = None;
        let described = describe(&producer);
        assert_eq!((described.last_sequence, described.last_timestamp), (-1, 7));
        assert_eq!(described.current_txn_start_offset, -1);
    }
}
