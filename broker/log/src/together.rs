//! Loading what many partitions will be read for soon: their extents in one object come with one
//! read. A reader that takes one partition after the other would read each object once for each.

use crate::loads::{cache_key, side_by_side};
use crate::read::Reader;
use floe_env::Result;
use floe_metadata::rows::Extent;
use futures::stream::{self, StreamExt};
use kfs::TopicPartition;
use std::sync::Arc;

/// Reads under way at the same time.
const READS_MAX: usize = 8;
/// What is loaded together takes so much of the cache's pool for readers, as a divisor: it must
/// still be there when it is wanted.
const POOL_DIVISOR: usize = 2;

/// A part of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset.
    pub from: i64,
    /// The offset behind the last one.
    pub until: i64,
}

impl Reader {
    /// Bytes that are loaded together at most.
    pub(crate) fn together_bytes_max(&self) -> usize {
        self.cache.read_bytes_max() / POOL_DIVISOR
    }

    /// Loads what is not cached of these ranges, as far as there is room, and waits for it.
    /// Partitions of neighbouring ids lie next to each other in a fresh segment. What cannot be
    /// read is left to whoever wants it.
    pub(crate) async fn load_together(&self, ranges: &[LogRange]) -> Result<()> {
        let mut missing = Vec::new();
        let mut room = self.together_bytes_max() as u64;
        for range in ranges {
            if !self.missing_of(range, &mut room, &mut missing).await? {
                break;
            }
        }
        let runs = side_by_side(missing).into_iter();
        let loads: Vec<_> = runs.map(|run| self.load_and_wait(run)).collect();
        stream::iter(loads).buffer_unordered(READS_MAX).for_each(|()| async {}).await;
        Ok(())
    }

    /// False once there is no more room.
    async fn missing_of(
        &self,
        range: &LogRange,
        room: &mut u64,
        missing: &mut Vec<Arc<Extent>>,
    ) -> Result<bool> {
        let mut offset = range.from;
        while offset < range.until {
            let extents = self.extents(range.partition, offset).await?;
            let Some(last) = extents.last() else { break };
            offset = last.last_offset + 1;
            for extent in extents.into_iter().filter(|extent| extent.base_offset < range.until) {
                if cache_key(&extent).is_none_or(|key| self.cache.is_known(&key)) {
                    continue;
                }
                let Some(left) = room.checked_sub(extent.bytes()) else { return Ok(false) };
                *room = left;
                missing.push(extent);
            }
        }
        Ok(true)
    }

    async fn load_and_wait(&self, run: Vec<Arc<Extent>>) {
        let keyed = |extent: Arc<Extent>| Some((cache_key(&extent)?, extent));
        let wanted: Vec<_> = run.into_iter().filter_map(keyed).collect();
        let Some((key, first)) = wanted.first().cloned() else { return };
        self.cache.load_ahead(wanted, |extents| Some(self.load_in_turn(extents)));
        // It runs already, and ends with the others of its run. Whoever reads the extent gets the
        // error, if it is one.
        let _ = self.cache.get(key, || self.load(&first)).await;
    }
}
