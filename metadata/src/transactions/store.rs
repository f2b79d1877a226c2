//! Transactional ids in the store: each change on condition that the row is what was read.

use super::pending::Part;
use super::{TransactionRow, TransactionState};
use crate::facts::{Change, ChangeOutcome, Check, FactKey, Write};
use crate::groups::CommittedOffset;
use crate::rows::{MarkerFacts, MarkerOutcome};
use crate::store::{MetadataStore, from_json, put_json, unchanged};
use bytes::Bytes;
use floe_env::Result;
use kfs::{ProducerEpoch, ProducerId, TimestampType, TopicId, TopicPartition};

/// The epoch of the coordinator in every marker: no broker owns a transactional id.
const COORDINATOR_EPOCH: i32 = 0;

/// A transactional id as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTransaction {
    /// The transactional id.
    pub id: String,
    /// Its row.
    pub row: TransactionRow,
    /// The row as stored.
    stored: Bytes,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Commit, or abort.
    pub commit: bool,
    /// The producer that its markers name.
    pub producer: ProducerId,
    /// The epoch that its markers carry.
    pub epoch: ProducerEpoch,
}

/// The fact of a transactional id.
pub(crate) fn transaction_key(id: &str) -> FactKey {
    FactKey::new(&["transactions", id])
}

/// The row of such a fact.
pub(crate) fn decode_row(key: &FactKey, value: &[u8]) -> Result<TransactionRow> {
    from_json(key, value)
}

/// The fact with this row.
pub(crate) fn put_row(id: &str, row: &TransactionRow) -> Write {
    put_json(transaction_key(id), row)
}

impl MetadataStore {
    /// A transactional id; `None` where nobody has used it.
    pub async fn transaction(&self, id: &str) -> Result<Option<KnownTransaction>> {
        let key = transaction_key(id);
        let stored = self.fact(&key).await?;
        let known = stored.map(|stored| known_of(&key, id.to_owned(), stored));
        known.transpose()
    }

    /// Some transactional ids, by id, that come after `after`; none is left once fewer than `limit`
    /// come.
    pub async fn transactions_after(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KnownTransaction>> {
        let mut rest = FactKey::new(&["transactions"]).folder();
        if let Some(after) = after {
            // The smallest key above the last one.
            rest.from = format!("{}\u{0}", transaction_key(after).as_str());
        }
        let facts = self.backend().scan(&rest, limit).await?.into_iter();
        let known = facts.map(|(key, stored)| {
            let id = key.segments().pop().unwrap_or_default();
            known_of(&key, id, stored)
        });
        known.collect()
    }

    /// Replaces a row, or makes it where nobody has used the id.
    pub async fn put_transaction(
        &self,
        id: &str,
        before: Option<&KnownTransaction>,
        row: &TransactionRow,
    ) -> Result<ChangeOutcome> {
        let change = Change {
            checks: vec![row_check(id, before)],
            writes: vec![put_row(id, row)],
            ..Change::default()
        };
        self.change(&change).await
    }

    /// Forgets a transactional id that has no transaction open.
    pub async fn delete_transaction(&self, before: &KnownTransaction) -> Result<ChangeOutcome> {
        let change = Change {
            checks: vec![row_check(&before.id, Some(before))],
            writes: vec![Write::Delete(transaction_key(&before.id))],
            ..Change::default()
        };
        self.change(&change).await
    }

    /// Adds offsets of a group to those that wait for the end of a transaction; the group is in
    /// `row`, which is written where it is not the one that was read. `Rejected` if the row, one of
    /// the checks or what the group has committed has changed.
    pub async fn put_pending_offsets(
        &self,
        before: &KnownTransaction,
        row: &TransactionRow,
        group: &str,
        offsets: &[(TopicPartition, CommittedOffset)],
        checks: impl IntoIterator<Item = Check> + Send,
    ) -> Result<ChangeOutcome> {
        let mut part = Part::default();
        if !offsets.is_empty() {
            part = self.add_pending(&before.id, group, offsets).await?;
        }
        part.checks.push(row_check(&before.id, Some(before)));
        part.checks.extend(checks);
        if *row != before.row {
            part.writes.push(put_row(&before.id, row));
        }
        let change = Change { checks: part.checks, writes: part.writes, ..Change::default() };
        self.change(&change).await
    }

    /// Ends a transaction in one step: its row becomes `after`, each of its partitions gets a
    /// marker, and offsets that wait for it are committed or go. Answers one outcome a partition,
    /// in their order, or `None` where something has changed since it was read.
    pub async fn end_transaction(
        &self,
        before: &KnownTransaction,
        after: &TransactionRow,
        ending: Ending,
        timestamp_type: impl Fn(TopicId) -> TimestampType + Send,
    ) -> Result<Option<Vec<(TopicPartition, MarkerOutcome)>>> {
        debug_assert!(after.state != TransactionState::Ongoing, "an end opens nothing");
        let partitions = before.row.partitions.iter();
        let marker = |partition: &TopicPartition| MarkerFacts {
            partition: *partition,
            producer: ending.producer,
            epoch: ending.epoch,
            commit: ending.commit,
            // Its row has compared the epochs.
            raises_epoch: false,
            coordinator_epoch: COORDINATOR_EPOCH,
            timestamp_type: timestamp_type(partition.topic),
        };
        let markers: Vec<MarkerFacts> = partitions.map(marker).collect();
        let mut part = self.settle_pending(before, ending.commit).await?;
        part.checks.push(row_check(&before.id, Some(before)));
        part.writes.push(put_row(&before.id, after));
        let change = Change { checks: part.checks, writes: part.writes, ..Change::default() };
        let outcomes = self.write_markers(&change, &markers).await?;
        let named = markers.iter().map(|marker| marker.partition);
        Ok(outcomes.map(|outcomes| named.zip(outcomes).collect()))
    }

    /// See [`Backend::end_transaction`](crate::Backend::end_transaction); with this handle's fence.
    pub async fn write_markers(
        &self,
        change: &Change,
        markers: &[MarkerFacts],
    ) -> Result<Option<Vec<MarkerOutcome>>> {
        let fence = change.fence.clone().or_else(|| self.fence().cloned());
        let fenced = Change { fence, ..change.clone() };
        let ended = self.backend().end_transaction(&fenced, markers).await;
        self.observed(fenced.fence.as_ref(), ended)
    }
}

fn known_of(key: &FactKey, id: String, stored: Bytes) -> Result<KnownTransaction> {
    Ok(KnownTransaction { id, row: decode_row(key, &stored)?, stored })
}

fn row_check(id: &str, before: Option<&KnownTransaction>) -> Check {
    unchanged(transaction_key(id), before.map(|known| known.stored.clone()))
}
