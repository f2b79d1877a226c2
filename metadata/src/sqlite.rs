//! The embedded backend: one SQLite file of one process, in WAL mode with `synchronous=FULL`.
//!
//! | file | is |
//! |---|---|
//! | `open.rs` | durability settings, migrations |
//! | `lock.rs` | the guard against a second process |
//! | `copy.rs` | a copy of the file at one moment |
//! | `writer.rs`, `readers.rs` | the threads that own the connections |
//! | `commit.rs` | segments' outcomes |
//! | `log.rs`, `objects.rs` | extents and the objects that they name |
//! | `fresh.rs` | packed rows of fresh extents |
//! | `replace.rs` | the replacement of extents |
//! | `producers.rs` | idempotent producers |
//! | `markers.rs` | ends of transactions |
//! | `facts.rs` | keyed facts |

mod commit;
mod copy;
mod error;
mod facts;
mod fresh;
mod lock;
mod log;
mod markers;
mod objects;
mod open;
mod producers;
mod readers;
mod replace;
mod writer;

use crate::backend::Backend;
use crate::facts::{Change, ChangeOutcome, FactKey, FactRange, Fence, PartitionChange};
use crate::fresh::FreshIndex;
use crate::producers::is_expired;
use crate::rows::{
    AbortedInRange, DeadObject, Extent, ExtentPage, FreshBounds, MarkerFacts, MarkerOutcome,
    PartitionState, ProducerState, Replacement, SegmentFacts, SegmentOutcome,
};
use crate::validate;
use async_trait::async_trait;
use bytes::Bytes;
use error::SqlResult;
use floe_env::{Env, Error, Result};
use fresh::FreshExtents;
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicPartition};
use lock::FileLock;
use readers::Readers;
use replace::Replacer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use writer::Writer;

/// Tries to lock a file that is in use: whoever has just closed it, a command before this one or
/// this process itself, may still be about to let go.
const LOCK_TRIES: u32 = 10;
const LOCK_WAIT: Duration = Duration::from_millis(50);

async fn lock_file(env: &Env, path: &Path) -> Result<FileLock> {
    for _ in 1..LOCK_TRIES {
        let tried = path.to_owned();
        match env.blocking(move || FileLock::take(&tried)).await {
            Err(error) if error.is_transient() => env.sleep(LOCK_WAIT).await,
            taken => return taken,
        }
    }
    let tried = path.to_owned();
    env.blocking(move || FileLock::take(&tried)).await
}

/// A metadata store in one file.
pub struct SqliteBackend {
    env: Env,
    path: PathBuf,
    writer: Writer,
    readers: Readers,
    index: Arc<FreshIndex>,
    /// The greatest row id that an object has had.
    object_ids: Arc<AtomicI64>,
}

