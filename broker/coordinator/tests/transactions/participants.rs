//! Partitions and groups of a transaction, its time-out, and the end of an idle id.

use crate::{NOW_MS, PRODUCER, STATES, partition, row, sender};
use floe_coordinator::transactions::{
    TransactionError, add_group, add_partitions, is_expired, time_out, verify_group,
    verify_partition,
};
use floe_metadata::transactions::{
    TRANSACTION_GROUPS_MAX, TRANSACTION_PARTITIONS_MAX, TransactionState,
};
use kfs::{ProducerEpoch, ProducerId};
use std::collections::BTreeSet;

#[test]
fn only_the_current_producer_takes_part() {
    let wrong = [
        (sender(ProducerId(9), 3), TransactionError::InvalidProducerIdMapping),
        (sender(PRODUCER, -1), TransactionError::ProducerFenced),
        (sender(PRODUCER, 2), TransactionError::ProducerFenced),
        (sender(PRODUCER, 4), TransactionError::ProducerFenced),
    ];
    for state in STATES {
        let row = row(state, 3);
        for (sender, error) in wrong {
            assert_eq!(add_partitions(&row, sender, [partition(0)], NOW_MS), Err(error));
            assert_eq!(verify_partition(&row, sender, partition(0)), Err(error));
            assert_eq!(add_group(&row, sender, "g", NOW_MS), Err(error));
            assert_eq!(verify_group(&row, sender, "g"), Err(error));
        }
    }
}

#[test]
fn adding_opens_a_transaction_or_goes_on_with_it() {
    let sender = sender(PRODUCER, 3);
    for state in STATES {
        let before = row(state, 3);
        let added = add_partitions(&before, sender, [partition(1)], NOW_MS).unwrap();
        assert_eq!(added.state, TransactionState::Ongoing);
        assert!(added.partitions.contains(&partition(1)));
        let is_open = state == TransactionState::Ongoing;
        assert_eq!(added.started_ms, if is_open { 100 } else { NOW_MS });
        assert_eq!(verify_partition(&added, sender, partition(1)), Ok(()));
        let missing = verify_partition(&added, sender, partition(2));
        assert_eq!(missing, Err(TransactionError::TransactionAbortable));
        let added = add_group(&before, sender, "h", NOW_MS).unwrap();
        assert_eq!(added.state, TransactionState::Ongoing);
        assert_eq!(verify_group(&added, sender, "h"), Ok(()));
        assert_eq!(verify_group(&before, sender, "h"), Err(TransactionError::InvalidTxnState));
    }
    let open = row(TransactionState::Ongoing, 3);
    assert_eq!(add_partitions(&open, sender, [partition(0)], NOW_MS), Ok(open.clone()));
    assert_eq!(add_group(&open, sender, "g", NOW_MS), Ok(open));
}

#[test]
fn participants_are_bounded() {
    let sender = sender(PRODUCER, 3);
    let mut open = row(TransactionState::Ongoing, 3);
    open.partitions = (0..TRANSACTION_PARTITIONS_MAX as i32).map(partition).collect();
    open.groups = (0..TRANSACTION_GROUPS_MAX).map(|number| number.to_string()).collect();
    let beyond = [partition(TRANSACTION_PARTITIONS_MAX as i32)];
    let refused = Err(TransactionError::TransactionAbortable);
    assert_eq!(add_partitions(&open, sender, beyond, NOW_MS), refused);
    assert_eq!(add_group(&open, sender, "one more", NOW_MS), refused);
    assert_eq!(add_partitions(&open, sender, [partition(5)], NOW_MS), Ok(open));
}

#[test]
fn what_is_open_for_too_long_is_aborted_and_fenced() {
    let open = row(TransactionState::Ongoing, 3);
    assert_eq!(time_out(&open, 1_099), None);
    let (after, ending) = time_out(&open, 1_100).unwrap();
    assert_eq!((ending.commit, ending.producer, ending.epoch), (false, PRODUCER, after.epoch));
    assert_eq!((after.epoch, after.last_epoch), (ProducerEpoch(4), Some(ProducerEpoch(3))));
    assert_eq!((after.state, after.partitions), (TransactionState::CompleteAbort, BTreeSet::new()));
    for state in STATES.into_iter().filter(|state| *state != TransactionState::Ongoing) {
        assert_eq!(time_out(&row(state, 3), i64::MAX), None);
    }
}

#[test]
fn idle_ids_expire_unless_something_is_open() {
    for state in STATES {
        let is_open = state == TransactionState::Ongoing;
        assert!(!is_expired(&row(state, 3), 1_099, 1_000));
        assert_eq!(is_expired(&row(state, 3), 1_100, 1_000), !is_open);
    }
}
