//! The 61-byte header of a record batch (format version 2), batches side by side, and the fields
//! that may be patched in place.
//!
//! ```text
//! 0 base offset i64 | 8 length i32 (bytes behind this field) | 12 leader epoch i32 | 16 magic i8
//! 17 crc u32 (of 21..) | 21 attributes i16 | 23 last offset delta i32 | 27 base timestamp i64
//! 35 max timestamp i64 | 43 producer id i64 | 51 producer epoch i16 | 53 base sequence i32
//! 57 record count i32 | 61 records, one compressed block if there is a codec
//! ```
//!
//! Bytes 0-7 and 12-15 lie outside the checksum: a batch is stored as it was received and gets
//! its offset when it is read ([`assign_offsets`]).

use crate::codec::{Codec, decompress};
use crate::error::BatchError;
use crate::mode::TimestampType;
use crate::record::Records;
use std::borrow::Cow;

/// Bytes of a batch's header.
pub const HEADER_LEN: usize = 61;
/// Bytes before and with the length field, which it does not count.
pub const LENGTH_OVERHEAD: usize = 12;
/// The magic of this format.
pub const MAGIC: i8 = 2;

const BASE_OFFSET_AT: usize = 0;
const LEADER_EPOCH_AT: usize = 12;
const CRC_AT: usize = 17;
/// The first byte that the checksum covers.
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;
/// Least length field that any format ever had, as in Kafka's own reader.
const LENGTH_MIN_ANY_FORMAT: i32 = 14;
/// Bytes up to and with the magic: with fewer there is no batch.
const MAGIC_END: usize = 17;

const CODEC_MASK: i16 = 0b111;
pub(crate) const LOG_APPEND_TIME_BIT: i16 = 1 << 3;
pub(crate) const TRANSACTIONAL_BIT: i16 = 1 << 4;
pub(crate) const CONTROL_BIT: i16 = 1 << 5;
pub(crate) const DELETE_HORIZON_BIT: i16 = 1 << 6;

/// A batch's header, parsed. The fields are as stored; nothing but the magic and a length that
/// has room for a header has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record, before compaction; 0 in fresh segments.
    pub base_offset: i64,
    /// Bytes of the batch behind this field: the whole batch less 12.
    pub batch_length: i32,
    /// Leader epoch; outside the checksum.
    pub partition_leader_epoch: i32,
    /// 2.
    pub magic: i8,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type, transactional, control and delete-horizon bits.
    pub attributes: i16,
    /// Last record's offset less the base offset; compaction keeps it.
    pub last_offset_delta: i32,
    /// First record's timestamp, milliseconds since the epoch, or the delete horizon.
    pub base_timestamp_ms: i64,
    /// Greatest timestamp, milliseconds since the epoch.
    pub max_timestamp_ms: i64,
    /// Producer id, -1 for none.
    pub producer_id: i64,
    /// Producer epoch, -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 for none.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Parses the header at the front of `bytes`, which need not hold the records.
    ///
    /// # Errors
    /// `Truncated` under 61 bytes, `OldMagic`, `UnknownMagic`, `LengthTooSmall`.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        if let Some(&magic) = bytes.get(MAGIC_END - 1) {
            check_magic(magic as i8)?;
        }
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            let available = bytes.len();
            return Err(BatchError::Truncated { needed: HEADER_LEN, available });
        };
        let header = Self {
            base_offset: i64_at(bytes, BASE_OFFSET_AT),
            batch_length: i32_at(bytes, 8),
            partition_leader_epoch: i32_at(bytes, LEADER_EPOCH_AT),
            magic: bytes[MAGIC_END - 1] as i8,
            crc: i32_at(bytes, CRC_AT) as u32,
            attributes: i16_at(bytes, ATTRIBUTES_AT),
            last_offset_delta: i32_at(bytes, 23),
            base_timestamp_ms: i64_at(bytes, 27),
            max_timestamp_ms: i64_at(bytes, MAX_TIMESTAMP_AT),
            producer_id: i64_at(bytes, 43),
            producer_epoch: i16_at(bytes, 51),
            base_sequence: i32_at(bytes, 53),
            record_count: i32_at(bytes, 57),
        };
        if header.batch_length < (HEADER_LEN - LENGTH_OVERHEAD) as i32 {
            return Err(BatchError::LengthTooSmall(header.batch_length));
        }
        Ok(header)
    }

    /// Appends the 61 bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base_offset.to_be_bytes());
        out.extend_from_slice(&self.batch_length.to_be_bytes());
        out.extend_from_slice(&self.partition_leader_epoch.to_be_bytes());
        out.extend_from_slice(&self.magic.to_be_bytes());
        out.extend_from_slice(&self.crc.to_be_bytes());
        out.extend_from_slice(&self.attributes.to_be_bytes());
        out.extend_from_slice(&self.last_offset_delta.to_be_bytes());
        out.extend_from_slice(&self.base_timestamp_ms.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp_ms.to_be_bytes());
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&self.base_sequence.to_be_bytes());
        out.extend_from_slice(&self.record_count.to_be_bytes());
    }

    /// Bytes of the whole batch.
    pub fn total_len(&self) -> usize {
        self.batch_length.max(0) as usize + LENGTH_OVERHEAD
    }

    /// The codec of the records.
    ///
    /// # Errors
    /// `UnknownCodec` for 5, 6 and 7.
    pub fn codec(&self) -> Result<Codec, BatchError> {
        let bits = (self.attributes & CODEC_MASK) as u8;
        Codec::from_bits(bits).ok_or(BatchError::UnknownCodec(bits))
    }

    /// Whose clock the timestamps come from.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the records belong to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether the records are control records, which no consumer is shown.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Whether the base timestamp is a delete horizon, as compaction sets it.
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON_BIT != 0
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(i64::from(self.last_offset_delta))
    }

    /// Sequence of the last record, -1 where the batch has none. After 2147483647 comes 0.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        add_sequence(self.base_sequence, self.last_offset_delta)
    }

    /// Timestamp of a record with this delta, milliseconds since the epoch.
    pub fn record_timestamp_ms(&self, timestamp_delta: i64) -> i64 {
        match self.timestamp_type() {
            TimestampType::CreateTime => self.base_timestamp_ms.wrapping_add(timestamp_delta),
            TimestampType::LogAppendTime => self.max_timestamp_ms,
        }
    }
}

