//! DeleteRecords: v0-2.
//!
//! Moves the log start of partitions forward; -1 means the high watermark. An offset at or below
//! the log start changes nothing and is no error. The log start may lie inside a batch.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::error_code;
use crate::topic_names;
use floe_wire::ErrorCode;
use floe_wire::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use floe_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use std::sync::Arc;

pub(super) const API: super::Api = api!(DeleteRecords, 0..=2, handle);

/// Stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DeleteRecordsRequest,
) -> Handled {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let index = asked.partition_index;
            let deleted = delete(&broker, &topic.name, index, asked.offset).await;
            let (code, low_watermark) = match deleted {
                Ok(log_start) => (ErrorCode::None, log_start),
                Err(code) => (code, -1),
            };
            partitions.push(
                DeleteRecordsPartitionResult::default()
                    .with_partition_index(index)
                    .with_error_code(code.code())
                    .with_low_watermark(low_watermark),
            );
        }
        topics.push(
            DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions),
        );
    }
    context.reply(&DeleteRecordsResponse::default().with_topics(topics))
}

/// The log start afterwards.
async fn delete(broker: &Broker, topic: &str, index: i32, offset: i64) -> Result<i64, ErrorCode> {
    let failed = |error: floe_env::Error| {
        tracing::warn!(topic, partition = index, %error, "records were not deleted");
        error_code(&error)
    };
    if topic_names::is_internal(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let known = broker.topic_by_name(topic).await.map_err(failed)?;
    let known = known.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = known.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if known.settings.is_compacted && !known.settings.is_deleted {
        return Err(ErrorCode::PolicyViolation);
    }
    let state = broker.log.state(partition).await.map_err(failed)?;
    let state = state.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let log_start = target(offset, state.high_watermark).ok_or(ErrorCode::OffsetOutOfRange)?;
    if log_start <= state.log_start_offset {
        return Ok(state.log_start_offset);
    }
    let advanced = broker.log.advance_log_start(partition, log_start).await.map_err(failed)?;
    let advanced = advanced.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    tracing::info!(topic, partition = index, log_start, "records deleted");
    Ok(advanced.log_start_offset)
}

/// The log start that is asked for; `None` if it is out of range.
fn target(offset: i64, high_watermark: i64) -> Option<i64> {
    match offset {
        HIGH_WATERMARK => Some(high_watermark),
        _ => (0..=high_watermark).contains(&offset).then_some(offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_within_the_log() {
        for (offset, high_watermark, expected) in [
            (0, 10, Some(0)),
            (10, 10, Some(10)),
            (11, 10, None),
            (-1, 10, Some(10)),
            (-2, 10, None),
            (-1, 0, Some(0)),
            (1, 0, None),
            (i64::MIN, 10, None),
        ] {
            assert_eq!(target(offset, high_watermark), expected, "{offset} of {high_watermark}");
        }
    }
}
