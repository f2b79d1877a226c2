//! From one generation to the next: joining, the leader, the protocol, the time limits.

use super::Group;
use super::live::{InitialDelay, Turn};
use super::message::{Joined, JoinedMember, Response};
use super::record::GroupState;
use crate::GroupError;

impl Group {
    /// After a join was added or changed: start a rebalance, or see whether the running one ends.
    pub(super) fn rebalance_or_complete(&mut self, turn: &mut Turn) {
        match self.record.state {
            GroupState::PreparingRebalance => self.maybe_complete_join(turn),
            _ => self.prepare_rebalance(turn),
        }
    }

    /// Starts a rebalance: whoever waits for an assignment must join again, and joining lasts
    /// until all have, or the largest rebalance timeout; from Empty, the initial delay.
    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn) {
        if self.record.state == GroupState::CompletingRebalance {
            self.cancel_syncs(turn);
        }
        self.live.sync_deadline_ms = None;
        let is_initial = self.record.state == GroupState::Empty;
        self.set_state(GroupState::PreparingRebalance, turn);

        let rebalance_timeout_ms = self.record.rebalance_timeout_ms();
        let delay_ms = i64::from(self.config.initial_rebalance_delay_ms);
        if is_initial && delay_ms > 0 {
            self.live.initial_delay = Some(InitialDelay {
                step_ms: delay_ms,
                remaining_ms: (rebalance_timeout_ms - delay_ms).max(0),
                has_newcomer: false,
            });
            self.live.join_deadline_ms = Some(turn.deadline_ms(delay_ms));
        } else if is_initial || self.has_everybody_joined() {
            self.complete_join(turn);
        } else {
            self.live.join_deadline_ms = Some(turn.deadline_ms(rebalance_timeout_ms));
        }
    }

    /// Ends joining if nobody is missing; the initial delay is waited for in any case.
    pub(super) fn maybe_complete_join(&mut self, turn: &mut Turn) {
        let is_waiting = self.record.state == GroupState::PreparingRebalance
            && self.live.initial_delay.is_none();
        if is_waiting && self.has_everybody_joined() {
            self.complete_join(turn);
        }
    }

    /// The join deadline has come.
    pub(super) fn end_of_joining(&mut self, turn: &mut Turn) {
        let Some(delay) = self.live.initial_delay else {
            return self.complete_join(turn);
        };
        if !delay.has_newcomer || delay.remaining_ms == 0 {
            return self.complete_join(turn);
        }
        let step_ms = delay.remaining_ms.min(i64::from(self.config.initial_rebalance_delay_ms));
        let remaining_ms = (delay.remaining_ms - delay.step_ms).max(0);
        self.live.initial_delay = Some(InitialDelay { step_ms, remaining_ms, has_newcomer: false });
        self.live.join_deadline_ms = Some(turn.deadline_ms(step_ms));
    }

    /// Removes members that have not asked for their assignment in a rebalance timeout.
    pub(super) fn expire_syncs(&mut self, turn: &mut Turn) {
        self.live.sync_deadline_ms = None;
        let absent = std::mem::take(&mut self.live.pending_syncs);
        for member_id in &absent {
            self.remove_member(member_id, turn);
        }
        if !absent.is_empty() {
            self.after_removal(turn);
        }
    }

    /// What a member is told of the current generation.
    pub(super) fn joined(&self, member_id: &str, skip_assignment: bool) -> Joined {
        let is_leader = self.record.is_leader(member_id);
        Joined {
            generation: self.record.generation,
            protocol_type: self.record.protocol_type.clone().unwrap_or_default(),
            protocol_name: self.record.protocol_name.clone().unwrap_or_default(),
            leader: self.record.leader.clone().unwrap_or_default(),
            skip_assignment,
            member_id: member_id.to_owned(),
            members: if is_leader { self.joined_members() } else { Vec::new() },
        }
    }

    fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.record.protocol_name.as_deref().unwrap_or_default();
        let members = self.record.members.iter().map(|(member_id, member)| JoinedMember {
            member_id: member_id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol).cloned().unwrap_or_default(),
        });
        members.collect()
    }

    fn has_everybody_joined(&self) -> bool {
        let mut members = self.live.members.values();
        let is_empty = self.live.members.is_empty();
        is_empty || (self.live.pending_ids.is_empty() && members.all(|live| live.join.is_some()))
    }

    /// Ends joining: dynamic members that have not joined are out, the next generation begins.
    fn complete_join(&mut self, turn: &mut Turn) {
        self.live.join_deadline_ms = None;
        self.live.initial_delay = None;
        for member_id in self.absent_dynamic_members() {
            self.remove_member(&member_id, turn);
        }
        let is_empty = self.record.members.is_empty();
        if !is_empty && !self.elect_leader() {
            // Static members only, and none of them is here: wait until one comes, or the sessions
            // end.
            let timeout_ms = self.record.rebalance_timeout_ms();
            self.live.join_deadline_ms = Some(turn.deadline_ms(timeout_ms));
            return;
        }
        self.record.generation = self.record.generation.saturating_add(1);
        self.record.protocol_name = self.record.select_protocol();
        self.live.pending_syncs.clear();
        if is_empty {
            self.record.leader = None;
            self.set_state(GroupState::Empty, turn);
        } else {
            self.begin_generation(turn);
        }
    }

    fn absent_dynamic_members(&self) -> Vec<String> {
        let absent = self.record.members.iter().filter(|(member_id, member)| {
            let has_joined = self.live.members.get(*member_id).is_some_and(|it| it.join.is_some());
            member.instance_id.is_none() && !has_joined
        });
        absent.map(|(member_id, _)| member_id.clone()).collect()
    }

    /// Keeps the leader if it has joined, else takes one who has. `false` if nobody has.
    fn elect_leader(&mut self) -> bool {
        let has_joined = |member_id: &String| {
            self.live.members.get(member_id).is_some_and(|live| live.join.is_some())
        };
        if self.record.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let elected = self.record.members.keys().find(|member_id| has_joined(member_id)).cloned();
        let is_elected = elected.is_some();
        if is_elected {
            self.record.leader = elected;
        }
        is_elected
    }

    /// Tells all who joined, and waits for each to ask for its assignment.
    fn begin_generation(&mut self, turn: &mut Turn) {
        self.set_state(GroupState::CompletingRebalance, turn);
        let member_ids: Vec<String> = self.record.members.keys().cloned().collect();
        for member_id in member_ids {
            let live = self.live_mut(&member_id);
            live.is_new = false;
            if let Some(token) = live.join.take() {
                turn.respond(token, Response::Join(Ok(self.joined(&member_id, false))));
            }
            self.renew_session(&member_id, turn);
            self.live.pending_syncs.insert(member_id);
        }
        let timeout_ms = self.record.rebalance_timeout_ms();
        self.live.sync_deadline_ms = Some(turn.deadline_ms(timeout_ms));
    }

    /// The assignment that is being computed will be of no use: held syncs end. The old ones stay:
    /// cooperative members go on with them.
    fn cancel_syncs(&mut self, turn: &mut Turn) {
        let mut answered = Vec::new();
        for (member_id, live) in &mut self.live.members {
            if let Some(token) = live.sync.take() {
                turn.respond(token, Response::Sync(Err(GroupError::RebalanceInProgress)));
                answered.push(member_id.clone());
            }
        }
        for member_id in answered {
            self.renew_session(&member_id, turn);
        }
    }
}
