//! The log's cache: extents as readers get them, cut into blocks of whole batches whose base
//! offsets are set. Offsets are set once, when an extent enters; a fetch then sends slices of
//! blocks. Readers of one missing extent share one load. What is kept, and what goes first, is said
//! in [`pools`].
//!
//! The capacity is of all that is in memory: blocks that are cached, those that went out of the
//! cache while an answer still holds a slice of them, and what is being read. Readers that do not
//! take their answers thus make the cache smaller, never the memory larger. A block is of
//! [`CHUNK_BYTES_MAX`](crate::chunks::CHUNK_BYTES_MAX) at most, or of one batch, so that a slice of
//! one holds no more than that.

mod pools;

use bytes::{Bytes, BytesMut};
use floe_env::{Env, HashMap, Lane, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use pools::{Origin, Pools, Use};
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

/// Counts bytes in memory, those of blocks in the cache or not and those that are being read; cheap
/// to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockMemory(Arc<AtomicUsize>);

/// Batches that are counted until their last slice is gone.
struct Counted {
    bytes: BytesMut,
    _reserved: Reserved,
}

/// Bytes that are counted until this is dropped.
pub(crate) struct Reserved {
    bytes: usize,
    memory: BlockMemory,
}

impl BlockMemory {
    /// The bytes, counted for as long as any slice of them is held.
    pub(crate) fn count(&self, bytes: BytesMut) -> Bytes {
        let _reserved = self.reserve(bytes.capacity());
        Bytes::from_owner(Counted { bytes, _reserved })
    }

    /// Counts bytes that are about to be in memory.
    pub(crate) fn reserve(&self, bytes: usize) -> Reserved {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Reserved { bytes, memory: self.clone() }
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

impl Drop for Reserved {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
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

impl Inner {
    fn is_known(&self, key: &BlocksKey) -> bool {
        self.pools.contains(key) || self.loads.contains_key(key)
    }
}

/// What the cache has done so far, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Extents that were there.
    pub hits: u64,
    /// Extents that were read from the store, however many readers waited for each.
    pub misses: u64,
    /// Extents that were put out to make room.
    pub evictions: u64,
    /// Bytes cached now.
    pub bytes: usize,
    /// Bytes in memory now: of cached blocks, of others that answers still hold, and of what is
    /// being read.
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
        let made = Use { origin: Origin::Read, at: 0 };
        let remove = |key: &Option<BlocksKey>| match key {
            Some(key) => inner.pools.remove(key),
            None => Some(made),
        };
        let removed: Vec<Option<Use>> = sources.iter().map(remove).collect();
        for MergedBlocks { key, blocks, sources } in merged {
            let Some(uses) = removed[sources].iter().copied().collect::<Option<Vec<Use>>>() else {
                continue;
            };
            // Written comes last, and so does what was used last.
            let origin = uses.iter().map(|used| used.origin).max().unwrap_or(Origin::Read);
            let at = uses.iter().map(|used| used.at).max().unwrap_or_default();
            inner.pools.put(key, blocks, Use { origin, at });
        }
    }

    /// True for an extent that is here because it was written here a moment ago.
    pub(crate) fn is_written(&self, key: &BlocksKey) -> bool {
        self.inner.lock().pools.is_written(key)
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
            match inner.loads.get(&key) {
                Some(running) => running.clone(),
                None => {
                    inner.misses += 1;
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
        self.inner.lock().is_known(key)
    }

    /// Starts one load of several extents that somebody is about to wait for, but for those that
    /// are there or on their way by now. `load` answers for each of the rest, in their order, or
    /// refuses.
    pub(crate) fn load_ahead<T, F>(
        &self,
        mut wanted: Vec<(BlocksKey, T)>,
        load: impl FnOnce(Vec<T>) -> Option<F>,
    ) where
        F: Future<Output = Vec<Result<Blocks>>> + Send + 'static,
    {
        let mut inner = self.inner.lock();
        wanted.retain(|(key, _)| !inner.is_known(key));
        if wanted.is_empty() {
            return;
        }
        let (keys, wanted): (Vec<BlocksKey>, Vec<T>) = wanted.into_iter().unzip();
        let Some(load) = load(wanted) else { return };
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
            evictions: inner.pools.evictions(),
            bytes: inner.pools.used_bytes(),
            memory_bytes: self.memory.bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
