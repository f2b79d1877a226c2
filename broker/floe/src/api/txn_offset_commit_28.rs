//! TxnOffsetCommit: v0-6.
//!
//! v2 leader epoch; v3 the consumer that the offsets come from; v5 adds the group to the
//! transaction (KIP-890); v6 topic ids. Offsets are seen once the transaction has been committed.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::{fenced_below, group_code};
use crate::groups::check_group_id;
use crate::transactions::{Transactions, check_id};
use floe_coordinator::classic::CommitCheck;
use floe_coordinator::offsets::check_offset_metadata;
use floe_coordinator::transactions::Sender;
use floe_metadata::groups::CommittedOffset;
use floe_wire::ErrorCode;
use floe_wire::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use floe_wire::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use floe_wire::messages::{self, TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use kfs::{ProducerEpoch, ProducerId, TopicId, TopicPartition};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

pub(super) const API: super::Api = api!(TxnOffsetCommit, 0..=6, handle);

/// The first version that adds the group to the transaction.
const JOINS_SINCE: i16 = 5;
/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 6;

/// A request while it is sorted out: what to store, and what is wrong with the others.
struct Sorted {
    /// The last entry of a partition counts.
    offsets: BTreeMap<TopicPartition, CommittedOffset>,
    /// In the order of the request; none where the answer is that of the whole.
    codes: Vec<Vec<Option<ErrorCode>>>,
}

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
) -> Handled {
    let topic_ids = context.beyond.topic_ids.clone();
    let names_ids = context.version >= TOPIC_IDS_SINCE;
    let sorted = sort(&broker, &request, names_ids.then_some(&topic_ids)).await;
    let code = match sorted.offsets.is_empty() {
        true => ErrorCode::None,
        false => {
            let committed = commit(&broker, context.version, &request, sorted.offsets).await;
            // Kafka has never told this request that its producer is fenced.
            fenced_below(committed.err().unwrap_or(ErrorCode::None), true)
        }
    };
    let topics = request.topics.into_iter().zip(sorted.codes).map(|(topic, codes)| {
        let partitions = topic.partitions.iter().zip(codes).map(|(asked, own)| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(asked.partition_index)
                .with_error_code(own.unwrap_or(code).code())
        });
        let partitions = partitions.collect();
        TxnOffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    let response = TxnOffsetCommitResponse::default().with_topics(topics.collect());
    context.reply_by(&response, |version, correlation_id, response| {
        messages::encode_txn_offset_commit(version, correlation_id, response, &topic_ids)
    })
}

async fn commit(
    broker: &Broker,
    version: i16,
    request: &TxnOffsetCommitRequest,
    offsets: BTreeMap<TopicPartition, CommittedOffset>,
) -> Result<(), ErrorCode> {
    check_id(&request.transactional_id)?;
    check_group_id(&request.group_id).map_err(group_code)?;
    let sender = Sender {
        producer: ProducerId(request.producer_id.0),
        epoch: ProducerEpoch(request.producer_epoch),
    };
    let check = CommitCheck {
        version,
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
        generation: request.generation_id,
        transactional: true,
        partitions: offsets.keys().map(|place| (place.topic.0, place.partition.0)).collect(),
    };
    let (id, group) = (&*request.transactional_id, &*request.group_id);
    let commit = (check, offsets.into_iter().collect());
    let joins = version >= JOINS_SINCE;
    Transactions(broker).commit_offsets(id, sender, joins, group, commit).await
}

async fn sort(
    broker: &Broker,
    request: &TxnOffsetCommitRequest,
    topic_ids: Option<&Vec<Uuid>>,
) -> Sorted {
    let now_ms = broker.groups.now_ms();
    let mut sorted = Sorted { offsets: BTreeMap::new(), codes: Vec::new() };
    for (at, topic) in request.topics.iter().enumerate() {
        let id = topic_ids.map(|ids| TopicId(ids.get(at).copied().unwrap_or_default()));
        let found = find(broker, topic, id).await;
        let mut codes = Vec::with_capacity(topic.partitions.len());
        for (asked, found) in topic.partitions.iter().zip(found) {
            codes.push(match found.and_then(|partition| checked(partition, asked)) {
                Ok(partition) => {
                    sorted.offsets.insert(partition, offset(asked, now_ms));
                    None
                }
                Err(code) => Some(code),
            });
        }
        sorted.codes.push(codes);
    }
    sorted
}

/// The partitions of a topic, which is named by its id where it has one here.
async fn find(
    broker: &Broker,
    topic: &TxnOffsetCommitRequestTopic,
    id: Option<TopicId>,
) -> Vec<Result<TopicPartition, ErrorCode>> {
    let (known, missing) = match id {
        Some(id) => (broker.topic_by_id(id).await, ErrorCode::UnknownTopicId),
        None => (broker.topic_by_name(&topic.name).await, ErrorCode::UnknownTopicOrPartition),
    };
    let known = known.map_err(|error| {
        tracing::warn!(%error, "a topic of an offset commit could not be looked up");
        ErrorCode::NotCoordinator
    });
    let partition = |asked: &TxnOffsetCommitRequestPartition| {
        let known = known.as_ref().map_err(|code| *code)?.as_ref().ok_or(missing)?;
        known.partition(asked.partition_index).ok_or(ErrorCode::UnknownTopicOrPartition)
    };
    topic.partitions.iter().map(partition).collect()
}

fn checked(
    partition: TopicPartition,
    asked: &TxnOffsetCommitRequestPartition,
) -> Result<TopicPartition, ErrorCode> {
    check_offset_metadata(asked.committed_metadata.as_deref()).map_err(group_code)?;
    Ok(partition)
}

fn offset(asked: &TxnOffsetCommitRequestPartition, now_ms: i64) -> CommittedOffset {
    CommittedOffset {
        offset: asked.committed_offset,
        leader_epoch: asked.committed_leader_epoch,
        metadata: asked.committed_metadata.as_deref().unwrap_or_default().to_owned(),
        commit_ms: now_ms,
        expires_ms: None,
    }
}
