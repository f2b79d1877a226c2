//! Rules about committed offsets that need no store: expiry, deletion, size of the metadata.
//!
//! The offsets themselves stay in the metadata store, because another broker may have changed them;
//! the caller reads them, asks here, and deletes. An [`OffsetRules`] is taken from a group once and
//! serves all its offsets.

use std::collections::BTreeSet;

use crate::GroupError;
use crate::classic::{self, GroupState};
use crate::consumer::{ConsumerGroup, TopicPattern};
use crate::group::Group;
use crate::protocol_metadata::{CONSUMER_PROTOCOL_TYPE, subscribed_topics};

/// `offset.metadata.max.bytes`: the longest metadata beside an offset, in UTF-16 units as Kafka
/// counts it.
pub const OFFSET_METADATA_UNITS_MAX: usize = 4096;

/// What the expiry must know of a committed offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedOffset {
    /// When it was committed, in ms.
    pub committed_at_ms: i64,
    /// When it expires in any case: commits of versions 2 to 4 can say so.
    pub expires_at_ms: Option<i64>,
    /// Whether a transaction that is still open has a newer offset for the partition.
    pub has_pending_transaction: bool,
}

/// The topics that a group is subscribed to, as far as the broker can know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subscription {
    /// These.
    Topics(BTreeSet<String>),
    /// These, and those that an expression matches.
    Matching(BTreeSet<String>, Vec<TopicPattern>),
    /// A member's metadata cannot be read, so any topic may be meant.
    Everything,
}

impl Subscription {
    /// Whether the topic is, or may be, among them.
    pub fn contains(&self, topic: &str) -> bool {
        match self {
            Self::Topics(topics) => topics.contains(topic),
            Self::Matching(topics, patterns) => {
                topics.contains(topic) || patterns.iter().any(|pattern| pattern.matches(topic))
            }
            Self::Everything => true,
        }
    }
}

/// From when an offset's retention counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetentionStart {
    Commit,
    EmptySince(i64),
    CommitUnlessSubscribed,
    Never,
}

/// The rules for the offsets of one group, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetRules {
    start: RetentionStart,
    subscription: Subscription,
    is_deletion_refused: bool,
}

impl OffsetRules {
    /// The rules for a group's offsets.
    pub fn of(group: &Group) -> Self {
        match group {
            Group::Classic(group) => Self::of_classic(group),
            Group::Consumer(group) => Self::of_consumer(group),
        }
    }

    /// The rules for offsets of a group that does not exist: its consumers, if there are any,
    /// assign their partitions themselves.
    pub fn of_missing() -> Self {
        let subscription = Subscription::Topics(BTreeSet::new());
        Self { start: RetentionStart::Commit, subscription, is_deletion_refused: false }
    }

    fn of_consumer(group: &ConsumerGroup) -> Self {
        let (topics, patterns) = group.subscription();
        Self {
            start: RetentionStart::CommitUnlessSubscribed,
            subscription: Subscription::Matching(topics, patterns),
            is_deletion_refused: false,
        }
    }

    fn of_classic(group: &classic::Group) -> Self {
        let is_consumer = group.protocol_type() == CONSUMER_PROTOCOL_TYPE;
        let subscription = match is_consumer {
            true => subscription(group),
            false => Subscription::Topics(BTreeSet::new()),
        };
        let is_readable = subscription != Subscription::Everything;
        let start = match group.state() {
            // Nobody ever joined: the consumers assign their partitions themselves.
            _ if group.protocol_type().is_empty() => RetentionStart::Commit,
            GroupState::Empty => RetentionStart::EmptySince(group.record().state_since_ms()),
            GroupState::Stable if is_consumer && is_readable => {
                RetentionStart::CommitUnlessSubscribed
            }
            _ => RetentionStart::Never,
        };
        let has_members =
            !matches!(group.state(), GroupState::Empty | GroupState::Dead) && !is_consumer;
        Self { start, subscription, is_deletion_refused: has_members }
    }

    /// Whether an offset is to be deleted.
    ///
    /// - `retention_ms`: `offsets.retention.minutes`, in ms.
    pub fn is_expired(
        &self,
        topic: &str,
        offset: &CommittedOffset,
        now_ms: i64,
        retention_ms: i64,
    ) -> bool {
        if offset.has_pending_transaction {
            return false;
        }
        let counts_from_ms = match self.start {
            RetentionStart::Never => return false,
            RetentionStart::CommitUnlessSubscribed if self.subscription.contains(topic) => {
                return false;
            }
            RetentionStart::Commit | RetentionStart::CommitUnlessSubscribed => {
                offset.committed_at_ms
            }
            RetentionStart::EmptySince(since_ms) => since_ms,
        };
        match offset.expires_at_ms {
            Some(expires_at_ms) => now_ms >= expires_at_ms,
            None => now_ms.saturating_sub(counts_from_ms) >= retention_ms,
        }
    }

    /// Whether OffsetDelete may touch the group at all.
    ///
    /// # Errors
    /// [`GroupError::NonEmptyGroup`] for a group with members that are not consumers.
    pub fn check_delete(&self) -> Result<(), GroupError> {
        match self.is_deletion_refused {
            true => Err(GroupError::NonEmptyGroup),
            false => Ok(()),
        }
    }

    /// Whether OffsetDelete may delete offsets of a topic.
    ///
    /// # Errors
    /// [`GroupError::GroupSubscribedToTopic`] if a member is, or may be, subscribed to it.
    pub fn check_delete_of(&self, topic: &str) -> Result<(), GroupError> {
        match self.subscription.contains(topic) {
            true => Err(GroupError::GroupSubscribedToTopic),
            false => Ok(()),
        }
    }
}

/// Whether the metadata beside an offset is short enough.
///
/// # Errors
/// [`GroupError::OffsetMetadataTooLarge`] beyond [`OFFSET_METADATA_UNITS_MAX`].
pub fn check_offset_metadata(metadata: Option<&str>) -> Result<(), GroupError> {
    let units = metadata.unwrap_or_default().encode_utf16();
    match units.take(OFFSET_METADATA_UNITS_MAX + 1).count() > OFFSET_METADATA_UNITS_MAX {
        true => Err(GroupError::OffsetMetadataTooLarge),
        false => Ok(()),
    }
}

/// What the members of a consumer group are subscribed to together.
fn subscription(group: &classic::Group) -> Subscription {
    let mut topics = BTreeSet::new();
    for metadata in group.record().chosen_metadata() {
        match metadata.and_then(|bytes| subscribed_topics(bytes).ok()) {
            Some(subscribed) => topics.extend(subscribed),
            None => return Subscription::Everything,
        }
    }
    Subscription::Topics(topics)
}
