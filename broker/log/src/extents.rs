//! From an extent's bytes to blocks: whole batches with their base offsets set. Used for what comes
//! from the store and for what this broker has just written.

use crate::blocks::{Block, BlockMemory, Blocks};
use crate::chunks::CHUNK_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use floe_env::{Error, Result};
use floe_metadata::rows::{Extent, Place};
use kfs::{BatchHeader, Marker, OffsetMode, TimestampType};
use std::ops::Range;
use std::sync::Arc;

/// Makes the blocks of an extent from all of its bytes as stored, given in pieces of whole batches,
/// each of which becomes a block, and counts them in `memory`. A piece that nobody else has is
/// patched in place. With `verify`, each batch's checksum is checked.
///
/// Errors: `Corrupt` where the bytes are not the batches that the extent names.
pub(crate) fn to_blocks(
    extent: &Extent,
    pieces: Vec<Bytes>,
    verify: bool,
    memory: &BlockMemory,
) -> Result<Blocks> {
    let mut blocks = Vec::with_capacity(pieces.len());
    let mut next_offset = extent.base_offset;
    for piece in pieces {
        let base_offset = next_offset;
        let (bytes, end_offset) = patch(extent, piece, base_offset, verify)?;
        next_offset = end_offset;
        let (last_offset, bytes) = (next_offset - 1, memory.count(bytes));
        blocks.push(Block { base_offset, last_offset, bytes });
    }
    // Compaction leaves holes, and an extent reaches over the one behind its last batch.
    let is_whole = match extent.offset_mode {
        OffsetMode::Relative => next_offset == extent.last_offset + 1,
        OffsetMode::Absolute => next_offset <= extent.last_offset + 1,
    };
    if !is_whole {
        let found =
            format!("extent ends at {} but its batches at {next_offset}", extent.last_offset);
        return Err(Error::corrupt(found));
    }
    Ok(Arc::new(blocks))
}

/// Cuts an extent's bytes into pieces of whole batches, each of [`CHUNK_BYTES_MAX`] at most or of
/// one batch. What is no batch is one piece with all behind it, which [`to_blocks`] refuses.
pub(crate) fn split(bytes: &Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let (mut start, mut end) = (0, 0);
    while end < bytes.len() {
        let rest = bytes.len() - end;
        let length = header_at(bytes, end).map_or(rest, |header| header.total_len());
        if end > start && end + length - start > CHUNK_BYTES_MAX {
            pieces.push(bytes.slice(start..end));
            start = end;
        }
        end += length;
    }
    pieces.push(bytes.slice(start..));
    pieces
}

/// The blocks of an extent that has no bytes in any object: a marker's control batch, which is made
/// here, and nothing of a hole.
pub(crate) fn made_blocks(extent: &Extent) -> Blocks {
    let Place::Marker { producer, epoch, commit, coordinator_epoch, timestamp_ms } = &extent.place
    else {
        return Arc::default();
    };
    let marker = if *commit { Marker::Commit } else { Marker::Abort };
    let made = kfs::control_batch(marker, *producer, *epoch, *coordinator_epoch, *timestamp_ms);
    let mut bytes = BytesMut::from(&made[..]);
    if extent.timestamp_type == TimestampType::LogAppendTime {
        kfs::set_timestamps(&mut bytes, extent.timestamp_type, *timestamp_ms);
    }
    kfs::set_base_offset(&mut bytes, extent.base_offset);
    kfs::set_leader_epoch(&mut bytes, LEADER_EPOCH);
    let (base_offset, last_offset) = (extent.base_offset, extent.last_offset);
    Arc::new(vec![Block { base_offset, last_offset, bytes: bytes.freeze() }])
}

/// A piece with its base offsets and leader epochs set, and the offset behind it.
fn patch(
    extent: &Extent,
    piece: Bytes,
    first_offset: i64,
    verify: bool,
) -> Result<(BytesMut, i64)> {
    let mut bytes = writable(piece);
    let mut next_offset = first_offset;
    let mut position = 0;
    while position < bytes.len() {
        let header = header_at(&bytes, position)?;
        let end = position + header.total_len();
        let batch = &mut bytes[position..end];
        if verify {
            kfs::verify_crc(batch)
                .map_err(|error| Error::corrupt("a batch in an object").with_source(error))?;
        }
        let batch_offset = match extent.offset_mode {
            OffsetMode::Relative => next_offset,
            OffsetMode::Absolute => header.base_offset,
        };
        if batch_offset < next_offset {
            return Err(Error::corrupt("offsets in an object do not grow"));
        }
        kfs::set_base_offset(batch, batch_offset);
        kfs::set_leader_epoch(batch, LEADER_EPOCH);
        next_offset = batch_offset + i64::from(header.last_offset_delta) + 1;
        position = end;
    }
    Ok((bytes, next_offset))
}

/// The leader epoch of every batch of every partition, for ever: nothing is ever truncated.
pub const LEADER_EPOCH: i32 = 0;

fn writable(piece: Bytes) -> BytesMut {
    piece.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]))
}

fn header_at(bytes: &[u8], position: usize) -> Result<BatchHeader> {
    let rest = &bytes[position..];
    let header = BatchHeader::parse(rest)
        .map_err(|error| Error::corrupt("a batch header in an object").with_source(error))?;
    if header.total_len() > rest.len() || header.last_offset_delta < 0 {
        return Err(Error::corrupt("a batch in an object reaches past its extent"));
    }
    Ok(header)
}

/// The batches of a block from the one that holds the range's start and below its end: their bytes
/// up to `bytes_max`, but at least one batch. `None` where there is none in the block.
pub(crate) fn slice_of(block: &Block, offsets: Range<i64>, bytes_max: usize) -> Option<Bytes> {
    let is_inside = offsets.start <= block.base_offset && block.last_offset < offsets.end;
    if is_inside && block.bytes.len() <= bytes_max {
        return Some(block.bytes.clone());
    }
    let mut start = None;
    let mut position = 0;
    while let Ok(header) = BatchHeader::parse(&block.bytes[position..]) {
        let end = position + header.total_len();
        if header.base_offset >= offsets.end {
            break;
        }
        let first = *match start {
            None if header.last_offset() < offsets.start => {
                position = end;
                continue;
            }
            None => start.insert(position),
            Some(ref mut first) => first,
        };
        if end - first > bytes_max && position > first {
            return Some(block.bytes.slice(first..position));
        }
        position = end;
    }
    start.map(|first| block.bytes.slice(first..position))
}