impl std::fmt::Debug for SqliteBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SqliteBackend").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteBackend {
    /// Opens a metadata file, or makes it; its directory must exist. Takes `{path}.lock` until the
    /// backend and its workers are gone. The store's clock is the environment's.
    ///
    /// Errors: `Unavailable` where another process has it or the disk does not serve, `Invalid`
    /// where it is no metadata file or too new, `Corrupt` where it is damaged.
    pub async fn open(env: &Env, path: &Path) -> Result<Self> {
        let opened = path.to_owned();
        let lock = lock_file(env, path).await?;
        let (lock, connection, greatest_id) = env
            .blocking(move || {
                let connection = open::open_writer(&opened)?;
                let greatest_id = objects::greatest_id(&connection)?;
                Ok::<_, Error>((lock, connection, greatest_id))
            })
            .await?;
        let lock = Arc::new(lock);
        let readers = Readers::start(env, path, &lock)?;
        let writer = Writer::start(env, connection, lock);
        let object_ids = Arc::new(AtomicI64::new(greatest_id));
        let (env, path, index) = (env.clone(), path.to_owned(), Arc::default());
        Ok(Self { env, path, writer, readers, index, object_ids })
    }

    /// Runs work that looks for fresh extents within a read transaction.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(FreshExtents<'_>) -> SqlResult<T> + Send + 'static,
    ) -> Result<T> {
        let index = Arc::clone(&self.index);
        self.readers.call(move |sql| work(FreshExtents::for_reader(sql, &index))).await
    }

    /// Runs work that looks for fresh extents within a write transaction. The index is brought up
    /// to date before, so that the writer has little to read.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(FreshExtents<'_>) -> SqlResult<T> + Send + 'static,
    ) -> Result<T> {
        self.read(|fresh| fresh.refresh()).await?;
        let index = Arc::clone(&self.index);
        self.writer.call(move |sql| work(FreshExtents::for_writer(sql, &index))).await
    }

    /// Copies a metadata file, which may be in use, to a file beside it, as it is at one moment;
    /// answers that file. It is the caller's to remove, and replaces one that is there.
    ///
    /// # Errors
    /// `Unavailable` where the disk does not serve or is full, and those of opening the file.
    pub async fn copy_beside(env: &Env, path: &Path) -> Result<PathBuf> {
        let to = copy::copy_path(path);
        copy::copy(env, path, &to).await?;
        Ok(to)
    }

    /// The metadata file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>> {
        validate::check_segments(segments)?;
        let (fence, segments, now_ms) = (fence.clone(), segments.to_vec(), self.env.now_ms());
        let ids = Arc::clone(&self.object_ids);
        self.writer.call(move |sql| commit::commit(sql, &ids, &fence, &segments, now_ms)).await
    }

    async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>> {
        validate::check_segment_id(id)?;
        self.readers.call(move |sql| commit::outcome(sql, id)).await
    }

    async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome> {
        validate::check_segment_id(id)?;
        let fence = fence.clone();
        self.writer.call(move |sql| commit::abandon(sql, &fence, id)).await
    }

    async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()> {
        validate::check_segment_id(up_to)?;
        let fence = fence.clone();
        self.writer.call(move |sql| commit::forget(sql, &fence, up_to)).await
    }

    async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()> {
        self.writer.call(move |sql| commit::forget_registrations(sql, broker, up_to)).await
    }

    async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>> {
        let partitions = partitions.to_vec();
        self.readers.call(move |sql| log::partition_states(sql, &partitions)).await
    }

    async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        self.read(move |fresh| log::extents(fresh, partition, offset, limit)).await
    }

    async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        self.read(move |fresh| log::extent_by_time(fresh, partition, timestamp_ms)).await
    }

    async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        self.read(move |fresh| log::extent_of_max_timestamp(fresh, partition)).await
    }

    async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>> {
        self.readers.call(move |sql| producers::producers(sql, partition)).await
    }

    async fn expire_producers(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        written_before_ms: i64,
    ) -> Result<usize> {
        let known = self.producers(partition).await?;
        if !known.iter().any(|producer| is_expired(producer, written_before_ms)) {
            return Ok(0);
        }
        let fence = fence.cloned();
        let expire =
            move |sql: &_| producers::expire(sql, fence.as_ref(), partition, written_before_ms);
        self.writer.call(expire).await
    }

    async fn end_transaction(
        &self,
        change: &Change,
        markers: &[MarkerFacts],
    ) -> Result<Option<Vec<MarkerOutcome>>> {
        validate::check_end(change, markers)?;
        let (change, markers, now_ms) = (change.clone(), markers.to_vec(), self.env.now_ms());
        let index = Arc::clone(&self.index);
        let end = move |sql: &_| {
            markers::end(FreshExtents::for_writer(sql, &index), &change, &markers, now_ms)
        };
        self.writer.call(end).await
    }

    async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Option<AbortedInRange>> {
        self.readers.call(move |sql| log::aborted(sql, partition, from, until)).await
    }

    async fn advance_log_start(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        let (fence, now_ms) = (fence.cloned(), self.env.now_ms());
        let advance = move |fresh: FreshExtents<'_>| {
            log::advance_log_start(fresh, fence.as_ref(), (partition, offset), now_ms)
        };
        self.write(advance).await
    }

    async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome> {
        validate::check_replacement(replacement)?;
        let (fence, replacement, now_ms) = (fence.clone(), replacement.clone(), self.env.now_ms());
        let ids = Arc::clone(&self.object_ids);
        let replace = move |fresh: FreshExtents<'_>| {
            Replacer { fresh, object_ids: &ids, now_ms }.replace(&fence, &replacement)
        };
        self.write(replace).await
    }

    async fn unpack_fresh(&self, kept: FreshBounds) -> Result<usize> {
        let now_ms = self.env.now_ms();
        self.write(move |fresh| fresh::unpack_oldest(fresh, kept, now_ms)).await
    }

    async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>> {
        self.readers.call(move |sql| objects::dead(sql, dead_before_ms, limit)).await
    }

    async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>> {
        let keys = keys.to_vec();
        self.readers.call(move |sql| objects::known(sql, &keys)).await
    }

    async fn forget_objects(&self, keys: &[String]) -> Result<()> {
        let keys = keys.to_vec();
        self.writer.call(move |sql| objects::forget(sql, &keys)).await
    }

    async fn get(&self, keys: &[FactKey]) -> Result<Vec<Option<Bytes>>> {
        let keys = keys.to_vec();
        self.readers.call(move |sql| facts::get(sql, &keys)).await
    }

    async fn scan(&self, range: &FactRange, limit: usize) -> Result<Vec<(FactKey, Bytes)>> {
        validate::check_range(range)?;
        let range = range.clone();
        self.readers.call(move |sql| facts::scan(sql, &range, limit)).await
    }

    async fn change(&self, change: &Change) -> Result<ChangeOutcome> {
        validate::check_change(change)?;
        let (change, now_ms) = (change.clone(), self.env.now_ms());
        let drops = |change: &PartitionChange| matches!(change, PartitionChange::Drop(_));
        if change.partitions.iter().any(drops) {
            return self.write(move |fresh| facts::change(fresh, &change, now_ms)).await;
        }
        let index = Arc::clone(&self.index);
        let work =
            move |sql: &_| facts::change(FreshExtents::for_writer(sql, &index), &change, now_ms);
        self.writer.call(work).await
    }

    async fn now_ms(&self) -> Result<i64> {
        Ok(self.env.now_ms())
    }
}

/// A limit as SQL takes it.
fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
