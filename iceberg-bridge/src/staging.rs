//! From the log to staged files: everything between a table's progress and a cut, read partition by
//! partition, encoded, and put ahead of the commit where it does not fit into memory. What a
//! staging has put that fails is deleted: no commit can name it.

use crate::budget::BACKGROUND_COMMITS_MAX;
use crate::commit::{Gap, Staged, StagedFile, delete_unnamed, put};
use crate::encode::{EncodedFile, Encoder, EncoderConfig};
use crate::files::data_file;
use crate::log_reader::{LogRead, LogReader, PartitionCut};
use crate::mapping::Mapping;
use crate::place::TablePlace;
use crate::progress::Progress;
use floe_env::{Env, Error, Instant, Result};
use floe_store::ObjectStore;
use iceberg::spec::SchemaRef;
use kfs::{PartitionIndex, TopicId, TopicPartition};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Bytes of log that one read asks for.
const READ_BYTES: usize = 4 << 20;
/// Bytes of memory that open files may hold by default, encoded rows most of it; beyond, the
/// largest is ended and put, so that many days never make many small files. Ending copies a file
/// once, so that staging holds twice as much at its most.
pub(crate) const STAGE_BYTES_MAX: usize = 32 << 20;
/// Stagings at the same time, over all tables: with the above, all the memory that they have.
pub const STAGINGS_MAX: usize = 3;
/// So that one is always a look's.
const _: () = assert!(BACKGROUND_COMMITS_MAX < STAGINGS_MAX);
/// Bytes of log that one commit takes at most. A cut that is further away is reached in several
/// commits.
const COMMIT_BYTES_MAX: usize = 512 << 20;
/// One commit takes no more than what was read in this time: a look has something newer to show,
/// and a broker that is killed loses no more of its work.
const STAGING_TIME: Duration = Duration::from_secs(2);

/// Partitions that take their time to say that they cannot be read: after so many of them, the
/// others wait for the next commit.
const SLOW_ERRORS_MAX: usize = 4;

/// The first gap of a table whose topic had lost records before the table was made.
const WHY_BEFORE_TABLE: &str = "removed from the log before the table was made";
/// Every other gap.
const WHY_LOG_START: &str = "the log start passed the table's progress";

/// What staging came to.
#[derive(Debug)]
pub(crate) struct StagedRange {
    pub(crate) staged: Staged,
    /// False if the cut is further away than one commit takes.
    pub(crate) reaches_cut: bool,
    /// Bytes of log that were read.
    pub(crate) log_bytes: usize,
    /// Offsets that were passed.
    pub(crate) offsets: i64,
    /// Files that were put already.
    pub(crate) puts: u64,
}

/// Where staging begins.
#[derive(Debug)]
pub(crate) struct Start {
    /// The table's topic.
    pub(crate) topic: TopicId,
    /// Where the files go.
    pub(crate) place: TablePlace,
    /// The table's own map.
    pub(crate) committed: Progress,
    /// At or beyond it: offsets in between were read before and hold no rows.
    pub(crate) scanned: Progress,
    /// Gaps below that which the table has yet to note.
    pub(crate) gaps: Vec<Gap>,
    /// The table is not there yet.
    pub(crate) is_new: bool,
    /// The table's own columns.
    pub(crate) mapping: Mapping,
    /// Its schema, where others have changed it.
    pub(crate) schema: Option<SchemaRef>,
    /// How values become rows.
    pub(crate) encoder: EncoderConfig,
}

impl Start {
    fn encoder(&self) -> Result<Encoder> {
        Encoder::of_table(&self.encoder, self.mapping.clone(), self.schema.clone())
    }
}

/// Reads the log and stages files. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stager {
    env: Env,
    store: Arc<dyn ObjectStore>,
    log: Arc<dyn LogReader>,
    stagings: Arc<Semaphore>,
    stage_bytes_max: usize,
}

