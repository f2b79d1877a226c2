//! The checks that a produced batch must pass before it is stored, in Kafka's order: codec,
//! base offset, size, checksum, header, and then every record.
//!
//! The walk copies nothing. An uncompressed batch is read twice, once for its checksum and once
//! for the lengths that lead from record to record; a compressed one is decompressed into one
//! buffer whose size the rules bound.

use crate::batch::{BatchHeader, BatchView};
use crate::codec::Codec;
use crate::error::{BadRecord, BatchError, RecordError, RecordFault};
use crate::mode::TimestampType;

/// Timestamp of a record that has none; allowed whatever the limits.
pub const NO_TIMESTAMP_MS: i64 = -1;
/// Records of one batch that are listed as breaking the topic's rules at most. A small compressed
/// batch may hold millions.
pub const BAD_RECORDS_MAX: usize = 4096;

/// What a topic, and the version of the request, ask of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Most bytes of the whole batch as sent (`max.message.bytes`); equal is allowed.
    pub batch_bytes_max: usize,
    /// Most bytes that the records may decompress to.
    pub decompressed_bytes_max: usize,
    /// Whether every record must have a key (compacted topics).
    pub require_key: bool,
    /// Whether zstd may be used (Produce from version 7 on).
    pub zstd_allowed: bool,
    /// Whose clock the topic uses, with the limits on a producer's.
    pub timestamps: TimestampRule,
}

/// Whose clock a topic uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampRule {
    /// The producer's; each record's timestamp must lie in the range, ends included.
    CreateTime {
        /// Earliest timestamp allowed, `i64::MIN` for any.
        earliest_ms: i64,
        /// Latest timestamp allowed, `i64::MAX` for any.
        latest_ms: i64,
    },
    /// The broker's; the records may say what they like.
    LogAppendTime,
}

/// A batch that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSummary {
    /// The header as sent.
    pub header: BatchHeader,
    /// The codec of the records as sent.
    pub codec: Codec,
    /// Smallest timestamp of the records, by the producer's clock.
    pub min_timestamp_ms: i64,
    /// Greatest timestamp of the records, by the producer's clock; the header may say otherwise.
    pub max_timestamp_ms: i64,
    /// Bytes of the records when decompressed.
    pub record_bytes: usize,
    /// Records without a key.
    pub keyless_records: u32,
}

impl BatchSummary {
    /// Whether a CreateTime topic must store the batch with another maximum timestamp or
    /// timestamp type than was sent (see [`set_timestamps`](crate::batch::set_timestamps)).
    pub fn needs_create_time_fix(&self) -> bool {
        self.header.max_timestamp_ms != self.max_timestamp_ms
            || self.header.timestamp_type() != TimestampType::CreateTime
    }
}

/// Validates exactly one batch; [`single_batch`](crate::batch::single_batch) finds it in a block.
///
/// # Errors
/// Every [`BatchError`]; the first in the order of the module's head. Records that only break
/// the topic's rules are listed up to [`BAD_RECORDS_MAX`].
pub fn validate_batch(bytes: &[u8], rules: &Rules) -> Result<BatchSummary, BatchError> {
    let view = BatchView::parse(bytes)?;
    let header = view.header;
    let codec = header.codec();
    if codec == Ok(Codec::Zstd) && !rules.zstd_allowed {
        return Err(BatchError::ZstdNotAllowed);
    }
    if header.base_offset != 0 {
        return Err(BatchError::BaseOffset(header.base_offset));
    }
    if bytes.len() > rules.batch_bytes_max {
        let bytes_max = rules.batch_bytes_max;
        return Err(BatchError::TooLarge { bytes: bytes.len(), bytes_max });
    }
    view.verify_crc()?;
    check_header(&header, rules)?;
    let records = view.records(rules.decompressed_bytes_max)?;
    let walk = walk_records(&header, records.iter(), rules)?;
    Ok(BatchSummary {
        header,
        codec: codec?,
        min_timestamp_ms: walk.min_timestamp_ms,
        max_timestamp_ms: walk.max_timestamp_ms,
        record_bytes: records.bytes().len(),
        keyless_records: walk.keyless_records,
    })
}

fn check_header(header: &BatchHeader, rules: &Rules) -> Result<(), BatchError> {
    let BatchHeader { record_count, last_offset_delta, producer_id, base_sequence, .. } = *header;
    if record_count <= 0 || last_offset_delta != record_count - 1 {
        let found = record_count.max(0) as u32;
        return Err(BatchError::RecordCount { stated: record_count, last_offset_delta, found });
    }
    if header.is_control() {
        return Err(BatchError::Control);
    }
    if producer_id >= 0 && base_sequence < 0 {
        return Err(BatchError::Sequence { producer_id, base_sequence });
    }
    let from_log = header.timestamp_type() == TimestampType::LogAppendTime;
    if from_log && rules.timestamps == TimestampRule::LogAppendTime {
        return Err(BatchError::LogAppendTime);
    }
    Ok(())
}

struct Walk {
    min_timestamp_ms: i64,
    max_timestamp_ms: i64,
    keyless_records: u32,
}

fn walk_records(
    header: &BatchHeader,
    records: crate::record::Records<'_>,
    rules: &Rules,
) -> Result<Walk, BatchError> {
    let (earliest_ms, latest_ms) = match rules.timestamps {
        TimestampRule::CreateTime { earliest_ms, latest_ms } => (earliest_ms, latest_ms),
        TimestampRule::LogAppendTime => (i64::MIN, i64::MAX),
    };
    let mut walk =
        Walk { min_timestamp_ms: i64::MAX, max_timestamp_ms: i64::MIN, keyless_records: 0 };
    let mut bad = Vec::new();
    for (index, record) in records.enumerate() {
        let record = record?;
        let index = index as u32;
        if record.offset_delta as u32 != index {
            let error = RecordError::OffsetDelta(record.offset_delta);
            return Err(BatchError::Record { index, error });
        }
        let Some(timestamp_ms) = header.base_timestamp_ms.checked_add(record.timestamp_delta)
        else {
            let error = RecordError::TimestampOverflow(record.timestamp_delta);
            return Err(BatchError::Record { index, error });
        };
        walk.min_timestamp_ms = walk.min_timestamp_ms.min(timestamp_ms);
        walk.max_timestamp_ms = walk.max_timestamp_ms.max(timestamp_ms);
        walk.keyless_records += u32::from(record.key.is_none());
        if bad.len() == BAD_RECORDS_MAX {
            continue;
        }
        let in_range = (earliest_ms..=latest_ms).contains(&timestamp_ms);
        if rules.require_key && record.key.is_none() {
            bad.push(BadRecord { index, fault: RecordFault::MissingKey });
        } else if !in_range && timestamp_ms != NO_TIMESTAMP_MS {
            bad.push(BadRecord { index, fault: RecordFault::Timestamp { timestamp_ms } });
        }
    }
    if bad.is_empty() { Ok(walk) } else { Err(BatchError::BadRecords(bad)) }
}
