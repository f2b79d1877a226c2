//! Reading extents from the store. What a request will want is loaded side by side and ahead, and
//! extents that lie near each other in one object, as those of a fresh segment do, come with one
//! read: a remote store asks money for each.

use crate::blocks::{BlockMemory, Blocks, BlocksKey};
use crate::extents::to_blocks;
use crate::read::{FetchFrom, Reader};
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::rows::{Extent, Place};
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
/// Bytes between two extents that are read for nothing rather than reading twice.
const READ_GAP_BYTES_MAX: u64 = 64 << 10;
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
            let keys = run.iter().filter_map(|extent| cache_key(extent)).collect();
            self.cache.load_ahead(keys, self.load_run(run, self.cache.memory()));
        }
    }

    /// Reads one extent, and counts its blocks in `memory`.
    pub(crate) fn load(
        &self,
        extent: &Extent,
        memory: &BlockMemory,
    ) -> impl Future<Output = Result<Blocks>> + Send + use<> {
        let loading = self.load_run(vec![Arc::new(extent.clone())], memory);
        async move {
            let lost = || Err(Error::bug("a read of one extent without a result"));
            loading.await.pop().unwrap_or_else(lost)
        }
    }

    /// Reads extents of one object, which are in the order of their positions, with one read; one
    /// result each.
    pub(crate) fn load_run(
        &self,
        extents: Vec<Arc<Extent>>,
        memory: &BlockMemory,
    ) -> impl Future<Output = Vec<Result<Blocks>>> + Send + use<> {
        let (env, store, root) = (self.env.clone(), self.store.clone(), self.root.clone());
        let memory = memory.clone();
        async move {
            let Some((key, start, end)) = span(&extents) else {
                let no_range = |_| Err(Error::bug("only ranges of objects are read"));
                return extents.iter().map(no_range).collect();
            };
            let object = format!("{root}/{key}");
            let bytes = match store.get_range(&object, start..end).await {
                Ok(bytes) => bytes,
                Err(error) => return extents.iter().map(|_| Err(error.clone())).collect(),
            };
            let is_small = bytes.len() <= CHECK_INLINE_BYTES_MAX;
            let check = move || {
                let pieces = slices(&extents, start, bytes);
                let blocks = |(extent, piece): (&Arc<Extent>, Bytes)| {
                    to_blocks(extent, vec![piece], true, &memory)
                        .map_err(|error| error.context(&format!("reading {object}")))
                };
                extents.iter().zip(pieces).map(blocks).collect()
            };
            if is_small { check() } else { env.blocking(check).await }
        }
    }
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

/// Each extent's own bytes. A lone one gets all that was read, so that it can be patched in place.
fn slices(run: &[Arc<Extent>], start: u64, bytes: Bytes) -> Vec<Bytes> {
    if run.len() == 1 {
        return vec![bytes];
    }
    let slice = |extent: &Extent| {
        let (_, from, to) = range(extent)?;
        Some(bytes.slice((from - start) as usize..(to - start) as usize))
    };
    run.iter().map(|extent| slice(extent).unwrap_or_default()).collect()
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
        let found = slices(&run, 5, Bytes::from_static(b"abcdefg"));
        assert_eq!(found, ["ab", "c", "efg"].map(Bytes::from));
    }
}
