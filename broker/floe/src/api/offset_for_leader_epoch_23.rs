//! OffsetForLeaderEpoch: v2-4.
//!
//! The newest epoch that is not above the asked one, and where it ends. The leader epoch is 0 for
//! ever, so that epoch 0 ends at the high watermark, which is read from the store: an older one
//! would make a client truncate.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::error_code;
use floe_log::LEADER_EPOCH;
use floe_wire::ErrorCode;
use floe_wire::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use floe_wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use floe_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use std::sync::Arc;

pub(super) const API: super::Api = api!(OffsetForLeaderEpoch, 2..=4, handle);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> Handled {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let end = end(&broker, &topic.topic, &asked).await;
            let (code, (epoch, offset)) = match end {
                Ok(end) => (ErrorCode::None, end.unwrap_or((-1, -1))),
                Err(code) => (code, (-1, -1)),
            };
            partitions.push(
                EpochEndOffset::default()
                    .with_partition(asked.partition)
                    .with_error_code(code.code())
                    .with_leader_epoch(epoch)
                    .with_end_offset(offset),
            );
        }
        topics.push(
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic)
                .with_partitions(partitions),
        );
    }
    context.reply(&OffsetForLeaderEpochResponse::default().with_topics(topics))
}

/// The epoch and its end; `None` if the asked epoch is none that was.
async fn end(
    broker: &Broker,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(i32, i64)>, ErrorCode> {
    let known = broker.topics.by_name(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = known.partition(asked.partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if asked.current_leader_epoch > LEADER_EPOCH {
        return Err(ErrorCode::UnknownLeaderEpoch);
    }
    let state = broker.log.state(partition).await.map_err(|error| {
        tracing::warn!(%partition, %error, "the end of an epoch was not found");
        error_code(&error)
    })?;
    let state = state.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok((asked.leader_epoch == LEADER_EPOCH).then_some((LEADER_EPOCH, state.high_watermark)))
}
