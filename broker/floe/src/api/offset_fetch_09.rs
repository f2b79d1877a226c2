//! OffsetFetch: v1-10.
//!
//! v2 all topics, error of the whole; v5 leader epoch; v7 require stable: a partition with an
//! offset that waits for the end of a transaction has none; v8 several groups; v9 members and their
//! epochs, for groups of the newer protocol; v10 topic ids.
//! Always answered from the metadata store, whatever the group's state: one that does not exist
//! simply has no offsets.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::group_code;
use crate::groups::check_group_id;
use crate::topics::KnownTopic;
use floe_env::Result as FloeResult;
use floe_metadata::groups::CommittedOffset;
use floe_metadata::transactions::PendingOffset;
use floe_wire::ErrorCode;
use floe_wire::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use floe_wire::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use floe_wire::messages::{OffsetFetchRequest, OffsetFetchResponse, StrBytes, TopicName};
use kfs::{TopicId, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

pub(super) const API: super::Api = api!(OffsetFetch, 1..=10, handle);

/// The first version with an error of the whole answer.
const ERROR_SINCE: i16 = 2;
/// The first version with several groups.
const GROUPS_SINCE: i16 = 8;
/// The first version that names the member that asks.
const MEMBER_SINCE: i16 = 9;
/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 10;
/// Clients look for the coordinator again and repeat the request.
const FAILED: ErrorCode = ErrorCode::NotCoordinator;

/// A topic's part of the answer, before it takes the shape of a version.
struct Fetched {
    name: TopicName,
    id: Uuid,
    partitions: Vec<OffsetFetchResponsePartitions>,
}

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: OffsetFetchRequest,
) -> Handled {
    let version = context.version;
    if version < GROUPS_SINCE {
        return context.reply(&single(&broker, version, request).await);
    }
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let answer = OffsetFetchResponseGroup::default();
        let answer = match fetch(&broker, version, &group, request.require_stable).await {
            Ok(topics) => {
                let topics = topics.into_iter().map(|topic| {
                    let answer = OffsetFetchResponseTopics::default();
                    let answer = match version >= TOPIC_IDS_SINCE {
                        true => answer.with_topic_id(topic.id),
                        false => answer.with_name(topic.name),
                    };
                    answer.with_partitions(topic.partitions)
                });
                answer.with_topics(topics.collect())
            }
            Err(code) => answer.with_error_code(code.code()),
        };
        groups.push(answer.with_group_id(group.group_id));
    }
    context.reply(&OffsetFetchResponse::default().with_groups(groups))
}

/// Versions with a single group.
async fn single(broker: &Broker, version: i16, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| {
            OffsetFetchRequestTopics::default()
                .with_name(topic.name)
                .with_partition_indexes(topic.partition_indexes)
        });
        topics.collect()
    });
    let group = OffsetFetchRequestGroup::default();
    let group = group.with_group_id(request.group_id).with_topics(topics);
    let response = OffsetFetchResponse::default();
    let topics = match fetch(broker, version, &group, request.require_stable).await {
        Ok(topics) => topics,
        Err(code) if version >= ERROR_SINCE => return response.with_error_code(code.code()),
        Err(code) => {
            let asked = group.topics.unwrap_or_default().into_iter();
            asked.map(|topic| every_partition(topic, code)).collect()
        }
    };
    let topics = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_committed_offset(partition.committed_offset)
                .with_committed_leader_epoch(partition.committed_leader_epoch)
                .with_metadata(partition.metadata)
                .with_error_code(partition.error_code)
        });
        let partitions = partitions.collect();
        OffsetFetchResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    response.with_topics(topics.collect())
}

async fn fetch(
    broker: &Broker,
    version: i16,
    group: &OffsetFetchRequestGroup,
    must_be_stable: bool,
) -> Result<Vec<Fetched>, ErrorCode> {
    check_group_id(&group.group_id).map_err(group_code)?;
    if version >= MEMBER_SINCE && (group.member_id.is_some() || group.member_epoch >= 0) {
        let member_id = group.member_id.as_ref().map(ToString::to_string);
        let checked = broker.groups.check_fetch(&group.group_id, member_id, group.member_epoch);
        checked.await.map_err(group_code)?;
    }
    let read = async {
        // Before the offsets: an end in between makes an offset look unstable, never old.
        let unstable = match must_be_stable {
            true => unstable(broker, &group.group_id).await?,
            false => BTreeSet::new(),
        };
        match &group.topics {
            Some(topics) => named(broker, version, &group.group_id, topics, &unstable).await,
            None => all(broker, &group.group_id, &unstable).await,
        }
    };
    read.await.map_err(|error| {
        tracing::warn!(group = %*group.group_id, %error, "offsets could not be fetched");
        FAILED
    })
}

