//! Who may commit and fetch offsets of a consumer group.

use super::ConsumerGroup;
use super::pattern::TopicPattern;
use super::record::Member;
use crate::GroupError;
use crate::classic::CommitCheck;
use std::collections::BTreeSet;

/// The first version of OffsetCommit that carries member epochs.
const MEMBER_EPOCH_VERSION_MIN: i16 = 9;

impl ConsumerGroup {
    /// Whether the sender of an offset commit may store its offsets.
    ///
    /// An older epoch of a member is accepted for partitions that it has had since then
    /// (KIP-1251): the commit may have been on its way while the epoch rose.
    pub(crate) fn check_commit(&self, check: &CommitCheck) -> Result<(), GroupError> {
        if check.generation < 0 && self.is_empty() {
            // An administrator, or a consumer that assigns its partitions itself.
            return Ok(());
        }
        let names_nobody =
            check.generation < 0 && check.member_id.is_empty() && check.instance_id.is_none();
        if check.transactional && names_nobody {
            return Ok(());
        }
        let member = self.record.members.get(&check.member_id);
        let member = member.ok_or(GroupError::UnknownMemberId)?;
        let is_too_old = check.version < MEMBER_EPOCH_VERSION_MIN;
        if member.classic.is_none() && !check.transactional && is_too_old {
            return Err(GroupError::UnsupportedVersion);
        }
        let accepted = check_epoch(member, check.generation);
        match accepted {
            Err(GroupError::StaleMemberEpoch) if has_had_all(member, check) => Ok(()),
            // TxnOffsetCommit has no word for it.
            Err(GroupError::StaleMemberEpoch) if check.transactional => {
                Err(GroupError::IllegalGeneration)
            }
            other => other,
        }
    }

    /// Whether the sender of an OffsetFetch of version 9 or later may read.
    ///
    /// - `member_id`: `None` for an administrator, who may.
    pub(crate) fn check_fetch(
        &self,
        member_id: Option<&str>,
        epoch: i32,
    ) -> Result<(), GroupError> {
        if member_id.is_none() && epoch < 0 {
            return Ok(());
        }
        let member = self.record.members.get(member_id.unwrap_or_default());
        check_epoch(member.ok_or(GroupError::UnknownMemberId)?, epoch)
    }

    /// The topics that members are subscribed to: by name, and by expression.
    pub(crate) fn subscription(&self) -> (BTreeSet<String>, Vec<TopicPattern>) {
        let members = self.record.members.values();
        let names = members.clone().flat_map(|member| member.topic_names.iter().cloned());
        // Members mostly have the same one.
        let sources: BTreeSet<&str> =
            members.filter_map(|member| member.topic_regex.as_deref()).collect();
        let patterns = sources.into_iter().filter_map(|source| TopicPattern::new(source).ok());
        (names.collect(), patterns.collect())
    }
}

fn check_epoch(member: &Member, epoch: i32) -> Result<(), GroupError> {
    if epoch == member.epoch {
        return Ok(());
    }
    match member.classic {
        Some(_) => Err(GroupError::IllegalGeneration),
        None => Err(GroupError::StaleMemberEpoch),
    }
}

/// Whether an older epoch of the member covers all partitions of the commit.
fn has_had_all(member: &Member, check: &CommitCheck) -> bool {
    let has_had = |(topic, index): &(uuid::Uuid, i32)| {
        let held = member.assigned.epoch_of(*topic, *index);
        let since = held.or_else(|| member.revoking.epoch_of(*topic, *index));
        since.is_some_and(|since| since <= check.generation)
    };
    check.generation < member.epoch
        && !check.partitions.is_empty()
        && check.partitions.iter().all(has_had)
}
