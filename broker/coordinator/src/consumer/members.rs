//! Members come, change, are checked, and go.

use super::ConsumerGroup;
use super::live::{LiveMember, Turn};
use super::message::{Refusal, STATIC_LEAVE_EPOCH};
use super::partitions::{Held, Partitions};
use super::record::{Member, MemberState};
use crate::GroupError;
use std::collections::BTreeSet;

/// Whom a request is from.
pub(super) enum Sender {
    /// Somebody who is not in the group yet.
    Stranger,
    /// A member.
    Member,
    /// A new process of a static member, whose old member id is this.
    SuccessorOf(String),
}

/// What a member says of itself; `None`: as before.
pub(super) struct Change {
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) rebalance_timeout_ms: Option<i32>,
    pub(super) topic_names: Option<BTreeSet<String>>,
    pub(super) topic_regex: Option<Option<String>>,
    pub(super) server_assignor: Option<super::Assignor>,
    pub(super) classic: Option<super::record::ClassicMember>,
}

impl ConsumerGroup {
    /// The member of an id.
    pub(super) fn member(&self, member_id: &str) -> Result<&Member, Refusal> {
        self.record.members.get(member_id).ok_or_else(|| {
            let group = &self.record.group_id;
            let message = format!("Member {member_id} is not a member of group {group}.");
            Refusal::new(GroupError::UnknownMemberId, message)
        })
    }

    /// The member that holds an instance id, which must be the sender.
    pub(super) fn static_member(
        &self,
        member_id: &str,
        instance_id: &str,
    ) -> Result<&Member, Refusal> {
        let Some(holder) = self.live.statics.get(instance_id) else {
            let message = format!("Instance id {instance_id} is unknown.");
            return Err(Refusal::new(GroupError::UnknownMemberId, message));
        };
        if holder != member_id {
            let message = format!(
                "Static member {member_id} with instance id {instance_id} was fenced by member \
                 {holder}."
            );
            return Err(Refusal::new(GroupError::FencedInstanceId, message));
        }
        self.member(holder)
    }

    /// Whether a member may speak for the epoch that it names. The epoch before its own is accepted
    /// if it has nothing that it was not assigned: the answer with the new one was lost.
    pub(super) fn check_epoch(
        member: &Member,
        epoch: i32,
        owned: Option<&Partitions>,
    ) -> Result<(), Refusal> {
        let is_repeated = epoch == member.previous_epoch
            && owned.is_some_and(|owned| member.assigned.contains_all(owned));
        if epoch == member.epoch || (epoch < member.epoch && is_repeated) {
            return Ok(());
        }
        let relation = if epoch > member.epoch { "greater" } else { "smaller" };
        let message = format!(
            "The consumer group member has a {relation} member epoch ({epoch}) than the one known \
             by the group coordinator ({}). The member must abandon all its partitions and rejoin.",
            member.epoch
        );
        Err(Refusal::new(GroupError::FencedMemberEpoch, message))
    }

    /// Makes sure that the sender is a member under its id.
    pub(super) fn admit(
        &mut self,
        sender: Sender,
        member_id: &str,
        instance_id: Option<&str>,
        turn: &mut Turn,
    ) {
        match sender {
            Sender::Member => self.name_instance(member_id, instance_id),
            Sender::Stranger => self.add_member(member_id, instance_id, turn),
            Sender::SuccessorOf(old_id) => self.replace_member(&old_id, member_id, turn),
        }
        // A static member that was away is back, with what it had.
        let member = self.record.members.get_mut(member_id);
        if let Some(member) = member.filter(|member| member.epoch == STATIC_LEAVE_EPOCH) {
            member.epoch = member.previous_epoch;
            self.live.is_dirty = true;
        }
    }

    fn add_member(&mut self, member_id: &str, instance_id: Option<&str>, turn: &mut Turn) {
        let member = Member {
            instance_id: instance_id.map(str::to_owned),
            rack_id: None,
            client_id: String::new(),
            client_host: String::new(),
            rebalance_timeout_ms: 0,
            topic_names: BTreeSet::new(),
            topic_regex: None,
            server_assignor: None,
            classic: None,
            // It has the last target already: nothing.
            epoch: self.record.assignment_epoch,
            previous_epoch: 0,
            state: MemberState::Stable,
            assigned: Held::default(),
            revoking: Held::default(),
            target: Partitions::new(),
        };
        self.record.members.insert(member_id.to_owned(), member);
        self.live.members.insert(member_id.to_owned(), LiveMember::default());
        if let Some(instance_id) = instance_id {
            self.live.statics.insert(instance_id.to_owned(), member_id.to_owned());
        }
        turn.is_epoch_due = true;
        turn.is_subscription_changed = true;
        self.live.is_dirty = true;
    }

