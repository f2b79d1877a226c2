//! What the cache keeps, in two pools: what was **written** here a moment ago, which tail readers
//! and merges are about to ask for, and what was **read** from the store for readers that lag. The
//! read pool takes what is free, but gives way to the written one beyond its own share: a backfill
//! never pushes out what everybody else reads. Within a pool, what was used least recently goes
//! first, so that the same calls leave the same cache.

use super::{BlockMemory, Blocks, BlocksKey};
use floe_env::HashMap;
use std::collections::BTreeMap;

/// The share of the capacity that the read pool keeps, as a divisor.
const READ_SHARE_DIVISOR: usize = 2;

/// Where blocks come from, and so which pool they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Written,
    Read,
}

/// Extents by name, in their pools.
pub(super) struct Pools {
    memory: BlockMemory,
    capacity_bytes: usize,
    clock: u64,
    entries: HashMap<BlocksKey, Cached>,
    written: Pool,
    read: Pool,
}

#[derive(Default)]
struct Pool {
    by_use: BTreeMap<u64, BlocksKey>,
    bytes: usize,
}

struct Cached {
    blocks: Blocks,
    bytes: usize,
    used_at: u64,
    origin: Origin,
}

impl Pools {
    /// Pools of `capacity_bytes` in all; `memory` counts all blocks, those of answers too.
    pub(super) fn new(memory: BlockMemory, capacity_bytes: usize) -> Self {
        let (written, read) = (Pool::default(), Pool::default());
        Self { memory, capacity_bytes, clock: 0, entries: HashMap::default(), written, read }
    }

    /// Bytes that the read pool keeps whatever is written.
    pub(super) fn read_bytes_max(&self) -> usize {
        self.capacity_bytes / READ_SHARE_DIVISOR
    }

    /// Bytes of all extents that are here.
    pub(super) fn used_bytes(&self) -> usize {
        self.written.bytes + self.read.bytes
    }

    pub(super) fn contains(&self, key: &BlocksKey) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn is_written(&self, key: &BlocksKey) -> bool {
        self.entries.get(key).is_some_and(|cached| cached.origin == Origin::Written)
    }

    /// An extent's blocks, without taking this for a use of them.
    pub(super) fn peek(&self, key: &BlocksKey) -> Option<Blocks> {
        self.entries.get(key).map(|cached| cached.blocks.clone())
    }

    /// An extent's blocks, which become the newest of their pool.
    pub(super) fn touch(&mut self, key: &BlocksKey) -> Option<Blocks> {
        let cached = self.entries.get_mut(key)?;
        self.clock += 1;
        let pool = match cached.origin {
            Origin::Written => &mut self.written,
            Origin::Read => &mut self.read,
        };
        if let Some(key) = pool.by_use.remove(&cached.used_at) {
            pool.by_use.insert(self.clock, key);
        }
        cached.used_at = self.clock;
        Some(cached.blocks.clone())
    }

    /// Puts an extent in as the newest of its pool, and makes room.
    pub(super) fn insert(&mut self, key: BlocksKey, blocks: Blocks, origin: Origin) {
        self.remove(&key);
        let bytes = blocks.iter().map(|block| block.bytes.len()).sum();
        self.clock += 1;
        let used_at = self.clock;
        let pool = self.pool(origin);
        pool.bytes += bytes;
        pool.by_use.insert(used_at, key.clone());
        self.entries.insert(key, Cached { blocks, bytes, used_at, origin });
        self.make_room();
    }

    pub(super) fn remove(&mut self, key: &BlocksKey) {
        if let Some(cached) = self.entries.remove(key) {
            let pool = self.pool(cached.origin);
            pool.by_use.remove(&cached.used_at);
            pool.bytes -= cached.bytes;
        }
    }

    fn make_room(&mut self) {
        while self.used_bytes().max(self.memory.bytes()) > self.capacity_bytes {
            let readers_go = self.read.bytes > self.read_bytes_max() || self.written.bytes == 0;
            let pool = if readers_go { &self.read } else { &self.written };
            let Some(oldest) = pool.by_use.values().next().cloned() else { break };
            self.remove(&oldest);
        }
    }

    fn pool(&mut self, origin: Origin) -> &mut Pool {
        match origin {
            Origin::Written => &mut self.written,
            Origin::Read => &mut self.read,
        }
    }
}
