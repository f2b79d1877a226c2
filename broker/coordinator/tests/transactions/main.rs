//! Every row of the protocol's tables of transactional ids, for each of its states; and random
//! walks of clients that lose answers, beside a zombie.
#![allow(clippy::unwrap_used, reason = "test code: a failed expectation ends the test")]

#[path = "../shared/random.rs"]
mod random_numbers;

mod end;
mod init;
mod participants;
mod walk;

use floe_coordinator::transactions::Sender;
use floe_metadata::transactions::{TransactionRow, TransactionState};
use kfs::{PartitionIndex, ProducerEpoch, ProducerId, TopicId, TopicPartition};
use uuid::Uuid;

const PRODUCER: ProducerId = ProducerId(7);
const NEW_PRODUCER: ProducerId = ProducerId(8);
const NOW_MS: i64 = 5_000;
const STATES: [TransactionState; 4] = [
    TransactionState::Empty,
    TransactionState::Ongoing,
    TransactionState::CompleteCommit,
    TransactionState::CompleteAbort,
];

fn partition(index: i32) -> TopicPartition {
    let topic = TopicId(Uuid::from_u128(1));
    TopicPartition { topic, partition: PartitionIndex(index) }
}

/// A row in this state; an open one has a partition and a group.
fn row(state: TransactionState, epoch: i16) -> TransactionRow {
    let new = TransactionRow::new(PRODUCER, 1_000, 100);
    let mut row = TransactionRow { epoch: ProducerEpoch(epoch), state, ..new };
    if state == TransactionState::Ongoing {
        row.started_ms = 100;
        row.partitions.insert(partition(0));
        row.groups.insert("g".to_owned());
    }
    row
}

fn sender(producer: ProducerId, epoch: i16) -> Sender {
    Sender { producer, epoch: ProducerEpoch(epoch) }
}
