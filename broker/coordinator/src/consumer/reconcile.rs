//! Reconciliation: one member's next step towards its target.
//!
//! - `Stable`: it has its target of its epoch, until a newer target is there.
//! - `Unrevoked`: it keeps its epoch, and what it must give up is nobody else's yet, until it says
//!   that it owns none of that any more.
//! - `Unreleased`: it has the target's epoch and waits for partitions that others hold.

use super::ConsumerGroup;
use super::live::Turn;
use super::partitions::{Held, Partitions, contains, pairs};
use super::record::{Member, MemberState};

/// What becomes of a member.
struct Step {
    state: MemberState,
    epoch: i32,
    assigned: Held,
    revoking: Held,
}

impl Member {
    /// Until when it must have given up what it is asked for now, if it is asked for something.
    /// Members of the classic protocol are bound by the time for their next join instead.
    pub(super) fn revoke_deadline_ms(&self, turn: &Turn) -> Option<i64> {
        let is_asked = self.state == MemberState::Unrevoked && self.classic.is_none();
        is_asked.then(|| turn.deadline_ms(self.rebalance_timeout_ms))
    }
}

impl ConsumerGroup {
    /// Takes a member as far towards its target as it can go. True if what it is assigned changed.
    ///
    /// - `owned`: what the member says that it has; `None` if it said nothing, which gives up
    ///   nothing.
    pub(super) fn reconcile(
        &mut self,
        member_id: &str,
        owned: Option<&Partitions>,
        turn: &Turn,
    ) -> bool {
        let Some(member) = self.record.members.get(member_id) else { return false };
        let is_owned = |held: &Held| owned.is_none_or(|owned| held.contains_any(owned));
        let is_done = member.is_settled(self.record.assignment_epoch);
        if is_done || (member.state == MemberState::Unrevoked && is_owned(&member.revoking)) {
            return false;
        }
        let step = self.next_step(member_id, member, is_owned);
        let is_same = member.state == step.state
            && member.epoch == step.epoch
            && member.assigned == step.assigned
            && member.revoking == step.revoking;
        if is_same {
            return false;
        }
        let is_assignment_changed = member.assigned.partitions() != step.assigned.partitions();
        self.take_step(member_id, step, turn);
        is_assignment_changed
    }

    fn next_step(
        &self,
        member_id: &str,
        member: &Member,
        is_owned: impl Fn(&Held) -> bool,
    ) -> Step {
        let (mut kept, mut lost) = (Held::default(), Held::default());
        for (topic, index, epoch) in member.assigned.iter() {
            match contains(&member.target, topic, index) {
                true => kept.insert(topic, index, epoch),
                false => lost.insert(topic, index, epoch),
            }
        }
        if !lost.is_empty() && is_owned(&lost) {
            let (state, epoch) = (MemberState::Unrevoked, member.epoch);
            return Step { state, epoch, assigned: kept, revoking: lost };
        }
        let epoch = self.record.assignment_epoch;
        let mut state = MemberState::Stable;
        for (topic, index) in pairs(&member.target) {
            if kept.epoch_of(topic, index).is_some() {
                continue;
            }
            let holder = self.live.holders.get(&(topic, index));
            match holder.is_none_or(|holder| holder == member_id) {
                true => kept.insert(topic, index, epoch),
                false => state = MemberState::Unreleased,
            }
        }
        Step { state, epoch, assigned: kept, revoking: Held::default() }
    }

    fn take_step(&mut self, member_id: &str, step: Step, turn: &Turn) {
        self.release(member_id);
        let Some(member) = self.record.members.get_mut(member_id) else { return };
        if member.epoch != step.epoch {
            member.previous_epoch = member.epoch;
        }
        member.epoch = step.epoch;
        member.state = step.state;
        member.assigned = step.assigned;
        member.revoking = step.revoking;
        for place in member.held() {
            self.live.holders.insert(place, member_id.to_owned());
        }
        let revoke_deadline_ms = member.revoke_deadline_ms(turn);
        if let Some(live) = self.live.members.get_mut(member_id) {
            live.revoke_deadline_ms = revoke_deadline_ms;
        }
        self.live.is_dirty = true;
    }

    /// Takes a member's partitions out of the book of holders.
    pub(super) fn release(&mut self, member_id: &str) {
        let Some(member) = self.record.members.get(member_id) else { return };
        for place in member.held() {
            if self.live.holders.get(&place).is_some_and(|holder| holder == member_id) {
                self.live.holders.remove(&place);
            }
        }
    }

    /// Whether others hold partitions of the member's target.
    pub(super) fn waits_for_others(&self, member_id: &str, member: &Member) -> bool {
        pairs(&member.target)
            .any(|place| self.live.holders.get(&place).is_some_and(|holder| holder != member_id))
    }
}
