//! What the cache keeps, in two pools: what was **written** here a moment ago, which tail readers
//! and merges are about to ask for, and what was **read** from the store for readers that lag. The
//! read pool takes what is free, but gives way to the written one beyond its own share: a backfill
//! never pushes out what everybody else reads. Within a pool, what was used least recently goes
//! first, so that the same calls leave the same cache. What is in memory and not here, because
//! answers hold it or it is being read, takes from the readers' share.

use super::{BlockMemory, Blocks, BlocksKey};
use floe_env::HashMap;
use std::collections::BTreeSet;

/// The share of the capacity that the read pool keeps, as a divisor.
const READ_SHARE_DIVISOR: usize = 2;

/// Where blocks come from, and so which pool they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    Read,
    Written,
}

/// An extent's pool, and its place there: uses are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) origin: Origin,
    pub(super) at: u64,
}

/// Extents by name, in their pools.
pub(super) struct Pools {
    memory: BlockMemory,
    capacity_bytes: usize,
    clock: u64,
    entries: HashMap<BlocksKey, Cached>,
    written: Pool,
    read: Pool,
    evictions: u64,
}

#[derive(Default)]
struct Pool {
    by_use: BTreeSet<(u64, BlocksKey)>,
    bytes: usize,
}

struct Cached {
    blocks: Blocks,
    bytes: usize,
    used: Use,
}

impl Pools {
    /// Pools of `capacity_bytes` in all; `memory` counts all blocks, those of answers too.
    pub(super) fn new(memory: BlockMemory, capacity_bytes: usize) -> Self {
        let (written, read) = (Pool::default(), Pool::default());
        let entries = HashMap::default();
        Self { memory, capacity_bytes, clock: 0, entries, written, read, evictions: 0 }
    }

    /// Bytes that the read pool keeps whatever is written.
    pub(super) fn read_bytes_max(&self) -> usize {
        self.capacity_bytes / READ_SHARE_DIVISOR
    }

    /// Bytes of all extents that are here.
    pub(super) fn used_bytes(&self) -> usize {
        self.written.bytes + self.read.bytes
    }

    /// Extents that were put out to make room.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    pub(super) fn contains(&self, key: &BlocksKey) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn is_written(&self, key: &BlocksKey) -> bool {
        self.entries.get(key).is_some_and(|cached| cached.used.origin == Origin::Written)
    }

    /// An extent's blocks, without taking this for a use of them.
    pub(super) fn peek(&self, key: &BlocksKey) -> Option<Blocks> {
        self.entries.get(key).map(|cached| cached.blocks.clone())
    }

    /// An extent's blocks, which become the newest of their pool.
    pub(super) fn touch(&mut self, key: &BlocksKey) -> Option<Blocks> {
        let cached = self.entries.get_mut(key)?;
        self.clock += 1;
        let pool = match cached.used.origin {
            Origin::Written => &mut self.written,
            Origin::Read => &mut self.read,
        };
        if let Some((_, key)) = pool.by_use.take(&(cached.used.at, key.clone())) {
            pool.by_use.insert((self.clock, key));
        }
        cached.used.at = self.clock;
        Some(cached.blocks.clone())
    }

    /// Puts an extent in as the newest of its pool, and makes room.
    pub(super) fn insert(&mut self, key: BlocksKey, blocks: Blocks, origin: Origin) {
        self.clock += 1;
        self.put(key, blocks, Use { origin, at: self.clock });
    }

    /// Puts an extent in as if it had been used then, and makes room.
    pub(super) fn put(&mut self, key: BlocksKey, blocks: Blocks, used: Use) {
        self.remove(&key);
        let bytes = blocks.iter().map(|block| block.bytes.len()).sum();
        let pool = self.pool(used.origin);
        pool.bytes += bytes;
        pool.by_use.insert((used.at, key.clone()));
        self.entries.insert(key, Cached { blocks, bytes, used });
        self.make_room();
    }

    /// Takes an extent out, and tells where it was if it was there.
    pub(super) fn remove(&mut self, key: &BlocksKey) -> Option<Use> {
        let cached = self.entries.remove(key)?;
        let pool = self.pool(cached.used.origin);
        pool.by_use.remove(&(cached.used.at, key.clone()));
        pool.bytes -= cached.bytes;
        Some(cached.used)
    }

    fn make_room(&mut self) {
        loop {
            let (used, memory) = (self.used_bytes(), self.memory.bytes());
            if used.max(memory) <= self.capacity_bytes {
                return;
            }
            let of_readers = self.read.bytes + memory.saturating_sub(used);
            let readers_go = of_readers > self.read_bytes_max() || self.written.bytes == 0;
            let (first, second) =
                if readers_go { (&self.read, &self.written) } else { (&self.written, &self.read) };
            let oldest = first.by_use.first().or_else(|| second.by_use.first());
            let Some((_, oldest)) = oldest.cloned() else { return };
            self.remove(&oldest);
            self.evictions += 1;
        }
    }

    fn pool(&mut self, origin: Origin) -> &mut Pool {
        match origin {
            Origin::Written => &mut self.written,
            Origin::Read => &mut self.read,
        }
    }
}
