//! EndTxn.

use super::{EPOCH_MAX, Sender, TransactionError, closed, is_used_up};
use floe_metadata::transactions::{Ending, TransactionRow, TransactionState};
use kfs::{ProducerEpoch, ProducerId};

/// EndTxn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRequest {
    /// Who sends it.
    pub sender: Sender,
    /// Commit, or abort.
    pub commit: bool,
    /// TV2: every end raises the epoch.
    pub raises_epoch: bool,
}

/// What EndTxn makes of a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndStep {
    /// It has been done: the client gets the row's producer id and epoch.
    Done,
    /// End it, after which the row is this; the client gets its producer id and epoch.
    End(TransactionRow, Ending),
}

/// Decides EndTxn. `new_producer` is one that nobody has had, where
/// [`needs_producer_id`](super::needs_producer_id).
///
/// # Errors
/// Another producer or epoch, or a state in which there is nothing to end.
pub fn end(
    row: &TransactionRow,
    request: &EndRequest,
    new_producer: ProducerId,
    now_ms: i64,
) -> Result<EndStep, TransactionError> {
    match request.raises_epoch {
        false => end_with_same_epoch(row, request, now_ms),
        true => end_with_next_epoch(row, request, new_producer, now_ms),
    }
}

fn end_with_same_epoch(
    row: &TransactionRow,
    request: &EndRequest,
    now_ms: i64,
) -> Result<EndStep, TransactionError> {
    request.sender.check(row)?;
    match (row.state, request.commit) {
        (TransactionState::Ongoing, commit) => {
            let ending = Ending { commit, producer: row.producer, epoch: row.epoch };
            Ok(EndStep::End(closed(row, commit, now_ms), ending))
        }
        (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false) => {
            Ok(EndStep::Done)
        }
        _ => Err(TransactionError::InvalidTxnState),
    }
}

fn end_with_next_epoch(
    row: &TransactionRow,
    request: &EndRequest,
    new_producer: ProducerId,
    now_ms: i64,
) -> Result<EndStep, TransactionError> {
    let Sender { producer, epoch } = request.sender;
    // Its end used the epochs up, and the answer with the new producer id was lost.
    let is_of_last_producer =
        row.last_producer == Some(producer) && epoch == EPOCH_MAX && row.epoch.0 == 0;
    if producer != row.producer && !is_of_last_producer {
        return Err(TransactionError::InvalidProducerIdMapping);
    }
    let is_current = producer == row.producer && epoch == row.epoch;
    let is_repeated = is_of_last_producer || epoch.0.checked_add(1) == Some(row.epoch.0);
    let repeats = match row.state {
        TransactionState::CompleteCommit => Some(true),
        TransactionState::CompleteAbort => Some(false),
        TransactionState::Empty | TransactionState::Ongoing => None,
    };
    match repeats.filter(|_| is_repeated && !is_current) {
        Some(committed) if committed == request.commit => return Ok(EndStep::Done),
        Some(_) => return Err(TransactionError::InvalidTxnState),
        None if !is_current => return Err(TransactionError::ProducerFenced),
        None => {}
    }
    if row.state != TransactionState::Ongoing && request.commit {
        return Err(TransactionError::InvalidTxnState);
    }
    Ok(raise(row, request.commit, new_producer, now_ms))
}

fn raise(row: &TransactionRow, commit: bool, new_producer: ProducerId, now_ms: i64) -> EndStep {
    let epoch = ProducerEpoch(row.epoch.0.saturating_add(1));
    let ending = Ending { commit, producer: row.producer, epoch };
    let (last_epoch, closed) = (Some(row.epoch), closed(row, commit, now_ms));
    let after = if is_used_up(row.epoch) {
        let (epoch, last_producer) = (ProducerEpoch(0), Some(row.producer));
        TransactionRow { producer: new_producer, epoch, last_epoch, last_producer, ..closed }
    } else {
        TransactionRow { epoch, last_epoch, last_producer: None, ..closed }
    };
    EndStep::End(after, ending)
}
