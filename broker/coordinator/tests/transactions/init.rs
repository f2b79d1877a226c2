//! InitProducerId with a transactional id.

use crate::{NEW_PRODUCER, NOW_MS, PRODUCER, row};
use floe_coordinator::transactions::{
    EPOCH_MAX, InitRequest, InitStep, TransactionError, init, needs_producer_id,
};
use floe_metadata::transactions::{Ending, TransactionRow, TransactionState};
use kfs::{ProducerEpoch, ProducerId};

const CLOSED: [TransactionState; 3] =
    [TransactionState::Empty, TransactionState::CompleteCommit, TransactionState::CompleteAbort];

fn ask(
    row: Option<&TransactionRow>,
    expected: Option<(ProducerId, i16)>,
) -> Result<InitStep, TransactionError> {
    let expected = expected.map(|(producer, epoch)| (producer, ProducerEpoch(epoch)));
    init(row, &InitRequest { expected, timeout_ms: 77 }, NEW_PRODUCER, NOW_MS)
}

fn ready(row: &TransactionRow, expected: Option<(ProducerId, i16)>) -> TransactionRow {
    match ask(Some(row), expected) {
        Ok(InitStep::Ready(ready)) => ready,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_id_begins_whatever_is_expected() {
    assert!(needs_producer_id(None));
    for expected in [None, Some((PRODUCER, 5))] {
        let Ok(InitStep::Ready(new)) = ask(None, expected) else { panic!("it begins") };
        assert_eq!((new.producer, new.epoch), (NEW_PRODUCER, ProducerEpoch(0)));
        assert_eq!((new.timeout_ms, new.state), (77, TransactionState::Empty));
    }
}

#[test]
fn without_expectation_the_epoch_is_raised() {
    for state in CLOSED {
        let next = ready(&row(state, 3), None);
        assert_eq!((next.producer, next.epoch.0, next.last_epoch), (PRODUCER, 4, None));
        assert_eq!((next.timeout_ms, next.started_ms, next.updated_ms), (77, -1, NOW_MS));
        assert_eq!(next.state, TransactionState::Empty);
        // The epoch before is no proof of anything then.
        let late = ask(Some(&next), Some((PRODUCER, 3)));
        assert_eq!(late, Err(TransactionError::ProducerFenced));
    }
}

#[test]
fn who_expects_the_current_epoch_goes_on_and_may_repeat() {
    for state in CLOSED {
        let next = ready(&row(state, 3), Some((PRODUCER, 3)));
        assert_eq!((next.epoch.0, next.last_epoch), (4, Some(ProducerEpoch(3))));
        let again = ready(&next, Some((PRODUCER, 3)));
        assert_eq!((again.epoch.0, again.last_epoch), (4, Some(ProducerEpoch(3))));
        for wrong in [(PRODUCER, 2), (PRODUCER, 9), (ProducerId(9), 4), (ProducerId(9), 3)] {
            let refused = ask(Some(&next), Some(wrong));
            assert_eq!(refused, Err(TransactionError::ProducerFenced), "{wrong:?}");
        }
    }
}

#[test]
fn an_open_transaction_is_aborted_first() {
    let open = row(TransactionState::Ongoing, 3);
    for expected in [None, Some((PRODUCER, 3))] {
        let Ok(InitStep::AbortFirst(after, ending)) = ask(Some(&open), expected) else {
            panic!("it is aborted")
        };
        let epoch = ProducerEpoch(4);
        assert_eq!(ending, Ending { commit: false, producer: PRODUCER, epoch });
        assert_eq!((after.epoch, after.state), (epoch, TransactionState::CompleteAbort));
        assert!(after.partitions.is_empty() && after.groups.is_empty());
        let next = ready(&after, None);
        assert_eq!(next.epoch.0, 5, "raised by two in all");
        // Whoever was told to ask again does so with the epoch that it had.
        assert_eq!(ready(&after, Some((PRODUCER, 3))).epoch, epoch);
        let late = ask(Some(&next), Some((PRODUCER, 3)));
        assert_eq!(late, Err(TransactionError::ProducerFenced), "somebody else was first");
    }
    // An old epoch aborts it too, as in Kafka, and gets none all the same.
    for old in [(PRODUCER, 2), (PRODUCER, 4)] {
        let Ok(InitStep::AbortFirst(after, _)) = ask(Some(&open), Some(old)) else {
            panic!("it is aborted")
        };
        let again = ask(Some(&after), Some((PRODUCER, 2)));
        assert_eq!(again, Err(TransactionError::ProducerFenced));
    }
    let other = ask(Some(&open), Some((ProducerId(9), 3)));
    assert_eq!(other, Err(TransactionError::ProducerFenced), "another producer id aborts nothing");
}

#[test]
fn used_up_epochs_bring_a_new_producer_id() {
    let last = row(TransactionState::CompleteCommit, EPOCH_MAX.0);
    assert!(needs_producer_id(Some(&last)));
    assert!(!needs_producer_id(Some(&row(TransactionState::Empty, EPOCH_MAX.0 - 1))));
    let begun = ready(&last, None);
    assert_eq!((begun.producer, begun.epoch.0), (NEW_PRODUCER, 0));
    let old = Some((PRODUCER, EPOCH_MAX.0));
    assert_eq!(ask(Some(&begun), old), Err(TransactionError::ProducerFenced));
    let next = ready(&last, old);
    assert_eq!((next.producer, next.epoch.0), (NEW_PRODUCER, 0));
    assert_eq!(ready(&next, old), next, "its answer was lost");
    assert_eq!(ready(&next, Some((NEW_PRODUCER, 0))).epoch.0, 1);
    // Fencing takes the one epoch above.
    let open = row(TransactionState::Ongoing, EPOCH_MAX.0);
    let Ok(InitStep::AbortFirst(after, _)) = ask(Some(&open), None) else { panic!("aborted") };
    assert_eq!(after.epoch.0, i16::MAX);
    assert_eq!(ready(&after, None).producer, NEW_PRODUCER);
    // It is never given out, also not to whoever had the one before.
    let next = ready(&after, old);
    assert_eq!((next.producer, next.epoch.0), (NEW_PRODUCER, 0));
    assert_eq!(ready(&next, old), next, "its answer was lost");
}
