//! Zstandard without a window: the frames' blocks are counted first, which bounds the output
//! closely, and everything is then decompressed at once into a buffer of that size. So a frame
//! that asks for a window of 128 MiB, as Java's level 22 does, costs nothing.

use super::{CodecError, corrupt};
use crate::bytes_io::{ReadError, Reader};
use zstd::zstd_safe::{DCtx, get_error_name};

const FRAME_MAGIC: u32 = 0xFD2F_B528;
/// 16 magics in a row mark frames to be skipped.
const SKIPPABLE_MAGIC_MASK: u32 = 0xFFFF_FFF0;
const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;
const BLOCK_BYTES_MAX: u64 = 128 * 1024;
/// The library's name for an output buffer that does not suffice; its codes have no constant.
const OUTPUT_TOO_SMALL: &str = "Destination buffer is too small";

pub(super) fn decompress(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, CodecError> {
    let bound = output_bound(input)?;
    let capacity = usize::try_from(bound).unwrap_or(usize::MAX).min(bytes_max);
    let mut output = Vec::with_capacity(capacity);
    let mut context = DCtx::try_create().ok_or_else(|| corrupt("no memory for a context"))?;
    match context.decompress(&mut output, input) {
        Ok(_) => Ok(output),
        Err(code) if get_error_name(code) == OUTPUT_TOO_SMALL && bound > bytes_max as u64 => {
            Err(CodecError::OutputLimit { bytes_max })
        }
        Err(code) => Err(corrupt(get_error_name(code))),
    }
}

/// The most that the frames can decompress to: exact for raw and run-length blocks, 128 KiB for
/// each compressed block.
fn output_bound(input: &[u8]) -> Result<u64, CodecError> {
    let mut reader = Reader::new(input);
    let mut bound = 0_u64;
    while !reader.is_empty() {
        bound = bound.saturating_add(frame_bound(&mut reader).map_err(|_| cut_short())?);
    }
    Ok(bound)
}

fn frame_bound(reader: &mut Reader<'_>) -> Result<u64, ReadError> {
    let magic = u32::from_le_bytes(reader.array()?);
    if magic & SKIPPABLE_MAGIC_MASK == SKIPPABLE_MAGIC {
        let length = u32::from_le_bytes(reader.array()?);
        reader.bytes(length as usize)?;
        return Ok(0);
    }
    if magic != FRAME_MAGIC {
        return Err(ReadError::Overflow);
    }
    let descriptor = reader.u8()?;
    let single_segment = descriptor & 0x20 != 0;
    let window_len = usize::from(!single_segment);
    let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_len = match descriptor >> 6 {
        0 => usize::from(single_segment),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    reader.bytes(window_len + dictionary_len + size_len)?;
    let mut bound = 0;
    loop {
        let [low, middle, high] = reader.array()?;
        let header = u32::from_le_bytes([low, middle, high, 0]);
        let size = u64::from(header >> 3);
        let (stored, decompressed) = match header >> 1 & 3 {
            0 => (size, size),
            1 => (1, size),
            _ => (size, BLOCK_BYTES_MAX),
        };
        reader.bytes(stored as usize)?;
        bound += decompressed.min(BLOCK_BYTES_MAX);
        if header & 1 == 1 {
            break;
        }
    }
    if descriptor & 4 != 0 {
        reader.u32()?;
    }
    Ok(bound)
}

fn cut_short() -> CodecError {
    corrupt("zstd frame is cut short or none")
}
