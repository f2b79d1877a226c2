//! A section's batches in a few pieces of memory of just their size: each batch is copied into one
//! once, which lets its request's frame go, and nothing is ever moved again. No batch spans two
//! pieces, so that each piece becomes a block of the cache as it is.

use bytes::{Bytes, BytesMut};

/// The largest piece that holds more than one batch, bytes: the cache's unit.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Copies the batches into pieces, in order, and lets `patch` change each copy.
pub(crate) fn gather(batches: Vec<Bytes>, patch: impl Fn(&mut [u8])) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut rest = &batches[..];
    while !rest.is_empty() {
        let (count, bytes) = next_piece(rest);
        let mut piece = BytesMut::with_capacity(bytes);
        for batch in &rest[..count] {
            let start = piece.len();
            piece.extend_from_slice(batch);
            patch(&mut piece[start..]);
        }
        pieces.push(piece.freeze());
        rest = &rest[count..];
    }
    pieces
}

/// How many batches the next piece takes, at least one, and their bytes.
fn next_piece(batches: &[Bytes]) -> (usize, usize) {
    let mut bytes = 0;
    for (at, batch) in batches.iter().enumerate() {
        if at > 0 && bytes + batch.len() > CHUNK_BYTES_MAX {
            return (at, bytes);
        }
        bytes += batch.len();
    }
    (batches.len(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_come_out_in_order_whole_and_patched() {
        let sizes = [10, 5000, 1, 3 << 20, 700_000, 700_000, 20];
        let batches: Vec<Bytes> =
            sizes.iter().map(|size| Bytes::from(vec![*size as u8; *size])).collect();
        let mut expected = batches.concat();
        let mut start = 0;
        for size in sizes {
            expected[start] = 9;
            start += size;
        }
        let pieces = gather(batches, |copy| copy[0] = 9);
        assert_eq!(pieces.concat(), expected);
        let lengths: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [5011, 3 << 20, 700_000, 700_020]);
    }

    #[test]
    fn a_piece_can_be_patched_in_place_once_nobody_else_has_it() {
        let pieces = gather(vec![Bytes::from_static(b"batch")], |_| {});
        assert!(pieces.into_iter().next().expect("one").try_into_mut().is_ok());
    }

    #[test]
    fn no_batches_are_no_piece() {
        assert!(gather(Vec::new(), |_| {}).is_empty());
    }
}
