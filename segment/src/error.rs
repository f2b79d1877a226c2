//! What can be wrong with a record batch, precise enough to be mapped to Kafka's error codes.

use crate::codec::{Codec, CodecError};

/// Why a batch, or a block of batches, was refused. Each variant names the error code with which
/// a Kafka broker answers it on Produce.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than the batch has (INVALID_RECORD: counts as no batch).
    #[error("batch is cut short: {needed} bytes needed, {available} there")]
    Truncated {
        /// Bytes that the header or its length field ask for.
        needed: usize,
        /// Bytes that there are.
        available: usize,
    },
    /// The length field is less than a header takes (CORRUPT_MESSAGE).
    #[error("batch length {0} is less than a batch header")]
    LengthTooSmall(i32),
    /// A message set of a format before record batches (INVALID_RECORD).
    #[error("message format {0} is no longer supported")]
    OldMagic(i8),
    /// No magic that was ever in use (CORRUPT_MESSAGE).
    #[error("unknown magic {0}")]
    UnknownMagic(i8),
    /// A block that must hold one batch holds another number (INVALID_RECORD).
    #[error("{0} batches where exactly one is allowed")]
    NotOneBatch(usize),
    /// A produced batch must have base offset 0 (INVALID_RECORD).
    #[error("base offset {0} of a produced batch is not 0")]
    BaseOffset(i64),
    /// Larger than the topic allows (MESSAGE_TOO_LARGE).
    #[error("batch of {bytes} bytes is larger than {bytes_max}")]
    TooLarge {
        /// Bytes of the whole batch.
        bytes: usize,
        /// The most that is allowed.
        bytes_max: usize,
    },
    /// The checksum does not match (CORRUPT_MESSAGE).
    #[error("batch checksum is {computed:08x}, the header says {stored:08x}")]
    Crc {
        /// As the header says.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// Attribute bits 0-2 name no codec (UNKNOWN_SERVER_ERROR in Kafka).
    #[error("unknown codec {0}")]
    UnknownCodec(u8),
    /// Zstd in a request of a version that did not know it (UNSUPPORTED_COMPRESSION_TYPE).
    #[error("zstd is not allowed at this version of the request")]
    ZstdNotAllowed,
    /// The records do not decompress (UNKNOWN_SERVER_ERROR in Kafka).
    #[error("{codec} data is corrupt: {reason}")]
    Decompress {
        /// The batch's codec.
        codec: Codec,
        /// The codec's own words.
        reason: String,
    },
    /// The records decompress to more than the limit (Kafka has no limit; MESSAGE_TOO_LARGE fits).
    #[error("records decompress to more than {bytes_max} bytes")]
    DecompressedTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The record count is not positive, not last offset delta + 1, or not what was found
    /// (INVALID_RECORD).
    #[error("record count {stated}, last offset delta {last_offset_delta}, {found} records found")]
    RecordCount {
        /// The header's record count.
        stated: i32,
        /// The header's last offset delta.
        last_offset_delta: i32,
        /// How many records were found; with bytes left over one more than stated.
        found: u32,
    },
    /// A record's bytes make no sense (INVALID_RECORD).
    #[error("record {index}: {error}")]
    Record {
        /// Which record, from 0.
        index: u32,
        /// What is wrong with it.
        error: RecordError,
    },
    /// A client set the control bit (INVALID_RECORD).
    #[error("control batches are not accepted from clients")]
    Control,
    /// A producer id without a sequence (INVALID_RECORD).
    #[error("producer id {producer_id} with base sequence {base_sequence}")]
    Sequence {
        /// The header's producer id.
        producer_id: i64,
        /// The header's base sequence.
        base_sequence: i32,
    },
    /// A client set the log-append-time bit on a LogAppendTime topic (INVALID_TIMESTAMP).
    #[error("log-append time set by the client")]
    LogAppendTime,
    /// Single records break the topic's rules (INVALID_TIMESTAMP if one of them is for its
    /// timestamp, else INVALID_RECORD; the list becomes `record_errors`). Never empty, and of
    /// [`BAD_RECORDS_MAX`](crate::BAD_RECORDS_MAX) at most.
    #[error("at least {} records break the topic's rules, first record {}", .0.len(), .0[0].index)]
    BadRecords(Vec<BadRecord>),
}

/// One record that breaks a topic's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Which record of the batch, from 0.
    pub index: u32,
    /// The rule.
    pub fault: RecordFault,
}

/// Which rule of its topic a record breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// No key on a compacted topic.
    MissingKey,
    /// Its timestamp lies before or after what is allowed.
    Timestamp {
        /// The record's timestamp.
        timestamp_ms: i64,
    },
}

/// What is wrong with the bytes of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the record does.
    #[error("cut short")]
    Truncated,
    /// A variable-length integer has too many bits.
    #[error("an integer has too many bits")]
    Varint,
    /// A length or a count is negative where that means nothing.
    #[error("negative length or count {0}")]
    NegativeLength(i32),
    /// The record's length is not what its fields take.
    #[error("{0} bytes left over behind its fields")]
    LeftOver(usize),
    /// The offset delta is not the record's index.
    #[error("offset delta {0} out of sequence")]
    OffsetDelta(i32),
    /// The base timestamp and the delta do not add up to 64 bits.
    #[error("timestamp delta {0} overflows")]
    TimestampOverflow(i64),
}

impl BatchError {
    pub(crate) fn codec(codec: Codec, error: CodecError) -> Self {
        match error {
            CodecError::OutputLimit { bytes_max } => Self::DecompressedTooLarge { bytes_max },
            CodecError::Corrupt { reason } => Self::Decompress { codec, reason },
        }
    }
}
