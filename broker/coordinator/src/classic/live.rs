//! The volatile part of a group, and one turn of its machine.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{Effect, Response, ResponseToken};

/// What is lost, or made anew, when a group is loaded.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    /// By member id; the same keys as in the record.
    pub(super) members: BTreeMap<String, LiveMember>,
    /// Instance id to member id.
    pub(super) statics: BTreeMap<String, String>,
    /// Ids handed out with MEMBER_ID_REQUIRED, and when each expires.
    pub(super) pending_ids: BTreeMap<String, i64>,
    /// Members of this generation that have not asked for their assignment.
    pub(super) pending_syncs: BTreeSet<String>,
    /// When joining ends (PreparingRebalance).
    pub(super) join_deadline_ms: Option<i64>,
    /// Set while a group that was empty waits for more members.
    pub(super) initial_delay: Option<InitialDelay>,
    /// When members that have not synced are removed (CompletingRebalance, Stable).
    pub(super) sync_deadline_ms: Option<i64>,
    /// The record differs from the stored one.
    pub(super) is_dirty: bool,
    /// The record was never stored.
    pub(super) is_fresh: bool,
}

/// The volatile part of a member.
#[derive(Debug, Clone, Default)]
pub(super) struct LiveMember {
    /// A held JoinGroup.
    pub(super) join: Option<ResponseToken>,
    /// A held SyncGroup.
    pub(super) sync: Option<ResponseToken>,
    /// When the session ends. `None` once it has ended while an answer was held: the client cannot
    /// send a heartbeat while it waits, and gets a new session with its answer.
    pub(super) session_deadline_ms: Option<i64>,
    /// Its first join is held: the session is then the limit for that join.
    pub(super) is_new: bool,
}

/// How long the first rebalance of a group still waits for members to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct InitialDelay {
    /// The part that is running, in ms.
    pub(super) step_ms: i64,
    /// What may be added after it, in ms.
    pub(super) remaining_ms: i64,
    /// Whether somebody joined during this part, so that another one follows.
    pub(super) has_newcomer: bool,
}

/// One call of `apply`: the time, and the answers so far.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) now_ms: i64,
    /// An answer of this turn promises what the record says.
    pub(super) is_promised: bool,
    answers: Vec<Effect>,
}

impl Turn {
    pub(super) fn new(now_ms: i64) -> Self {
        Self { now_ms, is_promised: false, answers: Vec::new() }
    }

    pub(super) fn respond(&mut self, token: ResponseToken, response: Response) {
        self.answers.push(Effect::Respond { token, response });
    }

    pub(super) fn deadline_ms(&self, timeout_ms: i64) -> i64 {
        self.now_ms.saturating_add(timeout_ms.max(1))
    }

    pub(super) fn is_due(&self, deadline_ms: Option<i64>) -> bool {
        deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.now_ms)
    }

    pub(super) fn into_answers(self) -> Vec<Effect> {
        self.answers
    }
}
