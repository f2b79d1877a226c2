//! One consumer group: its parts, what an operator sets, and time.

use super::TopicDirectory;
use super::live::{Live, LiveMember, Turn};
use super::record::{ConsumerRecord, FIRST_EPOCH, Member};
use crate::GroupError;

/// Which way a group with members may change its protocol: `group.consumer.migration.policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MigrationPolicy {
    /// Neither way.
    Disabled,
    /// From classic to consumer.
    Upgrade,
    /// From consumer to classic.
    Downgrade,
    /// Both ways.
    #[default]
    Bidirectional,
}

impl MigrationPolicy {
    /// The policy of a name, in whatever case.
    pub fn of(name: &str) -> Option<Self> {
        let all = [Self::Disabled, Self::Upgrade, Self::Downgrade, Self::Bidirectional];
        all.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Upgrade => "upgrade",
            Self::Downgrade => "downgrade",
            Self::Bidirectional => "bidirectional",
        }
    }

    pub(super) fn allows_upgrade(self) -> bool {
        matches!(self, Self::Upgrade | Self::Bidirectional)
    }

    pub(super) fn allows_downgrade(self) -> bool {
        matches!(self, Self::Downgrade | Self::Bidirectional)
    }
}

/// From so many partitions on, a group is large: a target takes about a microsecond for each.
const LARGE_PARTITIONS: i64 = 200;

/// What an operator sets for all consumer groups; the defaults are Kafka's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// `group.consumer.session.timeout.ms`.
    pub session_timeout_ms: i32,
    /// `group.consumer.heartbeat.interval.ms`.
    pub heartbeat_interval_ms: i32,
    /// `group.consumer.max.size`, in members.
    pub members_max: usize,
    /// `group.consumer.assignment.interval.ms`: the least time between two targets.
    pub assignment_interval_ms: i32,
    /// `group.consumer.migration.policy`.
    pub migration: MigrationPolicy,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            session_timeout_ms: 45_000,
            heartbeat_interval_ms: 5_000,
            members_max: i32::MAX as usize,
            assignment_interval_ms: 1_000,
            migration: MigrationPolicy::default(),
        }
    }
}

/// A consumer group, run by one broker.
#[derive(Debug, Clone)]
pub struct ConsumerGroup {
    pub(super) config: ConsumerConfig,
    pub(super) record: ConsumerRecord,
    pub(super) live: Live,
}

impl ConsumerGroup {
    /// A group without members that is not stored yet.
    ///
    /// - `after_epoch`: the last epoch or generation of a group of this name before it, or 0.
    pub fn new(group_id: String, config: ConsumerConfig, after_epoch: i32) -> Self {
        let epoch = after_epoch.max(FIRST_EPOCH);
        let live = Live { is_fresh: true, ..Live::default() };
        Self { config, record: ConsumerRecord::new(group_id, epoch), live }
    }

    /// A stored group. Each member gets a new session, and a whole rebalance timeout for what it
    /// must give up.
    pub fn load(record: ConsumerRecord, config: ConsumerConfig, now_ms: i64) -> Self {
        let mut group = Self { config, record, live: Live::default() };
        let turn = Turn::new(now_ms);
        for (member_id, member) in &group.record.members {
            let live = LiveMember {
                session_deadline_ms: turn.deadline_ms(group.session_timeout_ms(member)),
                revoke_deadline_ms: member.revoke_deadline_ms(&turn),
                rejoin_deadline_ms: None,
            };
            group.live.members.insert(member_id.clone(), live);
            if let Some(instance_id) = &member.instance_id {
                group.live.statics.insert(instance_id.clone(), member_id.clone());
            }
            for place in member.held() {
                group.live.holders.insert(place, member_id.clone());
            }
        }
        group
    }

    /// The durable part, as it is to be stored.
    pub fn record(&self) -> &ConsumerRecord {
        &self.record
    }

    /// Whether the group was deleted: its record is to be removed.
    pub fn is_dead(&self) -> bool {
        self.live.is_dead
    }

    /// Whether its next target may take a while to compute, or its topics to be looked up, for
    /// which all expressions are compiled.
    pub fn is_large(&self, topics: &TopicDirectory) -> bool {
        let own = self.record.topics.values().map(|count| i64::from(*count)).sum();
        // Which of the topics are its own is not known before they have been looked at.
        let is_seen = self.live.seen_revision == Some(topics.revision());
        let partitions: i64 = if is_seen { own } else { topics.partitions().max(own) };
        let has_regex = |member: &Member| member.topic_regex.is_some();
        partitions >= LARGE_PARTITIONS || (!is_seen && self.record.members.values().any(has_regex))
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.record.members.is_empty()
    }

    /// Whether something has changed since this was last asked that must be stored.
    pub fn take_dirty(&mut self) -> bool {
        let is_dirty = std::mem::take(&mut self.live.is_dirty);
        self.live.is_fresh &= !is_dirty;
        is_dirty
    }

    /// Whether nothing is lost if the group is dropped from memory without being stored.
    pub fn is_unused(&self) -> bool {
        self.live.is_fresh && self.is_empty()
    }

    /// When the next [`Self::tick`] is due, ms; `None` while nothing is waited for.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let deadlines = self.live.members.values().map(|live| {
            let others = live.revoke_deadline_ms.into_iter().chain(live.rejoin_deadline_ms);
            others.fold(live.session_deadline_ms, i64::min)
        });
        deadlines.min()
    }

    /// Removes members whose time is over.
    pub fn tick(&mut self, now_ms: i64) {
        let mut turn = Turn::new(now_ms);
        let is_due = |deadline_ms: Option<i64>| deadline_ms.is_some_and(|at_ms| at_ms <= now_ms);
        let late = self.live.members.iter().filter(|(_, live)| {
            is_due(Some(live.session_deadline_ms))
                || is_due(live.revoke_deadline_ms)
                || is_due(live.rejoin_deadline_ms)
        });
        let late: Vec<String> = late.map(|(member_id, _)| member_id.clone()).collect();
        for member_id in late {
            self.remove_member(&member_id, &mut turn);
        }
        self.raise_epoch(&turn);
    }

    /// DeleteGroups, or the end of a group without members and offsets.
    ///
    /// # Errors
    /// [`GroupError::NonEmptyGroup`] while there are members.
    pub fn delete(&mut self) -> Result<(), GroupError> {
        if !self.is_empty() {
            return Err(GroupError::NonEmptyGroup);
        }
        self.live.is_dead = true;
        self.live.is_dirty = true;
        Ok(())
    }

    pub(super) fn session_timeout_ms(&self, member: &Member) -> i32 {
        let classic = member.classic.as_ref().map(|classic| classic.session_timeout_ms);
        classic.unwrap_or(self.config.session_timeout_ms)
    }
}
