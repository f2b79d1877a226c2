//! Which batches a transactional id's row lets in, and that what is stored comes back.

use super::*;

fn named(index: i32) -> TopicPartition {
    TopicPartition { topic: TopicId(Uuid::from_u128(7)), partition: PartitionIndex(index) }
}

fn batch(id: i64, epoch: i16) -> ProducerBatch {
    let epoch = ProducerEpoch(epoch);
    let (first_sequence, last_sequence, lost_sequence) = (0, 0, None);
    ProducerBatch { id: ProducerId(id), epoch, first_sequence, last_sequence, lost_sequence }
}

fn row(state: TransactionState) -> TransactionRow {
    let new = TransactionRow::new(ProducerId(5), 1000, 10);
    let mut partitions = BTreeSet::new();
    if state == TransactionState::Ongoing {
        partitions.insert(named(0));
    }
    TransactionRow { epoch: ProducerEpoch(3), state, partitions, ..new }
}

const CLOSED: [TransactionState; 3] =
    [TransactionState::Empty, TransactionState::CompleteCommit, TransactionState::CompleteAbort];

#[test]
fn another_producer_or_epoch_is_refused_whatever_the_state() {
    for state in CLOSED.into_iter().chain([TransactionState::Ongoing]) {
        for joins in [false, true] {
            let admit = |batch: ProducerBatch| row(state).admit(named(0), &batch, joins, 20);
            assert_eq!(admit(batch(6, 3)), Err(Refusal::UnknownTransaction));
            assert_eq!(admit(batch(5, 2)), Err(Refusal::FencedTransaction));
            assert_eq!(admit(batch(5, 4)), Err(Refusal::FencedTransaction));
        }
    }
}

#[test]
fn without_joining_only_partitions_of_the_open_transaction_are_let_in() {
    for state in CLOSED {
        let verdict = row(state).admit(named(0), &batch(5, 3), false, 20);
        assert_eq!(verdict, Err(Refusal::NotInTransaction));
    }
    let mut open = row(TransactionState::Ongoing);
    assert_eq!(open.admit(named(0), &batch(5, 3), false, 20), Ok(Admission::AsItIs));
    let verdict = open.admit(named(1), &batch(5, 3), false, 20);
    assert_eq!(verdict, Err(Refusal::NotInTransaction));
}

#[test]
fn joining_opens_a_transaction_or_adds_to_it() {
    for state in CLOSED {
        let mut closed = row(state);
        assert_eq!(closed.admit(named(1), &batch(5, 3), true, 20), Ok(Admission::Joined));
        assert_eq!((closed.state, closed.started_ms), (TransactionState::Ongoing, 20));
        assert_eq!(closed.partitions, BTreeSet::from([named(1)]));
    }
    let mut open = row(TransactionState::Ongoing);
    open.started_ms = 15;
    assert_eq!(open.admit(named(0), &batch(5, 3), true, 20), Ok(Admission::AsItIs));
    assert_eq!(open.admit(named(1), &batch(5, 3), true, 20), Ok(Admission::Joined));
    assert_eq!((open.started_ms, open.partitions.len()), (15, 2));
}

#[test]
fn the_number_of_partitions_is_bounded() {
    let mut open = row(TransactionState::Ongoing);
    open.partitions = (0..TRANSACTION_PARTITIONS_MAX as i32).map(named).collect();
    let beyond = named(TRANSACTION_PARTITIONS_MAX as i32);
    let verdict = open.admit(beyond, &batch(5, 3), true, 20);
    assert_eq!(verdict, Err(Refusal::TransactionTooLarge));
    assert_eq!(open.admit(named(0), &batch(5, 3), true, 20), Ok(Admission::AsItIs));
}

#[test]
fn what_is_stored_comes_back() {
    let mut full = row(TransactionState::Ongoing);
    full.partitions.insert(named(1));
    full.partitions.insert(TopicPartition { topic: TopicId(Uuid::from_u128(8)), ..named(3) });
    full.groups.insert("g".to_owned());
    full.last_epoch = Some(ProducerEpoch(2));
    full.last_producer = Some(ProducerId(4));
    for row in [full, row(TransactionState::Empty)] {
        let stored = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<TransactionRow>(&stored).unwrap(), row, "{stored}");
    }
}
