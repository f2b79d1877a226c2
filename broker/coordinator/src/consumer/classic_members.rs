//! Members of the classic protocol in a consumer group: their requests in other words.
//!
//! A join is a heartbeat that tells everything, and its generation is the member epoch. Nobody
//! leads: the assignment comes from the target, so a sync is answered at once. What a member of the
//! newer protocol hears with its heartbeat, one of the classic protocol hears as
//! REBALANCE_IN_PROGRESS, and joins again.

use super::embedded::{self, Subscription};
use super::epochs::Urgency;
use super::live::Turn;
use super::members::{Change, Sender};
use super::record::{ClassicMember, Member, MemberState};
use super::{ConsumerGroup, Refusal, TopicDirectory};
use crate::GroupError;
use crate::classic::{
    GroupConfig, HeartbeatRequest, JoinRefusal, JoinRequest, Joined, LeaveRequest, LeaveResponse,
    Leaver, LeftMember, Protocol, SyncRequest, Synced, check_join, check_sync, hands_out_id,
};
use crate::protocol_metadata::CONSUMER_PROTOCOL_TYPE;

impl ConsumerGroup {
    /// JoinGroup. A refusal leaves the group as it was.
    ///
    /// # Errors
    /// [`JoinRefusal`] with Kafka's error.
    pub(crate) fn join(
        &mut self,
        request: &JoinRequest,
        config: &GroupConfig,
        topics: &TopicDirectory,
        now_ms: i64,
    ) -> Result<Joined, JoinRefusal> {
        let refuse =
            |error, member_id: &str| JoinRefusal { error, member_id: member_id.to_owned() };
        let of_member = |error| refuse(error, &request.member_id);
        check_join(&self.record.group_id, request, config).map_err(of_member)?;
        if !self.supports(request) {
            return Err(refuse(GroupError::InconsistentGroupProtocol, ""));
        }
        if hands_out_id(request) {
            self.check_room().map_err(|full| refuse(full.error, ""))?;
            let member_id = request.new_member_id();
            return Err(JoinRefusal { error: GroupError::MemberIdRequired, member_id });
        }
        let member_id = match request.member_id.is_empty() {
            true => request.new_member_id(),
            false => request.member_id.clone(),
        };
        let sender = self.joining_sender(&member_id, request);
        let sender = sender.map_err(|error| of_member(error.error))?;
        let first = request.protocols.first();
        let subscription = first.and_then(|it| Subscription::parse(&it.metadata).ok());
        let Some(subscription) = subscription else {
            return Err(refuse(GroupError::InconsistentGroupProtocol, ""));
        };
        let mut turn = Turn::new(now_ms);
        self.admit(sender, &member_id, request.instance_id.as_deref(), &mut turn);
        let owned = embedded::by_id(&subscription.owned, topics);
        self.update(&member_id, change(request, subscription), &mut turn);
        self.advance(topics, Urgency::Now, &mut turn);
        self.reconcile(&member_id, Some(&owned), &turn);
        self.renew_session(&member_id, &turn);
        self.expect_request(&member_id, &turn);
        self.joined(&member_id).map_err(|error| refuse(error, &member_id))
    }

    /// Whether the join has a protocol that all members of the classic protocol have.
    fn supports(&self, request: &JoinRequest) -> bool {
        let has = |protocols: &[Protocol], name: &str| protocols.iter().any(|it| it.name == name);
        let own_id = request.member_id.as_str();
        let others = self.record.members.iter().filter(|(member_id, _)| *member_id != own_id);
        let others: Vec<&ClassicMember> =
            others.filter_map(|(_, member)| member.classic.as_ref()).collect();
        let is_common = |name: &str| others.iter().all(|other| has(&other.protocols, name));
        request.protocol_type == CONSUMER_PROTOCOL_TYPE
            && request.protocols.iter().any(|protocol| is_common(&protocol.name))
    }

    /// Whom a join is from. A static member's place is taken over by whoever has no member id yet.
    fn joining_sender(&self, member_id: &str, request: &JoinRequest) -> Result<Sender, Refusal> {
        let Some(instance_id) = request.instance_id.as_deref() else {
            if self.record.members.contains_key(member_id) {
                return Ok(Sender::Member);
            }
            self.check_room()?;
            return Ok(Sender::Stranger);
        };
        if !request.member_id.is_empty() {
            return self.static_member(member_id, instance_id).map(|_| Sender::Member);
        }
        match self.live.statics.get(instance_id) {
            Some(holder) => Ok(Sender::SuccessorOf(holder.clone())),
            None => self.check_room().map(|()| Sender::Stranger),
        }
    }

    fn joined(&self, member_id: &str) -> Result<Joined, GroupError> {
        let member = self.record.members.get(member_id).ok_or(GroupError::UnknownMemberId)?;
        Ok(Joined {
            generation: member.epoch,
            protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
            protocol_name: protocol_name(member),
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        })
    }

