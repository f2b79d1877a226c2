//! AddPartitionsToTxn: v0-5.
//!
//! Up to v3 a client's own transaction; v2 PRODUCER_FENCED. From v4 on several transactions, as
//! Kafka's brokers ask each other, also only whether partitions are in them.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::fenced_below;
use crate::topic_names;
use crate::transactions::{Transactions, check_id};
use floe_coordinator::transactions::Sender;
use floe_wire::ErrorCode;
use floe_wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use floe_wire::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use floe_wire::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};
use kfs::{ProducerEpoch, ProducerId, TopicPartition};
use std::sync::Arc;

pub(super) const API: super::Api = api!(AddPartitionsToTxn, 0..=5, handle);

/// The first version with several transactions.
const TRANSACTIONS_SINCE: i16 = 4;
/// The first version that knows PRODUCER_FENCED.
const FENCED_SINCE: i16 = 2;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> Handled {
    let response = AddPartitionsToTxnResponse::default();
    if context.version < TRANSACTIONS_SINCE {
        let transaction = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(request.v3_and_below_transactional_id)
            .with_producer_id(request.v3_and_below_producer_id)
            .with_producer_epoch(request.v3_and_below_producer_epoch)
            .with_topics(request.v3_and_below_topics);
        let results = add(&broker, context.version, transaction).await;
        return context.reply(&response.with_results_by_topic_v3_and_below(results));
    }
    let mut results = Vec::with_capacity(request.transactions.len());
    for transaction in request.transactions {
        let result = AddPartitionsToTxnResult::default()
            .with_transactional_id(transaction.transactional_id.clone());
        results.push(result.with_topic_results(add(&broker, context.version, transaction).await));
    }
    context.reply(&response.with_results_by_transaction(results))
}

/// One transaction: all of its partitions or none, unless it only asks.
async fn add(
    broker: &Broker,
    version: i16,
    transaction: AddPartitionsToTxnTransaction,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut found: Vec<Result<TopicPartition, ErrorCode>> = Vec::new();
    for topic in &transaction.topics {
        found.extend(topic.partitions.iter().map(|index| find(broker, &topic.name, *index)));
    }
    let codes = codes(broker, &transaction, &found).await;
    let codes = codes.into_iter().map(|code| fenced_below(code, version < FENCED_SINCE));
    results(transaction.topics, codes)
}

async fn codes(
    broker: &Broker,
    transaction: &AddPartitionsToTxnTransaction,
    found: &[Result<TopicPartition, ErrorCode>],
) -> Vec<ErrorCode> {
    if let Err(code) = check_id(&transaction.transactional_id) {
        return vec![code; found.len()];
    }
    if found.iter().any(Result::is_err) {
        let code =
            |one: &Result<_, ErrorCode>| one.err().unwrap_or(ErrorCode::OperationNotAttempted);
        return found.iter().map(code).collect();
    }
    let partitions: Vec<TopicPartition> = found.iter().filter_map(|one| one.ok()).collect();
    let id = &*transaction.transactional_id;
    let sender = Sender {
        producer: ProducerId(transaction.producer_id.0),
        epoch: ProducerEpoch(transaction.producer_epoch),
    };
    let transactions = Transactions(broker);
    if !transaction.verify_only {
        let added = transactions.add_partitions(id, sender, &partitions).await;
        return vec![added.err().unwrap_or(ErrorCode::None); found.len()];
    }
    match transactions.verify_partitions(id, sender, &partitions).await {
        Ok(verified) => {
            verified.into_iter().map(|one| one.err().unwrap_or(ErrorCode::None)).collect()
        }
        Err(code) => vec![code; found.len()],
    }
}

fn find(broker: &Broker, topic: &str, index: i32) -> Result<TopicPartition, ErrorCode> {
    if topic_names::is_internal(topic) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let known = broker.topics.by_name(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    known.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)
}

fn results(
    topics: Vec<AddPartitionsToTxnTopic>,
    codes: impl IntoIterator<Item = ErrorCode>,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut codes = codes.into_iter();
    let result = |topic: AddPartitionsToTxnTopic| {
        let partitions = topic.partitions.into_iter().zip(codes.by_ref()).map(|(index, code)| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(index)
                .with_partition_error_code(code.code())
        });
        let partitions = partitions.collect();
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name)
            .with_results_by_partition(partitions)
    };
    topics.into_iter().map(result).collect()
}
