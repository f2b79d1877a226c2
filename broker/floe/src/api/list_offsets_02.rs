//! ListOffsets: v1-11.
//!
//! -1 latest, -2 earliest, -3 (v7) greatest timestamp, -4 (v8) earliest local, -5 (v9) latest
//! tiered, -6 (v11) earliest pending upload; else the first record at or after a time. Always
//! answered from the metadata store: an end that lags behind an acknowledged write would read as
//! data loss.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::error_code;
use floe_env::Result as FloeResult;
use floe_log::{LEADER_EPOCH, TimedOffset};
use floe_wire::ErrorCode;
use floe_wire::messages::list_offsets_request::ListOffsetsPartition;
use floe_wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use floe_wire::messages::{ListOffsetsRequest, ListOffsetsResponse, TopicName};
use kfs::TopicPartition;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const API: super::Api = api!(ListOffsets, 1..=11, handle);

/// The first version that tells the leader epoch; older ones cannot carry it.
const LEADER_EPOCH_SINCE: i16 = 4;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// What is answered for a partition: offset, timestamp, leader epoch.
struct Found {
    offset: i64,
    timestamp_ms: i64,
    leader_epoch: i32,
}

impl Found {
    fn end(offset: i64) -> Self {
        Self { offset, timestamp_ms: -1, leader_epoch: LEADER_EPOCH }
    }

    fn nothing() -> Self {
        Self { offset: -1, timestamp_ms: -1, leader_epoch: -1 }
    }

    fn record(found: Option<TimedOffset>) -> Self {
        found.map_or_else(Self::nothing, |record| Self {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            leader_epoch: LEADER_EPOCH,
        })
    }
}

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: ListOffsetsRequest,
) -> Handled {
    let committed_only = request.isolation_level == 1;
    let mut seen: BTreeMap<(TopicName, i32), u32> = BTreeMap::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            *seen.entry((topic.name.clone(), partition.partition_index)).or_default() += 1;
        }
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let times = seen.remove(&(topic.name.clone(), asked.partition_index));
            let found = match times {
                None => continue,
                Some(1) => {
                    find(&broker, context.version, &topic.name, &asked, committed_only).await
                }
                Some(_) => Err(ErrorCode::InvalidRequest),
            };
            partitions.push(answer(context.version, asked.partition_index, found));
        }
        topics.push(
            ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions),
        );
    }
    context.reply(&ListOffsetsResponse::default().with_topics(topics))
}

fn answer(
    version: i16,
    index: i32,
    found: Result<Found, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let (code, found) = match found {
        Ok(found) => (ErrorCode::None, found),
        Err(code) => (code, Found::nothing()),
    };
    let leader_epoch = if version >= LEADER_EPOCH_SINCE { found.leader_epoch } else { -1 };
    ListOffsetsPartitionResponse::default()
        .with_partition_index(index)
        .with_error_code(code.code())
        .with_offset(found.offset)
        .with_timestamp(found.timestamp_ms)
        .with_leader_epoch(leader_epoch)
}

async fn find(
    broker: &Broker,
    version: i16,
    topic: &str,
    asked: &ListOffsetsPartition,
    committed_only: bool,
) -> Result<Found, ErrorCode> {
    let known = broker.topics.by_name(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = known.partition(asked.partition_index);
    let partition = partition.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if asked.current_leader_epoch > LEADER_EPOCH {
        return Err(ErrorCode::UnknownLeaderEpoch);
    }
    if !is_known(asked.timestamp, version) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let found = find_at(broker, partition, asked.timestamp, committed_only).await;
    let found = found.map_err(|error| {
        tracing::warn!(%partition, %error, "listing an offset failed");
        error_code(&error)
    });
    found?.ok_or(ErrorCode::UnknownTopicOrPartition)
}

fn is_known(timestamp: i64, version: i16) -> bool {
    match timestamp {
        0.. | LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        _ => false,
    }
}

/// `None`: no such partition.
async fn find_at(
    broker: &Broker,
    partition: TopicPartition,
    timestamp: i64,
    committed_only: bool,
) -> FloeResult<Option<Found>> {
    let log = &broker.log;
    Ok(match timestamp {
        LATEST => log.state(partition).await?.map(|state| {
            let end = state.last_stable_offset;
            Found::end(if committed_only { end } else { state.high_watermark })
        }),
        EARLIEST | EARLIEST_LOCAL => {
            log.state(partition).await?.map(|state| Found::end(state.log_start_offset))
        }
        // There is no second tier.
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => {
            log.state(partition).await?.map(|_| Found::nothing())
        }
        MAX_TIMESTAMP => {
            log.offset_of_max_timestamp(partition, committed_only).await?.map(Found::record)
        }
        _ => log.offset_by_time(partition, timestamp, committed_only).await?.map(Found::record),
    })
}
