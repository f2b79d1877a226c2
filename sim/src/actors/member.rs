//! A consumer group's one member: joins, commits offsets that only grow, and reads them back, from
//! whichever broker listens. An offset that was committed is never told smaller again, whatever
//! dies; and without faults the group takes its member in and its commits.

use super::{Context, topic_name};
use crate::client::{Connection, Gone};
use crate::dice::{below, between_ms, chance, pick};
use bytes::Bytes;
use floe_wire::ErrorCode;
use floe_wire::messages::join_group_request::JoinGroupRequestProtocol;
use floe_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use floe_wire::messages::offset_fetch_request::OffsetFetchRequestTopic;
use floe_wire::messages::sync_group_request::SyncGroupRequestAssignment;
use floe_wire::messages::{
    GroupId, JoinGroupRequest, OffsetCommitRequest, OffsetFetchRequest, StrBytes, SyncGroupRequest,
};
use std::collections::BTreeMap;

const GROUP: &str = "readers";
const JOIN_VERSION: i16 = 7;
const SYNC_VERSION: i16 = 5;
const COMMIT_VERSION: i16 = 8;
const FETCH_VERSION: i16 = 7;
const SESSION_TIMEOUT_MS: i32 = 10_000;
/// A member that leaves its broker without a word, per mille of its rounds.
const HANGS_UP: u64 = 60;
/// Commits that must have succeeded at the end, after the last fault.
const COMMITS_IN_CALM: u64 = 3;

/// What a group answers whose coordinator cannot reach its facts.
const NO_COORDINATOR: ErrorCode = ErrorCode::NotCoordinator;
/// What a group answers a member that it has lost, or that has lost its turn.
const NOT_A_MEMBER: [ErrorCode; 4] = [
    NO_COORDINATOR,
    ErrorCode::UnknownMemberId,
    ErrorCode::IllegalGeneration,
    ErrorCode::RebalanceInProgress,
];

/// What a member is known by.
#[derive(Clone, Debug, Default)]
struct Membership {
    member: StrBytes,
    generation: i32,
}

/// The actor.
pub struct Member {
    context: Context,
    topic: String,
    partitions: i32,
    /// The greatest offset that was ever asked to be committed, by partition.
    asked: BTreeMap<i32, i64>,
    /// The greatest offset whose commit was acknowledged, or that was told.
    held: BTreeMap<i32, i64>,
    commits: u64,
}

impl Member {
    /// One that commits offsets of all partitions of a topic.
    pub fn new(context: Context, topic: &str, partitions: i32) -> Self {
        let (asked, held) = (BTreeMap::new(), BTreeMap::new());
        Self { context, topic: topic.to_owned(), partitions, asked, held, commits: 0 }
    }

    /// Commits until the stop is given, and some times more.
    pub async fn run(mut self) {
        let env = self.context.env.clone();
        let mut at_stop = None;
        loop {
            if self.context.stop.is_triggered() {
                let since = *at_stop.get_or_insert(self.commits);
                if self.commits >= since + COMMITS_IN_CALM {
                    return;
                }
            }
            let mut connection = self.context.connect_somewhere().await;
            if let Err(gone) = self.stay(&mut connection).await {
                self.context.note(&format!("member: {gone}"));
            }
            env.sleep(between_ms(&env, 50, 1500)).await;
        }
    }

    /// Joins and commits on one connection, for as long as nothing goes wrong.
    async fn stay(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let Some(mut membership) = self.join(connection).await? else { return Ok(()) };
        if !self.sync(connection, &membership).await? {
            return Ok(());
        }
        let env = self.context.env.clone();
        for _ in 0..pick(&env, &[1, 5, 20]) {
            self.look(connection).await?;
            if !self.commit(connection, &mut membership).await? || chance(&env, HANGS_UP) {
                return Ok(());
            }
            env.sleep(between_ms(&env, 20, 800)).await;
        }
        Ok(())
    }

