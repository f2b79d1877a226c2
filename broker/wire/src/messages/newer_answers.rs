//! Answers at versions that the message layer lacks, each the older layout with one more field.
//!
//! DeleteGroups 3 has a message for each group, which is null here: there is nothing to say beyond
//! the error's name. DescribeLogDirs 5 says of each directory whether it is cordoned, which the
//! object store never is. TxnOffsetCommit 6 has each topic's id in the place of its name.

use bytes::{BufMut, BytesMut};
use kafka_protocol::protocol::Encodable;

use super::{DeleteGroupsResponse, DescribeLogDirsResponse, TxnOffsetCommitResponse};
use uuid::Uuid;

/// The first version of DeleteGroups with a message for each group.
pub(super) const DELETE_GROUPS_SINCE: i16 = 3;
/// The first version of DescribeLogDirs that tells cordoned directories.
pub(super) const DESCRIBE_LOG_DIRS_SINCE: i16 = 5;

/// A compact null, and the empty tag section.
const NULL: u8 = 0;
const NO_TAGS: u8 = 0;

/// Puts the body of a DeleteGroups answer of version 3.
pub(super) fn delete_groups(
    body: &mut BytesMut,
    answer: &DeleteGroupsResponse,
) -> Result<(), String> {
    body.put_i32(answer.throttle_time_ms);
    put_length(body, answer.results.len())?;
    for result in &answer.results {
        put_widened(body, result, DELETE_GROUPS_SINCE - 1, NULL)?;
    }
    body.put_u8(NO_TAGS);
    Ok(())
}

/// Puts the body of a DescribeLogDirs answer of version 5.
pub(super) fn describe_log_dirs(
    body: &mut BytesMut,
    answer: &DescribeLogDirsResponse,
) -> Result<(), String> {
    const IS_CORDONED: u8 = 0;
    body.put_i32(answer.throttle_time_ms);
    body.put_i16(answer.error_code);
    put_length(body, answer.results.len())?;
    for result in &answer.results {
        put_widened(body, result, DESCRIBE_LOG_DIRS_SINCE - 1, IS_CORDONED)?;
    }
    body.put_u8(NO_TAGS);
    Ok(())
}

/// Puts the body of a TxnOffsetCommit answer of version 6, whose topics have these ids.
pub(super) fn txn_offset_commit(
    body: &mut BytesMut,
    answer: &TxnOffsetCommitResponse,
    topic_ids: &[Uuid],
) -> Result<(), String> {
    if topic_ids.len() != answer.topics.len() {
        return Err(format!("{} topics and {} ids", answer.topics.len(), topic_ids.len()));
    }
    body.put_i32(answer.throttle_time_ms);
    put_length(body, answer.topics.len())?;
    for (topic, id) in answer.topics.iter().zip(topic_ids) {
        body.put_slice(id.as_bytes());
        put_length(body, topic.partitions.len())?;
        for partition in &topic.partitions {
            let put = partition.encode(body, super::topic_ids::TXN_SINCE - 1);
            put.map_err(|error| error.to_string())?;
        }
        body.put_u8(NO_TAGS);
    }
    body.put_u8(NO_TAGS);
    Ok(())
}

/// Puts a structure as of `version`, and one more field of one byte behind its fields.
fn put_widened(
    body: &mut BytesMut,
    structure: &impl Encodable,
    version: i16,
    field: u8,
) -> Result<(), String> {
    structure.encode(body, version).map_err(|error| error.to_string())?;
    // The structure ended with its tags, of which answers have none; the field goes before them.
    if body.last() != Some(&NO_TAGS) {
        return Err("tagged fields behind a new field".to_owned());
    }
    body.truncate(body.len() - 1);
    body.put_slice(&[field, NO_TAGS]);
    Ok(())
}

/// Puts the length of a compact array.
fn put_length(body: &mut BytesMut, length: usize) -> Result<(), String> {
    let mut rest = u32::try_from(length + 1).map_err(|_| "an array is too long".to_owned())?;
    while rest >= 0x80 {
        body.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    body.put_u8(rest as u8);
    Ok(())
}
