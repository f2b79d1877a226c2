//! Committed offsets, as far as the group has a say in them: commits, OffsetDelete, expiry. All are
//! changes under the group's runner, one after the other, so that no zombie's commit comes after
//! its successor has begun to read.

use super::command::DeletedOffsets;
use super::expiry::ExpiryRules;
use super::runner::{Known, Runner};
use super::{UNAVAILABLE, store_refusal};
use floe_coordinator::GroupError;
use floe_coordinator::classic::{CommitCheck, Event, Group, Response};
use floe_coordinator::offsets::OffsetRules;
use floe_env::{Error, Result as FloeResult};
use floe_metadata::groups::CommittedOffset;
use kfs::TopicPartition;

/// Offsets that one change deletes at most.
const OFFSETS_DELETED_TOGETHER_MAX: usize = 1000;

impl Runner {
    pub(super) async fn commit(
        &mut self,
        check: CommitCheck,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
    ) -> Result<(), GroupError> {
        let checked = self.answered(|token| Event::CheckCommit { token, request: check }).await;
        match checked {
            Some(Response::Commit(checked)) => checked?,
            _ => return Err(UNAVAILABLE),
        }
        if offsets.is_empty() {
            return Ok(());
        }
        let metadata = &self.shared.metadata;
        let made = metadata.commit_offsets(&self.group_id, &offsets, self.checks()).await;
        let made = made.map_err(|error| self.failed(&error))?;
        self.check_made(made).inspect_err(|_| self.forget())
    }

    pub(super) async fn delete_offsets(
        &mut self,
        topics: &[(String, Vec<TopicPartition>)],
    ) -> DeletedOffsets {
        if self.group_id.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        self.load().await?;
        let Known::Group(group) = &self.known else { return Err(GroupError::GroupIdNotFound) };
        let rules = OffsetRules::of(group);
        rules.check_delete()?;
        let mut results = Vec::with_capacity(topics.len());
        let mut doomed = Vec::new();
        for (topic, partitions) in topics {
            let allowed = rules.check_delete_of(topic);
            if allowed.is_ok() {
                doomed.extend(partitions);
            }
            results.push(allowed);
        }
        doomed.sort_unstable();
        doomed.dedup();
        self.remove(&doomed).await.map_err(|error| store_refusal(&error))?;
        Ok(results)
    }

    /// Deletes offsets that have expired, and the group if it has neither members nor offsets.
    pub(super) async fn expire(&mut self, expiry: &ExpiryRules) -> FloeResult<()> {
        self.load().await.map_err(|error| Error::unavailable(error.to_string()))?;
        let offsets = self.shared.metadata.offsets(&self.group_id).await?;
        let now_ms = self.shared.clock.now_ms();
        let rules = match &self.known {
            Known::Group(group) => OffsetRules::of(group),
            // Offsets without a group count like those of a consumer that assigns for itself.
            Known::Nothing | Known::Missing => OffsetRules::of(&Group::new(
                self.group_id.as_ref().to_owned(),
                self.shared.config.clone(),
                now_ms,
            )),
        };
        let expired = expiry.expired(&rules, &offsets, now_ms).await?;
        self.remove(&expired).await?;
        if !expired.is_empty() {
            tracing::info!(group = %self.group_id, count = expired.len(), "offsets have expired");
        }
        let is_over = expired.len() == offsets.len()
            && self.stored.is_some()
            && matches!(&self.known, Known::Group(group) if group.is_empty());
        if is_over {
            match self.answered(|token| Event::Delete { token }).await {
                Some(Response::Delete(Ok(()))) => {
                    tracing::info!(group = %self.group_id, "deleted: no members, no offsets");
                }
                _ => return Err(Error::retry("an empty group could not be deleted")),
            }
        }
        Ok(())
    }

    async fn remove(&mut self, partitions: &[TopicPartition]) -> FloeResult<()> {
        for some in partitions.chunks(OFFSETS_DELETED_TOGETHER_MAX) {
            let metadata = &self.shared.metadata;
            let made = metadata.delete_offsets(&self.group_id, some, self.checks()).await?;
            if self.check_made(made).is_err() {
                self.forget();
                return Err(Error::retry("another broker has changed the group"));
            }
        }
        Ok(())
    }
}
