//! WriteTxnMarkers: v1-2.
//!
//! v2 the version of transactions: since the second, a marker raises its producer's epoch. Kafka's
//! coordinators send it to partitions' leaders; here it is what ends a transaction that hangs in a
//! partition (`kafka-transactions.sh abort`). The transactional id hears nothing of it.

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

pub(super) const API: super::Api = api!(WriteTxnMarkers, 1..=2, handle);

/// The first version of transactions whose markers raise the epoch (KIP-890's second part).
const RAISES_EPOCH_SINCE: i8 = 2;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: WriteTxnMarkersRequest,
) -> Handled {
    let mut markers = Vec::with_capacity(request.markers.len());
    for (at, marker) in request.markers.into_iter().enumerate() {
        let version = context.beyond.transaction_versions.get(at);
        let raises_epoch = version.is_some_and(|version| *version >= RAISES_EPOCH_SINCE);
        markers.push(write(&broker, marker, raises_epoch).await);
    }
    context.reply(&WriteTxnMarkersResponse::default().with_markers(markers))
}

async fn write(
    broker: &Broker,
    marker: WritableTxnMarker,
    raises_epoch: bool,
) -> WritableTxnMarkerResult {
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
            codes.extend(write_some(broker, &marker, raises_epoch, some).await);
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
    raises_epoch: bool,
    partitions: &[TopicPartition],
) -> Vec<(TopicPartition, ErrorCode)> {
    let transactions = Transactions(broker);
    let facts = partitions.iter().map(|partition| MarkerFacts {
        partition: *partition,
        producer: ProducerId(marker.producer_id.0),
        epoch: ProducerEpoch(marker.producer_epoch),
        commit: marker.transaction_result,
        raises_epoch,
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
        let code = match &outcome {
            MarkerOutcome::Written { .. } => ErrorCode::None,
            MarkerOutcome::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
            MarkerOutcome::StaleEpoch => ErrorCode::InvalidProducerEpoch,
        };
        transactions.observe(*partition, outcome);
        (*partition, code)
    };
    written.map(code).collect()
}