/// The sequence `increment` after `sequence`, modulo 2^31.
pub fn add_sequence(sequence: i32, increment: i32) -> i32 {
    sequence.wrapping_add(increment) & i32::MAX
}

/// One whole batch, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    /// Its header.
    pub header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// Views `bytes` as exactly one batch. The checksum is not verified.
    ///
    /// # Errors
    /// As [`BatchHeader::parse`], `Truncated`, and `NotOneBatch` where bytes follow the batch.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let view = Self::first(bytes)?;
        if view.bytes.len() < bytes.len() {
            return Err(BatchError::NotOneBatch(2));
        }
        Ok(view)
    }

    /// Views the batch at the front of `bytes`.
    ///
    /// # Errors
    /// As [`BatchHeader::parse`], and `Truncated`.
    pub fn first(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let needed = header.total_len();
        let bytes =
            bytes.get(..needed).ok_or(BatchError::Truncated { needed, available: bytes.len() })?;
        Ok(Self { header, bytes })
    }

    /// The whole batch, header first.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The records as stored: one compressed block if there is a codec.
    pub fn stored_records(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// Verifies the checksum.
    ///
    /// # Errors
    /// `Crc`.
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        verify_crc(self.bytes)
    }

    /// Decompresses the records, which [`BatchRecords::iter`] then walks.
    ///
    /// # Errors
    /// `UnknownCodec`, `Decompress`, and `DecompressedTooLarge` beyond `bytes_max`.
    pub fn records(&self, bytes_max: usize) -> Result<BatchRecords<'a>, BatchError> {
        let codec = self.header.codec()?;
        let bytes = decompress(codec, self.stored_records(), bytes_max)
            .map_err(|error| BatchError::codec(codec, error))?;
        Ok(BatchRecords { header: self.header, bytes })
    }
}

/// The decompressed records of one batch.
#[derive(Clone, Debug)]
pub struct BatchRecords<'a> {
    /// The batch's header.
    pub header: BatchHeader,
    bytes: Cow<'a, [u8]>,
}

impl BatchRecords<'_> {
    /// The records, lazily.
    pub fn iter(&self) -> Records<'_> {
        Records::new(&self.bytes, self.header.record_count)
    }

    /// The decompressed bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Verifies the checksum of one whole batch.
///
/// # Errors
/// `Truncated` under 61 bytes, `Crc`.
pub fn verify_crc(batch: &[u8]) -> Result<(), BatchError> {
    if batch.len() < HEADER_LEN {
        return Err(BatchError::Truncated { needed: HEADER_LEN, available: batch.len() });
    }
    let stored = i32_at(batch, CRC_AT) as u32;
    let computed = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    if stored == computed { Ok(()) } else { Err(BatchError::Crc { stored, computed }) }
}

