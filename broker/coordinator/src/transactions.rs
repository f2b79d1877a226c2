//! What each request makes of a transactional id: pure functions from the row as it is stored to
//! what is to be written. The shell writes it on condition that the row is still the one that was
//! read, and decides again where it is not.
//!
//! Two protocols live side by side, told apart by the version of each request. Before KIP-890
//! (`TV1`) clients add partitions and groups before they write, and an epoch lasts until the next
//! InitProducerId. With its second part (`TV2`) writing adds them, and every end raises the epoch.
//! The raised epoch is what a repeated EndTxn is known by.
//!
//! An end is one step of the store, so the states `PrepareCommit`, `PrepareAbort` and
//! `PrepareEpochFence` of Kafka's coordinator never show.

mod end;
mod init;

pub use end::{EndRequest, EndStep, end};
pub use init::{InitRequest, InitStep, init, needs_producer_id};

use floe_metadata::transactions::{
    Ending, TRANSACTION_GROUPS_MAX, TRANSACTION_PARTITIONS_MAX, TransactionRow, TransactionState,
};
use kfs::{ProducerEpoch, ProducerId, TopicPartition};
use thiserror::Error;

/// The last epoch that a producer id is given with; the one above only fences it.
pub const EPOCH_MAX: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

/// A refusal; each variant is the Kafka error code of the same name (its number in brackets).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TransactionError {
    /// The transactional id is unknown or has another producer id (49).
    #[error("the transactional id has another producer id")]
    InvalidProducerIdMapping,
    /// The transactional id has another epoch (90, 47 in old versions).
    #[error("the transactional id has another epoch")]
    ProducerFenced,
    /// The transaction is not in a state for this (48).
    #[error("the transaction is not in a state for this")]
    InvalidTxnState,
    /// The transaction can only be aborted: it has too many participants (120).
    #[error("the transaction has too many participants")]
    TransactionAbortable,
}

/// Who sends a request within a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Its producer id.
    pub producer: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
}

impl Sender {
    fn check(&self, row: &TransactionRow) -> Result<(), TransactionError> {
        if self.producer != row.producer {
            return Err(TransactionError::InvalidProducerIdMapping);
        }
        if self.epoch != row.epoch {
            return Err(TransactionError::ProducerFenced);
        }
        Ok(())
    }
}

/// AddPartitionsToTxn: the row to write; the row itself where all partitions are in the
/// transaction.
///
/// # Errors
/// Another producer or epoch; too many partitions.
pub fn add_partitions(
    row: &TransactionRow,
    sender: Sender,
    partitions: impl IntoIterator<Item = TopicPartition>,
    now_ms: i64,
) -> Result<TransactionRow, TransactionError> {
    sender.check(row)?;
    let mut added = row.clone();
    added.partitions.extend(partitions);
    settle_added(row, added, now_ms)
}

/// Whether a partition is in the sender's open transaction.
///
/// # Errors
/// Another producer or epoch; [`TransactionError::TransactionAbortable`] where it is not.
pub fn verify_partition(
    row: &TransactionRow,
    sender: Sender,
    partition: TopicPartition,
) -> Result<(), TransactionError> {
    sender.check(row)?;
    let is_open = row.state == TransactionState::Ongoing;
    match is_open && row.partitions.contains(&partition) {
        true => Ok(()),
        false => Err(TransactionError::TransactionAbortable),
    }
}

/// AddOffsetsToTxn, and TxnOffsetCommit of TV2: the row to write; the row itself where the group is
/// in the transaction.
///
/// # Errors
/// Another producer or epoch; too many groups.
pub fn add_group(
    row: &TransactionRow,
    sender: Sender,
    group: &str,
    now_ms: i64,
) -> Result<TransactionRow, TransactionError> {
    sender.check(row)?;
    let mut added = row.clone();
    added.groups.insert(group.to_owned());
    settle_added(row, added, now_ms)
}

/// TxnOffsetCommit of TV1: whether the group is in the sender's open transaction.
///
/// # Errors
/// Another producer or epoch; [`TransactionError::InvalidTxnState`] where it is not.
pub fn verify_group(
    row: &TransactionRow,
    sender: Sender,
    group: &str,
) -> Result<(), TransactionError> {
    sender.check(row)?;
    let is_open = row.state == TransactionState::Ongoing;
    match is_open && row.groups.contains(group) {
        true => Ok(()),
        false => Err(TransactionError::InvalidTxnState),
    }
}

fn settle_added(
    row: &TransactionRow,
    mut added: TransactionRow,
    now_ms: i64,
) -> Result<TransactionRow, TransactionError> {
    if row.state == TransactionState::Ongoing && added == *row {
        return Ok(added);
    }
    if added.partitions.len() > TRANSACTION_PARTITIONS_MAX
        || added.groups.len() > TRANSACTION_GROUPS_MAX
    {
        return Err(TransactionError::TransactionAbortable);
    }
    added.begin(now_ms);
    Ok(added)
}

/// The abort of a transaction that has been open for too long. `None` where it may go on.
pub fn time_out(row: &TransactionRow, now_ms: i64) -> Option<(TransactionRow, Ending)> {
    let deadline_ms = row.started_ms.saturating_add(row.timeout_ms.into());
    let is_due = row.state == TransactionState::Ongoing && deadline_ms <= now_ms;
    is_due.then(|| fence(row, now_ms))
}

/// Whether a transactional id may be forgotten: nothing is open, and it has been idle for so long.
pub fn is_expired(row: &TransactionRow, now_ms: i64, expiration_ms: i64) -> bool {
    row.state != TransactionState::Ongoing && now_ms.saturating_sub(row.updated_ms) >= expiration_ms
}

/// Aborts what is open with a raised epoch: its producer is fenced, and may ask for the new epoch
/// by the old one, until somebody else is given one.
fn fence(row: &TransactionRow, now_ms: i64) -> (TransactionRow, Ending) {
    let epoch = ProducerEpoch(row.epoch.0.saturating_add(1));
    let (last_epoch, closed) = (Some(row.epoch), closed(row, false, now_ms));
    let after = TransactionRow { epoch, last_epoch, last_producer: None, ..closed };
    (after, Ending { commit: false, producer: row.producer, epoch })
}

/// The row once its transaction is over.
fn closed(row: &TransactionRow, commit: bool, now_ms: i64) -> TransactionRow {
    TransactionRow {
        state: match commit {
            true => TransactionState::CompleteCommit,
            false => TransactionState::CompleteAbort,
        },
        partitions: std::collections::BTreeSet::new(),
        groups: std::collections::BTreeSet::new(),
        updated_ms: now_ms,
        ..row.clone()
    }
}

fn is_used_up(epoch: ProducerEpoch) -> bool {
    epoch >= EPOCH_MAX
}
