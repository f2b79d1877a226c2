//! A gzip file of parts that were compressed apart. The deflate blocks of a part refer to nothing
//! before them and end with a whole byte, so they may stand behind any others. All of them are one
//! member, as any compressor writes it: of files of several, some readers take the first alone.

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};
use floe_env::{Error, Result};

/// Without a name and a time, so that the same parts are the same bytes; compressed fast, on an
/// unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// A last block that is empty.
const LAST_BLOCK: [u8; 2] = [0x03, 0x00];
/// How much smaller than their bytes blocks are taken to be, until they turn out larger.
const RATIO_GUESS: usize = 4;
/// Room for blocks at least: what ends them must fit into what is left.
const ROOM_BYTES_MIN: usize = 1024;

/// Some bytes, and their blocks.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) plain: Bytes,
    blocks: Bytes,
    crc: Crc,
}

/// Compresses parts, one behind the other.
pub(super) struct Packer(Compress);

impl Packer {
    pub(super) fn new() -> Self {
        Self(Compress::new(Compression::fast(), false))
    }

    pub(super) fn part(&mut self, plain: Vec<u8>) -> Result<Part> {
        let blocks = self.blocks(&plain)?;
        let mut crc = Crc::new();
        crc.update(&plain);
        // Both are kept for long: without the room that they have left.
        let (plain, blocks) = (plain.into_boxed_slice(), blocks.into_boxed_slice());
        Ok(Part { plain: plain.into(), blocks: blocks.into(), crc })
    }

    fn blocks(&mut self, plain: &[u8]) -> Result<Vec<u8>> {
        self.0.reset();
        let mut blocks = Vec::with_capacity(plain.len() / RATIO_GUESS + ROOM_BYTES_MIN);
        loop {
            let taken = usize::try_from(self.0.total_in()).unwrap_or(plain.len());
            let rest = plain.get(taken..).unwrap_or_default();
            self.0
                .compress_vec(rest, &mut blocks, FlushCompress::Sync)
                .map_err(|error| Error::bug("compress table metadata").with_source(error))?;
            // Room is left, so nothing is held back.
            if blocks.len() < blocks.capacity() {
                return Ok(blocks);
            }
            blocks.reserve(blocks.len().max(ROOM_BYTES_MIN));
        }
    }
}

/// The file of all parts, in pieces.
pub(super) fn file<'a>(parts: impl Iterator<Item = &'a Part>) -> Vec<Bytes> {
    let (mut pieces, mut crc) = (vec![Bytes::from_static(&HEADER)], Crc::new());
    for part in parts {
        pieces.push(part.blocks.clone());
        crc.combine(&part.crc);
    }
    let mut end = LAST_BLOCK.to_vec();
    end.extend_from_slice(&crc.sum().to_le_bytes());
    end.extend_from_slice(&crc.amount().to_le_bytes());
    pieces.push(Bytes::from(end));
    pieces
}
