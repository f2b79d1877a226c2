//! The log's cache: extents as readers get them, cut into blocks of whole batches whose base
//! offsets are set. Offsets are set once, when an extent enters; a fetch then sends slices of
//! blocks. Readers of one missing extent share one load. What is kept, and what goes first, is said
//! in [`pools`].
//!
//! The capacity is of all blocks that are in memory: those that are cached, and those that went out
//! of the cache while an answer still holds a slice of them. Readers that do not take their answers
//! thus make the cache smaller, never the memory larger.

mod pools;

use bytes::{Bytes, BytesMut};
use floe_env::{Env, HashMap, Lane, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use pools::{Origin, Pools};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whole batches of one partition, by offset, in one piece of memory.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Offset of the first record.
    pub(crate) base_offset: i64,
    /// Offset of the last record.
    pub(crate) last_offset: i64,
    /// The batches, with absolute base offsets and leader epoch 0.
    pub(crate) bytes: Bytes,
}

/// An extent's blocks, by offset.
pub(crate) type Blocks = Arc<Vec<Block>>;

/// Counts the bytes of blocks that are in memory, in the cache or not; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockMemory(Arc<AtomicUsize>);

/// Batches that are counted until their last slice is gone.
struct Counted {
    bytes: BytesMut,
    memory: BlockMemory,
}

impl BlockMemory {
    /// The bytes, counted for as long as any slice of them is held.
    pub(crate) fn count(&self, bytes: BytesMut) -> Bytes {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, memory: self.clone() })
    }

    /// Bytes in memory now.
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// Names an extent: its object's key and its position there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlocksKey {
    pub(crate) object: Arc<str>,
    pub(crate) position: u64,
}

/// A merged extent's blocks, and which of the merge's sources they come from.
pub(crate) struct MergedBlocks {
    pub(crate) key: BlocksKey,
    pub(crate) blocks: Blocks,
    pub(crate) sources: Range<usize>,
}

/// A load of one extent or of several: one result each.
type Loads = Shared<BoxFuture<'static, Arc<Vec<Result<Blocks>>>>>;

/// An extent's part of a load.
#[derive(Clone)]
struct Load {
    all: Loads,
    at: usize,
}

impl Load {
    async fn blocks(self) -> Result<Blocks> {
        let lost = || Err(floe_env::Error::bug("a load answered for fewer extents than it read"));
        self.all.await.get(self.at).cloned().unwrap_or_else(lost)
    }
}

/// The cache; cheap to clone.
#[derive(Clone)]
pub(crate) struct BlockCache {
    env: Env,
    memory: BlockMemory,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    pools: Pools,
    loads: HashMap<BlocksKey, Load>,
    hits: u64,
    misses: u64,
}

/// What the cache has done so far, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Extents that were there.
    pub hits: u64,
    /// Extents that were read from the store.
    pub misses: u64,
    /// Bytes cached now.
    pub bytes: usize,
    /// Bytes of blocks in memory now: cached ones, and others that answers still hold.
    pub memory_bytes: usize,
}

impl BlockCache {
    pub(crate) fn new(env: Env, capacity_bytes: usize) -> Self {
        let memory = BlockMemory::default();
        let pools = Pools::new(memory.clone(), capacity_bytes);
        let inner = Inner { pools, loads: HashMap::default(), hits: 0, misses: 0 };
        Self { env, memory, inner: Arc::new(Mutex::new(inner)) }
    }

    /// Where the blocks that go into the cache are counted.
    pub(crate) fn memory(&self) -> &BlockMemory {
        &self.memory
    }

    /// Puts an extent in that has just been written.
    pub(crate) fn insert(&self, key: BlocksKey, blocks: Blocks) {
        self.inner.lock().pools.insert(key, blocks, Origin::Written);
    }

