//! Reading extents from the store. What a request will want is loaded side by side and ahead, and
//! extents that lie near each other in one object, as those of a fresh segment do, come with one
//! read: a remote store asks money for each.

use crate::blocks::{BlockMemory, Blocks, BlocksKey};
use crate::extents::{made_blocks, split, to_blocks};
use crate::load_budget::LoadBudget;
use crate::read::{FetchFrom, Reader};
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::rows::{Extent, Place};
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

/// So much more than a fetch asks for is loaded ahead, as a factor: what comes next is on its way
/// while the client still works on this answer.
const READ_AHEAD_FACTOR: u64 = 2;
/// Bytes of one partition that are loaded ahead at most: readers of many partitions must not push
/// each other's extents out of the cache.
const READ_AHEAD_BYTES_MAX: u64 = 4 << 20;
/// One request loads so much of the cache's pool for readers ahead, as a divisor: what it loads
/// must still be there when it is wanted.
const READ_AHEAD_SHARE_DIVISOR: usize = 4;
/// Extents of one partition that are loaded ahead at most.
const READ_AHEAD_EXTENTS_MAX: usize = 32;
/// One read of several extents is of so many bytes at most.
const READ_BYTES_MAX: u64 = 8 << 20;
/// What is being read for clients has one over this of the cache's size, but room for the largest
/// read of several extents at least.
const LOADING_PART_OF_CACHE: u64 = 4;
/// Bytes between two extents that are read for nothing rather than reading twice.
const READ_GAP_BYTES_MAX: u64 = 64 << 10;
/// Reads for one use that are under way at the same time.
const READS_ONCE_MAX: usize = 4;
/// Extents up to this size are checked inline: about 50 us.
const CHECK_INLINE_BYTES_MAX: usize = 256 << 10;

impl Reader {
    /// Starts to load what fetches will want and what comes behind it, as far as their extents are
    /// remembered and not cached. Waits for nothing.
    pub(crate) fn read_ahead(&self, wanted: impl IntoIterator<Item = FetchFrom>) {
        let mut missing = Vec::new();
        let mut room_of_all = (self.cache.read_bytes_max() / READ_AHEAD_SHARE_DIVISOR) as u64;
        for from in wanted {
            let bytes = (from.bytes_max as u64).saturating_mul(READ_AHEAD_FACTOR);
            let mut room = bytes.min(READ_AHEAD_BYTES_MAX);
            let FetchFrom { partition, offset, .. } = from;
            for extent in self.partitions.extents(partition, offset, READ_AHEAD_EXTENTS_MAX) {
                room = match room.checked_sub(extent.bytes()) {
                    Some(left) => left,
                    None => break,
                };
                if cache_key(&extent).is_none_or(|key| self.cache.is_known(&key)) {
                    continue;
                }
                room_of_all = match room_of_all.checked_sub(extent.bytes()) {
                    Some(left) => left,
                    None => break,
                };
                missing.push(extent);
            }
        }
        for run in side_by_side(missing) {
            let keyed = |extent: Arc<Extent>| Some((cache_key(&extent)?, extent));
            let wanted = run.into_iter().filter_map(keyed).collect();
            self.cache.load_ahead(wanted, |extents| self.load_where_free(extents));
        }
    }

    /// Reads one extent when it is its turn.
    pub(crate) fn load(
        &self,
        extent: &Extent,
    ) -> impl Future<Output = Result<Blocks>> + Send + use<> {
        let load = self.load_in_turn(vec![Arc::new(extent.clone())]);
        async move { load.await.pop().unwrap_or_else(no_result) }
    }

    /// Reads extents side by side when it is their turn.
    pub(crate) fn load_in_turn(
        &self,
        extents: Vec<Arc<Extent>>,
    ) -> impl Future<Output = Vec<Result<Blocks>>> + Send + use<> {
        let bytes = span(&extents).map_or(0, |(_, start, end)| end - start);
        let turn = self.loading.take(bytes);
        let load = self.load_run(extents, self.cache.memory());
        async move {
            let _loading = turn.await;
            load.await
        }
    }

    /// Reads extents side by side, unless others are being read that take all that there is for it.
    fn load_where_free(
        &self,
        extents: Vec<Arc<Extent>>,
    ) -> Option<impl Future<Output = Vec<Result<Blocks>>> + Send + use<>> {
        let (_, start, end) = span(&extents)?;
        let loading = self.loading.try_take(end - start)?;
        let load = self.load_run(extents, self.cache.memory());
        Some(async move {
            let _loading = loading;
            load.await
        })
    }

