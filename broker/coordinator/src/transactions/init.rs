//! InitProducerId with a transactional id.

use super::{EPOCH_MAX, TransactionError, fence, is_used_up};
use floe_metadata::transactions::{Ending, TransactionRow, TransactionState};
use kfs::{ProducerEpoch, ProducerId};

/// InitProducerId.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitRequest {
    /// What the client believes to have: it goes on after an error (KIP-360). `None`: it begins.
    pub expected: Option<(ProducerId, ProducerEpoch)>,
    /// Its transaction time-out, ms.
    pub timeout_ms: i32,
}

/// What InitProducerId makes of a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitStep {
    /// Write this row; the client gets its producer id and epoch.
    Ready(TransactionRow),
    /// End the open transaction, after which the row is this; the client asks again.
    AbortFirst(TransactionRow, Ending),
}

/// Whether [`init`] or an end needs a new producer id.
pub fn needs_producer_id(row: Option<&TransactionRow>) -> bool {
    row.is_none_or(|row| is_used_up(row.epoch))
}

/// Decides InitProducerId. `new_producer` is one that nobody has had, where
/// [`needs_producer_id`].
///
/// # Errors
/// [`TransactionError::ProducerFenced`] where the client has not what it believes to have.
pub fn init(
    row: Option<&TransactionRow>,
    request: &InitRequest,
    new_producer: ProducerId,
    now_ms: i64,
) -> Result<InitStep, TransactionError> {
    let Some(row) = row else {
        let row = TransactionRow::new(new_producer, request.timeout_ms, now_ms);
        return Ok(InitStep::Ready(row));
    };
    if row.state == TransactionState::Ongoing {
        // As in Kafka, whichever epoch of its producer id the client has.
        check_producer(row, request.expected)?;
        let (after, ending) = fence(row, now_ms);
        return Ok(InitStep::AbortFirst(after, ending));
    }
    if let Some(expected) = request.expected {
        check_expected(row, expected)?;
    }
    let is_current =
        request.expected.is_none_or(|(producer, epoch)| is_current(row, producer, epoch));
    let ready = TransactionRow {
        timeout_ms: request.timeout_ms,
        state: TransactionState::Empty,
        started_ms: -1,
        updated_ms: now_ms,
        ..row.clone()
    };
    let last_epoch = request.expected.map(|(_, epoch)| epoch);
    Ok(InitStep::Ready(if !is_current && row.epoch <= EPOCH_MAX {
        // The answer to its last call was lost.
        ready
    } else if is_used_up(row.epoch) {
        let (epoch, last_producer) = (ProducerEpoch(0), Some(row.producer));
        TransactionRow { producer: new_producer, epoch, last_epoch, last_producer, ..ready }
    } else {
        let epoch = ProducerEpoch(row.epoch.0 + 1);
        TransactionRow { epoch, last_epoch, last_producer: None, ..ready }
    }))
}

fn is_current(row: &TransactionRow, producer: ProducerId, epoch: ProducerEpoch) -> bool {
    producer == row.producer && epoch == row.epoch
}

fn check_producer(
    row: &TransactionRow,
    expected: Option<(ProducerId, ProducerEpoch)>,
) -> Result<(), TransactionError> {
    let is_other = expected.is_some_and(|(producer, _)| producer != row.producer);
    if is_other { Err(TransactionError::ProducerFenced) } else { Ok(()) }
}

/// The current id and epoch will do; or the last one, while nothing has been done with the current.
fn check_expected(
    row: &TransactionRow,
    (producer, epoch): (ProducerId, ProducerEpoch),
) -> Result<(), TransactionError> {
    let is_last_producer = match row.last_producer {
        Some(last) => producer == last && epoch == EPOCH_MAX,
        None => producer == row.producer,
    };
    let is_last = is_last_producer && Some(epoch) == row.last_epoch;
    match is_current(row, producer, epoch) || is_last {
        true => Ok(()),
        false => Err(TransactionError::ProducerFenced),
    }
}
