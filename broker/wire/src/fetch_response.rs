//! Fetch responses, hand-written for versions 4 to 18, because the message layer copies records.
//!
//! Contract: [`FetchResponse::encode`] gives a frame whose records are the very slices that it was
//! given; only the bytes between them are new, in one allocation. Fields that a version does not
//! have are left out without a complaint, so that the broker fills in the same structure whatever
//! the version.
//!
//! Left out at every version, because a leaderless broker never has them: the current leader and
//! its endpoints (tags of versions 12 and 16), and the snapshot id (for KRaft followers).

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::error::WireError;
use crate::error_code::ErrorCode;
use crate::frame::{LENGTH_BYTES, Response};
use crate::messages::{self, ApiKey, TopicName};

#[cfg(test)]
mod tests;

/// The versions that [`FetchResponse::encode`] writes.
pub const VERSIONS: std::ops::RangeInclusive<i16> = 4..=18;

/// The first version with compact lengths and tagged fields.
const FLEXIBLE_SINCE: i16 = 12;

/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;

/// Bytes that a partition takes without its records and aborted transactions: the most that any
/// version writes, rounded up. For reserving only.
const PARTITION_BYTES: usize = 80;

/// The answer to a Fetch request.
#[derive(Debug, Clone, Default)]
pub struct FetchResponse {
    /// For how long the client should hold back, in milliseconds.
    pub throttle_time_ms: i32,
    /// An error of the whole request, such as one about its session (version 7 on).
    pub error: ErrorCode,
    /// The session, or 0 for none (version 7 on).
    pub session_id: i32,
    /// The topics, each at most once.
    pub topics: Vec<FetchedTopic>,
}

/// The part of an answer about one topic.
#[derive(Debug, Clone, Default)]
pub struct FetchedTopic {
    /// The name (up to version 12).
    pub name: TopicName,
    /// The id (version 13 on).
    pub id: Uuid,
    /// The partitions.
    pub partitions: Vec<FetchedPartition>,
}

/// The part of an answer about one partition.
#[derive(Debug, Clone)]
pub struct FetchedPartition {
    /// The partition's index.
    pub partition: i32,
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The offset behind the newest record; -1 with an error.
    pub high_watermark: i64,
    /// The offset from which on transactions may be open; -1 with an error.
    pub last_stable_offset: i64,
    /// The first offset of the log (version 5 on); -1 with an error.
    pub log_start_offset: i64,
    /// Where the log parted from the client's last epoch (version 12 on).
    pub diverging_epoch: Option<DivergingEpoch>,
    /// Transactions among the records that were aborted; null unless the client reads committed.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// The broker that the client should rather ask, or -1 (version 11 on).
    pub preferred_read_replica: i32,
    /// Record batches, back to back; none gives records of zero bytes, never null.
    pub records: Vec<Bytes>,
}

/// The end of the newest epoch that client and log have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DivergingEpoch {
    /// The epoch.
    pub epoch: i32,
    /// The offset behind it.
    pub end_offset: i64,
}

/// A transaction that was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Its producer.
    pub producer_id: i64,
    /// Its first offset in this partition.
    pub first_offset: i64,
}

impl FetchedPartition {
    /// A partition without records and without known offsets, for errors.
    pub fn failed(partition: i32, error: ErrorCode) -> Self {
        Self {
            partition,
            error,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: None,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records: Vec::new(),
        }
    }

    /// Bytes of records.
    pub fn records_bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

impl FetchResponse {
    /// The frame at `version`, length prefix and response header included.
    ///
    /// # Errors
    /// [`WireError::Encode`] outside [`VERSIONS`], for a topic name above 32,767 bytes where names
    /// are sent, and when the frame is above `i32::MAX` bytes.
    pub fn encode(self, version: i16, correlation_id: i32) -> Result<Response, WireError> {
        let failed = |reason: &str| WireError::Encode {
            api: ApiKey::Fetch,
            version,
            reason: reason.to_owned(),
        };
        if !VERSIONS.contains(&version) {
            return Err(failed("the version is unknown"));
        }
        let mut writer = Writer {
            version,
            head: BytesMut::with_capacity(self.head_bytes_hint()),
            cuts: Vec::new(),
            records_bytes: 0,
        };
        writer.response(self, correlation_id).map_err(failed)?;
        writer.finish().map_err(failed)
    }

