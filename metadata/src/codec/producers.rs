//! What is remembered of producers: the batches of one, as a spilled row holds them, and the packed
//! ones of a partition. Numbers of a batch are differences from what the batch before lets expect.

use super::{Reader, Writer};
use crate::producers::PartitionProducers;
use crate::rows::{ProducerState, RememberedBatch};
use floe_env::Result;
use kfs::{ProducerEpoch, ProducerId};

const FLAG_HAS_SPILLED: u8 = 1;
const FLAG_OPEN_TRANSACTION: u8 = 1;

/// A batch before the first one.
const BEFORE_ALL: RememberedBatch = RememberedBatch {
    first_sequence: 0,
    last_sequence: -1,
    base_offset: 0,
    last_offset: -1,
    max_timestamp_ms: 0,
};

/// The bytes of what is remembered of a producer's batches.
pub(crate) fn encode_batches(batches: &[RememberedBatch]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.batches(batches);
    writer.bytes
}

/// The remembered batches of such bytes.
pub(crate) fn decode_batches(bytes: &[u8]) -> Result<Vec<RememberedBatch>> {
    let mut reader = Reader::new(bytes, "producer state")?;
    let batches = reader.batches()?;
    reader.end(batches)
}

/// The bytes of a partition's producers; of none that ever were, no bytes.
pub(crate) fn encode_producers(producers: &PartitionProducers) -> Vec<u8> {
    let packed = producers.oldest_first();
    if packed.is_empty() && !producers.has_spilled {
        return Vec::new();
    }
    let mut writer = Writer::new();
    writer.byte(if producers.has_spilled { FLAG_HAS_SPILLED } else { 0 });
    writer.unsigned(packed.len() as u64);
    for state in packed {
        writer.signed(state.id.0);
        writer.signed(state.epoch.0.into());
        writer.byte(if state.transaction_start.is_some() { FLAG_OPEN_TRANSACTION } else { 0 });
        if let Some(start) = state.transaction_start {
            writer.signed(start);
        }
        writer.signed(state.last_written_ms);
        writer.batches(&state.batches);
    }
    writer.bytes
}

/// The producers of such bytes.
pub(crate) fn decode_producers(bytes: &[u8]) -> Result<PartitionProducers> {
    let mut producers = PartitionProducers::default();
    if bytes.is_empty() {
        return Ok(producers);
    }
    let mut reader = Reader::new(bytes, "partition's producers")?;
    producers.has_spilled = match reader.byte()? {
        0 => false,
        FLAG_HAS_SPILLED => true,
        _ => return Err(reader.corrupt()),
    };
    for _ in 0..reader.unsigned()? {
        producers.put_newest(reader.producer()?);
    }
    reader.end(producers)
}

impl Writer {
    fn batches(&mut self, batches: &[RememberedBatch]) {
        self.unsigned(batches.len() as u64);
        let mut before = &BEFORE_ALL;
        for batch in batches {
            let sequence = |one: i32, other: i32| i64::from(one) - i64::from(other);
            self.signed(sequence(batch.first_sequence, before.last_sequence) - 1);
            self.signed(sequence(batch.last_sequence, batch.first_sequence));
            self.signed(batch.base_offset.wrapping_sub(before.last_offset));
            self.signed(batch.last_offset.wrapping_sub(batch.base_offset));
            self.signed(batch.max_timestamp_ms.wrapping_sub(before.max_timestamp_ms));
            before = batch;
        }
    }
}

impl Reader<'_> {
    fn batches(&mut self) -> Result<Vec<RememberedBatch>> {
        let mut before = BEFORE_ALL;
        self.list(|reader| {
            let sequence = |reader: &mut Self, from: i64| {
                let value = from.wrapping_add(reader.signed()?);
                i32::try_from(value).map_err(|_| reader.corrupt())
            };
            let first_sequence = sequence(reader, i64::from(before.last_sequence) + 1)?;
            let last_sequence = sequence(reader, first_sequence.into())?;
            let base_offset = before.last_offset.wrapping_add(reader.signed()?);
            let last_offset = base_offset.wrapping_add(reader.signed()?);
            let max_timestamp_ms = before.max_timestamp_ms.wrapping_add(reader.signed()?);
            before = RememberedBatch {
                first_sequence,
                last_sequence,
                base_offset,
                last_offset,
                max_timestamp_ms,
            };
            Ok(before)
        })
    }

    fn producer(&mut self) -> Result<ProducerState> {
        let id = ProducerId(self.signed()?);
        let epoch = ProducerEpoch(self.narrow()?);
        let transaction_start = match self.byte()? {
            0 => None,
            FLAG_OPEN_TRANSACTION => Some(self.signed()?),
            _ => return Err(self.corrupt()),
        };
        let last_written_ms = self.signed()?;
        let batches = self.batches()?;
        Ok(ProducerState { id, epoch, batches, transaction_start, last_written_ms })
    }
}
