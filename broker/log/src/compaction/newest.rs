//! The newest offset of each key: what a pass learns from the part of a log that it has not cleaned
//! before. Keys are told apart by 128 bits of a hash with a secret seed, as Kafka does by an MD5,
//! so that an entry has the same few bytes whatever the key.
//!
//! The table has a fixed size. Where no more keys have room, the pass ends at the record before the
//! first that had none, and the next one goes on from there.

use std::hash::{DefaultHasher, Hasher};

/// Bytes of one entry.
pub(crate) const ENTRY_BYTES: usize = size_of::<Entry>();
/// Of so many slots ...
const SLOTS_OF: usize = 4;
/// ... so many are used: the fuller a table, the longer a search.
const SLOTS_USED: usize = 3;
/// No offset: the slot is empty.
const EMPTY: i64 = -1;

#[derive(Clone, Copy)]
struct Entry {
    hash: [u64; 2],
    offset: i64,
}

/// The newest offset of each key of a range of the log.
pub(crate) struct NewestOffsets {
    seed: u64,
    entries: Vec<Entry>,
    used: usize,
    /// Up to here every key is known: nothing behind it may be judged.
    latest: i64,
}

/// There is no room for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl NewestOffsets {
    /// For a range of `offsets` offsets behind `latest`, in `bytes_max` bytes at most.
    pub(crate) fn new(seed: u64, latest: i64, offsets: u64, bytes_max: usize) -> Self {
        let wanted = usize::try_from(offsets).unwrap_or(usize::MAX);
        let slots = wanted.saturating_mul(SLOTS_OF) / SLOTS_USED + 1;
        let slots = slots.min(bytes_max / ENTRY_BYTES).max(SLOTS_OF);
        let entries = vec![Entry { hash: [0; 2], offset: EMPTY }; slots];
        Self { seed, entries, used: 0, latest }
    }

    /// The offset up to which every key is known.
    pub(crate) fn latest(&self) -> i64 {
        self.latest
    }

    /// Everything up to this offset has been seen.
    pub(crate) fn saw(&mut self, offset: i64) {
        self.latest = self.latest.max(offset);
    }

    /// Notes a key's record, whose offset is above all noted before.
    pub(crate) fn note(&mut self, key: &[u8], offset: i64) -> Result<(), Full> {
        let hash = self.hash(key);
        let slot = self.find(hash);
        if self.entries[slot].offset == EMPTY {
            if self.used >= self.entries.len() / SLOTS_OF * SLOTS_USED {
                return Err(Full);
            }
            self.used += 1;
        }
        self.entries[slot] = Entry { hash, offset };
        self.saw(offset);
        Ok(())
    }

    /// The newest offset that was noted of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<i64> {
        let offset = self.entries[self.find(self.hash(key))].offset;
        (offset != EMPTY).then_some(offset)
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.seed, !self.seed].map(|seed| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(seed);
            hasher.write(key);
            hasher.finish()
        })
    }

    /// The slot of a hash, or the empty one where it would stand.
    fn find(&self, hash: [u64; 2]) -> usize {
        let slots = self.entries.len();
        let mut slot = (hash[0] % slots as u64) as usize;
        loop {
            let entry = &self.entries[slot];
            if entry.offset == EMPTY || entry.hash == hash {
                return slot;
            }
            slot = (slot + 1) % slots;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_offset_of_each_key_is_found() {
        let mut newest = NewestOffsets::new(7, 9, 1_000, usize::MAX);
        assert_eq!((newest.latest(), newest.get(b"a")), (9, None));
        for offset in 10..1_010 {
            newest.note(format!("key {}", offset % 300).as_bytes(), offset).unwrap();
        }
        for key in 0..300i64 {
            let last = (10..1_010).rev().find(|offset| offset % 300 == key);
            assert_eq!(newest.get(format!("key {key}").as_bytes()), last);
        }
        assert_eq!((newest.latest(), newest.get(b"key 300")), (1_009, None));
        newest.saw(1_020);
        assert_eq!(newest.latest(), 1_020);
    }

    #[test]
    fn a_full_table_takes_no_new_key_but_known_ones() {
        let mut newest = NewestOffsets::new(7, -1, 1 << 40, 100 * ENTRY_BYTES);
        for offset in 0..75 {
            newest.note(&[offset as u8], offset).unwrap();
        }
        assert_eq!(newest.note(b"another", 75), Err(Full));
        assert_eq!(newest.latest(), 74, "not beyond what it knows");
        newest.note(&[3], 76).unwrap();
        assert_eq!((newest.get(&[3]), newest.get(b"another")), (Some(76), None));
    }

    #[test]
    fn a_table_is_no_larger_than_its_range() {
        assert_eq!(NewestOffsets::new(7, -1, 30, usize::MAX).entries.len(), 41);
        assert_eq!(NewestOffsets::new(7, -1, 0, 0).entries.len(), SLOTS_OF, "one always fits");
    }
}