impl Stager {
    /// `stage_bytes_max` as in [`BridgeConfig`](crate::BridgeConfig).
    pub(crate) fn new(
        env: Env,
        store: Arc<dyn ObjectStore>,
        log: Arc<dyn LogReader>,
        stage_bytes_max: usize,
    ) -> Self {
        let stagings = Arc::new(Semaphore::new(STAGINGS_MAX));
        Self { env, store, log, stagings, stage_bytes_max }
    }

    /// Stages everything from `start` up to `cut`, or as much as one commit takes.
    ///
    /// # Errors
    /// Whatever log and store answer; nothing is staged then.
    pub(crate) async fn stage(&self, start: &Start, cut: &[PartitionCut]) -> Result<StagedRange> {
        // Held until the rows are files; these are small, or on the store.
        let _staging = self.stagings.acquire().await.expect("the budget is never closed");
        let mut work = Work {
            encoder: Some(start.encoder()?),
            files: Vec::new(),
            to: start.scanned.clone(),
            gaps: start.gaps.clone(),
            log_bytes: 0,
            offsets: 0,
            puts: 0,
            ends_at: self.env.monotonic() + STAGING_TIME,
        };
        let reaches_cut = match self.stage_cut(start, cut, &mut work).await {
            Ok(reaches_cut) => reaches_cut,
            Err(error) => {
                // Also files whose put has failed: it may have an effect all the same.
                let keys: Vec<String> = work.files.into_iter().map(|file| file.key).collect();
                delete_unnamed(self.store.as_ref(), &keys).await;
                return Err(error);
            }
        };
        let encoder = work.take_encoder()?;
        let (counts, mapping) = (encoder.counts(), encoder.mapping().clone());
        let Work { files, to, gaps, log_bytes, offsets, puts, .. } = work;
        let (from, from_mapping) = (start.committed.clone(), start.mapping.clone());
        let may_be_named = false;
        let staged = Staged { from, to, from_mapping, mapping, files, gaps, counts, may_be_named };
        Ok(StagedRange { staged, reaches_cut, log_bytes, offsets, puts })
    }

    /// False if the rest of the cut is for the next commit. A partition that cannot be read keeps
    /// no other waiting.
    async fn stage_cut(
        &self,
        start: &Start,
        cut: &[PartitionCut],
        work: &mut Work,
    ) -> Result<bool> {
        let mut reaches_cut = true;
        let mut unreadable: Vec<Error> = Vec::new();
        for (partition, ends) in cut.iter().enumerate() {
            work.skip_gap(start, partition, ends);
            match self.stage_partition(start, partition, ends, work).await? {
                Ended::AtCut => continue,
                Ended::Full => {}
                Ended::Unreadable(error) => unreadable.push(error),
            }
            reaches_cut = false;
            let now = self.env.monotonic();
            let is_down = now >= work.ends_at && unreadable.len() >= SLOW_ERRORS_MAX;
            if work.is_enough(now) || is_down {
                break;
            }
        }
        let first = unreadable.into_iter().next();
        if let Some(error) = first.filter(|_| work.offsets == 0) {
            return Err(error);
        }
        self.end_files(start, work, Encoder::finish_files).await?;
        Ok(reaches_cut)
    }

    async fn stage_partition(
        &self,
        start: &Start,
        partition: usize,
        ends: &PartitionCut,
        work: &mut Work,
    ) -> Result<Ended> {
        let index = i32::try_from(partition)
            .map_err(|_| Error::bug(format!("partition {partition} of a topic")))?;
        let place = TopicPartition { topic: start.topic, partition: PartitionIndex(index) };
        let until = ends.last_stable_offset;
        let mut from = work.to.next_offset(partition);
        while from < until {
            if work.is_enough(self.env.monotonic()) {
                return Ok(Ended::Full);
            }
            let read = match self.log.read(place, from, until, READ_BYTES).await {
                Err(error) => {
                    // What can be read is committed; the next commit tries this again.
                    tracing::warn!(%place, from, %error, "the log cannot be read further");
                    return Ok(Ended::Unreadable(error));
                }
                Ok(read) => read,
            };
            if read.next_offset <= from || read.next_offset > until {
                let next = read.next_offset;
                return Err(Error::bug(format!("read of {place} {from}..{until} ends at {next}")));
            }
            let next_offset = read.next_offset;
            self.encode(index, read, from, work).await?;
            work.offsets = work.offsets.saturating_add(next_offset - from);
            from = next_offset;
            work.to.advance(partition, from);
            while work.memory_bytes() >= self.stage_bytes_max {
                self.end_files(start, work, Encoder::finish_largest).await?;
                self.put_files(work).await?;
            }
        }
        Ok(Ended::AtCut)
    }

