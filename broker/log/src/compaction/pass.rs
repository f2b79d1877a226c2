//! One pass over a partition: the newest offset of each key of its dirty part is learnt, then the
//! log is cleaned from its start, unit by unit. Each unit is one object and one transaction that
//! checks that no source has changed; where one has, the pass ends, and the next one begins anew.
//! It ends as well where the topic's configs have changed: they may want kept what it is about to
//! take. So at any moment, and after a crash at any point, every record that has gone has a newer
//! one of its key behind it, and a horizon stands only where everything before was cleaned.

use super::clean::{BatchCleaner, Rules, Tally, note_keys};
use super::newest::NewestOffsets;
use super::plan::{CompactionRules, Dirt};
use super::transactions::{Aborted, LastBatches, Unended};
use super::unit::{self, Compacted, Unit};
use super::{CompactionCounts, CompactionPolicy, Named, terms_now};
use crate::blocks::{Block, Blocks};
use crate::keys::merged_key;
use crate::loads::cache_key;
use crate::log::Log;
use crate::rewrite;
use floe_env::{Env, Error, Result, Shutdown};
use floe_metadata::MetadataStore;
use floe_metadata::compaction::CompactionMark;
use floe_metadata::rows::{Extent, Replacement};
use kfs::TopicPartition;
use std::collections::VecDeque;
use std::ops::Range;

/// Extents that one query brings.
const EXTENTS_PER_QUERY: usize = 512;
/// Bytes of extents that are read at once.
const READ_BYTES_MAX: u64 = 8 << 20;

/// A pass, and what it has done.
pub(crate) struct Pass<'a> {
    pub(crate) env: &'a Env,
    pub(crate) log: &'a Log,
    pub(crate) metadata: &'a MetadataStore,
    pub(crate) policy: &'a dyn CompactionPolicy,
    pub(crate) rules: &'a CompactionRules,
    pub(crate) named: &'a Named,
    pub(crate) dirt: Dirt,
    pub(crate) now_ms: i64,
    pub(crate) shutdown: &'a Shutdown,
    pub(crate) counts: CompactionCounts,
}

/// Why a pass has ended.
pub(crate) enum Ended {
    /// It has been over everything that it could.
    Done(CompactionMark),
    /// What it was about to replace has changed, or what the topic asks for.
    Conflict,
    /// The broker shuts down.
    Shutdown,
}

