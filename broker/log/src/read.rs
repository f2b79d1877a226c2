//! Reading: offset to extent to blocks. Nothing is listed, and the cost does not grow with the
//! length of the log.

use crate::blocks::{Block, BlockCache, Blocks};
use crate::extents::{made_blocks, slice_of};
use crate::load_budget::LoadBudget;
use crate::loads::cache_key;
use crate::partitions::Partitions;
use bytes::{Bytes, BytesMut};
use floe_env::{Env, Error, ErrorKind, Result};
use floe_metadata::Backend;
use floe_metadata::rows::{AbortedInRange, AbortedTransaction, Extent, PartitionState};
use floe_store::ObjectStore;
use kfs::{BatchView, TopicPartition};
use std::sync::Arc;

/// Extents that one query of the metadata store brings.
const EXTENTS_PER_PAGE: usize = 128;
/// An answer holds at most so many times its own bytes in memory: a smaller part of a block is
/// copied, and lets the block go.
const HELD_FACTOR_MAX: usize = 2;

/// What a fetch from one partition asks for.
#[derive(Clone, Copy, Debug)]
pub struct FetchFrom {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset wanted.
    pub offset: i64,
    /// About how many bytes at most; the first batch comes whole all the same.
    pub bytes_max: usize,
    /// Only what is decided: nothing of open transactions or behind them.
    pub committed_only: bool,
}

impl FetchFrom {
    /// Where what it may read ends.
    fn end(&self, state: &PartitionState) -> i64 {
        if self.committed_only { state.last_stable_offset } else { state.high_watermark }
    }
}

/// What a fetch from one partition got.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The partition's ends: no record lies beyond.
    pub state: PartitionState,
    /// The end that bounded the read, which `state` may have left behind since: below it, what is
    /// not among the records is not there, unless there was no room.
    pub end: i64,
    /// Whole batches by offset, the first of which holds the offset asked for, if there was any.
    pub records: Vec<Bytes>,
    /// With `committed_only`: the aborted transactions that have records among these, and maybe
    /// others.
    pub aborted: Vec<AbortedTransaction>,
}

/// What was read of a partition.
#[derive(Default)]
struct Records {
    slices: Vec<Bytes>,
    /// The offset behind the last batch.
    end: i64,
    /// Some of them may be of transactions.
    has_transactional: bool,
}

impl Fetched {
    /// Bytes of all batches.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

/// What a fetch from one partition would find, told without reading.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// The partition's ends.
    pub state: PartitionState,
    /// Where the records would come from; `None` where there are none yet.
    pub origin: Option<RecordsOrigin>,
}

/// Where the first records of a fetch come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordsOrigin {
    /// Memory: they were written here a moment ago.
    JustWritten,
    /// The store, or what was read from it for readers that lag.
    Stored,
}

/// Why a fetch got nothing.
#[derive(Clone, Debug)]
pub enum FetchError {
    /// There is no such partition.
    UnknownPartition,
    /// The offset is below the log start of this state, or above its high watermark, which then
    /// the store has just given, not a cache.
    OffsetOutOfRange(PartitionState),
    /// It did not work; the kind says what to do.
    Failed(Error),
}

impl From<Error> for FetchError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOffset {
    /// The record's offset.
    pub offset: i64,
    /// Its timestamp, ms.
    pub timestamp_ms: i64,
}

/// The read path; cheap to clone.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) env: Env,
    pub(crate) root: Arc<str>,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) metadata: Arc<dyn Backend>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) cache: BlockCache,
    pub(crate) loading: LoadBudget,
    pub(crate) decompressed_bytes_max: usize,
}

impl Reader {
    /// The partition's ends as the store has them now. `None` if there is no such partition.
    pub(crate) async fn state(&self, partition: TopicPartition) -> Result<Option<PartitionState>> {
        let states = self.metadata.partition_states(&[partition]).await?;
        match states.into_iter().next().flatten() {
            Some(state) => Ok(Some(self.partitions.observe(partition, state))),
            None => {
                self.partitions.forget(partition);
                Ok(None)
            }
        }
    }

    /// The partition's ends, with the offset inside them: those known here, else the store's.
    async fn ends(&self, from: FetchFrom) -> Result<PartitionState, FetchError> {
        let inside = |state: &PartitionState| {
            (state.log_start_offset..=state.high_watermark).contains(&from.offset)
        };
        let state = match self.partitions.state(from.partition).filter(inside) {
            Some(state) => state,
            None => self.state(from.partition).await?.ok_or(FetchError::UnknownPartition)?,
        };
        if inside(&state) { Ok(state) } else { Err(FetchError::OffsetOutOfRange(state)) }
    }

