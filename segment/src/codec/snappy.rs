//! Snappy, raw or in the framing of xerial's `snappy-java`, which Java clients write.
//!
//! ```text
//! 82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | version i32 | least compatible version i32
//! { length i32 | raw snappy block }*
//! ```

use super::{CodecError, corrupt};
use crate::bytes_io::Reader;
use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

const XERIAL_MAGIC: [u8; 8] = *b"\x82SNAPPY\x00";
const XERIAL_HEADER_LEN: usize = 16;
const XERIAL_VERSION: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// Input bytes of one block, as Kafka's Java producer cuts them.
const BLOCK_BYTES: usize = 32 * 1024;
/// An element of 3 bytes yields 64 at most; a block that claims more lies about its length.
const EXPANSION_MAX: usize = 22;

pub(super) fn decompress(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, CodecError> {
    let mut output = Vec::new();
    if !input.starts_with(&XERIAL_MAGIC) {
        append_block(input, bytes_max, &mut output)?;
        return Ok(output);
    }
    let mut rest = input;
    while !rest.is_empty() {
        // Streams put one behind the other repeat the header.
        if rest.starts_with(&XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER_LEN..).ok_or_else(cut_short)?;
            continue;
        }
        let mut reader = Reader::new(rest);
        let length = reader.u32().map_err(|_| cut_short())?;
        let block = reader.bytes(length as usize).map_err(|_| cut_short())?;
        append_block(block, bytes_max, &mut output)?;
        rest = reader.rest();
    }
    Ok(output)
}

pub(super) fn compress(input: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(XERIAL_HEADER_LEN + input.len() / 2);
    output.extend_from_slice(&XERIAL_MAGIC);
    output.extend_from_slice(&XERIAL_VERSION);
    let mut encoder = Encoder::new();
    let mut compressed = vec![0; max_compress_len(BLOCK_BYTES)];
    for block in input.chunks(BLOCK_BYTES) {
        let length =
            encoder.compress(block, &mut compressed).expect("the buffer has the bound's size");
        output.extend_from_slice(&(length as u32).to_be_bytes());
        output.extend_from_slice(&compressed[..length]);
    }
    output
}

fn append_block(block: &[u8], bytes_max: usize, output: &mut Vec<u8>) -> Result<(), CodecError> {
    let length = decompress_len(block).map_err(corrupt)?;
    let start = output.len();
    if length > bytes_max - start {
        return Err(CodecError::OutputLimit { bytes_max });
    }
    if length > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(corrupt("block claims more than it can hold"));
    }
    if output.capacity() - start < length {
        // Doubling, but never past the limit.
        let capacity = (start * 2).max(start + length).min(bytes_max);
        output.reserve_exact(capacity - start);
    }
    output.resize(start + length, 0);
    Decoder::new().decompress(block, &mut output[start..]).map_err(corrupt)?;
    Ok(())
}

fn cut_short() -> CodecError {
    corrupt("xerial block is cut short")
}
