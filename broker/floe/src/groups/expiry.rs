//! What is deleted without anybody asking: expired offsets, offsets of topics that are gone, groups
//! without members and offsets.
//!
//! A round visits every stored group, which also loads it: a group whose members all died while no
//! broker ran is so found, and their sessions end. Offsets of a deleted topic are read by nobody
//! from the moment it is gone, because topic ids are never used again; so they need no deletion of
//! their own, which a crash could cut off, and go in the next round.

use super::command::Command;
use super::{GROUPS_PAGE, Groups, UNAVAILABLE};
use crate::topics::Topics;
use floe_coordinator::offsets::{CommittedOffset as OffsetAge, OffsetRules};
use floe_env::{Background, Error, Result};
use floe_metadata::groups::CommittedOffset;
use kfs::TopicPartition;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The pause between two rounds; Kafka's `offsets.retention.check.interval.ms`.
const ROUND_PAUSE: Duration = Duration::from_secs(600);

/// Which offsets expire.
#[derive(Clone)]
pub(super) struct ExpiryRules {
    topics: Topics,
    retention_ms: i64,
}

impl ExpiryRules {
    pub(super) fn new(topics: Topics, retention: Duration) -> Self {
        Self { topics, retention_ms: i64::try_from(retention.as_millis()).unwrap_or(i64::MAX) }
    }

    /// Those of a group's offsets that are to be deleted.
    pub(super) async fn expired(
        &self,
        rules: &OffsetRules,
        offsets: &BTreeMap<TopicPartition, CommittedOffset>,
        pending: &BTreeSet<TopicPartition>,
        now_ms: i64,
    ) -> Result<Vec<TopicPartition>> {
        if offsets.keys().any(|partition| self.topics.by_id(partition.topic).is_none()) {
            // Newer than the offsets: a topic that is not among them now is gone for ever.
            self.topics.refresh().await?;
        }
        let is_expired = |partition: &TopicPartition, offset: &CommittedOffset| {
            let age = OffsetAge {
                committed_at_ms: offset.commit_ms,
                expires_at_ms: offset.expires_ms,
                has_pending_transaction: pending.contains(partition),
            };
            self.topics
                .by_id(partition.topic)
                .is_none_or(|topic| rules.is_expired(&topic.name, &age, now_ms, self.retention_ms))
        };
        let expired = offsets.iter().filter(|(partition, offset)| is_expired(partition, offset));
        Ok(expired.map(|(partition, _)| *partition).collect())
    }
}

impl Groups {
    /// Starts the background job.
    ///
    /// - `retention`: `offsets.retention.minutes`.
    pub(crate) fn start_expiry(&self, topics: Topics, retention: Duration) -> Background {
        let (env, shutdown) = (&self.0.env, self.0.shutdown.clone());
        let rules = ExpiryRules::new(topics, retention);
        let groups = self.clone();
        Background::start(env, "group expiry", ROUND_PAUSE, shutdown, move || {
            let (groups, rules) = (groups.clone(), rules.clone());
            async move { groups.expire_all(&rules).await }
        })
    }

    /// One round. A group that fails does not keep the others from their turn.
    pub(super) async fn expire_all(&self, rules: &ExpiryRules) -> Result<()> {
        let metadata = &self.0.metadata;
        let mut failure = None;
        let mut after: Option<String> = None;
        loop {
            let page = metadata.groups_after(after.as_deref(), GROUPS_PAGE).await?;
            let is_last = page.len() < GROUPS_PAGE;
            after = page.last().map(|(group, _)| group.clone());
            for (group, _) in page {
                failure = self.expire(&group, rules).await.err().or(failure);
            }
            if is_last || self.0.shutdown.is_triggered() {
                break;
            }
        }
        for group in metadata.groups_with_offsets().await? {
            if metadata.group(&group).await?.is_none() {
                failure = self.expire(&group, rules).await.err().or(failure);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn expire(&self, group: &str, rules: &ExpiryRules) -> Result<()> {
        let rules = rules.clone();
        let expired = self.ask(group, |answer| Command::Expire { rules, answer }).await;
        let expired = expired.unwrap_or_else(|| Err(Error::retry(UNAVAILABLE.to_string())));
        expired.map_err(|error| error.context("consumer group"))
    }
}
