//! OffsetCommit: v2-10.
//!
//! v2-4 a retention of their own; v6 leader epoch; v7 static members; v9 member epochs;
//! v10 topic ids. What is wrong
//! with a topic or partition fails it alone; all others are stored together, or none of them.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::error_codes::{group_answer_code, group_code};
use crate::topics::KnownTopic;
use floe_coordinator::classic::CommitCheck;
use floe_coordinator::offsets::check_offset_metadata;
use floe_metadata::groups::CommittedOffset;
use floe_wire::ErrorCode;
use floe_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use floe_wire::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use floe_wire::messages::{OffsetCommitRequest, OffsetCommitResponse};
use kfs::{TopicId, TopicPartition};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const API: super::Api = api!(OffsetCommit, 2..=10, handle);

/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 10;
/// "As the cluster has it."
const DEFAULT_RETENTION: i64 = -1;

/// What becomes of a partition.
enum Fate {
    /// It is stored, if the group lets its sender do so.
    Stored,
    /// It is too long, which counts only if the group lets its sender store.
    Refused(ErrorCode),
    /// There is no such partition.
    Unknown(ErrorCode),
}

/// A request while it is sorted out.
struct Commit {
    now_ms: i64,
    expires_ms: Option<i64>,
    /// What to store; the last entry of a partition counts.
    offsets: BTreeMap<TopicPartition, CommittedOffset>,
    /// In the order of the request, without topics that name no partition.
    topics: Vec<(OffsetCommitRequestTopic, Vec<Fate>)>,
}

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: OffsetCommitRequest,
) -> Handled {
    let now_ms = broker.groups.now_ms();
    let retention_ms = request.retention_time_ms;
    let expires_ms =
        (retention_ms != DEFAULT_RETENTION).then(|| now_ms.saturating_add(retention_ms));
    let mut commit = Commit { now_ms, expires_ms, offsets: BTreeMap::new(), topics: Vec::new() };
    for topic in request.topics {
        if topic.partitions.is_empty() {
            continue;
        }
        let known = find(&broker, context.version, &topic).await;
        commit.take(topic, known);
    }
    let check = CommitCheck {
        version: context.version,
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        generation: request.generation_id_or_member_epoch,
        transactional: false,
        partitions: commit.offsets.keys().map(|place| (place.topic.0, place.partition.0)).collect(),
    };
    let mut fates = commit.topics.iter().flat_map(|(_, fates)| fates);
    let concerns_group = fates.any(|fate| !matches!(fate, Fate::Unknown(_)));
    let answer = match concerns_group {
        true => {
            let offsets = commit.offsets.into_iter().collect();
            group_answer_code(broker.groups.commit(&request.group_id, check, offsets).await)
        }
        false => ErrorCode::None,
    };
    let topics = commit.topics.into_iter().map(|(topic, fates)| response(topic, &fates, answer));
    context.reply(&OffsetCommitResponse::default().with_topics(topics.collect()))
}

async fn find(
    broker: &Broker,
    version: i16,
    topic: &OffsetCommitRequestTopic,
) -> Result<Arc<KnownTopic>, ErrorCode> {
    let (found, missing) = if version >= TOPIC_IDS_SINCE {
        (broker.topic_by_id(TopicId(topic.topic_id)).await, ErrorCode::UnknownTopicId)
    } else {
        (broker.topic_by_name(&topic.name).await, ErrorCode::UnknownTopicOrPartition)
    };
    let found = found.map_err(|error| {
        tracing::warn!(%error, "a topic of an offset commit could not be looked up");
        ErrorCode::NotCoordinator
    });
    found?.ok_or(missing)
}

impl Commit {
    fn take(&mut self, topic: OffsetCommitRequestTopic, known: Result<Arc<KnownTopic>, ErrorCode>) {
        let mut fates = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let partition = known.as_ref().map_err(|code| *code).and_then(|known| {
                let partition = known.partition(asked.partition_index);
                partition.ok_or(ErrorCode::UnknownTopicOrPartition)
            });
            fates.push(match partition {
                Ok(partition) => self.take_partition(partition, asked),
                Err(code) => Fate::Unknown(code),
            });
        }
        self.topics.push((topic, fates));
    }

    fn take_partition(
        &mut self,
        partition: TopicPartition,
        asked: &OffsetCommitRequestPartition,
    ) -> Fate {
        let metadata = asked.committed_metadata.as_deref();
        if let Err(error) = check_offset_metadata(metadata) {
            return Fate::Refused(group_code(error));
        }
        let offset = CommittedOffset {
            offset: asked.committed_offset,
            leader_epoch: asked.committed_leader_epoch,
            metadata: metadata.unwrap_or_default().to_owned(),
            commit_ms: self.now_ms,
            expires_ms: self.expires_ms,
        };
        self.offsets.insert(partition, offset);
        Fate::Stored
    }
}

fn response(
    topic: OffsetCommitRequestTopic,
    fates: &[Fate],
    answer: ErrorCode,
) -> OffsetCommitResponseTopic {
    let partitions = topic.partitions.iter().zip(fates).map(|(asked, fate)| {
        let code = match fate {
            Fate::Unknown(code) => *code,
            Fate::Refused(code) if answer.is_none() => *code,
            Fate::Stored | Fate::Refused(_) => answer,
        };
        OffsetCommitResponsePartition::default()
            .with_partition_index(asked.partition_index)
            .with_error_code(code.code())
    });
    let partitions = partitions.collect();
    OffsetCommitResponseTopic::default()
        .with_name(topic.name)
        .with_topic_id(topic.topic_id)
        .with_partitions(partitions)
}
