//! ConsumerGroupHeartbeat: the checks in Kafka's order, then the member's next step.

use super::assign::{ASSIGNOR_NAMES, Assignor};
use super::epochs::Urgency;
use super::live::Turn;
use super::members::{Change, Sender};
use super::message::{
    Heartbeat, HeartbeatRequest, JOIN_EPOCH, LEAVE_EPOCH, Refusal, STATIC_LEAVE_EPOCH,
    UNCHANGED_TIMEOUT_MS,
};
use super::partitions::Held;
use super::record::{Member, MemberState};
use super::{ConsumerGroup, TopicDirectory, TopicPattern};
use crate::GroupError;
use std::borrow::Cow;

/// From this version on, members make their ids.
const OWN_ID_VERSION_MIN: i16 = 1;

/// A member that waits for partitions, or for a target, asks again after so long, ms: others may
/// give them up at any moment, and nothing else tells it.
const WAITING_INTERVAL_MS: i32 = 1_000;
/// An answer repeats no more of what is wrong with a request, bytes.
const QUOTED_BYTES_MAX: usize = 1 << 10;

/// The checks that need no group.
///
/// # Errors
/// INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR.
pub fn check_request(group_id: &str, request: &HeartbeatRequest) -> Result<(), Refusal> {
    let invalid = |message: &str| Err(Refusal::new(GroupError::InvalidRequest, message));
    let is_blank = |text: &str| text.trim().is_empty();
    let is_blank_option = |text: &Option<String>| text.as_deref().is_some_and(is_blank);
    let is_joining = request.member_epoch == JOIN_EPOCH;
    let needs_id = request.version >= OWN_ID_VERSION_MIN || !is_joining;
    if needs_id && is_blank(&request.member_id) {
        return invalid("MemberId can't be empty.");
    }
    if is_blank(group_id) {
        return invalid("GroupId can't be empty.");
    }
    if is_blank_option(&request.instance_id) {
        return invalid("InstanceId can't be empty.");
    }
    if is_blank_option(&request.rack_id) {
        return invalid("RackId can't be empty.");
    }
    if is_joining {
        if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT_MS {
            return invalid("RebalanceTimeoutMs must be provided in first request.");
        }
        if request.owned.as_ref().is_none_or(|owned| !owned.is_empty()) {
            return invalid("TopicPartitions must be empty when (re-)joining.");
        }
        if request.topic_names.is_none() && request.topic_regex.is_none() {
            return invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when \
                 (re-)joining.",
            );
        }
    }
    if request.member_epoch == STATIC_LEAVE_EPOCH && request.instance_id.is_none() {
        return invalid("InstanceId can't be null.");
    }
    if request.member_epoch < STATIC_LEAVE_EPOCH {
        return invalid("MemberEpoch is invalid.");
    }
    match request.server_assignor.as_deref() {
        Some(name) if Assignor::of(name).is_none() => {
            let name = quoted(name);
            let message = format!(
                "ServerAssignor {name} is not supported. Supported assignors: {ASSIGNOR_NAMES}."
            );
            Err(Refusal::new(GroupError::UnsupportedAssignor, message))
        }
        _ => Ok(()),
    }
}

/// Whether the sender of a heartbeat wants to go.
pub(super) fn is_leaving(request: &HeartbeatRequest) -> bool {
    matches!(request.member_epoch, LEAVE_EPOCH | STATIC_LEAVE_EPOCH)
}

impl ConsumerGroup {
    /// ConsumerGroupHeartbeat. A refusal leaves the group as it was.
    ///
    /// # Errors
    /// [`Refusal`] with Kafka's error and message.
    pub fn heartbeat(
        &mut self,
        request: HeartbeatRequest,
        topics: &TopicDirectory,
        now_ms: i64,
    ) -> Result<Heartbeat, Refusal> {
        check_request(&self.record.group_id, &request)?;
        let mut turn = Turn::new(now_ms);
        if is_leaving(&request) {
            return self.leave(&request, &mut turn);
        }
        let member_id = match request.member_id.is_empty() {
            true => request.new_id.to_string(),
            false => request.member_id.clone(),
        };
        let sender = self.sender(&member_id, &request)?;
        if let Some(source) = request.topic_regex.as_deref() {
            check_pattern(source)?;
        }
        let is_stranger = matches!(sender, Sender::Stranger);
        self.admit(sender, &member_id, request.instance_id.as_deref(), &mut turn);
        let is_full = is_full_request(&request);
        let owned = request.owned.clone();
        let is_resubscribed = self.update(&member_id, change(request), &mut turn) && !is_stranger;
        let urgency = if is_resubscribed { Urgency::Now } else { Urgency::Batched };
        self.advance(topics, urgency, &mut turn);
        let is_changed = self.reconcile(&member_id, owned.as_ref(), &turn);
        self.renew_session(&member_id, &turn);
        Ok(self.answer(member_id, is_full || is_changed))
    }

