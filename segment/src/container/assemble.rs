//! An object's bytes as slices: large batches as they came, small pieces copied side by side.

use bytes::{Bytes, BytesMut};

/// A piece up to this size is copied: cheaper than a slice of its own in a vectored write.
const COPY_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a block that copied pieces go into.
const BLOCK_BYTES: usize = 64 * 1024;

/// Collects slices.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    parts: Vec<Bytes>,
    block: BytesMut,
    position: u64,
}

impl Assembler {
    /// Bytes so far, those taken included.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Appends a copy.
    pub(super) fn copy(&mut self, piece: &[u8]) {
        if self.block.len() + piece.len() > self.block.capacity() {
            self.close_block();
            self.block = BytesMut::with_capacity(piece.len().max(BLOCK_BYTES));
        }
        self.block.extend_from_slice(piece);
        self.position += piece.len() as u64;
    }

    /// Appends a slice, copied only if it is small.
    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.len() <= COPY_BYTES_MAX {
            return self.copy(&piece);
        }
        self.close_block();
        self.position += piece.len() as u64;
        self.parts.push(piece);
    }

    /// Takes the slices so far.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        self.close_block();
        std::mem::take(&mut self.parts)
    }

    /// What was copied so far becomes a slice; the block's rest serves the next pieces.
    fn close_block(&mut self) {
        if !self.block.is_empty() {
            self.parts.push(self.block.split().freeze());
        }
    }
}
