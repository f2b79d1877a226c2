//! Reading `.kfs` version 1, as KafScale writes it: one partition per object, an index beside it.
//!
//! ```text
//! segment: "KAFS" | version u16 = 1 | flags u16 | base offset i64 | message count i32
//!          | created ms i64 | reserved u32 | batches ... | crc u32 of the batches
//!          | last offset i64 | "END!"
//! index:   "IDX\0" | version u16 = 1 | entries i32 | interval i32 | reserved u16
//!          | { base offset i64 | position i32 }*
//! ```
//!
//! What the batches say counts: the header's counts and offsets are handed out as they stand.
//! An index may be missing, and can be made again from the batches.

use crate::batch::{Batches, batches};
use crate::bytes_io::{ReadError, Reader};
use crate::container::FormatError;
use crate::error::BatchError;

/// Bytes before the batches.
pub const V1_HEADER_LEN: usize = 32;
/// Bytes behind the batches.
pub const V1_FOOTER_LEN: usize = 16;
const VERSION: u16 = 1;
const MAGIC: [u8; 4] = *b"KAFS";
const END_MAGIC: [u8; 4] = *b"END!";
const INDEX_MAGIC: [u8; 4] = *b"IDX\0";
const INDEX_ENTRY_LEN: usize = 12;

/// A whole segment of version 1, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct V1Segment<'a> {
    /// Offset of the first record, as the header says.
    pub base_offset: i64,
    /// Records, as the header says.
    pub message_count: i32,
    /// When it was made, milliseconds since the epoch.
    pub created_ms: i64,
    /// Offset of the last record, as the footer says.
    pub last_offset: i64,
    body: &'a [u8],
}

impl<'a> V1Segment<'a> {
    /// Parses a whole segment and verifies the checksum of its batches.
    ///
    /// # Errors
    /// `NotKfs`, `Truncated`, `TooNew` for a version above 1, `Invalid` for version 0,
    /// `Checksum`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(FormatError::NotKfs);
        }
        let body_len = bytes
            .len()
            .checked_sub(V1_HEADER_LEN + V1_FOOTER_LEN)
            .ok_or(FormatError::Truncated("segment"))?;
        let (header, rest) = bytes.split_at(V1_HEADER_LEN);
        let (body, footer) = rest.split_at(body_len);
        let cut_short = |_: ReadError| FormatError::Truncated("segment");
        let mut header = Reader::new(&header[MAGIC.len()..]);
        check_version(header.u16().map_err(cut_short)?)?;
        let _flags = header.u16().map_err(cut_short)?;
        let base_offset = header.u64().map_err(cut_short)? as i64;
        let message_count = header.u32().map_err(cut_short)? as i32;
        let created_ms = header.u64().map_err(cut_short)? as i64;
        let mut footer = Reader::new(footer);
        let crc = footer.u32().map_err(cut_short)?;
        let last_offset = footer.u64().map_err(cut_short)? as i64;
        if footer.rest() != END_MAGIC {
            return Err(FormatError::Truncated("segment"));
        }
        if crc32c::crc32c(body) != crc {
            return Err(FormatError::Checksum("batches"));
        }
        Ok(Self { base_offset, message_count, created_ms, last_offset, body })
    }

    /// The batches, strictly: a torn one is an error.
    pub fn batches(&self) -> Batches<'a> {
        batches(self.body)
    }

    /// The index that belongs beside the segment: an entry for the first batch, and then for each
    /// that follows `interval` or more records behind an entry's.
    ///
    /// # Errors
    /// As [`batches`].
    pub fn build_index(&self, interval: i32) -> Result<Vec<V1IndexEntry>, BatchError> {
        let mut entries = Vec::new();
        let mut position = V1_HEADER_LEN as u64;
        let mut records_since = 0_i64;
        for batch in self.batches() {
            let batch = batch?;
            if entries.is_empty() || records_since >= i64::from(interval) {
                entries.push(V1IndexEntry { offset: batch.header.base_offset, position });
                records_since = 0;
            }
            records_since += i64::from(batch.header.record_count);
            position += batch.bytes().len() as u64;
        }
        Ok(entries)
    }
}

/// The index beside a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V1Index {
    /// Records between two entries, at least.
    pub interval: i32,
    /// The entries, in the order they stand.
    pub entries: Vec<V1IndexEntry>,
}

/// A batch from which reading can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V1IndexEntry {
    /// The batch's base offset.
    pub offset: i64,
    /// The batch's first byte, from the segment's start.
    pub position: u64,
}

impl V1Index {
    /// Parses an index. Bytes behind the last entry are passed over, as KafScale does.
    ///
    /// # Errors
    /// `NotKfs`, `Truncated`, `TooNew` or `Invalid` for a version other than 1, `Invalid` for a
    /// negative count or position.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let rest = bytes.strip_prefix(&INDEX_MAGIC).ok_or(FormatError::NotKfs)?;
        let cut_short = |_: ReadError| FormatError::Truncated("index");
        let mut reader = Reader::new(rest);
        check_version(reader.u16().map_err(cut_short)?)?;
        let count = reader.u32().map_err(cut_short)? as i32;
        let interval = reader.u32().map_err(cut_short)? as i32;
        let _reserved = reader.u16().map_err(cut_short)?;
        let count = usize::try_from(count).map_err(|_| FormatError::Invalid("entry count"))?;
        // Counted against what is there before anything is allocated.
        if count > reader.rest().len() / INDEX_ENTRY_LEN {
            return Err(FormatError::Truncated("index"));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let offset = reader.u64().map_err(cut_short)? as i64;
            let position = reader.u32().map_err(cut_short)? as i32;
            let position =
                u64::try_from(position).map_err(|_| FormatError::Invalid("index position"))?;
            entries.push(V1IndexEntry { offset, position });
        }
        Ok(Self { interval, entries })
    }
}

fn check_version(version: u16) -> Result<(), FormatError> {
    match version {
        VERSION => Ok(()),
        0 => Err(FormatError::Invalid("version")),
        _ => Err(FormatError::TooNew { version, min_reader: version }),
    }
}
