//! The binary form of values that the SQL backends keep whole: outcomes, producers, markers and
//! fresh segments. Each begins with its version; integers are LEB128 varints, signed ones in zigzag
//! form.

mod fresh;
mod producers;
#[cfg(test)]
mod tests;

pub(crate) use fresh::{decode_fresh, encode_fresh};
pub(crate) use producers::{decode_batches, decode_producers, encode_batches, encode_producers};

use crate::rows::{BatchOutcome, PartitionState, Place, Refusal, SectionOutcome, SegmentOutcome};
use floe_env::{Error, Result};
use kfs::{OffsetMode, ProducerEpoch, ProducerId, TimestampType};

const VERSION: u8 = 1;
/// More than this many elements are not reserved ahead, whatever a length says.
const RESERVE_MAX: usize = 4096;

/// The bytes of an outcome.
pub(crate) fn encode_outcome(outcome: &SegmentOutcome) -> Vec<u8> {
    let mut writer = Writer::new();
    let SegmentOutcome::Committed(sections) = outcome else {
        writer.byte(0);
        return writer.bytes;
    };
    writer.byte(1);
    writer.unsigned(sections.len() as u64);
    for section in sections {
        writer.unsigned(section.batches.len() as u64);
        for batch in &section.batches {
            writer.batch_outcome(batch);
        }
        match &section.state {
            None => writer.byte(0),
            Some(state) => {
                writer.byte(1);
                writer.unsigned(state.version);
                writer.signed(state.log_start_offset);
                writer.signed(state.high_watermark);
                writer.signed(state.last_stable_offset);
                writer.unsigned(state.bytes);
            }
        }
    }
    writer.bytes
}

/// The outcome of such bytes.
pub(crate) fn decode_outcome(bytes: &[u8]) -> Result<SegmentOutcome> {
    let mut reader = Reader::new(bytes, "segment outcome")?;
    let outcome = match reader.byte()? {
        0 => SegmentOutcome::Abandoned,
        1 => SegmentOutcome::Committed(reader.list(Reader::section)?),
        _ => return Err(reader.corrupt()),
    };
    reader.end(outcome)
}

/// The bytes of a place without an object: a marker or a hole. `None` for a range.
pub(crate) fn encode_place(place: &Place) -> Option<Vec<u8>> {
    let mut writer = Writer::new();
    match place {
        Place::Range { .. } => return None,
        Place::Hole => writer.byte(0),
        Place::Marker { producer, epoch, commit, coordinator_epoch, timestamp_ms } => {
            writer.byte(1);
            writer.signed(producer.0);
            writer.signed(epoch.0.into());
            writer.byte(u8::from(*commit));
            writer.signed((*coordinator_epoch).into());
            writer.signed(*timestamp_ms);
        }
    }
    Some(writer.bytes)
}

/// The place of such bytes.
pub(crate) fn decode_place(bytes: &[u8]) -> Result<Place> {
    let mut reader = Reader::new(bytes, "extent's place")?;
    let place = match reader.byte()? {
        0 => Place::Hole,
        1 => Place::Marker {
            producer: ProducerId(reader.signed()?),
            epoch: ProducerEpoch(reader.narrow()?),
            commit: reader.byte()? == 1,
            coordinator_epoch: reader.narrow()?,
            timestamp_ms: reader.signed()?,
        },
        _ => return Err(reader.corrupt()),
    };
    reader.end(place)
}

const FLAG_ABSOLUTE: i16 = 1;
const FLAG_LOG_APPEND_TIME: i16 = 2;
const FLAG_TRANSACTIONAL: i16 = 4;

/// An extent's offset mode, timestamp type and has-transactional as one integer.
pub(crate) fn extent_flags(mode: OffsetMode, kind: TimestampType, transactional: bool) -> i16 {
    let mut flags = 0;
    if mode == OffsetMode::Absolute {
        flags |= FLAG_ABSOLUTE;
    }
    if kind == TimestampType::LogAppendTime {
        flags |= FLAG_LOG_APPEND_TIME;
    }
    if transactional {
        flags |= FLAG_TRANSACTIONAL;
    }
    flags
}

/// What such an integer says.
pub(crate) fn decode_flags(flags: i64) -> Result<(OffsetMode, TimestampType, bool)> {
    let known = FLAG_ABSOLUTE | FLAG_LOG_APPEND_TIME | FLAG_TRANSACTIONAL;
    let flags = i16::try_from(flags).ok().filter(|flags| flags & !known == 0);
    let flags = flags.ok_or_else(|| Error::corrupt("an extent has unknown flags"))?;
    let absolute = flags & FLAG_ABSOLUTE != 0;
    let log_append = flags & FLAG_LOG_APPEND_TIME != 0;
    Ok((
        if absolute { OffsetMode::Absolute } else { OffsetMode::Relative },
        if log_append { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
        flags & FLAG_TRANSACTIONAL != 0,
    ))
}

/// A stored integer that is never negative.
pub(crate) fn stored_unsigned(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| Error::corrupt("a stored count is negative"))
}

