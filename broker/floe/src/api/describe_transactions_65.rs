//! DescribeTransactions: v0.
//!
//! Any broker describes any transactional id. Groups take part as the partition of Kafka's own
//! topic that would hold their offsets.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::transactions::{Transactions, check_id};
use floe_metadata::transactions::{TransactionRow, TransactionState as State};
use floe_wire::ErrorCode;
use floe_wire::messages::describe_transactions_response::{TopicData, TransactionState};
use floe_wire::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, StrBytes, TopicName,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeTransactions, 0..=0, handle);

/// Kafka's own topic of committed offsets, and its partitions.
const OFFSETS_TOPIC: &str = "__consumer_offsets";
const OFFSETS_PARTITIONS: u32 = 50;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DescribeTransactionsRequest,
) -> Handled {
    let mut states = Vec::with_capacity(request.transactional_ids.len());
    for id in request.transactional_ids {
        let state = match find(&broker, &id).await {
            Ok(row) => described(&broker, &row).await,
            Err(code) => TransactionState::default().with_error_code(code.code()),
        };
        states.push(state.with_transactional_id(id));
    }
    context.reply(&DescribeTransactionsResponse::default().with_transaction_states(states))
}

async fn find(broker: &Broker, id: &str) -> Result<TransactionRow, ErrorCode> {
    check_id(id)?;
    let known = Transactions(broker).find(id).await?;
    known.map(|known| known.row).ok_or(ErrorCode::TransactionalIdNotFound)
}

async fn described(broker: &Broker, row: &TransactionRow) -> TransactionState {
    let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for named in &row.partitions {
        // A topic that was deleted meanwhile has no name any more.
        if let Ok(Some(topic)) = broker.topic_by_id(named.topic).await {
            topics.entry(topic.name.to_string()).or_default().push(named.partition.0);
        }
    }
    for group in &row.groups {
        let partitions = topics.entry(OFFSETS_TOPIC.to_owned()).or_default();
        let partition = offsets_partition(group);
        if !partitions.contains(&partition) {
            partitions.push(partition);
        }
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        let topic = TopicName(StrBytes::from_string(topic));
        TopicData::default().with_topic(topic).with_partitions(partitions)
    });
    TransactionState::default()
        .with_transaction_state(StrBytes::from_static_str(state_name(row.state)))
        .with_transaction_timeout_ms(row.timeout_ms)
        .with_transaction_start_time_ms(row.started_ms)
        .with_producer_id(ProducerId(row.producer.0))
        .with_producer_epoch(row.epoch.0)
        .with_topics(topics.collect())
}

/// Kafka's name of a state.
pub(super) fn state_name(state: State) -> &'static str {
    match state {
        State::Empty => "Empty",
        State::Ongoing => "Ongoing",
        State::CompleteCommit => "CompleteCommit",
        State::CompleteAbort => "CompleteAbort",
    }
}

/// Where Kafka would keep the group's offsets: by Java's hash of its id.
fn offsets_partition(group: &str) -> i32 {
    let hash = group
        .encode_utf16()
        .fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
    ((hash & 0x7fff_ffff) % OFFSETS_PARTITIONS).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_spread_as_in_kafka() {
        // Java: Math.abs("console-consumer-1".hashCode()) and so on, modulo 50.
        assert_eq!(offsets_partition(""), 0);
        assert_eq!(offsets_partition("a"), 97 % 50);
        assert_eq!(offsets_partition("ab"), (97 * 31 + 98) % 50);
    }
}