impl Pass<'_> {
    /// Goes over the partition, whose log starts at `log_start`.
    pub(crate) async fn run(&mut self, log_start: i64) -> Result<Ended> {
        let Some(newest) = self.newest_offsets().await? else { return Ok(Ended::Shutdown) };
        let clean_until = newest.latest() + 1;
        let last_batches = LastBatches::new(&self.metadata.producers(self.named.partition).await?);
        let mut cleaner = BatchCleaner {
            rules: self.clean_rules(),
            newest,
            last_batches,
            unended: Unended::default(),
            tally: Tally::default(),
        };
        let mut sources = self.sources(log_start, clean_until);
        let mut unit = Unit::default();
        while let Some(extents) = sources.next(self.metadata).await? {
            if self.shutdown.is_triggered() {
                return Ok(Ended::Shutdown);
            }
            if sources.has_changed {
                return Ok(Ended::Conflict);
            }
            let (blocks, aborted) = self.read(&extents).await?;
            let work = move || {
                let cleaned = unit::clean_extents(&mut cleaner, extents, blocks, &aborted);
                (cleaner, cleaned)
            };
            let (back, cleaned) = self.env.blocking(work).await;
            cleaner = back;
            for source in cleaned? {
                unit.add(source);
                if unit.is_full(self.rules.object_bytes_max) && !self.replace(&mut unit).await? {
                    return Ok(Ended::Conflict);
                }
            }
        }
        if !self.replace(&mut unit).await? {
            return Ok(Ended::Conflict);
        }
        self.counts.passes += 1;
        self.counts.records_removed += cleaner.tally.records_removed;
        let horizon_ms = cleaner.tally.horizon_ms;
        Ok(Ended::Done(CompactionMark { clean_until, at_ms: self.now_ms, horizon_ms }))
    }

    fn clean_rules(&self) -> Rules {
        Rules {
            now_ms: self.now_ms,
            delete_retention_ms: self.named.terms.delete_retention_ms,
            until: self.dirt.until,
            decompressed_bytes_max: self.log.config().decompressed_bytes_max,
        }
    }

    fn sources(&self, from: i64, until: i64) -> Sources {
        let (partition, page) = (self.named.partition, VecDeque::new());
        Sources { partition, next: from, until, is_first: true, has_changed: false, page }
    }

    /// The newest offset of each key of the dirty part, or of as much of it as there is room for.
    /// `None` on a shutdown.
    async fn newest_offsets(&mut self) -> Result<Option<NewestOffsets>> {
        let Dirt { from, until, .. } = self.dirt;
        let offsets = until.saturating_sub(from).unsigned_abs();
        let (seed, key_bytes_max) = (self.env.random_u64(), self.rules.key_bytes_max);
        let mut newest = NewestOffsets::new(seed, from - 1, offsets, key_bytes_max);
        let bytes_max = self.log.config().decompressed_bytes_max;
        let mut sources = self.sources(from, until);
        while let Some(extents) = sources.next(self.metadata).await? {
            if self.shutdown.is_triggered() {
                return Ok(None);
            }
            let (blocks, aborted) = self.read(&extents).await?;
            let work = move || {
                let all = blocks.iter().flat_map(|blocks| blocks.iter());
                let noted = note_blocks(&mut newest, all, &aborted, from..until, bytes_max);
                (newest, noted)
            };
            let (back, noted) = self.env.blocking(work).await;
            newest = back;
            if !noted? {
                return Ok(Some(newest));
            }
        }
        newest.saw(until - 1);
        Ok(Some(newest))
    }

    /// The blocks of these extents, and what was aborted among them.
    async fn read(&mut self, extents: &[Extent]) -> Result<(Vec<Blocks>, Aborted)> {
        let aborted = rewrite::aborted(self.metadata, self.named.partition, extents).await?;
        self.counts.bytes_read += extents.iter().map(Extent::bytes).sum::<u64>();
        Ok((self.log.reader().blocks_once(extents).await?, Aborted::new(aborted)))
    }

    /// Replaces what has changed of a unit, if anything. False where its sources have changed, or
    /// the topic's configs.
    async fn replace(&mut self, unit: &mut Unit) -> Result<bool> {
        let Some(sources) = unit.take() else { return Ok(true) };
        let (partition, reader) = (self.named.partition, self.log.reader());
        let offsets = unit::offsets(&sources);
        let key = merged_key(partition, offsets.start, self.log.next_merge_id());
        let aborted = self.metadata.aborted(partition, offsets.start, offsets.end).await?;
        let of = Compacted {
            cluster: self.log.config().cluster,
            partition,
            topic_name: self.named.topic_name.clone(),
            key: key.clone(),
            aborted: rewrite::footer(&aborted),
            extent_bytes_max: self.rules.extent_bytes_max,
        };
        let built = self.env.blocking(move || unit::build(of, sources)).await?;
        let object = match built.parts.is_empty() {
            true => None,
            false => Some(rewrite::put(reader, &key, built.parts).await?),
        };
        let terms = terms_now(self.metadata, self.policy, partition.topic).await?;
        if terms != Some(self.named.terms) {
            rewrite::discard(reader, object.as_deref()).await?;
            return Ok(false);
        }
        let keys: Vec<_> = built.sources.iter().map(cache_key).collect();
        let replacement = Replacement {
            partition,
            sources: built.sources,
            replacement: built.extents,
            object_size: built.size,
            joins_object: false,
            forgotten_aborts: built.forgotten_aborts,
        };
        if !rewrite::swap(self.log, self.metadata, object.as_deref(), &replacement).await? {
            return Ok(false);
        }
        reader.cache.replace(&keys, Vec::new());
        let bytes = |extents: &[Extent]| extents.iter().map(Extent::bytes).sum::<u64>();
        let (before, after) = (bytes(&replacement.sources), bytes(&replacement.replacement));
        self.counts.replacements += 1;
        self.counts.bytes_written += after;
        self.counts.bytes_removed += before.saturating_sub(after);
        Ok(true)
    }
}

/// Notes the keys of these blocks. False where there was no room for all of them.
fn note_blocks<'b>(
    newest: &mut NewestOffsets,
    blocks: impl Iterator<Item = &'b Block>,
    aborted: &Aborted,
    dirty: Range<i64>,
    decompressed_bytes_max: usize,
) -> Result<bool> {
    for block in blocks {
        for batch in kfs::batches(&block.bytes) {
            let batch = batch.map_err(corrupt)?;
            let header = &batch.header;
            if header.last_offset() < dirty.start || header.base_offset >= dirty.end {
                continue;
            }
            let noted = note_keys(newest, &batch, aborted, dirty.start, decompressed_bytes_max);
            if noted.map_err(corrupt)?.is_err() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn corrupt(error: kfs::BatchError) -> Error {
    Error::corrupt("compacting extents").with_source(error)
}

/// The extents of a range of offsets, a few MiB at a time.
struct Sources {
    partition: TopicPartition,
    next: i64,
    until: i64,
    is_first: bool,
    /// An extent does not begin where the one before ended: they have been replaced meanwhile.
    has_changed: bool,
    page: VecDeque<Extent>,
}

impl Sources {
    /// The next extents, whole ones, by offset. `None` behind the last.
    async fn next(&mut self, metadata: &MetadataStore) -> Result<Option<Vec<Extent>>> {
        let (mut extents, mut bytes) = (Vec::new(), 0);
        while bytes < READ_BYTES_MAX && self.next < self.until {
            if self.page.is_empty() {
                let page = metadata.extents(self.partition, self.next, EXTENTS_PER_QUERY).await?;
                self.page = page.map(|page| page.extents).unwrap_or_default().into();
            }
            let Some(extent) = self.page.pop_front() else { break };
            if extent.base_offset >= self.until {
                break;
            }
            self.has_changed |= !self.is_first && extent.base_offset != self.next;
            self.is_first = false;
            self.next = extent.last_offset + 1;
            bytes += extent.bytes();
            extents.push(extent);
        }
        Ok((!extents.is_empty()).then_some(extents))
    }
}