    pub(crate) async fn look(&self, from: FetchFrom) -> Result<Looked, FetchError> {
        let state = self.ends(from).await?;
        let first = || self.partitions.extents(from.partition, from.offset, 1).into_iter().next();
        // What is in no object, as a marker, is made here.
        let is_written =
            |extent: Arc<Extent>| cache_key(&extent).is_none_or(|key| self.cache.is_written(&key));
        let origin = if from.offset >= from.end(&state) {
            None
        } else if first().is_some_and(is_written) {
            Some(RecordsOrigin::JustWritten)
        } else {
            Some(RecordsOrigin::Stored)
        };
        Ok(Looked { state, origin })
    }

    pub(crate) async fn fetch(&self, from: FetchFrom) -> Result<Fetched, FetchError> {
        let state = self.ends(from).await?;
        let end = from.end(&state);
        let records = match self.records(from, end).await {
            // An object is missing: its extents have been replaced since they were remembered. That
            // has made them forgotten, and they are asked for again.
            Err(error) if error.kind() == ErrorKind::Invalid => self.records(from, end).await?,
            records => records?,
        };
        let mut aborted = Vec::new();
        if from.committed_only
            && records.has_transactional
            && !self.partitions.has_no_aborts(from.partition, from.offset, state.high_watermark)
        {
            aborted = self.aborted(from, records.end).await?;
        }
        // Extents come with newer ends than were known before, and may reach beyond those.
        let state = self.partitions.state(from.partition).unwrap_or(state);
        // The log start has moved: what was read, if anything, may begin behind the offset.
        if state.log_start_offset > from.offset {
            return Err(FetchError::OffsetOutOfRange(state));
        }
        Ok(Fetched { state, end, records: records.slices, aborted })
    }

    /// The aborted transactions with records from the offset asked for until `end`.
    async fn aborted(
        &self,
        from: FetchFrom,
        end: i64,
    ) -> Result<Vec<AbortedTransaction>, FetchError> {
        let found = self.metadata.aborted(from.partition, from.offset, end).await?;
        let AbortedInRange { state, transactions } = found.ok_or(FetchError::UnknownPartition)?;
        let state = self.partitions.observe(from.partition, state);
        // What is told of aborted records goes with them: it was all there if they are still.
        match state.log_start_offset <= from.offset {
            true => Ok(transactions),
            false => Err(FetchError::OffsetOutOfRange(state)),
        }
    }

    /// Whole batches from the one that holds `from.offset`, below `end`.
    async fn records(&self, from: FetchFrom, end: i64) -> Result<Records> {
        let mut records = Records::default();
        let (mut offset, mut room) = (from.offset, from.bytes_max);
        while offset < end {
            let extents = self.extents(from.partition, offset).await?;
            if extents.is_empty() {
                break;
            }
            self.read_ahead([FetchFrom { offset, bytes_max: room, ..from }]);
            for extent in extents {
                // Looked at before it is loaded: nobody waits for what the answer has no room for.
                if extent.base_offset >= end || (room == 0 && !records.slices.is_empty()) {
                    return Ok(records);
                }
                let blocks = match self.blocks(from.partition, &extent).await {
                    // What comes before an extent that cannot be read is served all the same.
                    Err(_) if !records.slices.is_empty() => return Ok(records),
                    blocks => blocks?,
                };
                let behind = |block: &Block| block.last_offset < offset;
                for block in &blocks[blocks.partition_point(behind)..] {
                    if block.base_offset >= end || (room == 0 && !records.slices.is_empty()) {
                        return Ok(records);
                    }
                    let Some(slice) = slice_of(block, offset..end, room) else { continue };
                    if slice.len() > room && !records.slices.is_empty() {
                        return Ok(records);
                    }
                    let whole = slice.as_ptr_range().end == block.bytes.as_ptr_range().end;
                    room = room.saturating_sub(slice.len());
                    records.slices.push(self.without_rest(block, slice));
                    records.has_transactional |= extent.has_transactional;
                    offset = block.last_offset + 1;
                    records.end = offset;
                    if !whole {
                        return Ok(records);
                    }
                }
                offset = offset.max(extent.last_offset + 1);
            }
        }
        Ok(records)
    }

    /// A part of a block for an answer. It must not keep a block in memory of which it is little.
    fn without_rest(&self, block: &Block, part: Bytes) -> Bytes {
        if part.len() * HELD_FACTOR_MAX >= block.bytes.len() {
            return part;
        }
        self.cache.memory().count(BytesMut::from(&part[..]))
    }

