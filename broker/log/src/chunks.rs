//! A growing run of bytes in a few large pieces: a batch is copied into it once, and nothing is
//! ever moved again. No batch spans two pieces, so that each piece becomes a block of the cache as
//! it is.

use bytes::{Bytes, BytesMut};

/// The first piece of a section, bytes: most sections are small.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// The largest piece that holds more than one batch, bytes: the cache's unit.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The pieces.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    full: Vec<Bytes>,
    open: BytesMut,
    len: usize,
}

impl Chunks {
    /// Copies one batch to the end, and lets `patch` change the copy.
    pub(crate) fn push(&mut self, batch: &[u8], patch: impl FnOnce(&mut [u8])) {
        if self.open.capacity() - self.open.len() < batch.len() {
            let wanted = (self.len * 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).max(batch.len());
            let full = std::mem::replace(&mut self.open, BytesMut::with_capacity(wanted));
            if !full.is_empty() {
                self.full.push(full.freeze());
            }
        }
        let start = self.open.len();
        self.open.extend_from_slice(batch);
        patch(&mut self.open[start..]);
        self.len += batch.len();
    }

    /// The pieces, in order.
    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.full.push(self.open.freeze());
        }
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_come_out_in_order_whole_and_patched() {
        let mut chunks = Chunks::default();
        let mut expected = Vec::new();
        for size in [10, 5000, 1, 3 << 20, 700_000, 700_000, 20] {
            let batch = vec![size as u8; size];
            chunks.push(&batch, |copy| copy[0] = 9);
            expected.push(9);
            expected.extend_from_slice(&batch[1..]);
        }
        let pieces = chunks.finish();
        assert_eq!(pieces.concat(), expected);
        assert!(
            pieces.iter().all(|piece| piece.len() == 3 << 20 || piece.len() <= CHUNK_BYTES_MAX)
        );
    }

    #[test]
    fn nothing_pushed_is_no_piece() {
        assert!(Chunks::default().finish().is_empty());
    }
}