    /// SyncGroup.
    ///
    /// # Errors
    /// Kafka's error.
    pub(crate) fn sync(
        &mut self,
        request: &SyncRequest,
        topics: &TopicDirectory,
        now_ms: i64,
    ) -> Result<Synced, GroupError> {
        check_sync(&self.record.group_id, request)?;
        let turn = Turn::new(now_ms);
        let member_id = request.member_id.as_str();
        let member = self.classic_member(member_id, request.instance_id.as_deref())?;
        if request.generation != member.epoch {
            return Err(GroupError::IllegalGeneration);
        }
        let name = protocol_name(member);
        let is_other = |theirs: &Option<String>, ours: &str| {
            theirs.as_deref().is_some_and(|theirs| theirs != ours)
        };
        if is_other(&request.protocol_type, CONSUMER_PROTOCOL_TYPE)
            || is_other(&request.protocol_name, &name)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        // One that must give partitions up hears of a newer epoch when it has.
        let is_behind = member.epoch < self.record.epoch;
        if is_behind && member.state != MemberState::Unrevoked {
            self.expect_request(member_id, &turn);
            return Err(GroupError::RebalanceInProgress);
        }
        let assigned = member.assigned.partitions();
        let assignment = embedded::assignment(subscription_version(member), &assigned, topics);
        self.renew_session(member_id, &turn);
        self.expect_nothing(member_id);
        let protocol_type = CONSUMER_PROTOCOL_TYPE.to_owned();
        Ok(Synced { protocol_type, protocol_name: name, assignment })
    }

    /// Heartbeat.
    ///
    /// # Errors
    /// Kafka's error; REBALANCE_IN_PROGRESS where the member must join again.
    pub(crate) fn classic_heartbeat(
        &mut self,
        request: &HeartbeatRequest,
        now_ms: i64,
    ) -> Result<(), GroupError> {
        let turn = Turn::new(now_ms);
        let member_id = request.member_id.as_str();
        let member = self.classic_member(member_id, request.instance_id.as_deref())?;
        if request.generation != member.epoch {
            return Err(GroupError::IllegalGeneration);
        }
        let is_released =
            member.state == MemberState::Unreleased && !self.waits_for_others(member_id, member);
        let must_join = member.epoch < self.record.epoch
            || member.state == MemberState::Unrevoked
            || is_released;
        self.renew_session(member_id, &turn);
        if must_join {
            self.expect_request_if_none(member_id, &turn);
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }

    /// LeaveGroup; it names members of either protocol.
    pub(crate) fn classic_leave(&mut self, request: &LeaveRequest, now_ms: i64) -> LeaveResponse {
        let mut turn = Turn::new(now_ms);
        let mut results = Vec::with_capacity(request.members.len());
        for leaver in &request.members {
            let removed = self.leaver(leaver).map(|id| self.remove_member(&id, &mut turn));
            results.push(LeftMember::of(leaver, removed.map_err(|refusal| refusal.error)));
        }
        self.raise_epoch(&turn);
        LeaveResponse::of(request.version, results)
    }

    fn leaver(&self, leaver: &Leaver) -> Result<String, Refusal> {
        let member_id = leaver.member_id.as_str();
        match leaver.instance_id.as_deref() {
            Some(instance_id) if member_id.is_empty() => {
                let holder = self.live.statics.get(instance_id).cloned();
                return holder.ok_or(Refusal::from(GroupError::UnknownMemberId));
            }
            Some(instance_id) => self.static_member(member_id, instance_id)?,
            None => self.member(member_id)?,
        };
        Ok(member_id.to_owned())
    }

    /// A member of the classic protocol.
    fn classic_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<&Member, GroupError> {
        let member = match instance_id {
            Some(instance_id) => self.static_member(member_id, instance_id),
            None => self.member(member_id),
        };
        let member = member.map_err(|refusal| refusal.error)?;
        member.classic.as_ref().map(|_| member).ok_or(GroupError::UnknownMemberId)
    }

    /// From now on the member has a rebalance timeout to join, or to sync.
    fn expect_request(&mut self, member_id: &str, turn: &Turn) {
        let Some(member) = self.record.members.get(member_id) else { return };
        let deadline_ms = turn.deadline_ms(member.rebalance_timeout_ms);
        if let Some(live) = self.live.members.get_mut(member_id) {
            live.rejoin_deadline_ms = Some(deadline_ms);
        }
    }

    fn expect_request_if_none(&mut self, member_id: &str, turn: &Turn) {
        let live = self.live.members.get(member_id);
        if live.is_some_and(|live| live.rejoin_deadline_ms.is_none()) {
            self.expect_request(member_id, turn);
        }
    }

    fn expect_nothing(&mut self, member_id: &str) {
        if let Some(live) = self.live.members.get_mut(member_id) {
            live.rejoin_deadline_ms = None;
        }
    }
}

fn protocol_name(member: &Member) -> String {
    let first = member.classic.as_ref().and_then(|classic| classic.protocols.first());
    first.map(|protocol| protocol.name.clone()).unwrap_or_default()
}

/// The version of a member's embedded protocol, in which it is answered.
pub(super) fn subscription_version(member: &Member) -> i16 {
    let first = member.classic.as_ref().and_then(|classic| classic.protocols.first());
    let parsed = first.and_then(|protocol| Subscription::parse(&protocol.metadata).ok());
    parsed.map_or(0, |subscription| subscription.version)
}

fn change(request: &JoinRequest, subscription: Subscription) -> Change {
    let classic = ClassicMember {
        session_timeout_ms: request.session_timeout_ms,
        protocols: request.protocols.clone(),
    };
    Change {
        rack_id: subscription.rack_id,
        client_id: request.client_id.clone(),
        client_host: request.client_host.clone(),
        rebalance_timeout_ms: Some(request.rebalance_timeout_ms()),
        topic_names: Some(subscription.topics),
        topic_regex: Some(None),
        server_assignor: None,
        classic: Some(classic),
    }
}
