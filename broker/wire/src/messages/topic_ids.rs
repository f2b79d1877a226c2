//! OffsetCommit 10 and OffsetFetch 10: requests that name topics by id.
//!
//! The message layer's structures have the id, and its responses write it, but its requests end at
//! version 9. These two readers differ from it in that one field.

use bytes::{Buf, Bytes};
use uuid::Uuid;

use super::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use super::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use super::{Decodable, OffsetCommitRequest, OffsetFetchRequest, RequestKind, StrBytes};
use crate::check;
use crate::error::CheckError;

/// The first version of both that names topics by id.
pub(super) const SINCE: i16 = 10;

/// The version of the parts that have not changed.
const UNCHANGED_SINCE: i16 = 9;

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

/// Reads OffsetFetch 10 off the front of `body`.
pub(super) fn offset_fetch(body: &mut Bytes) -> Result<RequestKind, CheckError> {
    let request = OffsetFetchRequest::default()
        .with_groups(array(body, "groups", fetch_group)?)
        .with_require_stable(fixed::<1>(body, "require_stable")? != [0]);
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

fn fixed<const N: usize>(body: &mut Bytes, field: &'static str) -> Result<[u8; N], CheckError> {
    let short = CheckError::Short { field, needed: N, left: body.len() };
    let bytes = *body.first_chunk::<N>().ok_or(short)?;
    body.advance(N);
    Ok(bytes)
}

fn int32(body: &mut Bytes, field: &'static str) -> Result<i32, CheckError> {
    fixed(body, field).map(i32::from_be_bytes)
}

fn uuid(body: &mut Bytes, field: &'static str) -> Result<Uuid, CheckError> {
    fixed(body, field).map(Uuid::from_bytes)
}

/// A compact length; `None` is null.
fn length(body: &mut Bytes, field: &'static str) -> Result<Option<usize>, CheckError> {
    let (value, bytes) = check::varint(body, field)?;
    body.advance(bytes);
    Ok((value as usize).checked_sub(1))
}

fn nullable_text(body: &mut Bytes, field: &'static str) -> Result<Option<StrBytes>, CheckError> {
    let Some(needed) = length(body, field)? else { return Ok(None) };
    let left = body.len();
    if needed > left {
        return Err(CheckError::Short { field, needed, left });
    }
    StrBytes::from_utf8(body.split_to(needed)).map(Some).map_err(|_| CheckError::NotText(field))
}

fn text(body: &mut Bytes, field: &'static str) -> Result<StrBytes, CheckError> {
    nullable_text(body, field)?.ok_or(CheckError::Null(field))
}

fn nullable_array<T>(
    body: &mut Bytes,
    field: &'static str,
    element: fn(&mut Bytes) -> Result<T, CheckError>,
) -> Result<Option<Vec<T>>, CheckError> {
    let Some(count) = length(body, field)? else { return Ok(None) };
    let left = body.len();
    if count > left {
        return Err(CheckError::Short { field, needed: count, left });
    }
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        elements.push(element(body)?);
    }
    Ok(Some(elements))
}

fn array<T>(
    body: &mut Bytes,
    field: &'static str,
    element: fn(&mut Bytes) -> Result<T, CheckError>,
) -> Result<Vec<T>, CheckError> {
    nullable_array(body, field, element)?.ok_or(CheckError::Null(field))
}

fn skip_tags(body: &mut Bytes) -> Result<(), CheckError> {
    let bytes = check::skip_tagged_fields(body)?;
    body.advance(bytes);
    Ok(())
}
