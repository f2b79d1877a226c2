//! Members come, change, are checked, fall silent and go.

use bytes::Bytes;

use super::live::{LiveMember, Turn};
use super::message::{JoinRefusal, JoinRequest, Response, ResponseToken};
use super::record::{GroupState, Member};
use super::{Group, GroupRecord};
use crate::GroupError;

impl Group {
    /// The check that every request of a member passes: known, and not replaced.
    pub(super) fn check_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), GroupError> {
        if let Some(instance_id) = instance_id {
            match self.live.statics.get(instance_id) {
                None => return Err(GroupError::UnknownMemberId),
                Some(current) if current != member_id => return Err(GroupError::FencedInstanceId),
                Some(_) => {}
            }
        }
        match self.record.members.contains_key(member_id) {
            true => Ok(()),
            false => Err(GroupError::UnknownMemberId),
        }
    }

    /// Adds a member whose first join is held.
    pub(super) fn add_member(
        &mut self,
        member_id: String,
        token: ResponseToken,
        request: JoinRequest,
        turn: &Turn,
    ) {
        if self.record.members.is_empty() {
            self.record.protocol_type = Some(request.protocol_type.clone());
            self.record.leader = Some(member_id.clone());
        }
        if let Some(delay) = &mut self.live.initial_delay {
            delay.has_newcomer = true;
        }
        if let Some(instance_id) = &request.instance_id {
            self.live.statics.insert(instance_id.clone(), member_id.clone());
        }
        self.live.pending_ids.remove(&member_id);
        let join_timeout_ms = i64::from(self.config.new_member_join_timeout_ms);
        let live = LiveMember {
            join: Some(token),
            sync: None,
            session_deadline_ms: Some(turn.deadline_ms(join_timeout_ms)),
            is_new: true,
        };
        self.live.members.insert(member_id.clone(), live);
        self.record.members.insert(member_id, new_member(request));
        self.live.is_dirty = true;
    }

    /// Takes over what a member's new join says of it, and holds the answer.
    pub(super) fn update_member(
        &mut self,
        member_id: &str,
        token: ResponseToken,
        request: JoinRequest,
        turn: &mut Turn,
    ) {
        let old = self.record.members.get_mut(member_id).expect("checked by the caller");
        let assignment = std::mem::take(&mut old.assignment);
        // The instance id stays: a static member may rejoin through a client that leaves it out.
        let instance_id = old.instance_id.take();
        *old = Member { assignment, instance_id, ..new_member(request) };
        self.live.is_dirty = true;
        self.hold_join(member_id, token, turn);
    }

    fn hold_join(&mut self, member_id: &str, token: ResponseToken, turn: &mut Turn) {
        let live = self.live_mut(member_id);
        if let Some(superseded) = live.join.replace(token) {
            refuse_join(superseded, GroupError::RebalanceInProgress, member_id, turn);
        }
    }

    /// Puts a new member id in the place of a static member's old one, whose held requests are
    /// fenced.
    pub(super) fn replace_member(
        &mut self,
        instance_id: &str,
        old_id: &str,
        new_id: &str,
        turn: &mut Turn,
    ) {
        let member = self.record.members.remove(old_id).expect("statics name members only");
        let session_timeout_ms = i64::from(member.session_timeout_ms);
        self.record.members.insert(new_id.to_owned(), member);
        if self.record.is_leader(old_id) {
            self.record.leader = Some(new_id.to_owned());
        }
        if let Some(fenced) = self.live.members.remove(old_id) {
            answer_held(fenced, GroupError::FencedInstanceId, old_id, turn);
        }
        let session_deadline_ms = Some(turn.deadline_ms(session_timeout_ms));
        let live = LiveMember { session_deadline_ms, ..LiveMember::default() };
        self.live.members.insert(new_id.to_owned(), live);
        self.live.statics.insert(instance_id.to_owned(), new_id.to_owned());
        if self.live.pending_syncs.remove(old_id) {
            self.live.pending_syncs.insert(new_id.to_owned());
        }
        self.live.is_dirty = true;
    }

    /// Removes a member; what it waits for is answered with UNKNOWN_MEMBER_ID, so that a client
    /// that is still there joins anew. The caller goes on with [`Group::after_removal`].
    pub(super) fn remove_member(&mut self, member_id: &str, turn: &mut Turn) {
        let Some(member) = self.record.members.remove(member_id) else { return };
        if let Some(live) = self.live.members.remove(member_id) {
            answer_held(live, GroupError::UnknownMemberId, "", turn);
        }
        if let Some(instance_id) = &member.instance_id {
            self.live.statics.remove(instance_id);
        }
        if self.record.is_leader(member_id) {
            self.record.leader = first_member(&self.record);
        }
        self.live.pending_syncs.remove(member_id);
        self.live.is_dirty = true;
    }

    /// Starts or ends a rebalance, now that the members are fewer.
    pub(super) fn after_removal(&mut self, turn: &mut Turn) {
        match self.record.state {
            GroupState::Stable | GroupState::CompletingRebalance => self.prepare_rebalance(turn),
            GroupState::PreparingRebalance => self.maybe_complete_join(turn),
            GroupState::Empty | GroupState::Dead => {}
        }
    }

    /// Gives a member a whole session from now.
    pub(super) fn renew_session(&mut self, member_id: &str, turn: &Turn) {
        let Some(member) = self.record.members.get(member_id) else { return };
        let deadline_ms = turn.deadline_ms(i64::from(member.session_timeout_ms));
        self.live_mut(member_id).session_deadline_ms = Some(deadline_ms);
    }

    /// Removes members whose session is over, and pending ids that nobody used in time.
    pub(super) fn expire_members(&mut self, turn: &mut Turn) {
        self.live.pending_ids.retain(|_, deadline_ms| !turn.is_due(Some(*deadline_ms)));
        let mut silent = Vec::new();
        for (member_id, live) in &mut self.live.members {
            if !turn.is_due(live.session_deadline_ms) {
                continue;
            }
            let is_waiting = live.join.is_some() || live.sync.is_some();
            match is_waiting && !live.is_new {
                true => live.session_deadline_ms = None,
                false => silent.push(member_id.clone()),
            }
        }
        for member_id in &silent {
            self.remove_member(member_id, turn);
        }
        if silent.is_empty() {
            // A pending id that is gone may have been the last that the rebalance waited for.
            self.maybe_complete_join(turn);
        } else {
            self.after_removal(turn);
        }
    }

    pub(super) fn live_mut(&mut self, member_id: &str) -> &mut LiveMember {
        self.live.members.get_mut(member_id).expect("every member has a live part")
    }
}

/// Answers what a member waits for with an error.
fn answer_held(live: LiveMember, error: GroupError, member_id: &str, turn: &mut Turn) {
    if let Some(token) = live.sync {
        turn.respond(token, Response::Sync(Err(error)));
    }
    if let Some(token) = live.join {
        refuse_join(token, error, member_id, turn);
    }
}

pub(super) fn refuse_join(
    token: ResponseToken,
    error: GroupError,
    member_id: &str,
    turn: &mut Turn,
) {
    let refusal = JoinRefusal { error, member_id: member_id.to_owned() };
    turn.respond(token, Response::Join(Err(refusal)));
}

pub(super) fn first_member(record: &GroupRecord) -> Option<String> {
    record.members.keys().next().cloned()
}

fn new_member(request: JoinRequest) -> Member {
    let rebalance_timeout_ms = request.rebalance_timeout_ms();
    Member {
        instance_id: request.instance_id,
        client_id: request.client_id,
        client_host: request.client_host,
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms,
        protocols: request.protocols,
        assignment: Bytes::new(),
    }
}