    async fn join(&self, connection: &mut Connection) -> Result<Option<Membership>, Gone> {
        let mut member = StrBytes::default();
        for _ in 0..2 {
            let protocol = JoinGroupRequestProtocol::default()
                .with_name(StrBytes::from_static_str("range"))
                .with_metadata(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
            let request = JoinGroupRequest::default()
                .with_group_id(group())
                .with_session_timeout_ms(SESSION_TIMEOUT_MS)
                .with_rebalance_timeout_ms(SESSION_TIMEOUT_MS)
                .with_member_id(member.clone())
                .with_protocol_type(StrBytes::from_static_str("consumer"))
                .with_protocols(vec![protocol]);
            let answer = self.context.call(connection, JOIN_VERSION, &request).await?;
            member = answer.member_id.clone();
            let (code, generation) = (answer.error_code, answer.generation_id);
            self.context.note(&format!("joins: code {code} generation {generation}"));
            let allowed = [NO_COORDINATOR, ErrorCode::MemberIdRequired, ErrorCode::UnknownMemberId];
            self.context.check_code("joins its group", code, &allowed, connection);
            if code == ErrorCode::None.code() {
                return Ok(Some(Membership { member, generation }));
            }
            if code != ErrorCode::MemberIdRequired.code() {
                break;
            }
        }
        Ok(None)
    }

    async fn sync(
        &self,
        connection: &mut Connection,
        membership: &Membership,
    ) -> Result<bool, Gone> {
        let all = SyncGroupRequestAssignment::default()
            .with_member_id(membership.member.clone())
            .with_assignment(Bytes::from_static(b"all"));
        let request = SyncGroupRequest::default()
            .with_group_id(group())
            .with_generation_id(membership.generation)
            .with_member_id(membership.member.clone())
            .with_protocol_type(Some(StrBytes::from_static_str("consumer")))
            .with_protocol_name(Some(StrBytes::from_static_str("range")))
            .with_assignments(vec![all]);
        let answer = self.context.call(connection, SYNC_VERSION, &request).await?;
        let code = answer.error_code;
        self.context.check_code("syncs with its group", code, &NOT_A_MEMBER, connection);
        Ok(code == ErrorCode::None.code())
    }

    /// Reads the committed offsets back.
    async fn look(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let floor = self.held.clone();
        let topic = OffsetFetchRequestTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partition_indexes((0..self.partitions).collect());
        let request = OffsetFetchRequest::default()
            .with_group_id(group())
            .with_topics(Some(vec![topic]))
            .with_require_stable(true);
        let answer = self.context.call(connection, FETCH_VERSION, &request).await?;
        let doing = "reads its group's offsets";
        self.context.check_code(doing, answer.error_code, &[NO_COORDINATOR], connection);
        if answer.error_code != ErrorCode::None.code() || connection.is_stale() {
            return Ok(());
        }
        for found in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            self.context.check_code(doing, found.error_code, &[], connection);
            if found.error_code != ErrorCode::None.code() {
                continue;
            }
            let (index, told) = (found.partition_index, found.committed_offset);
            let least = floor.get(&index).copied().unwrap_or(-1);
            let most = self.asked.get(&index).copied().unwrap_or(-1);
            self.context.note(&format!("committed offset of {index}: {told}"));
            if !(least..=most).contains(&told) {
                self.context.model.violation(format!(
                    "committed offset of partition {index}: {told} is told, {least} was held and \
                     {most} asked for"
                ));
            }
            let held = self.held.entry(index).or_insert(told);
            *held = told.max(*held);
        }
        Ok(())
    }

    /// Commits greater offsets; true where all were taken.
    async fn commit(
        &mut self,
        connection: &mut Connection,
        membership: &mut Membership,
    ) -> Result<bool, Gone> {
        let env = self.context.env.clone();
        let mut partitions = Vec::new();
        for index in 0..self.partitions {
            let asked = self.asked.entry(index).or_insert(-1);
            *asked += 1 + below(&env, 5) as i64;
            let partition = OffsetCommitRequestPartition::default()
                .with_partition_index(index)
                .with_committed_offset(*asked)
                .with_committed_metadata(Some(StrBytes::default()));
            partitions.push(partition);
        }
        let now = self.asked.clone();
        let topic = OffsetCommitRequestTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partitions(partitions);
        let request = OffsetCommitRequest::default()
            .with_group_id(group())
            .with_generation_id_or_member_epoch(membership.generation)
            .with_member_id(membership.member.clone())
            .with_topics(vec![topic]);
        let answer = self.context.call(connection, COMMIT_VERSION, &request).await?;
        let answers = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let mut all_taken = true;
        for found in answers {
            let (index, code) = (found.partition_index, found.error_code);
            self.context.note(&format!("commits {index}: code {code}"));
            self.context.check_code("commits offsets", code, &NOT_A_MEMBER, connection);
            if code == ErrorCode::None.code() {
                self.held.insert(index, now[&index]);
            } else {
                all_taken = false;
            }
        }
        self.commits += u64::from(all_taken);
        self.context.model.count(|counts| counts.group_commits += u64::from(all_taken));
        Ok(all_taken)
    }
}

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str(GROUP))
}