    /// Extents' blocks for one use, in their order: from the cache, else read from the store past
    /// the cache, those that lie near each other with one read.
    pub(crate) async fn blocks_once(&self, extents: &[Extent]) -> Result<Vec<Blocks>> {
        let mut missing = Vec::new();
        let mut found = BTreeMap::new();
        for extent in extents {
            let Some(key) = cache_key(extent) else { continue };
            match self.cache.peek(&key) {
                Some(blocks) => drop(found.insert(key, blocks)),
                None => missing.push(Arc::new(extent.clone())),
            }
        }
        // Whoever merges has a bound of its own, and would only push what clients read out.
        let memory = BlockMemory::default();
        let load = |run: Vec<Arc<Extent>>| {
            let load = self.load_run(run.clone(), &memory);
            async move { (run, load.await) }
        };
        let loads: Vec<_> = side_by_side(missing).into_iter().map(load).collect();
        let mut loads = stream::iter(loads).buffered(READS_ONCE_MAX);
        while let Some((run, loaded)) = loads.next().await {
            for (extent, blocks) in run.iter().zip(loaded) {
                let Some(key) = cache_key(extent) else { continue };
                found.insert(key, blocks?);
            }
        }
        let blocks = |extent| match cache_key(extent) {
            Some(key) => found.remove(&key).map_or_else(no_result, Ok),
            None => Ok(made_blocks(extent)),
        };
        extents.iter().map(blocks).collect()
    }

    /// Reads extents of one object, which are in the order of their positions, with one read; one
    /// result each. One that cannot be read does not take its neighbours along.
    fn load_run(
        &self,
        extents: Vec<Arc<Extent>>,
        memory: &BlockMemory,
    ) -> impl Future<Output = Vec<Result<Blocks>>> + Send + use<> {
        let (reader, memory) = (self.clone(), memory.clone());
        async move {
            let failed = match reader.load_at_once(&extents, &memory).await {
                Ok(blocks) => return blocks,
                Err(error) => error,
            };
            if extents.len() == 1 || failed.is_transient() {
                return extents.iter().map(|_| Err(failed.clone())).collect();
            }
            let mut each = Vec::with_capacity(extents.len());
            for extent in extents {
                let alone = reader.load_at_once(&[extent], &memory).await;
                each.push(alone.and_then(|mut all| all.pop().unwrap_or_else(no_result)));
            }
            each
        }
    }

    async fn load_at_once(
        &self,
        extents: &[Arc<Extent>],
        memory: &BlockMemory,
    ) -> Result<Vec<Result<Blocks>>> {
        let no_range = || Error::bug("only ranges of objects are read");
        let (key, start, end) = span(extents).ok_or_else(no_range)?;
        let object = format!("{}/{key}", self.root);
        let bytes = self.store.get_range(&object, start..end).await?;
        let is_small = bytes.len() <= CHECK_INLINE_BYTES_MAX;
        let (extents, memory) = (extents.to_vec(), memory.clone());
        let check = move || {
            let pieces = pieces(&extents, start, bytes);
            let blocks = |(extent, pieces): (&Arc<Extent>, Vec<Bytes>)| {
                to_blocks(extent, pieces, true, &memory)
                    .map_err(|error| error.context(&format!("reading {object}")))
            };
            extents.iter().zip(pieces).map(blocks).collect()
        };
        Ok(if is_small { check() } else { self.env.blocking(check).await })
    }
}

fn no_result() -> Result<Blocks> {
    Err(Error::bug("a read of extents answered for fewer than it read"))
}

/// The budget of what is being read beside a cache of this size.
pub(crate) fn load_budget(cache_bytes: usize, memory: &BlockMemory) -> LoadBudget {
    let bytes = (cache_bytes as u64 / LOADING_PART_OF_CACHE).max(READ_BYTES_MAX);
    LoadBudget::new(bytes, memory.clone())
}

/// What the cache calls an extent; `None` where it has no bytes.
pub(crate) fn cache_key(extent: &Extent) -> Option<BlocksKey> {
    let (key, position, _) = range(extent)?;
    Some(BlocksKey { object: key.into(), position })
}

/// An extent's object, where it begins there, and where it ends.
fn range(extent: &Extent) -> Option<(&str, u64, u64)> {
    match &extent.place {
        Place::Range { key, position, length } => Some((key, *position, position + length)),
        Place::Marker { .. } | Place::Hole => None,
    }
}

/// The object of a run, and the bytes that one read must bring.
fn span(run: &[Arc<Extent>]) -> Option<(String, u64, u64)> {
    let (key, start, _) = range(run.first()?)?;
    let (_, _, end) = range(run.last()?)?;
    Some((key.to_owned(), start, end))
}

/// Each extent's own bytes, in pieces that are memory of their own: what holds one of them holds
/// nothing of the others. Where all that was read is one piece, it is not copied.
fn pieces(run: &[Arc<Extent>], start: u64, bytes: Bytes) -> Vec<Vec<Bytes>> {
    let of = |extent: &Arc<Extent>| {
        let (_, from, to) = range(extent)?;
        Some(split(&bytes.slice((from - start) as usize..(to - start) as usize)))
    };
    let mut pieces: Vec<_> = run.iter().map(|extent| of(extent).unwrap_or_default()).collect();
    if pieces.iter().flatten().nth(1).is_some() {
        for piece in pieces.iter_mut().flatten() {
            *piece = Bytes::copy_from_slice(piece);
        }
    }
    pieces
}