    /// Whom a heartbeat is from, if that is somebody who may speak.
    fn sender(&self, member_id: &str, request: &HeartbeatRequest) -> Result<Sender, Refusal> {
        let is_joining = request.member_epoch == JOIN_EPOCH;
        let Some(instance_id) = request.instance_id.as_deref() else {
            if !is_joining {
                let member = self.member(member_id)?;
                Self::check_epoch(member, request.member_epoch, request.owned.as_ref())?;
                return Ok(Sender::Member);
            }
            return self.joiner(member_id);
        };
        if !is_joining {
            let member = self.static_member(member_id, instance_id)?;
            Self::check_epoch(member, request.member_epoch, request.owned.as_ref())?;
            return Ok(Sender::Member);
        }
        match self.live.statics.get(instance_id) {
            None => self.joiner(member_id),
            Some(holder) if holder == member_id => Ok(Sender::Member),
            // One of the classic protocol does not say that it goes.
            Some(holder) if is_replaceable(self.member(holder)?) => {
                Ok(Sender::SuccessorOf(holder.clone()))
            }
            Some(holder) => {
                let message = format!(
                    "Static member {member_id} with instance id {instance_id} cannot join the \
                     group because the instance id is owned by {holder} member."
                );
                Err(Refusal::new(GroupError::UnreleasedInstanceId, message))
            }
        }
    }

    fn joiner(&self, member_id: &str) -> Result<Sender, Refusal> {
        if self.record.members.contains_key(member_id) {
            return Ok(Sender::Member);
        }
        self.check_room()?;
        Ok(Sender::Stranger)
    }

    /// Whether another member fits in.
    pub(super) fn check_room(&self) -> Result<(), Refusal> {
        let most = self.config.members_max;
        if self.record.members.len() < most {
            return Ok(());
        }
        let message =
            format!("The consumer group has reached its maximum capacity of {most} members.");
        Err(Refusal::new(GroupError::GroupMaxSizeReached, message))
    }

    fn answer(&self, member_id: String, is_assignment_told: bool) -> Heartbeat {
        let Some(member) = self.record.members.get(&member_id) else {
            return gone(member_id, LEAVE_EPOCH);
        };
        let waits = member.epoch < self.record.epoch || member.state == MemberState::Unreleased;
        let interval_ms = self.config.heartbeat_interval_ms;
        Heartbeat {
            member_epoch: member.epoch,
            heartbeat_interval_ms: match waits {
                true => interval_ms.min(WAITING_INTERVAL_MS),
                false => interval_ms,
            },
            assignment: is_assignment_told.then(|| member.assigned.partitions()),
            member_id,
        }
    }

    fn leave(&mut self, request: &HeartbeatRequest, turn: &mut Turn) -> Result<Heartbeat, Refusal> {
        let member_id = &request.member_id;
        match request.instance_id.as_deref() {
            None => self.member(member_id)?,
            Some(instance_id) => self.static_member(member_id, instance_id)?,
        };
        if request.member_epoch == LEAVE_EPOCH {
            self.remove_member(member_id, turn);
            self.raise_epoch(turn);
        } else if let Some(member) = self.record.members.get_mut(member_id) {
            pause(member);
            self.live.is_dirty = true;
            self.after_pause(member_id);
        }
        Ok(gone(member_id.clone(), request.member_epoch))
    }

    /// What a static member was to give up it has given up by going.
    fn after_pause(&mut self, member_id: &str) {
        self.live.holders.retain(|_, holder| holder != member_id);
        if let Some(member) = self.record.members.get(member_id) {
            for place in member.held() {
                self.live.holders.insert(place, member_id.to_owned());
            }
        }
        if let Some(live) = self.live.members.get_mut(member_id) {
            live.revoke_deadline_ms = None;
        }
    }
}

/// Whether a new process may take a static member's place.
fn is_replaceable(member: &Member) -> bool {
    member.epoch == STATIC_LEAVE_EPOCH || member.classic.is_some()
}

/// A static member goes for a moment: what it is assigned stays its own until its session ends.
fn pause(member: &mut Member) {
    if member.epoch != STATIC_LEAVE_EPOCH {
        member.previous_epoch = member.epoch;
    }
    member.epoch = STATIC_LEAVE_EPOCH;
    member.state = MemberState::Stable;
    member.revoking = Held::default();
}

fn gone(member_id: String, member_epoch: i32) -> Heartbeat {
    Heartbeat { member_id, member_epoch, heartbeat_interval_ms: 0, assignment: None }
}

fn check_pattern(source: &str) -> Result<(), Refusal> {
    let Err(reason) = TopicPattern::new(source) else { return Ok(()) };
    let quoted = quoted(source);
    let message =
        format!("SubscribedTopicRegex `{quoted}` is not a valid regular expression: {reason}.");
    Err(Refusal::new(GroupError::InvalidRegularExpression, message))
}

/// As much of a text as an answer or a log line repeats.
fn quoted(text: &str) -> Cow<'_, str> {
    match text.len() <= QUOTED_BYTES_MAX {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("{}...", &text[..text.floor_char_boundary(QUOTED_BYTES_MAX)])),
    }
}

/// Whether the sender tells everything that it can, as it does after joining or an error: then it
/// is told everything, too.
fn is_full_request(request: &HeartbeatRequest) -> bool {
    let is_subscribed = request.topic_names.is_some() || request.topic_regex.is_some();
    let tells_all = request.rebalance_timeout_ms != UNCHANGED_TIMEOUT_MS
        && is_subscribed
        && request.owned.is_some();
    request.member_epoch == JOIN_EPOCH || tells_all
}

fn change(request: HeartbeatRequest) -> Change {
    let timeout_ms = request.rebalance_timeout_ms;
    Change {
        rack_id: request.rack_id,
        client_id: request.client_id,
        client_host: request.client_host,
        rebalance_timeout_ms: (timeout_ms != UNCHANGED_TIMEOUT_MS).then_some(timeout_ms),
        topic_names: request.topic_names,
        topic_regex: request.topic_regex.map(|it| (!it.is_empty()).then_some(it)),
        server_assignor: request.server_assignor.as_deref().and_then(Assignor::of),
        classic: None,
    }
}
