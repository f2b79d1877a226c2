//! Building record batches: a producer's, a compacted one, a transaction's marker, and the same
//! records under another codec.

use crate::batch::{
    BatchHeader, BatchView, CONTROL_BIT, DELETE_HORIZON_BIT, HEADER_LEN, LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT, MAGIC, TRANSACTIONAL_BIT, update_crc,
};
use crate::bytes_io::{put_varint, put_varlong, varint_len, varlong_len};
use crate::codec::{Codec, compress};
use crate::error::BatchError;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::mode::TimestampType;
use crate::validate::NO_TIMESTAMP_MS;
use bytes::Bytes;

/// Most bytes of records in one batch, before and after compression: the length field is an i32.
pub const RECORD_BYTES_MAX: usize = i32::MAX as usize - HEADER_LEN;

/// Why a batch cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// More bytes than the format's 32-bit lengths can say.
    #[error("batch or record is larger than 2 GiB")]
    TooLarge,
    /// Offset deltas must grow, and end at the batch's last.
    #[error("offset delta {0} is out of order or range")]
    OffsetDelta(i32),
}

/// A header of a record to be written: key, and a value or null.
pub type HeaderRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// A record to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// Milliseconds since the epoch, -1 for none.
    pub timestamp_ms: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [HeaderRef<'a>],
}

/// Builds one batch. Base offset and leader epoch are zero unless taken over from a header.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    codec: Codec,
    level: Option<i32>,
    records: Vec<u8>,
    next_offset_delta: i32,
    /// Compaction keeps these two as they were.
    fixed_last_offset_delta: bool,
    fixed_base_timestamp: bool,
    max_timestamp_ms: i64,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch: no codec, CreateTime, no producer.
    pub fn new() -> Self {
        let header = BatchHeader {
            base_offset: 0,
            batch_length: 0,
            partition_leader_epoch: 0,
            magic: MAGIC,
            crc: 0,
            attributes: 0,
            last_offset_delta: -1,
            base_timestamp_ms: -1,
            max_timestamp_ms: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 0,
        };
        Self {
            header,
            codec: Codec::None,
            level: None,
            records: Vec::new(),
            next_offset_delta: 0,
            fixed_last_offset_delta: false,
            fixed_base_timestamp: false,
            max_timestamp_ms: i64::MIN,
        }
    }

    /// A batch in place of one with this header, as compaction makes it: offsets, producer,
    /// sequences, base timestamp and attributes stay, the codec becomes `codec`, and records are
    /// added with [`push_at`](Self::push_at). With no record added the batch is empty.
    pub fn replacing(header: &BatchHeader, codec: Codec) -> Self {
        let mut builder = Self::new();
        builder.header = BatchHeader { record_count: 0, ..*header };
        builder.codec = codec;
        builder.fixed_last_offset_delta = true;
        builder.fixed_base_timestamp = true;
        builder
    }

    /// Compresses the records, at the codec's own level or its default.
    pub fn codec(mut self, codec: Codec, level: Option<i32>) -> Self {
        self.codec = codec;
        self.level = level;
        self
    }

    /// Sets producer, epoch and the sequence of the first record.
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.header.producer_id = id.0;
        self.header.producer_epoch = epoch.0;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Marks the records as belonging to a transaction.
    pub fn transactional(mut self) -> Self {
        self.header.attributes |= TRANSACTIONAL_BIT;
        self
    }

    /// Marks the records as control records.
    pub fn control(mut self) -> Self {
        self.header.attributes |= CONTROL_BIT;
        self
    }

    /// Makes the batch LogAppendTime: `timestamp_ms` stands for every record.
    pub fn log_append_time(mut self, timestamp_ms: i64) -> Self {
        self.header.attributes |= LOG_APPEND_TIME_BIT;
        self.header.max_timestamp_ms = timestamp_ms;
        self
    }

    /// Sets the delete horizon, which takes the place of the base timestamp (milliseconds).
    /// Before the first record.
    pub fn delete_horizon(mut self, horizon_ms: i64) -> Self {
        self.header.attributes |= DELETE_HORIZON_BIT;
        self.header.base_timestamp_ms = horizon_ms;
        self.fixed_base_timestamp = true;
        self
    }

    /// Sets the base offset.
    pub fn base_offset(mut self, base_offset: i64) -> Self {
        self.header.base_offset = base_offset;
        self
    }

    /// Bytes of the records so far, before compression.
    pub fn record_bytes(&self) -> usize {
        self.records.len()
    }

    /// Records so far.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// Appends a record at the next offset.
    ///
    /// # Errors
    /// `TooLarge`; the builder is then as before.
    pub fn push(&mut self, record: &NewRecord<'_>) -> Result<(), BuildError> {
        self.push_at(self.next_offset_delta, record)
    }

    /// Appends a record at an offset delta beyond the last record's.
    ///
    /// # Errors
    /// `OffsetDelta`, `TooLarge`; the builder is then as before.
    pub fn push_at(&mut self, offset_delta: i32, record: &NewRecord<'_>) -> Result<(), BuildError> {
        let beyond = self.fixed_last_offset_delta && offset_delta > self.header.last_offset_delta;
        // The greatest i32 is left out, so that there is always a next one.
        if offset_delta < self.next_offset_delta || beyond || offset_delta == i32::MAX {
            return Err(BuildError::OffsetDelta(offset_delta));
        }
        if self.header.record_count == 0 && !self.fixed_base_timestamp {
            self.header.base_timestamp_ms = record.timestamp_ms;
        }
        let timestamp_delta = record.timestamp_ms.wrapping_sub(self.header.base_timestamp_ms);
        let length = body_len(timestamp_delta, offset_delta, record);
        if length.saturating_add(self.records.len()).saturating_add(5) > RECORD_BYTES_MAX {
            return Err(BuildError::TooLarge);
        }
        put_varint(&mut self.records, length as i32);
        self.records.push(0);
        put_varlong(&mut self.records, timestamp_delta);
        put_varint(&mut self.records, offset_delta);
        put_nullable(&mut self.records, record.key);
        put_nullable(&mut self.records, record.value);
        put_varint(&mut self.records, record.headers.len() as i32);
        for (key, value) in record.headers {
            put_nullable(&mut self.records, Some(key));
            put_nullable(&mut self.records, *value);
        }
        self.max_timestamp_ms = self.max_timestamp_ms.max(record.timestamp_ms);
        self.next_offset_delta = offset_delta + 1;
        self.header.record_count += 1;
        Ok(())
    }

    /// The finished batch.
    ///
    /// # Errors
    /// `TooLarge` where compression made the records larger than a batch can be.
    pub fn build(mut self) -> Result<Bytes, BuildError> {
        if !self.fixed_last_offset_delta {
            self.header.last_offset_delta = self.next_offset_delta - 1;
        }
        let create_time = self.header.timestamp_type() == TimestampType::CreateTime;
        if create_time && self.header.record_count > 0 {
            self.header.max_timestamp_ms = self.max_timestamp_ms;
        }
        finish(self.header, self.codec, self.level, &self.records)
    }
}

