//! Committed offsets, as far as the group has a say in them: commits, OffsetDelete, expiry. All are
//! changes under the group's runner, one after the other, so that no zombie's commit comes after
//! its successor has begun to read.

use super::command::{DeletedOffsets, TransactionCommit};
use super::expiry::ExpiryRules;
use super::runner::{Known, Runner};
use super::{UNAVAILABLE, store_refusal};
use floe_coordinator::GroupError;
use floe_coordinator::classic::{self, CommitCheck};
use floe_coordinator::group::{Event, Response};
use floe_coordinator::offsets::OffsetRules;
use floe_env::{Error, ErrorKind, Result as FloeResult};
use floe_metadata::facts::ChangeOutcome;
use floe_metadata::groups::CommittedOffset;
use floe_metadata::transactions::PendingOffset;
use kfs::TopicPartition;
use std::collections::BTreeSet;

/// Offsets that one change deletes at most.
const OFFSETS_DELETED_TOGETHER_MAX: usize = 1000;

impl Runner {
    pub(super) async fn commit(
        &mut self,
        check: CommitCheck,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
        transaction: Option<Box<TransactionCommit>>,
    ) -> Result<(), GroupError> {
        let event = |token| classic::Event::CheckCommit { token, request: check };
        let checked = self.answered(|token| Event::Classic(event(token))).await;
        match checked {
            Some(Response::Classic(classic::Response::Commit(checked))) => checked?,
            _ => return Err(UNAVAILABLE),
        }
        if offsets.is_empty() {
            return Ok(());
        }
        if let Some(transaction) = transaction {
            return self.commit_in_transaction(&transaction, &offsets).await;
        }
        let metadata = &self.shared.metadata;
        let made = metadata.commit_offsets(&self.group_id, &offsets, self.checks()).await;
        let made = made.map_err(|error| self.failed(&error))?;
        self.check_made(made).inspect_err(|_| self.forget())
    }

    async fn commit_in_transaction(
        &mut self,
        TransactionCommit { known, row }: &TransactionCommit,
        offsets: &[(TopicPartition, CommittedOffset)],
    ) -> Result<(), GroupError> {
        let metadata = &self.shared.metadata;
        let made =
            metadata.put_pending_offsets(known, row, &self.group_id, offsets, self.checks()).await;
        match made {
            Ok(ChangeOutcome::Applied) => return Ok(()),
            Ok(ChangeOutcome::Rejected) => {}
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => {
                return Err(GroupError::CoordinatorNotAvailable);
            }
            Err(error) => return Err(self.failed(&error)),
        }
        // The group has changed, or the transaction, or what was committed before.
        let stored = metadata.group(&self.group_id).await.map_err(|error| self.failed(&error))?;
        if stored == self.stored {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.forget();
        Err(UNAVAILABLE)
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
            Known::Nothing | Known::Missing => OffsetRules::of_missing(),
        };
        let pending = self.shared.metadata.pending_offsets(&self.group_id).await?;
        let pending: BTreeSet<TopicPartition> =
            pending.iter().map(PendingOffset::partition).collect();
        let expired = expiry.expired(&rules, &offsets, &pending, now_ms).await?;
        self.remove(&expired).await?;
        if !expired.is_empty() {
            tracing::info!(group = %self.group_id, count = expired.len(), "offsets have expired");
        }
        let is_over = expired.len() == offsets.len()
            && pending.is_empty()
            && self.stored.is_some()
            && matches!(&self.known, Known::Group(group) if group.is_empty());
        if is_over {
            let delete = |token| Event::Classic(classic::Event::Delete { token });
            match self.answered(delete).await {
                Some(Response::Classic(classic::Response::Delete(Ok(())))) => {
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