/// An unsigned value as SQL stores it. Inputs are checked; sums of them stay far below the bound.
pub(crate) fn to_stored(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| Error::limit("a count is beyond 2^63 - 1"))
}

struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn new() -> Self {
        Self { bytes: vec![VERSION] }
    }

    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn signed(&mut self, value: i64) {
        self.unsigned(((value << 1) ^ (value >> 63)) as u64);
    }

    fn batch_outcome(&mut self, outcome: &BatchOutcome) {
        match outcome {
            BatchOutcome::Accepted { base_offset } => {
                self.byte(0);
                self.signed(*base_offset);
            }
            BatchOutcome::Duplicate { base_offset, max_timestamp_ms } => {
                self.byte(1);
                self.signed(*base_offset);
                self.signed(*max_timestamp_ms);
            }
            BatchOutcome::Refused(refusal) => {
                self.byte(2);
                self.byte(refusal_code(*refusal));
            }
        }
    }
}

const REFUSALS: [Refusal; 10] = [
    Refusal::UnknownPartition,
    Refusal::OutOfOrderSequence,
    Refusal::StaleProducerEpoch,
    Refusal::ForgottenDuplicate,
    Refusal::InvalidTransactionState,
    Refusal::UnknownTransaction,
    Refusal::FencedTransaction,
    Refusal::NotInTransaction,
    Refusal::TransactionTooLarge,
    Refusal::TooManyOpenTransactions,
];

/// The index in [`REFUSALS`]; stored, so an entry never moves.
fn refusal_code(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::UnknownPartition => 0,
        Refusal::OutOfOrderSequence => 1,
        Refusal::StaleProducerEpoch => 2,
        Refusal::ForgottenDuplicate => 3,
        Refusal::InvalidTransactionState => 4,
        Refusal::UnknownTransaction => 5,
        Refusal::FencedTransaction => 6,
        Refusal::NotInTransaction => 7,
        Refusal::TransactionTooLarge => 8,
        Refusal::TooManyOpenTransactions => 9,
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], what: &'static str) -> Result<Self> {
        let mut reader = Self { bytes, what };
        match reader.byte()? {
            VERSION => Ok(reader),
            other => Err(Error::corrupt(format!("stored {what} has unknown version {other}"))),
        }
    }

    fn corrupt(&self) -> Error {
        Error::corrupt(format!("stored {} is malformed", self.what))
    }

    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.bytes.split_first().ok_or_else(|| self.corrupt())?;
        self.bytes = rest;
        Ok(*first)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk().ok_or_else(|| self.corrupt())?;
        self.bytes = rest;
        Ok(*first)
    }

    fn unsigned(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.corrupt())
    }

    fn signed(&mut self) -> Result<i64> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn narrow<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let value = self.signed()?;
        T::try_from(value).map_err(|_| self.corrupt())
    }

    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = usize::try_from(self.unsigned()?).map_err(|_| self.corrupt())?;
        let mut elements = Vec::with_capacity(count.min(RESERVE_MAX));
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    fn section(&mut self) -> Result<SectionOutcome> {
        let batches = self.list(Self::batch_outcome)?;
        let state = match self.byte()? {
            0 => None,
            1 => Some(PartitionState {
                version: self.unsigned()?,
                log_start_offset: self.signed()?,
                high_watermark: self.signed()?,
                last_stable_offset: self.signed()?,
                bytes: self.unsigned()?,
            }),
            _ => return Err(self.corrupt()),
        };
        Ok(SectionOutcome { batches, state })
    }

    fn batch_outcome(&mut self) -> Result<BatchOutcome> {
        Ok(match self.byte()? {
            0 => BatchOutcome::Accepted { base_offset: self.signed()? },
            1 => BatchOutcome::Duplicate {
                base_offset: self.signed()?,
                max_timestamp_ms: self.signed()?,
            },
            2 => {
                let refusal = REFUSALS.get(usize::from(self.byte()?)).copied();
                BatchOutcome::Refused(refusal.ok_or_else(|| self.corrupt())?)
            }
            _ => return Err(self.corrupt()),
        })
    }

    fn end<T>(self, value: T) -> Result<T> {
        if self.bytes.is_empty() { Ok(value) } else { Err(self.corrupt()) }
    }
}