/// The batch without its records, as compaction leaves it where the batch must stay for its offsets
/// or its producer's sequences: no codec, no delete horizon, and -1 as its base timestamp, as Kafka
/// writes it.
pub fn empty_batch(header: &BatchHeader) -> Bytes {
    let attributes = header.attributes & !DELETE_HORIZON_BIT;
    let header =
        BatchHeader { attributes, base_timestamp_ms: NO_TIMESTAMP_MS, record_count: 0, ..*header };
    finish(header, Codec::None, None, &[]).expect("a batch without records is small")
}

/// The same records in the same batch under another codec. Everything in the header but codec,
/// length and checksum stays.
///
/// # Errors
/// As [`BatchView::parse`] and [`BatchView::records`]; `TooLarge` beyond what a batch can be.
pub fn recompress(
    batch: &[u8],
    codec: Codec,
    level: Option<i32>,
    decompressed_bytes_max: usize,
) -> Result<Bytes, BatchError> {
    let view = BatchView::parse(batch)?;
    let records = view.records(decompressed_bytes_max)?;
    finish(view.header, codec, level, records.bytes()).map_err(|_| BatchError::TooLarge {
        bytes: records.bytes().len(),
        bytes_max: RECORD_BYTES_MAX,
    })
}

fn finish(
    mut header: BatchHeader,
    codec: Codec,
    level: Option<i32>,
    records: &[u8],
) -> Result<Bytes, BuildError> {
    // An empty batch has nothing to compress, not even an empty frame.
    let codec = if records.is_empty() { Codec::None } else { codec };
    let compressed;
    let stored = match codec {
        Codec::None => records,
        _ => {
            compressed = compress(codec, level, records);
            &compressed
        }
    };
    if stored.len() > RECORD_BYTES_MAX {
        return Err(BuildError::TooLarge);
    }
    header.attributes = header.attributes & !0b111 | i16::from(codec.bits());
    header.batch_length = (HEADER_LEN - LENGTH_OVERHEAD + stored.len()) as i32;
    let mut batch = Vec::with_capacity(HEADER_LEN + stored.len());
    header.write(&mut batch);
    batch.extend_from_slice(stored);
    update_crc(&mut batch);
    Ok(Bytes::from(batch))
}

fn body_len(timestamp_delta: i64, offset_delta: i32, record: &NewRecord<'_>) -> usize {
    let mut length = 1 + varlong_len(timestamp_delta) + varint_len(offset_delta);
    length += nullable_len(record.key) + nullable_len(record.value);
    length += varlong_len(record.headers.len() as i64);
    for (key, value) in record.headers {
        length = length.saturating_add(nullable_len(Some(key)) + nullable_len(*value));
    }
    length
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    match bytes {
        None => 1,
        Some(bytes) => varlong_len(bytes.len() as i64) + bytes.len(),
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
    }
}