    /// About how many bytes the frame takes without its records.
    fn head_bytes_hint(&self) -> usize {
        let aborted = |partition: &FetchedPartition| {
            partition.aborted_transactions.as_ref().map_or(0, |aborted| aborted.len() * 17)
        };
        let topic = |topic: &FetchedTopic| {
            let partitions = &topic.partitions;
            32 + topic.name.len()
                + partitions.len() * PARTITION_BYTES
                + partitions.iter().map(aborted).sum::<usize>()
        };
        64 + self.topics.iter().map(topic).sum::<usize>()
    }
}

/// Collects the bytes between records, and where the records belong.
struct Writer {
    version: i16,
    head: BytesMut,
    /// Records, and the position in `head` before which they stand, in rising order.
    cuts: Vec<(usize, Bytes)>,
    records_bytes: usize,
}

impl Writer {
    fn response(
        &mut self,
        response: FetchResponse,
        correlation_id: i32,
    ) -> Result<(), &'static str> {
        self.head.put_i32(0);
        let (api, version) = (ApiKey::Fetch, self.version);
        messages::put_response_header(&mut self.head, api, version, correlation_id);
        self.head.put_i32(response.throttle_time_ms);
        if self.version >= 7 {
            self.head.put_i16(response.error.code());
            self.head.put_i32(response.session_id);
        }
        self.length(Some(response.topics.len()))?;
        for topic in response.topics {
            self.topic(topic)?;
        }
        self.no_tags();
        Ok(())
    }

    fn topic(&mut self, topic: FetchedTopic) -> Result<(), &'static str> {
        if self.version >= TOPIC_IDS_SINCE {
            self.head.put_slice(topic.id.as_bytes());
        } else {
            self.text(&topic.name)?;
        }
        self.length(Some(topic.partitions.len()))?;
        for partition in topic.partitions {
            self.partition(partition)?;
        }
        self.no_tags();
        Ok(())
    }

    fn partition(&mut self, partition: FetchedPartition) -> Result<(), &'static str> {
        self.head.put_i32(partition.partition);
        self.head.put_i16(partition.error.code());
        self.head.put_i64(partition.high_watermark);
        self.head.put_i64(partition.last_stable_offset);
        if self.version >= 5 {
            self.head.put_i64(partition.log_start_offset);
        }
        let aborted = partition.aborted_transactions;
        self.length(aborted.as_ref().map(Vec::len))?;
        for transaction in aborted.unwrap_or_default() {
            self.head.put_i64(transaction.producer_id);
            self.head.put_i64(transaction.first_offset);
            self.no_tags();
        }
        if self.version >= 11 {
            self.head.put_i32(partition.preferred_read_replica);
        }
        self.records(partition.records)?;
        match partition.diverging_epoch {
            Some(diverging) if self.is_flexible() => self.diverging_epoch(diverging),
            _ => self.no_tags(),
        }
        Ok(())
    }

    fn records(&mut self, records: Vec<Bytes>) -> Result<(), &'static str> {
        let bytes = records.iter().map(Bytes::len).sum();
        self.length(Some(bytes))?;
        self.records_bytes += bytes;
        let position = self.head.len();
        let filled = records.into_iter().filter(|slice| !slice.is_empty());
        self.cuts.extend(filled.map(|slice| (position, slice)));
        Ok(())
    }

    /// The tag section of a partition with one tag: 0, the diverging epoch.
    fn diverging_epoch(&mut self, diverging: DivergingEpoch) {
        const EPOCH_BYTES: u8 = 4 + 8 + 1;
        self.head.put_slice(&[1, 0, EPOCH_BYTES]);
        self.head.put_i32(diverging.epoch);
        self.head.put_i64(diverging.end_offset);
        self.no_tags();
    }

    fn is_flexible(&self) -> bool {
        self.version >= FLEXIBLE_SINCE
    }

    /// The empty tag section that ends a structure at flexible versions.
    fn no_tags(&mut self) {
        if self.is_flexible() {
            self.head.put_u8(0);
        }
    }

    /// The length of an array or of records; `None` is null.
    fn length(&mut self, length: Option<usize>) -> Result<(), &'static str> {
        let length = length.map(i32::try_from).transpose().map_err(|_| "a length is too large")?;
        if self.is_flexible() {
            self.varint(length.map_or(0, |length| length.unsigned_abs() + 1));
        } else {
            self.head.put_i32(length.unwrap_or(-1));
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), &'static str> {
        let length = i16::try_from(text.len()).map_err(|_| "a topic's name is too long")?;
        if self.is_flexible() {
            self.length(Some(text.len()))?;
        } else {
            self.head.put_i16(length);
        }
        self.head.put_slice(text.as_bytes());
        Ok(())
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.head.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.head.put_u8(value as u8);
    }

    /// Fills in the frame's length, and lays the records between the other bytes.
    fn finish(mut self) -> Result<Response, &'static str> {
        let length = self.head.len() - LENGTH_BYTES + self.records_bytes;
        let length = i32::try_from(length).map_err(|_| "the frame is too large")?;
        self.head[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        let head = self.head.freeze();
        let mut parts = Vec::with_capacity(2 * self.cuts.len() + 1);
        let mut at = 0;
        for (position, records) in self.cuts {
            if position > at {
                parts.push(head.slice(at..position));
                at = position;
            }
            parts.push(records);
        }
        if at < head.len() {
            parts.push(head.slice(at..));
        }
        Ok(Response::from_parts(parts))
    }
}