/// Runs of extents that are worth one read each: of one object, near each other, and not too much.
pub(crate) fn side_by_side(mut extents: Vec<Arc<Extent>>) -> Vec<Vec<Arc<Extent>>> {
    extents.sort_by(|one, other| range(one).cmp(&range(other)));
    extents.dedup_by(|one, other| range(one) == range(other));
    let mut runs: Vec<Vec<Arc<Extent>>> = Vec::new();
    for extent in extents {
        match runs.last_mut() {
            Some(run) if joins(run, &extent) => run.push(extent),
            _ => runs.push(vec![extent]),
        }
    }
    runs
}

fn joins(run: &[Arc<Extent>], extent: &Extent) -> bool {
    let (Some((key, start, end)), Some((next_key, from, to))) = (span(run), range(extent)) else {
        return false;
    };
    key == next_key
        && from >= end
        && from - end <= READ_GAP_BYTES_MAX
        && to - start <= READ_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfs::{OffsetMode, TimestampType};

    fn extent(key: &str, position: u64, length: u64) -> Arc<Extent> {
        Arc::new(Extent {
            base_offset: 0,
            last_offset: 0,
            place: Place::Range { key: key.to_owned(), position, length },
            offset_mode: OffsetMode::Relative,
            max_timestamp_ms: 0,
            timestamp_type: TimestampType::CreateTime,
            has_transactional: false,
        })
    }

    fn runs(extents: &[(&str, u64, u64)]) -> Vec<Vec<(String, u64)>> {
        let extents = extents.iter().map(|(key, at, length)| extent(key, *at, *length)).collect();
        let place = |extent: &Arc<Extent>| {
            let (key, position, _) = range(extent).expect("a range");
            (key.to_owned(), position)
        };
        side_by_side(extents).iter().map(|run| run.iter().map(place).collect()).collect()
    }

    #[test]
    fn neighbours_in_one_object_come_with_one_read() {
        let found = runs(&[("b", 32, 10), ("a", 42, 10), ("a", 32, 10), ("a", 62, 10)]);
        let expected = [vec![("a", 32), ("a", 42), ("a", 62)], vec![("b", 32)]];
        let expected: Vec<Vec<(String, u64)>> = expected
            .into_iter()
            .map(|run| run.into_iter().map(|(key, at)| (key.to_owned(), at)).collect())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_wide_gap_a_large_run_and_the_same_extent_twice_are_not_read_for_nothing() {
        let gap = READ_GAP_BYTES_MAX;
        assert_eq!(runs(&[("a", 0, 10), ("a", 10 + gap, 10)]).len(), 1);
        assert_eq!(runs(&[("a", 0, 10), ("a", 11 + gap, 10)]).len(), 2);
        assert_eq!(runs(&[("a", 0, READ_BYTES_MAX), ("a", READ_BYTES_MAX, 1)]).len(), 2);
        assert_eq!(runs(&[("a", 0, 10), ("a", 0, 10)]), [vec![("a".to_owned(), 0)]]);
    }

    #[test]
    fn each_extent_gets_its_own_bytes() {
        let run = [extent("a", 5, 2), extent("a", 7, 1), extent("a", 9, 3)];
        let read = Bytes::from(b"abcdefg".to_vec());
        let place = read.as_ptr_range();
        let found = pieces(&run, 5, read);
        assert_eq!(found, ["ab", "c", "efg"].map(|bytes| vec![Bytes::from(bytes)]));
        for piece in found.iter().flatten() {
            assert!(!place.contains(&piece.as_ptr()), "it holds what was read for all");
        }
    }

    #[test]
    fn a_lone_piece_is_what_was_read_and_is_nobody_elses() {
        let read = Bytes::from(b"abc".to_vec());
        let place = read.as_ptr();
        let found = pieces(&[extent("a", 5, 3)], 5, read).remove(0).remove(0);
        assert_eq!(found.as_ptr(), place);
        assert!(found.try_into_mut().is_ok());
    }

    #[test]
    fn a_large_extent_is_cut_between_batches() {
        let batch = |value_bytes: usize| {
            let mut builder = kfs::BatchBuilder::new();
            let value = vec![b'x'; value_bytes];
            let record = kfs::NewRecord { value: Some(&value), ..kfs::NewRecord::default() };
            builder.push(&record).expect("a record");
            builder.build().expect("a batch")
        };
        let batches = [600_000, 300_000, 300_000, 3_000_000, 10].map(batch);
        let bytes = Bytes::from([&batches.concat()[..], b"no batch"].concat());
        let lengths: Vec<usize> = split(&bytes).iter().map(Bytes::len).collect();
        let sizes = batches.map(|batch| batch.len());
        assert_eq!(lengths, [sizes[0] + sizes[1], sizes[2], sizes[3], sizes[4] + 8]);
        assert_eq!(split(&Bytes::new()), [Bytes::new()]);
    }
}
