//! A group with members changes its protocol, online: to consumer with the first member of the
//! newer protocol that joins a classic group, to classic when the last of them has gone.

use super::embedded::{self, Subscription};
use super::group::ConsumerConfig;
use super::live::{LiveMember, Turn};
use super::message::Refusal;
use super::partitions::{Held, Partitions, pairs};
use super::record::{ClassicMember, Member, MemberState};
use super::{ConsumerGroup, TopicDirectory, classic_members};
use crate::GroupError;
use crate::classic::{Group, GroupConfig, MovedGroup, MovedMember};
use crate::protocol_metadata::CONSUMER_PROTOCOL_TYPE;
use std::collections::btree_map::Entry;

impl ConsumerGroup {
    /// A classic group's members in a consumer group, each with the partitions that its leader gave
    /// it. The classic group stays as it is.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND where the group's members are no consumers, or may not be moved.
    pub(crate) fn of_classic(
        group: &Group,
        config: &ConsumerConfig,
        topics: &TopicDirectory,
        now_ms: i64,
    ) -> Result<Self, Refusal> {
        let moved = group.moved();
        let refuse = |reason: &str| {
            let group_id = &moved.group_id;
            let message = format!(
                "Cannot upgrade classic group {group_id} to consumer group because {reason}."
            );
            Refusal::new(GroupError::GroupIdNotFound, message)
        };
        if !config.migration.allows_upgrade() {
            return Err(refuse("the online upgrade is disabled"));
        }
        if moved.protocol_type != CONSUMER_PROTOCOL_TYPE {
            return Err(refuse("the group does not use the consumer embedded protocol"));
        }
        if moved.members.len() > config.members_max {
            return Err(refuse("the group exceeds the consumer group maximum size"));
        }
        let mut upgraded = Self::new(moved.group_id.clone(), config.clone(), moved.generation);
        let turn = Turn::new(now_ms);
        let mut owners = Vec::with_capacity(moved.members.len());
        for member in &moved.members {
            let owned = upgraded.take_over(member, topics, &turn);
            let owned =
                owned.ok_or_else(|| refuse("the embedded consumer protocol is malformed"))?;
            owners.push((&member.member_id, owned));
        }
        for (member_id, owned) in owners {
            upgraded.hold_owned(member_id, &owned);
        }
        Ok(upgraded)
    }

    /// Takes a member over with what its leader gave it. What it said with its last join that it
    /// owns; `None` if its subscription or assignment cannot be read, or another member has the
    /// same partition.
    fn take_over(
        &mut self,
        moved: &MovedMember,
        topics: &TopicDirectory,
        turn: &Turn,
    ) -> Option<Partitions> {
        let subscription = Subscription::parse(&moved.protocols.first()?.metadata).ok()?;
        let assigned = embedded::parse_assignment(&moved.assignment).ok()?;
        let target = embedded::by_id(&assigned, topics);
        let epoch = self.record.assignment_epoch;
        let mut held = Held::default();
        for (topic, index) in pairs(&target) {
            held.insert(topic, index, epoch);
            let holder = self.live.holders.insert((topic, index), moved.member_id.clone());
            if holder.is_some() {
                return None;
            }
        }
        let live = LiveMember {
            session_deadline_ms: turn.deadline_ms(moved.session_timeout_ms),
            ..LiveMember::default()
        };
        self.live.members.insert(moved.member_id.clone(), live);
        if let Some(instance_id) = &moved.instance_id {
            self.live.statics.insert(instance_id.clone(), moved.member_id.clone());
        }
        let member = Member {
            instance_id: moved.instance_id.clone(),
            rack_id: subscription.rack_id,
            client_id: moved.client_id.clone(),
            client_host: moved.client_host.clone(),
            rebalance_timeout_ms: moved.rebalance_timeout_ms,
            topic_names: subscription.topics,
            topic_regex: None,
            server_assignor: None,
            classic: Some(ClassicMember {
                session_timeout_ms: moved.session_timeout_ms,
                protocols: moved.protocols.clone(),
            }),
            epoch,
            previous_epoch: epoch,
            state: MemberState::Stable,
            assigned: held,
            revoking: Held::default(),
            target,
        };
        self.record.members.insert(moved.member_id.clone(), member);
        self.live.is_dirty = true;
        Some(embedded::by_id(&subscription.owned, topics))
    }

    /// Lets a member hold what it owned when it last joined, but for what others were given since.
    /// In the middle of a rebalance a cooperative member still reads from that, although its
    /// assignment is gone or smaller already; it gives it up when it joins the next time.
    fn hold_owned(&mut self, member_id: &str, owned: &Partitions) {
        let epoch = self.record.assignment_epoch;
        let Some(member) = self.record.members.get_mut(member_id) else { return };
        for (topic, index) in pairs(owned) {
            if let Entry::Vacant(free) = self.live.holders.entry((topic, index)) {
                free.insert(member_id.to_owned());
                member.assigned.insert(topic, index, epoch);
            }
        }
    }

    /// The group as a classic one, which begins with a rebalance, if only members of the classic
    /// protocol are left and it may be moved.
    ///
    /// Its generation is the epoch of the last target, which is the greatest that any member was
    /// told: until they join the next one, its members' heartbeats and commits are taken.
    pub(crate) fn to_classic(
        &self,
        config: &GroupConfig,
        topics: &TopicDirectory,
        now_ms: i64,
    ) -> Option<Group> {
        let members = &self.record.members;
        let is_due = self.config.migration.allows_downgrade()
            && !members.is_empty()
            && members.len() <= config.group_members_max
            && members.values().all(|member| member.classic.is_some());
        if !is_due {
            return None;
        }
        let moved = members.iter().filter_map(|(member_id, member)| {
            let classic = member.classic.as_ref()?;
            let version = classic_members::subscription_version(member);
            Some(MovedMember {
                member_id: member_id.clone(),
                instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                session_timeout_ms: classic.session_timeout_ms,
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                protocols: classic.protocols.clone(),
                assignment: embedded::assignment(version, &member.assigned.partitions(), topics),
            })
        });
        let moved = MovedGroup {
            group_id: self.record.group_id.clone(),
            generation: self.record.assignment_epoch,
            protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
            members: moved.collect(),
        };
        Group::of_moved(moved, config.clone(), now_ms)
    }
}
