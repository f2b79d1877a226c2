//! The five codecs of record batches, with a limit on what decompression may produce.
//!
//! Every decompression stops at its limit: the output buffer's capacity never grows beyond it,
//! whatever the input claims. Besides the output, working memory is a constant of the codec: at
//! most 13 MiB (lz4 with blocks of 4 MiB), 64 KiB (gzip), 256 KiB (zstd, whose window is the
//! output itself), nothing (snappy).

mod snappy;
mod zstd_frames;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Read, Write};

/// Least step by which an output buffer grows.
const GROWTH_BYTES_MIN: usize = 16 * 1024;
const LZ4_FRAME_MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();

/// How a batch's records are compressed (attribute bits 0-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    /// Not at all.
    None,
    /// Gzip; several members one behind the other are read as one.
    Gzip,
    /// Snappy: written in xerial's framing as Java does, read in that or as one raw block.
    Snappy,
    /// LZ4's frame format, one frame.
    Lz4,
    /// Zstandard, one or more frames.
    Zstd,
}

/// Why bytes were not decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// They decompress to more than the limit.
    #[error("decompresses to more than {bytes_max} bytes")]
    OutputLimit {
        /// The limit.
        bytes_max: usize,
    },
    /// They are not what the codec writes.
    #[error("corrupt: {reason}")]
    Corrupt {
        /// The codec's own words.
        reason: String,
    },
}

impl Codec {
    /// Every codec, in the order of their bits.
    pub const ALL: [Codec; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of these attribute bits, `None` for 5, 6 and 7.
    pub fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.get(usize::from(bits)).copied()
    }

    /// Attribute bits 0-2.
    pub fn bits(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

/// Decompresses `input` to at most `bytes_max` bytes; without a codec it is borrowed as it is,
/// whatever its length.
///
/// # Errors
/// `OutputLimit`, `Corrupt`.
pub fn decompress(
    codec: Codec,
    input: &[u8],
    bytes_max: usize,
) -> Result<Cow<'_, [u8]>, CodecError> {
    let output = match codec {
        Codec::None => return Ok(Cow::Borrowed(input)),
        Codec::Gzip => {
            let mut output = Vec::new();
            let mut decoder = MultiGzDecoder::new(input);
            read_to_limit(&mut decoder, input.len().saturating_mul(4), bytes_max, &mut output)?;
            output
        }
        Codec::Snappy => snappy::decompress(input, bytes_max)?,
        Codec::Lz4 => decompress_lz4(input, bytes_max)?,
        Codec::Zstd => zstd_frames::decompress(input, bytes_max)?,
    };
    Ok(Cow::Owned(output))
}

/// Compresses `input`. The level is the codec's own (gzip 1-9, zstd -131072 to 22; snappy and lz4
/// have none), clamped to what it knows; `None` is its default.
pub fn compress(codec: Codec, level: Option<i32>, input: &[u8]) -> Vec<u8> {
    match codec {
        Codec::None => input.to_vec(),
        Codec::Gzip => {
            let level = match level {
                Some(level) => Compression::new(level.clamp(1, 9) as u32),
                None => Compression::default(),
            };
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(input).expect("a vector takes every write");
            encoder.finish().expect("a vector takes every write")
        }
        Codec::Snappy => snappy::compress(input),
        Codec::Lz4 => {
            // Java reads independent blocks only, and expects its own 64 KiB.
            let frame =
                FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
            let mut encoder = FrameEncoder::with_frame_info(frame, Vec::new());
            encoder.write_all(input).expect("a vector takes every write");
            encoder.finish().expect("a vector takes every write")
        }
        Codec::Zstd => {
            let levels = zstd::compression_level_range();
            let level = level
                .unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL)
                .clamp(*levels.start(), *levels.end());
            zstd::bulk::compress(input, level).expect("the output buffer has the bound's size")
        }
    }
}

fn decompress_lz4(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, CodecError> {
    // The library would also read the legacy format, which no Kafka client writes.
    if !input.starts_with(&LZ4_FRAME_MAGIC) {
        return Err(corrupt("no lz4 frame"));
    }
    let mut output = Vec::new();
    let mut decoder = FrameDecoder::new(input);
    read_to_limit(&mut decoder, input.len().saturating_mul(4), bytes_max, &mut output)?;
    if !decoder.get_ref().is_empty() {
        return Err(corrupt("bytes left over behind the lz4 frame"));
    }
    Ok(output)
}

/// Reads to the end, into a buffer whose capacity never passes `bytes_max`.
fn read_to_limit(
    reader: &mut impl Read,
    expected: usize,
    bytes_max: usize,
    output: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let mut step = expected.max(GROWTH_BYTES_MIN);
    let mut filled = 0;
    loop {
        if filled == output.len() {
            let grown = filled.saturating_add(step).min(bytes_max);
            if grown == filled {
                return probe_end(reader, bytes_max);
            }
            output.reserve_exact(grown - filled);
            output.resize(grown, 0);
            step = grown;
        }
        match reader.read(&mut output[filled..]) {
            Ok(0) => {
                output.truncate(filled);
                return Ok(());
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(corrupt(error)),
        }
    }
}

/// At the limit, the input must be at its end.
fn probe_end(reader: &mut impl Read, bytes_max: usize) -> Result<(), CodecError> {
    match reader.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(CodecError::OutputLimit { bytes_max }),
        Err(error) => Err(corrupt(error)),
    }
}

fn corrupt(reason: impl fmt::Display) -> CodecError {
    CodecError::Corrupt { reason: reason.to_string() }
}
