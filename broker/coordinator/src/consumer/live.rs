//! The volatile part of a consumer group, and one turn of its machine.

use std::collections::BTreeMap;

use super::pattern::Matches;
use uuid::Uuid;

/// What is lost, or made anew, when a group is loaded.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    /// By member id; the same keys as in the record.
    pub(super) members: BTreeMap<String, LiveMember>,
    /// Instance id to member id.
    pub(super) statics: BTreeMap<String, String>,
    /// Who holds a partition: it is among a member's assigned or its revoking ones.
    pub(super) holders: BTreeMap<(Uuid, i32), String>,
    /// What the members' regular expressions match.
    pub(super) matches: BTreeMap<String, Matches>,
    /// The directory of topics that the record's topics were looked up in.
    pub(super) seen_revision: Option<u64>,
    /// When the last target was computed, ms.
    pub(super) assigned_at_ms: Option<i64>,
    /// The record differs from the stored one.
    pub(super) is_dirty: bool,
    /// The record was never stored.
    pub(super) is_fresh: bool,
    /// The record is to be removed.
    pub(super) is_dead: bool,
}

/// The volatile part of a member.
#[derive(Debug, Clone, Default)]
pub(super) struct LiveMember {
    /// When the session ends, ms.
    pub(super) session_deadline_ms: i64,
    /// When the member is removed unless it has given up what it must, ms.
    pub(super) revoke_deadline_ms: Option<i64>,
    /// When a member of the classic protocol is removed unless it has joined, or synced, ms.
    pub(super) rejoin_deadline_ms: Option<i64>,
}

/// One event: its time, and what it makes of the group.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) now_ms: i64,
    /// The group epoch rises: a new target is wanted.
    pub(super) is_epoch_due: bool,
    /// Members, or what they are subscribed to, are others.
    pub(super) is_subscription_changed: bool,
}

impl Turn {
    pub(super) fn new(now_ms: i64) -> Self {
        Self { now_ms, is_epoch_due: false, is_subscription_changed: false }
    }

    pub(super) fn deadline_ms(&self, timeout_ms: i32) -> i64 {
        self.now_ms.saturating_add(i64::from(timeout_ms.max(1)))
    }
}
