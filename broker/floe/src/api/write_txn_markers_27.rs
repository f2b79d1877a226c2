//! WriteTxnMarkers: v1.
//!
//! Kafka's coordinators send it to partitions' leaders; here it is what ends a transaction that
//! hangs in a partition (`kafka-transactions.sh abort`). The transactional id hears nothing of it.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::transactions::{Transactions, failed};
use floe_metadata::facts::Change;
use floe_metadata::rows::{MarkerFacts, MarkerOutcome};
use floe_metadata::validate::MARKERS_MAX;
use floe_wire::ErrorCode;
use floe_wire::messages::write_txn_markers_request::WritableTxnMarker;
use floe_wire::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use floe_wire::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use kfs::{ProducerEpoch, ProducerId, TopicPartition};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const API: super::Api = api!(WriteTxnMarkers, 1..=1, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: WriteTxnMarkersRequest,
) -> Handled {
    let mut markers = Vec::with_capacity(request.markers.len());
    for marker in request.markers {
        markers.push(write(&broker, marker).await);
    }
    context.reply(&WriteTxnMarkersResponse::default().with_markers(markers))
}

async fn write(broker: &Broker, marker: WritableTxnMarker) -> WritableTxnMarkerResult {
    let find = |name: &str, index: i32| broker.topics.by_name(name)?.partition(index);
    let mut codes: BTreeMap<TopicPartition, ErrorCode> = BTreeMap::new();
    for topic in &marker.topics {
        let partitions =
            topic.partition_indexes.iter().filter_map(|index| find(&topic.name, *index));
        codes.extend(partitions.map(|partition| (partition, ErrorCode::UnknownServerError)));
    }
    let is_valid = marker.producer_epoch >= 0 && marker.producer_id.0 >= 0;
    if is_valid {
        let partitions: Vec<TopicPartition> = codes.keys().copied().collect();
        for some in partitions.chunks(MARKERS_MAX) {
            codes.extend(write_some(broker, &marker, some).await);
        }
    }
    let topics = marker.topics.iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            let code = find(&topic.name, *index).and_then(|partition| codes.get(&partition));
            let code = code.copied().unwrap_or(ErrorCode::UnknownTopicOrPartition);
            WritableTxnMarkerPartitionResult::default()
                .with_partition_index(*index)
                .with_error_code(code.code())
        });
        let partitions = partitions.collect();
        WritableTxnMarkerTopicResult::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions)
    });
    let topics = topics.collect();
    WritableTxnMarkerResult::default().with_producer_id(marker.producer_id).with_topics(topics)
}

async fn write_some(
    broker: &Broker,
    marker: &WritableTxnMarker,
    partitions: &[TopicPartition],
) -> Vec<(TopicPartition, ErrorCode)> {
    let transactions = Transactions(broker);
    let facts = partitions.iter().map(|partition| MarkerFacts {
        partition: *partition,
        producer: ProducerId(marker.producer_id.0),
        epoch: ProducerEpoch(marker.producer_epoch),
        commit: marker.transaction_result,
        coordinator_epoch: marker.coordinator_epoch,
        timestamp_type: transactions.timestamp_type(partition.topic),
    });
    let facts: Vec<MarkerFacts> = facts.collect();
    let outcomes = match broker.metadata.write_markers(&Change::default(), &facts).await {
        Ok(outcomes) => outcomes.unwrap_or_default(),
        Err(error) => {
            let code = failed(&error);
            return partitions.iter().map(|partition| (*partition, code)).collect();
        }
    };
    let written = partitions.iter().zip(outcomes);
    let code = |(partition, outcome): (&TopicPartition, MarkerOutcome)| {
        transactions.observe(*partition, outcome);
        let code = match outcome {
            MarkerOutcome::Written { .. } => ErrorCode::None,
            MarkerOutcome::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
            MarkerOutcome::StaleEpoch => ErrorCode::InvalidProducerEpoch,
        };
        (*partition, code)
    };
    written.map(code).collect()
}