    /// Decoding and encoding is CPU work, so it runs off the runtime's threads.
    async fn encode(&self, index: i32, read: LogRead, from: i64, work: &mut Work) -> Result<()> {
        work.log_bytes += read.batches.iter().map(bytes::Bytes::len).sum::<usize>();
        let mut encoder = work.take_encoder()?;
        let (encoder, appended) = self
            .env
            .blocking(move || {
                let appended = encoder.append(index, &read.batches, from, read.next_offset);
                (encoder, appended)
            })
            .await;
        work.encoder = Some(encoder);
        appended
    }

    async fn end_files(
        &self,
        start: &Start,
        work: &mut Work,
        finish: fn(&mut Encoder) -> Result<Vec<EncodedFile>>,
    ) -> Result<()> {
        let mut encoder = work.take_encoder()?;
        let (encoder, files) = self
            .env
            .blocking(move || {
                let files = finish(&mut encoder);
                (encoder, files)
            })
            .await;
        work.encoder = Some(encoder);
        for file in files? {
            let key = start.place.data_key(&self.env);
            let data_file = data_file(&file, start.place.url_of(&key)?)?;
            work.files.push(StagedFile { data_file, key, bytes: Some(file.bytes) });
        }
        Ok(())
    }

    async fn put_files(&self, work: &mut Work) -> Result<()> {
        for file in &mut work.files {
            if let Some(bytes) = &file.bytes {
                put(self.store.clone(), file.key.clone(), vec![bytes.clone()]).await?;
                file.bytes = None;
                work.puts += 1;
            }
        }
        Ok(())
    }
}

/// Where the staging of one partition has ended.
enum Ended {
    /// At its end.
    AtCut,
    /// Before, because one commit takes no more.
    Full,
    /// Before, because the log cannot be read to there.
    Unreadable(Error),
}

/// Staging in the middle.
struct Work {
    /// Away while it works on another thread.
    encoder: Option<Encoder>,
    files: Vec<StagedFile>,
    to: Progress,
    gaps: Vec<Gap>,
    log_bytes: usize,
    offsets: i64,
    puts: u64,
    /// When the commit must go.
    ends_at: Instant,
}

impl Work {
    /// The rest of the cut is for the next commit.
    fn is_enough(&self, now: Instant) -> bool {
        let is_late = now >= self.ends_at;
        self.log_bytes >= COMMIT_BYTES_MAX || (is_late && self.log_bytes > 0)
    }

    fn take_encoder(&mut self) -> Result<Encoder> {
        self.encoder.take().ok_or_else(|| Error::bug("the encoder went away with its thread"))
    }

    fn memory_bytes(&self) -> usize {
        self.encoder.as_ref().map_or(0, Encoder::memory_bytes)
    }

    /// Where the log has lost records that the table does not have, goes on behind them.
    fn skip_gap(&mut self, start: &Start, partition: usize, ends: &PartitionCut) {
        let (from, until) = (self.to.next_offset(partition), ends.log_start_offset);
        if from < until {
            let why = if start.is_new { WHY_BEFORE_TABLE } else { WHY_LOG_START };
            self.gaps.push(Gap { partition, from, until, why: why.to_owned() });
            self.to.advance(partition, until);
        }
    }
}