/// Partitions with an offset that waits for the end of a transaction.
async fn unstable(broker: &Broker, group: &str) -> FloeResult<BTreeSet<TopicPartition>> {
    let pending = broker.metadata.pending_offsets(group).await?;
    Ok(pending.iter().map(PendingOffset::partition).collect())
}

async fn named(
    broker: &Broker,
    version: i16,
    group: &str,
    topics: &[OffsetFetchRequestTopics],
    unstable: &BTreeSet<TopicPartition>,
) -> FloeResult<Vec<Fetched>> {
    let mut known: Vec<Option<Arc<KnownTopic>>> = Vec::with_capacity(topics.len());
    for topic in topics {
        known.push(match version >= TOPIC_IDS_SINCE {
            true => broker.topic_by_id(TopicId(topic.topic_id)).await?,
            false => broker.topic_by_name(&topic.name).await?,
        });
    }
    let asked = topics.iter().zip(&known).flat_map(|(topic, known)| {
        let indexes = topic.partition_indexes.iter();
        indexes.filter_map(|index| known.as_ref()?.partition(*index))
    });
    let asked: Vec<TopicPartition> = asked.collect();
    let stored = broker.metadata.offsets_of(group, &asked).await?;
    let mut found = stored.into_iter();
    let mut fetched = Vec::with_capacity(topics.len());
    for (topic, known) in topics.iter().zip(known) {
        let Some(known) = known else {
            let code = match version >= TOPIC_IDS_SINCE {
                true => ErrorCode::UnknownTopicId,
                false => ErrorCode::None,
            };
            fetched.push(every_partition(topic.clone(), code));
            continue;
        };
        let partitions = topic.partition_indexes.iter().map(|index| {
            let place = known.partition(*index);
            let offset = place.and_then(|_| found.next().flatten());
            answered(*index, offset, place.is_some_and(|place| unstable.contains(&place)))
        });
        let partitions = partitions.collect();
        fetched.push(Fetched { name: topic.name.clone(), id: topic.topic_id, partitions });
    }
    Ok(fetched)
}

/// All offsets of a group but those of topics that are gone, which wait for their deletion.
async fn all(
    broker: &Broker,
    group: &str,
    unstable: &BTreeSet<TopicPartition>,
) -> FloeResult<Vec<Fetched>> {
    let mut topics: BTreeMap<Uuid, Fetched> = BTreeMap::new();
    for (place, offset) in broker.metadata.offsets(group).await? {
        let id = place.topic.0;
        let answer = answered(place.partition.0, Some(offset), unstable.contains(&place));
        if let Some(topic) = topics.get_mut(&id) {
            topic.partitions.push(answer);
        } else if let Some(known) = broker.topic_by_id(place.topic).await? {
            let name = TopicName(StrBytes::from_string(known.topic.name.clone()));
            let partitions = vec![answer];
            topics.insert(id, Fetched { name, id, partitions });
        }
    }
    Ok(topics.into_values().collect())
}

/// A partition's part of the answer; what is not stable is not told.
fn answered(
    index: i32,
    offset: Option<CommittedOffset>,
    is_unstable: bool,
) -> OffsetFetchResponsePartitions {
    match is_unstable {
        true => partition(index, None, ErrorCode::UnstableOffsetCommit),
        false => partition(index, offset, ErrorCode::None),
    }
}

fn every_partition(topic: OffsetFetchRequestTopics, code: ErrorCode) -> Fetched {
    let indexes = topic.partition_indexes.iter();
    let partitions = indexes.map(|index| partition(*index, None, code)).collect();
    Fetched { name: topic.name, id: topic.topic_id, partitions }
}

fn partition(
    index: i32,
    offset: Option<CommittedOffset>,
    code: ErrorCode,
) -> OffsetFetchResponsePartitions {
    let partition = OffsetFetchResponsePartitions::default()
        .with_partition_index(index)
        .with_error_code(code.code());
    match offset {
        Some(offset) => partition
            .with_committed_offset(offset.offset)
            .with_committed_leader_epoch(offset.leader_epoch)
            .with_metadata(Some(StrBytes::from_string(offset.metadata))),
        None => partition
            .with_committed_offset(-1)
            .with_committed_leader_epoch(-1)
            .with_metadata(Some(StrBytes::default())),
    }
}
