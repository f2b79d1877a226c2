//! One classic group: its parts, the entry of every event, and time.

use super::live::{Live, LiveMember, Turn};
use super::message::{Effect, Event, JoinRefusal, Response, ResponseToken};
use super::record::{GroupRecord, GroupState};
use crate::GroupError;

/// What an operator sets for all groups; the defaults are Kafka's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`; 0 for none.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`, in members.
    pub group_members_max: usize,
    /// How long the first join of a member may be held, in ms. Its client has no member id yet, so
    /// that a client that gave up leaves a member behind with every try.
    pub new_member_join_timeout_ms: i32,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            group_members_max: i32::MAX as usize,
            new_member_join_timeout_ms: 300_000,
        }
    }
}

/// A group, run by one broker.
#[derive(Debug, Clone)]
pub struct Group {
    pub(super) config: GroupConfig,
    pub(super) record: GroupRecord,
    pub(super) live: Live,
}

impl Group {
    /// A group that is not stored yet; its first effect of consequence is a Persist.
    pub fn new(group_id: String, config: GroupConfig, now_ms: i64) -> Self {
        let live = Live { is_fresh: true, ..Live::default() };
        Self { config, record: GroupRecord::new(group_id, now_ms), live }
    }

    /// A stored group. Members get a new session each; a group in the middle of a rebalance gives
    /// them a whole rebalance timeout to join or sync again.
    pub fn load(record: GroupRecord, config: GroupConfig, now_ms: i64) -> Self {
        let mut group = Self { config, record, live: Live::default() };
        let turn = Turn::new(now_ms);
        for (member_id, member) in &group.record.members {
            let session_deadline_ms = Some(turn.deadline_ms(i64::from(member.session_timeout_ms)));
            let live = LiveMember { session_deadline_ms, ..LiveMember::default() };
            group.live.members.insert(member_id.clone(), live);
            if let Some(instance_id) = &member.instance_id {
                group.live.statics.insert(instance_id.clone(), member_id.clone());
            }
        }
        let rebalance_deadline_ms = Some(turn.deadline_ms(group.record.rebalance_timeout_ms()));
        match group.record.state {
            GroupState::PreparingRebalance => group.live.join_deadline_ms = rebalance_deadline_ms,
            GroupState::CompletingRebalance => {
                group.live.pending_syncs = group.record.members.keys().cloned().collect();
                group.live.sync_deadline_ms = rebalance_deadline_ms;
            }
            GroupState::Empty | GroupState::Stable | GroupState::Dead => {}
        }
        group
    }

    /// The durable part, as it is to be stored at [`Effect::Persist`].
    pub fn record(&self) -> &GroupRecord {
        &self.record
    }

    /// Where the group stands.
    pub fn state(&self) -> GroupState {
        self.record.state
    }

    /// The current generation; 0 before the first.
    pub fn generation(&self) -> i32 {
        self.record.generation
    }

    /// Whether nothing is lost if the group is dropped from memory without being stored.
    pub fn is_unused(&self) -> bool {
        let is_idle = self.record.members.is_empty() && self.live.pending_ids.is_empty();
        self.live.is_fresh && is_idle
    }

    /// Whether the group can be deleted once none of its offsets is left.
    pub fn is_empty(&self) -> bool {
        self.record.state == GroupState::Empty && self.live.pending_ids.is_empty()
    }

    /// Takes an event at a time and says what must be done, in order.
    pub fn apply(&mut self, event: Event, now_ms: i64) -> Vec<Effect> {
        let mut turn = Turn::new(now_ms);
        match event {
            Event::Join { token, request } => self.join(token, request, &mut turn),
            Event::Sync { token, request } => self.sync(token, request, &mut turn),
            Event::Heartbeat { token, request } => {
                let answer = self.heartbeat(&request, &turn);
                turn.respond(token, Response::Heartbeat(answer));
            }
            Event::Leave { token, request } => self.leave(token, &request, &mut turn),
            Event::CheckCommit { token, request } => {
                let answer = self.check_commit(&request, &turn);
                turn.respond(token, Response::Commit(answer));
            }
            Event::Delete { token } => {
                let answer = self.delete(&turn);
                turn.respond(token, Response::Delete(answer));
            }
            Event::Tick => self.tick(&mut turn),
        }
        self.finish(turn)
    }

    /// When the next [`Event::Tick`] is due, in ms; `None` while nothing is waited for.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let sessions = self.live.members.values().filter_map(|live| live.session_deadline_ms);
        sessions
            .chain(self.live.pending_ids.values().copied())
            .chain(self.live.join_deadline_ms)
            .chain(self.live.sync_deadline_ms)
            .min()
    }

    /// Answers everything held with NOT_COORDINATOR: the broker lost the group's lease, or a store
    /// failed or has an unknown outcome. Whoever runs the group next loads what was stored.
    pub fn abandon(self) -> Vec<Effect> {
        self.release_held(GroupError::NotCoordinator)
    }

    /// Answers everything held with an error.
    pub(crate) fn release_held(self, error: GroupError) -> Vec<Effect> {
        let mut turn = Turn::new(0);
        for (member_id, live) in self.live.members {
            if let Some(token) = live.sync {
                turn.respond(token, Response::Sync(Err(error)));
            }
            if let Some(token) = live.join {
                let refusal = JoinRefusal { error, member_id };
                turn.respond(token, Response::Join(Err(refusal)));
            }
        }
        turn.into_answers()
    }

    /// The requests whose answers are held.
    pub fn held(&self) -> impl Iterator<Item = ResponseToken> + '_ {
        self.live.members.values().flat_map(|live| live.join.into_iter().chain(live.sync))
    }

    /// Whether the group has no members and none is joining: another kind can take its place.
    pub(crate) fn is_vacant(&self) -> bool {
        self.record.state == GroupState::Empty && self.record.members.is_empty()
    }

    pub(super) fn set_state(&mut self, state: GroupState, turn: &Turn) {
        self.record.state = state;
        self.record.state_since_ms = turn.now_ms;
        self.live.is_dirty = true;
    }

    fn delete(&mut self, turn: &Turn) -> Result<(), GroupError> {
        match self.record.state {
            GroupState::Dead => Err(GroupError::GroupIdNotFound),
            GroupState::Empty => {
                self.live.pending_ids.clear();
                self.set_state(GroupState::Dead, turn);
                Ok(())
            }
            GroupState::PreparingRebalance
            | GroupState::CompletingRebalance
            | GroupState::Stable => Err(GroupError::NonEmptyGroup),
        }
    }

    /// Ends what is due. The order matters where one tick is late for several: who is gone is
    /// removed before a rebalance counts its members.
    fn tick(&mut self, turn: &mut Turn) {
        self.expire_members(turn);
        if turn.is_due(self.live.sync_deadline_ms) {
            self.expire_syncs(turn);
        }
        if turn.is_due(self.live.join_deadline_ms) {
            self.end_of_joining(turn);
        }
    }

    fn finish(&mut self, turn: Turn) -> Vec<Effect> {
        let is_settled = self.record.state != GroupState::PreparingRebalance;
        let mut effects = Vec::new();
        if self.live.is_dirty && (is_settled || turn.is_promised) {
            self.live.is_dirty = false;
            self.live.is_fresh = false;
            effects.push(Effect::Persist);
        }
        effects.extend(turn.into_answers());
        effects
    }
}