    /// A member joins again under an instance id that nobody has.
    fn name_instance(&mut self, member_id: &str, instance_id: Option<&str>) {
        let Some(member) = self.record.members.get_mut(member_id) else { return };
        if instance_id.is_none() || member.instance_id.as_deref() == instance_id {
            return;
        }
        let instance_id = instance_id.map(str::to_owned);
        let before = std::mem::replace(&mut member.instance_id, instance_id.clone());
        if let Some(before) = before {
            self.live.statics.remove(&before);
        }
        self.live.statics.extend(instance_id.map(|it| (it, member_id.to_owned())));
        self.live.is_dirty = true;
    }

    fn replace_member(&mut self, old_id: &str, new_id: &str, turn: &mut Turn) {
        // Who was in the group under the new id as somebody else is not any more.
        self.remove_member(new_id, turn);
        self.release(old_id);
        self.live.members.remove(old_id);
        let Some(member) = self.record.members.remove(old_id) else { return };
        for place in member.held() {
            self.live.holders.insert(place, new_id.to_owned());
        }
        if let Some(instance_id) = &member.instance_id {
            self.live.statics.insert(instance_id.clone(), new_id.to_owned());
        }
        self.record.members.insert(new_id.to_owned(), member);
        self.live.members.insert(new_id.to_owned(), LiveMember::default());
        self.live.is_dirty = true;
    }

    /// Takes over what a member says of itself. True if it is subscribed to something else now.
    pub(super) fn update(&mut self, member_id: &str, change: Change, turn: &mut Turn) -> bool {
        let preferred = change.server_assignor.map(|_| self.preferred_assignor());
        let Some(member) = self.record.members.get_mut(member_id) else { return false };
        let has_moved = member.classic.is_some() != change.classic.is_some();
        let mut is_changed = set(&mut member.client_id, Some(change.client_id));
        is_changed |= set(&mut member.client_host, Some(change.client_host));
        is_changed |= set(&mut member.classic, Some(change.classic));
        is_changed |= set(&mut member.rack_id, change.rack_id.map(Some));
        is_changed |= set(&mut member.rebalance_timeout_ms, change.rebalance_timeout_ms);
        let is_reassigned = set(&mut member.server_assignor, change.server_assignor.map(Some));
        let mut is_resubscribed = set(&mut member.topic_names, change.topic_names);
        is_resubscribed |= set(&mut member.topic_regex, change.topic_regex);

        self.live.is_dirty |= is_changed || is_reassigned || is_resubscribed;
        turn.is_subscription_changed |= is_resubscribed;
        turn.is_epoch_due |= is_resubscribed;
        if is_reassigned {
            turn.is_epoch_due |= preferred != Some(self.preferred_assignor());
        }
        if has_moved {
            self.begin_deadlines(member_id, turn);
        }
        is_resubscribed
    }

    /// A member speaks another protocol from now on, under which it has other deadlines.
    fn begin_deadlines(&mut self, member_id: &str, turn: &Turn) {
        let Some(member) = self.record.members.get(member_id) else { return };
        let revoke_deadline_ms = member.revoke_deadline_ms(turn);
        let live = self.live.members.entry(member_id.to_owned()).or_default();
        live.rejoin_deadline_ms = None;
        live.revoke_deadline_ms = revoke_deadline_ms;
    }

    /// Removes a member; what it held is free.
    pub(super) fn remove_member(&mut self, member_id: &str, turn: &mut Turn) {
        self.release(member_id);
        self.live.members.remove(member_id);
        let Some(member) = self.record.members.remove(member_id) else { return };
        if let Some(instance_id) = &member.instance_id {
            self.live.statics.remove(instance_id);
        }
        // Its topics are looked at again with the next heartbeat, which computes the target.
        self.live.seen_revision = None;
        turn.is_epoch_due = true;
        turn.is_subscription_changed = true;
        self.live.is_dirty = true;
    }

    /// Gives a member a whole session from now.
    pub(super) fn renew_session(&mut self, member_id: &str, turn: &Turn) {
        let Some(member) = self.record.members.get(member_id) else { return };
        let session_deadline_ms = turn.deadline_ms(self.session_timeout_ms(member));
        let live = self.live.members.entry(member_id.to_owned()).or_default();
        live.session_deadline_ms = session_deadline_ms;
    }
}

/// Takes a value over, if there is one. True if it is another.
fn set<T: PartialEq>(place: &mut T, value: Option<T>) -> bool {
    let value = value.filter(|value| value != place);
    let is_changed = value.is_some();
    if let Some(value) = value {
        *place = value;
    }
    is_changed
}
