//! Transactional ids: one fact each, with the producer id and epoch that may write, and the
//! participants of the open transaction. No broker owns it; whoever changes it does so on
//! condition that it still is what was read. Which changes an API makes is decided in
//! `floe-coordinator`; here is what the commit of a segment must know, and (in `store.rs`) how
//! changes are made.
//!
//! Offsets that a transaction wants to commit wait in a fact per (group, transactional id)
//! (`pending.rs`), and become committed ones, or go, with the transaction.

mod pending;
mod store;
#[cfg(test)]
mod tests;

pub use pending::PendingOffset;
pub use store::{Ending, KnownTransaction};
pub(crate) use store::{decode_row, put_row, transaction_key};

use crate::rows::{ProducerBatch, Refusal};
use kfs::{PartitionIndex, ProducerEpoch, ProducerId, TopicId, TopicPartition};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Partitions of one transaction at most: its end is one transaction of the store.
pub const TRANSACTION_PARTITIONS_MAX: usize = 10_000;
/// Groups of one transaction at most.
pub const TRANSACTION_GROUPS_MAX: usize = 1_000;

/// What a transactional id is doing. A transaction ends in one step, so that the states between
/// (`PrepareCommit`, `PrepareAbort`) are never seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TransactionState {
    /// Nothing since its producer was given an id or epoch.
    Empty,
    /// A transaction is open.
    Ongoing,
    /// The last transaction was committed.
    CompleteCommit,
    /// The last transaction was aborted.
    CompleteAbort,
}

/// A transactional id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Stored", from = "Stored")]
pub struct TransactionRow {
    /// The producer that may write.
    pub producer: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// The epoch before, of a producer that may not have heard of the new one.
    pub last_epoch: Option<ProducerEpoch>,
    /// The producer id before, where its epochs were used up by the last transaction.
    pub last_producer: Option<ProducerId>,
    /// A transaction that is open for longer is aborted, ms.
    pub timeout_ms: i32,
    /// What it is doing.
    pub state: TransactionState,
    /// Transactions that it has begun: none of its rows is another one's again, so that a change
    /// of a transaction that comes late does nothing to the next one.
    pub begun: u64,
    /// When the open or last transaction began, by the store's clock, ms; -1 if there was none.
    pub started_ms: i64,
    /// When the row was last changed, by the store's clock, ms.
    pub updated_ms: i64,
    /// Partitions of the open transaction.
    pub partitions: BTreeSet<TopicPartition>,
    /// Groups that the open transaction has offsets of.
    pub groups: BTreeSet<String>,
}

/// How a batch was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Its partition was in the transaction.
    AsItIs,
    /// Its partition has been added: the row is to be written.
    Joined,
}

impl TransactionRow {
    /// The row of an id that nobody has used.
    pub fn new(producer: ProducerId, timeout_ms: i32, now_ms: i64) -> Self {
        Self {
            producer,
            epoch: ProducerEpoch(0),
            last_epoch: None,
            last_producer: None,
            timeout_ms,
            state: TransactionState::Empty,
            begun: 0,
            started_ms: -1,
            updated_ms: now_ms,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
        }
    }

    /// Decides about a batch for a partition where its producer has no transaction open.
    pub(crate) fn admit(
        &mut self,
        partition: TopicPartition,
        batch: &ProducerBatch,
        joins: bool,
        now_ms: i64,
    ) -> Result<Admission, Refusal> {
        if self.producer != batch.id {
            return Err(Refusal::UnknownTransaction);
        }
        if self.epoch != batch.epoch {
            return Err(Refusal::FencedTransaction);
        }
        let is_open = self.state == TransactionState::Ongoing;
        if is_open && self.partitions.contains(&partition) {
            return Ok(Admission::AsItIs);
        }
        if !joins {
            return Err(Refusal::NotInTransaction);
        }
        if self.partitions.len() >= TRANSACTION_PARTITIONS_MAX {
            return Err(Refusal::TransactionTooLarge);
        }
        self.begin(now_ms);
        self.partitions.insert(partition);
        Ok(Admission::Joined)
    }

    /// Opens a transaction unless one is open.
    pub fn begin(&mut self, now_ms: i64) {
        if self.state != TransactionState::Ongoing {
            self.state = TransactionState::Ongoing;
            self.begun = self.begun.saturating_add(1);
            self.started_ms = now_ms;
        }
        self.updated_ms = now_ms;
    }
}

/// The row as it is stored: plain numbers, partitions by topic.
#[derive(Serialize, Deserialize)]
struct Stored {
    producer: i64,
    epoch: i16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_epoch: Option<i16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_producer: Option<i64>,
    timeout_ms: i32,
    state: TransactionState,
    #[serde(default)]
    begun: u64,
    started_ms: i64,
    updated_ms: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    partitions: BTreeMap<Uuid, Vec<i32>>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    groups: BTreeSet<String>,
}

impl From<TransactionRow> for Stored {
    fn from(row: TransactionRow) -> Self {
        let mut partitions: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for named in row.partitions {
            partitions.entry(named.topic.0).or_default().push(named.partition.0);
        }
        Self {
            producer: row.producer.0,
            epoch: row.epoch.0,
            last_epoch: row.last_epoch.map(|epoch| epoch.0),
            last_producer: row.last_producer.map(|producer| producer.0),
            timeout_ms: row.timeout_ms,
            state: row.state,
            begun: row.begun,
            started_ms: row.started_ms,
            updated_ms: row.updated_ms,
            partitions,
            groups: row.groups,
        }
    }
}

impl From<Stored> for TransactionRow {
    fn from(stored: Stored) -> Self {
        let partitions = stored.partitions.into_iter().flat_map(|(topic, indexes)| {
            let named = move |index| TopicPartition {
                topic: TopicId(topic),
                partition: PartitionIndex(index),
            };
            indexes.into_iter().map(named)
        });
        Self {
            producer: ProducerId(stored.producer),
            epoch: ProducerEpoch(stored.epoch),
            last_epoch: stored.last_epoch.map(ProducerEpoch),
            last_producer: stored.last_producer.map(ProducerId),
            timeout_ms: stored.timeout_ms,
            state: stored.state,
            begun: stored.begun,
            started_ms: stored.started_ms,
            updated_ms: stored.updated_ms,
            partitions: partitions.collect(),
            groups: stored.groups,
        }
    }
}
