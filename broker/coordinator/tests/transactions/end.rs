//! EndTxn of both protocols.

use crate::{NEW_PRODUCER, NOW_MS, PRODUCER, STATES, row, sender};
use floe_coordinator::transactions::{
    EPOCH_MAX, EndRequest, EndStep, Sender, TransactionError, end,
};
use floe_metadata::transactions::{Ending, TransactionRow, TransactionState};
use kfs::{ProducerEpoch, ProducerId};

/// What the tables of the protocol say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is ended so.
    Commit,
    Abort,
    /// It has been done.
    Done,
    /// INVALID_TXN_STATE.
    State,
    /// PRODUCER_FENCED.
    Fenced,
    /// INVALID_PRODUCER_ID_MAPPING.
    Mapping,
}

fn verdict(row: &TransactionRow, sender: Sender, commit: bool, raises_epoch: bool) -> Verdict {
    let request = EndRequest { sender, commit, raises_epoch };
    match end(row, &request, NEW_PRODUCER, NOW_MS) {
        Ok(EndStep::Done) => Verdict::Done,
        Ok(EndStep::End(_, Ending { commit: true, .. })) => Verdict::Commit,
        Ok(EndStep::End(_, _)) => Verdict::Abort,
        Err(TransactionError::InvalidTxnState) => Verdict::State,
        Err(TransactionError::ProducerFenced) => Verdict::Fenced,
        Err(TransactionError::InvalidProducerIdMapping) => Verdict::Mapping,
        Err(TransactionError::TransactionAbortable) => panic!("an end never is too large"),
    }
}

#[test]
fn before_kip_890_the_state_decides() {
    use Verdict::{Abort, Commit, Done, State};
    let table = [
        (TransactionState::Empty, State, State),
        (TransactionState::Ongoing, Commit, Abort),
        (TransactionState::CompleteCommit, Done, State),
        (TransactionState::CompleteAbort, State, Done),
    ];
    for (state, commit, abort) in table {
        let row = row(state, 3);
        assert_eq!(verdict(&row, sender(PRODUCER, 3), true, false), commit, "{state:?}");
        assert_eq!(verdict(&row, sender(PRODUCER, 3), false, false), abort, "{state:?}");
        for commit in [true, false] {
            for epoch in [-1, 2, 4] {
                let verdict = verdict(&row, sender(PRODUCER, epoch), commit, false);
                assert_eq!(verdict, Verdict::Fenced, "{state:?} {epoch}");
            }
            let verdict = verdict(&row, sender(ProducerId(9), 3), commit, false);
            assert_eq!(verdict, Verdict::Mapping);
        }
    }
}

#[test]
fn since_kip_890_state_and_epoch_decide() {
    use Verdict::{Abort, Commit, Done, Fenced, State};
    // (state, epoch relative to the stored one, commit, abort)
    let table = [
        (TransactionState::Empty, 0, State, Abort),
        (TransactionState::Empty, -1, Fenced, Fenced),
        (TransactionState::Ongoing, 0, Commit, Abort),
        (TransactionState::Ongoing, -1, Fenced, Fenced),
        (TransactionState::CompleteCommit, 0, State, Abort),
        (TransactionState::CompleteCommit, -1, Done, State),
        (TransactionState::CompleteAbort, 0, State, Abort),
        (TransactionState::CompleteAbort, -1, State, Done),
    ];
    for (state, distance, commit, abort) in table {
        let row = row(state, 3);
        let sender = sender(PRODUCER, 3 + distance);
        assert_eq!(verdict(&row, sender, true, true), commit, "{state:?} {distance}");
        assert_eq!(verdict(&row, sender, false, true), abort, "{state:?} {distance}");
    }
    for state in STATES {
        for commit in [true, false] {
            for epoch in [-1, 0, 1, 4, i16::MAX] {
                let verdict = verdict(&row(state, 3), sender(PRODUCER, epoch), commit, true);
                assert_eq!(verdict, Fenced, "{state:?} {epoch}");
            }
            for epoch in [2, 3] {
                let verdict = verdict(&row(state, 3), sender(ProducerId(9), epoch), commit, true);
                assert_eq!(verdict, Verdict::Mapping);
            }
        }
    }
}

/// The row and the ending of an end that is made.
fn made(row: &TransactionRow, raises_epoch: bool) -> (TransactionRow, Ending) {
    let sender = Sender { producer: row.producer, epoch: row.epoch };
    let request = EndRequest { sender, commit: true, raises_epoch };
    match end(row, &request, NEW_PRODUCER, NOW_MS) {
        Ok(EndStep::End(after, ending)) => (after, ending),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_end_leaves_no_participants_and_raises_the_epoch_since_kip_890() {
    let open = row(TransactionState::Ongoing, 3);
    let (after, ending) = made(&open, false);
    assert_eq!((after.epoch, ending.epoch, ending.producer), (open.epoch, open.epoch, PRODUCER));
    assert!(after.partitions.is_empty() && after.groups.is_empty());
    assert_eq!((after.state, after.updated_ms), (TransactionState::CompleteCommit, NOW_MS));
    assert_eq!(after.started_ms, 100, "as Kafka describes it");
    let (after, ending) = made(&open, true);
    let raised = ProducerEpoch(4);
    assert_eq!((after.epoch, ending.epoch, after.last_epoch), (raised, raised, Some(open.epoch)));
}

#[test]
fn the_last_epoch_ends_with_a_new_producer_id() {
    let open = row(TransactionState::Ongoing, EPOCH_MAX.0);
    let (after, ending) = made(&open, true);
    assert_eq!((after.producer, after.epoch), (NEW_PRODUCER, ProducerEpoch(0)));
    // The markers are the old producer's.
    assert_eq!((ending.producer, ending.epoch), (PRODUCER, ProducerEpoch(i16::MAX)));
    let again = sender(PRODUCER, EPOCH_MAX.0);
    assert_eq!(verdict(&after, again, true, true), Verdict::Done);
    assert_eq!(verdict(&after, again, false, true), Verdict::State);
    assert_eq!(verdict(&after, sender(PRODUCER, 3), true, true), Verdict::Mapping);
    // Once the new one has been used, the old one is unknown.
    let next = TransactionRow { state: TransactionState::Ongoing, ..after };
    assert_eq!(verdict(&next, again, true, true), Verdict::Fenced);
    let (after, _) = made(&next, true);
    assert_eq!(verdict(&after, again, true, true), Verdict::Mapping);
    // Before KIP-890 nothing is raised.
    assert_eq!(made(&open, false).0.epoch, EPOCH_MAX);
}