/// Iterates over batches side by side. Strict: a torn batch or a wrong magic is an error, after
/// which nothing follows. Checksums are not verified.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { rest: bytes }
}

/// See [`batches`].
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let batch = BatchView::first(self.rest);
        self.rest = match &batch {
            Ok(view) => &self.rest[view.bytes.len()..],
            Err(_) => &[],
        };
        Some(batch)
    }
}

/// Finds the only batch of a produced block, with Kafka's lenience: bytes behind it that are too
/// few for another batch are cut off.
///
/// # Errors
/// `NotOneBatch`, `OldMagic`, `UnknownMagic`, `LengthTooSmall`.
pub fn single_batch(block: &[u8]) -> Result<&[u8], BatchError> {
    let Some(length) = whole_batch_len(block)? else { return Err(BatchError::NotOneBatch(0)) };
    let (batch, rest) = block.split_at(length);
    if whole_batch_len(rest)?.is_some() {
        return Err(BatchError::NotOneBatch(2));
    }
    check_magic(batch[MAGIC_END - 1] as i8)?;
    Ok(batch)
}

/// Length of the batch (of any format) at the front, `None` if it is not whole.
fn whole_batch_len(bytes: &[u8]) -> Result<Option<usize>, BatchError> {
    if bytes.len() < LENGTH_OVERHEAD {
        return Ok(None);
    }
    let length = i32_at(bytes, 8);
    if length < LENGTH_MIN_ANY_FORMAT {
        return Err(BatchError::LengthTooSmall(length));
    }
    if bytes.len() < MAGIC_END {
        return Ok(None);
    }
    if let Err(error @ BatchError::UnknownMagic(_)) = check_magic(bytes[MAGIC_END - 1] as i8) {
        return Err(error);
    }
    let total = length as usize + LENGTH_OVERHEAD;
    Ok((total <= bytes.len()).then_some(total))
}

fn check_magic(magic: i8) -> Result<(), BatchError> {
    match magic {
        MAGIC => Ok(()),
        0 | 1 => Err(BatchError::OldMagic(magic)),
        _ => Err(BatchError::UnknownMagic(magic)),
    }
}

/// Writes a batch's base offset. The checksum does not cover it.
///
/// # Panics
/// Under 61 bytes: the caller holds a batch that was parsed.
pub fn set_base_offset(batch: &mut [u8], base_offset: i64) {
    batch[BASE_OFFSET_AT..BASE_OFFSET_AT + 8].copy_from_slice(&base_offset.to_be_bytes());
}

/// Writes a batch's leader epoch. The checksum does not cover it.
///
/// # Panics
/// Under 61 bytes: the caller holds a batch that was parsed.
pub fn set_leader_epoch(batch: &mut [u8], leader_epoch: i32) {
    batch[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Writes a batch's timestamp type and maximum timestamp (milliseconds), and its new checksum.
///
/// # Panics
/// Under 61 bytes: the caller holds a batch that was parsed.
pub fn set_timestamps(batch: &mut [u8], timestamp_type: TimestampType, max_timestamp_ms: i64) {
    let mut attributes = i16_at(batch, ATTRIBUTES_AT);
    match timestamp_type {
        TimestampType::CreateTime => attributes &= !LOG_APPEND_TIME_BIT,
        TimestampType::LogAppendTime => attributes |= LOG_APPEND_TIME_BIT,
    }
    batch[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&max_timestamp_ms.to_be_bytes());
    update_crc(batch);
}

/// Gives batches side by side consecutive offsets from `base_offset` on, and a leader epoch, as
/// readers of a fresh segment do. Returns the offset behind the last batch.
///
/// # Errors
/// As [`batches`]; the batches before the faulty one are then patched.
pub fn assign_offsets(
    mut bytes: &mut [u8],
    base_offset: i64,
    leader_epoch: i32,
) -> Result<i64, BatchError> {
    let mut next_offset = base_offset;
    while !bytes.is_empty() {
        let header = BatchView::first(bytes)?.header;
        let (batch, rest) = bytes.split_at_mut(header.total_len());
        set_base_offset(batch, next_offset);
        set_leader_epoch(batch, leader_epoch);
        next_offset = next_offset.wrapping_add(i64::from(header.last_offset_delta)).wrapping_add(1);
        bytes = rest;
    }
    Ok(next_offset)
}

pub(crate) fn update_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut array = [0; 8];
    array.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(array)
}
