//! A member of a consumer group of the newer protocol: joins, takes and gives up partitions as it
//! is told, falls silent, leaves, and comes back as another process, from whichever broker listens.
//! No partition is ever given to two members, whatever dies; and without faults the group keeps its
//! members and gives out every partition.

use super::{Context, topic_name};
use crate::assignments::Place;
use crate::client::{Connection, Gone};
use crate::dice::{between_ms, chance, pick};
use floe_env::Instant;
use floe_wire::ErrorCode;
use floe_wire::messages::consumer_group_heartbeat_request::TopicPartitions;
use floe_wire::messages::consumer_group_heartbeat_response::Assignment;
use floe_wire::messages::{ConsumerGroupHeartbeatRequest, GroupId, StrBytes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uuid::Uuid;

/// The group that all of them are in.
pub const GROUP: &str = "sharers";
/// The session timeout of the simulated brokers.
pub const SESSION: Duration = Duration::from_secs(6);
/// How often a member is told to send heartbeats, by the simulated brokers.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
const HEARTBEAT_VERSION: i16 = 1;
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(4);
const LEAVE: i32 = -1;
/// Rounds in which a member leaves, falls silent, or hangs up; per mille.
const LEAVES: u64 = 30;
const FALLS_SILENT: u64 = 30;
const HANGS_UP: u64 = 60;
/// Heartbeats in a row that must have succeeded at the end, after the last fault.
const BEATS_IN_CALM: u32 = 8;

/// What a group answers that cannot be reached, or whose members another broker keeps now.
const MAY_ANSWER: [ErrorCode; 4] = [
    ErrorCode::NotCoordinator,
    ErrorCode::UnknownMemberId,
    ErrorCode::FencedMemberEpoch,
    ErrorCode::GroupIdNotFound,
];

/// The actor.
pub struct Sharer {
    context: Context,
    topic: String,
    /// Another one for each process.
    member: String,
    /// 0 if it has to join.
    epoch: i32,
    owned: BTreeMap<Uuid, BTreeSet<i32>>,
    /// The next heartbeat says everything.
    tells: bool,
    /// Heartbeats since the last that went wrong.
    in_a_row: u32,
}

impl Sharer {
    /// A member that is subscribed to a topic.
    pub fn new(context: Context, topic: &str) -> Self {
        let (member, owned) = (context.env.uuid().to_string(), BTreeMap::new());
        let topic = topic.to_owned();
        Self { context, topic, member, epoch: 0, owned, tells: false, in_a_row: 0 }
    }

    /// Is a member until the stop is given, and a while longer.
    pub async fn run(mut self) {
        let env = self.context.env.clone();
        loop {
            let mut connection = self.context.connect_somewhere().await;
            match self.stay(&mut connection).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(gone) => {
                    self.context.note(&format!("sharer: {gone}"));
                    (self.tells, self.in_a_row) = (true, 0);
                }
            }
            env.sleep(between_ms(&env, 50, 800)).await;
        }
    }

    /// Sends heartbeats on one connection, for as long as nothing goes wrong; true at the end.
    async fn stay(&mut self, connection: &mut Connection) -> Result<bool, Gone> {
        let env = self.context.env.clone();
        loop {
            let is_calm = self.context.stop.is_triggered();
            if is_calm && self.in_a_row >= BEATS_IN_CALM {
                self.leave(connection).await?;
                return Ok(true);
            }
            if !is_calm && chance(&env, LEAVES) {
                self.leave(connection).await?;
            } else if !is_calm && chance(&env, FALLS_SILENT) {
                env.sleep(SESSION + between_ms(&env, 0, 4000)).await;
            }
            if !self.beat(connection).await? || chance(&env, HANGS_UP) {
                return Ok(false);
            }
            let pause_ms = pick(&env, &[100, 500, 1000]);
            if !self.tells {
                env.sleep(Duration::from_millis(pause_ms)).await;
            }
        }
    }

    /// One heartbeat; false where another connection is to be tried.
    async fn beat(&mut self, connection: &mut Connection) -> Result<bool, Gone> {
        let sent = self.context.env.monotonic();
        let request = self.request();
        self.context.model.gives_up(&self.member, &self.places());
        let answer = self.context.call(connection, HEARTBEAT_VERSION, &request).await?;
        let code = answer.error_code;
        self.context.note(&format!("beats {}: code {code} {}", self.epoch, answer.member_epoch));
        self.context.check_code("sends a heartbeat", code, &MAY_ANSWER, connection);
        if connection.is_stale() {
            // What it says may be old: another broker keeps the group.
            (self.tells, self.in_a_row) = (true, 0);
            return Ok(false);
        }
        if code == ErrorCode::None.code() {
            self.epoch = answer.member_epoch;
            self.take(answer.assignment, sent);
            self.in_a_row += 1;
            return Ok(true);
        }
        self.in_a_row = 0;
        if code == ErrorCode::NotCoordinator.code() {
            self.tells = true;
            return Ok(false);
        }
        self.start_anew();
        Ok(true)
    }

    fn take(&mut self, assignment: Option<Assignment>, sent: Instant) {
        let (before, places_before) = (self.owned.clone(), self.places());
        if let Some(assignment) = assignment {
            let topics = assignment.topic_partitions.into_iter();
            let topics = topics.map(|topic| {
                (topic.topic_id, topic.partitions.into_iter().collect::<BTreeSet<i32>>())
            });
            self.owned = topics.collect();
        }
        self.tells = self.owned != before;
        let places = self.places();
        let gained = places.len() as u64;
        self.context.model.count(|counts| counts.assigned += gained);
        self.context.note(&format!("{} has {places:?}", self.member));
        // What it must give up it stops reading at once, and says so with the next heartbeat.
        // Where it falls silent before, the group has done with it after the rebalance timeout, as
        // in Kafka, and with all that it holds.
        let gives_up = !places_before.is_subset(&places);
        let patience = if gives_up { SESSION.min(REBALANCE_TIMEOUT) } else { SESSION };
        let now = self.context.env.monotonic();
        self.context.model.holds(&self.member, places, now, sent + patience);
    }

    /// Leaves for good; the next heartbeat is another process's.
    async fn leave(&mut self, connection: &mut Connection) -> Result<(), Gone> {
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group())
            .with_member_id(StrBytes::from_string(self.member.clone()))
            .with_member_epoch(LEAVE);
        self.start_anew();
        self.member = self.context.env.uuid().to_string();
        let answer = self.context.call(connection, HEARTBEAT_VERSION, &request).await?;
        self.context.note(&format!("leaves: code {}", answer.error_code));
        self.context.check_code("leaves its group", answer.error_code, &MAY_ANSWER, connection);
        Ok(())
    }

    fn start_anew(&mut self) {
        self.context.model.releases(&self.member);
        self.owned.clear();
        (self.epoch, self.tells, self.in_a_row) = (0, false, 0);
    }

    fn request(&self) -> ConsumerGroupHeartbeatRequest {
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group())
            .with_member_id(StrBytes::from_string(self.member.clone()))
            .with_member_epoch(self.epoch)
            .with_rebalance_timeout_ms(-1);
        if self.epoch != 0 && !self.tells {
            return request;
        }
        let owned = self.owned.iter().map(|(topic, indexes)| {
            let indexes = indexes.iter().copied().collect();
            TopicPartitions::default().with_topic_id(*topic).with_partitions(indexes)
        });
        request
            .with_rebalance_timeout_ms(REBALANCE_TIMEOUT.as_millis() as i32)
            .with_subscribed_topic_names(Some(vec![topic_name(&self.topic)]))
            .with_topic_partitions(Some(owned.collect()))
    }

    fn places(&self) -> BTreeSet<Place> {
        let owned = self.owned.iter();
        let places = owned.flat_map(|(topic, indexes)| {
            indexes.iter().map(move |index| format!("{topic} {index}"))
        });
        places.collect()
    }
}

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str(GROUP))
}
