//! OffsetCommit 10, OffsetFetch 10 and TxnOffsetCommit 6: requests that name topics by id.
//!
//! Of the first two the message layer's structures have the id, and its responses write it, but its
//! requests end at version 9. These readers differ from it in that one field. TxnOffsetCommit's
//! structures have no place for it.

use bytes::Bytes;

use super::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use super::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use super::reader::{
    array, array_length, boolean, int16, int32, int64, nullable_array, nullable_text, skip_tags,
    text, uuid,
};
use super::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use super::{
    Beyond, Decodable, OffsetCommitRequest, OffsetFetchRequest, ProducerId, RequestKind,
    TxnOffsetCommitRequest,
};
use crate::error::CheckError;

/// The first version of OffsetCommit and OffsetFetch that names topics by id.
pub(super) const SINCE: i16 = 10;
/// The first version of TxnOffsetCommit that does.
pub(super) const TXN_SINCE: i16 = 6;

/// The versions of the parts that have not changed.
const UNCHANGED_SINCE: i16 = 9;
const TXN_UNCHANGED_SINCE: i16 = 5;

/// Reads OffsetCommit 10 off the front of `body`.
pub(super) fn offset_commit(body: &mut Bytes) -> Result<RequestKind, CheckError> {
    let request = OffsetCommitRequest::default()
        .with_group_id(text(body, "group_id")?.into())
        .with_generation_id_or_member_epoch(int32(body, "generation_id_or_member_epoch")?)
        .with_member_id(text(body, "member_id")?)
        .with_group_instance_id(nullable_text(body, "group_instance_id")?)
        .with_topics(array(body, "topics", commit_topic)?);
    skip_tags(body)?;
    Ok(RequestKind::OffsetCommit(request))
}

fn commit_topic(body: &mut Bytes) -> Result<OffsetCommitRequestTopic, CheckError> {
    let topic = OffsetCommitRequestTopic::default()
        .with_topic_id(uuid(body, "topic_id")?)
        .with_partitions(array(body, "partitions", commit_partition)?);
    skip_tags(body)?;
    Ok(topic)
}

fn commit_partition(body: &mut Bytes) -> Result<OffsetCommitRequestPartition, CheckError> {
    OffsetCommitRequestPartition::decode(body, UNCHANGED_SINCE)
        .map_err(|_| CheckError::NotText("committed_metadata"))
}

/// Reads TxnOffsetCommit 6 off the front of `body`.
pub(super) fn txn_offset_commit(body: &mut Bytes) -> Result<(RequestKind, Beyond), CheckError> {
    let mut request = TxnOffsetCommitRequest::default()
        .with_transactional_id(text(body, "transactional_id")?.into())
        .with_group_id(text(body, "group_id")?.into())
        .with_producer_id(ProducerId(int64(body, "producer_id")?))
        .with_producer_epoch(int16(body, "producer_epoch")?)
        .with_generation_id(int32(body, "generation_id")?)
        .with_member_id(text(body, "member_id")?)
        .with_group_instance_id(nullable_text(body, "group_instance_id")?);
    let count = array_length(body, "topics")?;
    request.topics.reserve_exact(count);
    let mut topic_ids = Vec::with_capacity(count);
    for _ in 0..count {
        topic_ids.push(uuid(body, "topic_id")?);
        let topic = TxnOffsetCommitRequestTopic::default();
        request.topics.push(topic.with_partitions(array(body, "partitions", txn_partition)?));
        skip_tags(body)?;
    }
    skip_tags(body)?;
    let beyond = Beyond { topic_ids, ..Beyond::default() };
    Ok((RequestKind::TxnOffsetCommit(request), beyond))
}

fn txn_partition(body: &mut Bytes) -> Result<TxnOffsetCommitRequestPartition, CheckError> {
    TxnOffsetCommitRequestPartition::decode(body, TXN_UNCHANGED_SINCE)
        .map_err(|_| CheckError::NotText("committed_metadata"))
}

/// Reads OffsetFetch 10 off the front of `body`.
pub(super) fn offset_fetch(body: &mut Bytes) -> Result<RequestKind, CheckError> {
    let request = OffsetFetchRequest::default()
        .with_groups(array(body, "groups", fetch_group)?)
        .with_require_stable(boolean(body, "require_stable")?);
    skip_tags(body)?;
    Ok(RequestKind::OffsetFetch(request))
}

fn fetch_group(body: &mut Bytes) -> Result<OffsetFetchRequestGroup, CheckError> {
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(text(body, "group_id")?.into())
        .with_member_id(nullable_text(body, "member_id")?)
        .with_member_epoch(int32(body, "member_epoch")?)
        .with_topics(nullable_array(body, "topics", fetch_topic)?);
    skip_tags(body)?;
    Ok(group)
}

fn fetch_topic(body: &mut Bytes) -> Result<OffsetFetchRequestTopics, CheckError> {
    let topic = OffsetFetchRequestTopics::default()
        .with_topic_id(uuid(body, "topic_id")?)
        .with_partition_indexes(array(body, "partition_indexes", partition_index)?);
    skip_tags(body)?;
    Ok(topic)
}

fn partition_index(body: &mut Bytes) -> Result<i32, CheckError> {
    int32(body, "partition_indexes")
}