    /// Puts merged extents in the place of those that they are made of, as far as these are there:
    /// the same memory under new names. A merged extent with a source that is not there is left
    /// out, for it would bring in what nobody has asked for.
    /// Sources without a name are made when they are read, and so always there.
    pub(crate) fn replace(&self, sources: &[Option<BlocksKey>], merged: Vec<MergedBlocks>) {
        let mut inner = self.inner.lock();
        let is_cached =
            |key: &Option<BlocksKey>| key.as_ref().is_none_or(|key| inner.pools.contains(key));
        let cached: Vec<bool> = sources.iter().map(is_cached).collect();
        let is_written =
            |key: &Option<BlocksKey>| key.as_ref().is_some_and(|key| inner.pools.is_written(key));
        let of_written: Vec<bool> = sources.iter().map(is_written).collect();
        sources.iter().flatten().for_each(|key| inner.pools.remove(key));
        for MergedBlocks { key, blocks, sources } in merged {
            if cached[sources.clone()].iter().all(|is_cached| *is_cached) {
                let is_written = of_written[sources].contains(&true);
                let origin = if is_written { Origin::Written } else { Origin::Read };
                inner.pools.insert(key, blocks, origin);
            }
        }
    }

    /// Bytes that are read from the store and kept while what was written wants the rest.
    pub(crate) fn read_bytes_max(&self) -> usize {
        self.inner.lock().pools.read_bytes_max()
    }

    /// The extent's blocks if they are there, without taking this for a use of them.
    pub(crate) fn peek(&self, key: &BlocksKey) -> Option<Blocks> {
        self.inner.lock().pools.peek(key)
    }

    /// The extent's blocks: from the cache, else by `load`, which runs once for all who wait and
    /// goes on if they leave.
    pub(crate) async fn get<F>(
        &self,
        key: BlocksKey,
        load: impl FnOnce() -> F + Send,
    ) -> Result<Blocks>
    where
        F: Future<Output = Result<Blocks>> + Send + 'static,
    {
        let load = {
            let mut inner = self.inner.lock();
            if let Some(blocks) = inner.pools.touch(&key) {
                inner.hits += 1;
                return Ok(blocks);
            }
            inner.misses += 1;
            match inner.loads.get(&key) {
                Some(running) => running.clone(),
                None => {
                    let load = load();
                    let all = self.start(vec![key.clone()], async move { vec![load.await] });
                    let started = Load { all, at: 0 };
                    inner.loads.insert(key, started.clone());
                    started
                }
            }
        };
        load.blocks().await
    }

    /// True for an extent that is there or on its way.
    pub(crate) fn is_known(&self, key: &BlocksKey) -> bool {
        let inner = self.inner.lock();
        inner.pools.contains(key) || inner.loads.contains_key(key)
    }

    /// Starts one load of several extents that somebody is about to wait for. `load` answers for
    /// each, in the order of the keys.
    pub(crate) fn load_ahead<F>(&self, keys: Vec<BlocksKey>, load: F)
    where
        F: Future<Output = Vec<Result<Blocks>>> + Send + 'static,
    {
        let mut inner = self.inner.lock();
        inner.misses += keys.len() as u64;
        let all = self.start(keys.clone(), load);
        for (at, key) in keys.into_iter().enumerate() {
            inner.loads.insert(key, Load { all: all.clone(), at });
        }
    }

    fn start<F>(&self, keys: Vec<BlocksKey>, load: F) -> Loads
    where
        F: Future<Output = Vec<Result<Blocks>>> + Send + 'static,
    {
        let (cache, loaded_keys) = (self.clone(), keys.clone());
        let task = self.env.spawn("load extents", Lane::Foreground, async move {
            let loaded = load.await;
            let mut inner = cache.inner.lock();
            for (key, blocks) in loaded_keys.into_iter().zip(&loaded) {
                inner.loads.remove(&key);
                if let Ok(blocks) = blocks {
                    inner.pools.insert(key, blocks.clone(), Origin::Read);
                }
            }
            loaded
        });
        let cache = self.clone();
        async move {
            Arc::new(task.await.unwrap_or_else(|ended| {
                // The load itself is gone and cannot take its entries out any more.
                let mut inner = cache.inner.lock();
                let failed = |key: &BlocksKey| {
                    inner.loads.remove(key);
                    Err(floe_env::Error::bug(format!("loading an extent: {ended}")))
                };
                keys.iter().map(failed).collect()
            }))
        }
        .boxed()
        .shared()
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let inner = self.inner.lock();
        CacheStats {
            hits: inner.hits,
            misses: inner.misses,
            bytes: inner.pools.used_bytes(),
            memory_bytes: self.memory.bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