    /// Extents from the one that holds `offset`: remembered ones, else one query of the metadata
    /// store.
    pub(crate) async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Vec<Arc<Extent>>> {
        let remembered = self.partitions.extents(partition, offset, EXTENTS_PER_PAGE);
        if !remembered.is_empty() {
            return Ok(remembered);
        }
        let page = self.metadata.extents(partition, offset, EXTENTS_PER_PAGE).await?;
        let Some(page) = page else { return Ok(Vec::new()) };
        self.partitions.observe(partition, page.state);
        let extents: Vec<_> = page.extents.into_iter().map(Arc::new).collect();
        self.partitions.remember(partition, &extents);
        Ok(extents)
    }

    /// An extent's blocks: from the cache, else read from the store.
    pub(crate) async fn blocks(
        &self,
        partition: TopicPartition,
        extent: &Extent,
    ) -> Result<Blocks> {
        let Some(key) = cache_key(extent) else {
            return Ok(made_blocks(extent));
        };
        let loaded = self.cache.get(key, || self.load(extent)).await;
        if loaded.is_err() {
            // The extent may have been replaced and its object deleted: look again next time.
            self.partitions.forget_extents(partition);
        }
        loaded
    }

    /// The first record in offset order whose timestamp is at least `timestamp_ms`, at or above the
    /// log start and, with `committed_only`, below the last stable offset. The outer `None`: no
    /// such partition.
    pub(crate) async fn offset_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
        committed_only: bool,
    ) -> Result<Option<Option<TimedOffset>>> {
        let Some((state, extent)) = self.metadata.extent_by_time(partition, timestamp_ms).await?
        else {
            return Ok(None);
        };
        let found = self.search(partition, &state, extent, committed_only, |timestamp| {
            timestamp >= timestamp_ms
        });
        Ok(Some(found.await?))
    }

    /// The first record with the partition's greatest timestamp. The outer `None`: no such
    /// partition.
    pub(crate) async fn offset_of_max_timestamp(
        &self,
        partition: TopicPartition,
        committed_only: bool,
    ) -> Result<Option<Option<TimedOffset>>> {
        let Some((state, extent)) = self.metadata.extent_of_max_timestamp(partition).await? else {
            return Ok(None);
        };
        let greatest = extent.as_ref().map(|extent| extent.max_timestamp_ms);
        let state = PartitionState { log_start_offset: 0, ..state };
        let found = self.search(partition, &state, extent, committed_only, |timestamp| {
            Some(timestamp) >= greatest
        });
        Ok(Some(found.await?))
    }

    async fn search(
        &self,
        partition: TopicPartition,
        state: &PartitionState,
        extent: Option<Extent>,
        committed_only: bool,
        wanted: impl Fn(i64) -> bool,
    ) -> Result<Option<TimedOffset>> {
        let Some(mut extent) = extent.map(Arc::new) else { return Ok(None) };
        let end = if committed_only { state.last_stable_offset } else { state.high_watermark };
        loop {
            let blocks = self.blocks(partition, &extent).await?;
            for block in blocks.iter() {
                let range = state.log_start_offset..end;
                if let Some(found) = self.first_record(&block.bytes, &range, &wanted)? {
                    return Ok(Some(found));
                }
            }
            // All records that were wanted lie below the log start: the next extent may have one.
            let next = self.extents(partition, extent.last_offset + 1).await?;
            match next.into_iter().next() {
                Some(following) if following.base_offset < end => extent = following,
                _ => return Ok(None),
            }
        }
    }

    fn first_record(
        &self,
        bytes: &[u8],
        range: &std::ops::Range<i64>,
        wanted: impl Fn(i64) -> bool,
    ) -> Result<Option<TimedOffset>> {
        let corrupt = |error| Error::corrupt("a batch in an object").with_source(error);
        for batch in kfs::batches(bytes) {
            let batch: BatchView<'_> = batch.map_err(corrupt)?;
            if !wanted(batch.header.max_timestamp_ms) || batch.header.last_offset() < range.start {
                continue;
            }
            let records = batch.records(self.decompressed_bytes_max).map_err(corrupt)?;
            for record in records.iter() {
                let record = record
                    .map_err(|error| Error::corrupt("a record in an object").with_source(error))?;
                let offset = batch.header.base_offset + i64::from(record.offset_delta);
                let timestamp_ms = batch.header.record_timestamp_ms(record.timestamp_delta);
                if range.contains(&offset) && wanted(timestamp_ms) {
                    return Ok(Some(TimedOffset { offset, timestamp_ms }));
                }
            }
        }
        Ok(None)
    }
}
