//! Making a merged object: reading, putting, and swapping partition by partition.

use super::group::{Group, Run};
use super::object::{self, Merge, MergedObject, MergedSection, Section};
use super::{Going, Inner};
use crate::blocks::BlocksKey;
use crate::keys::{merged_key, shared_key};
use crate::loads::cache_key;
use crate::rewrite;
use floe_env::{Error, Result};
use floe_metadata::rows::{Extent, Replacement};

/// Why a merge was not made.
enum Failed {
    /// Nothing was put: one partition's sources may be at fault.
    Sources(Error),
    /// The object may be there.
    Other(Error),
}

impl Failed {
    fn error(&self) -> &Error {
        match self {
            Self::Sources(error) | Self::Other(error) => error,
        }
    }
}

impl Inner {
    /// Makes an object of the runs and swaps their extents, unless they have changed meanwhile.
    /// Where one partition's records cannot be read, the others are merged all the same.
    pub(super) async fn make(&self, group: Group, round: &mut Going) {
        let mut runs = group.runs;
        if runs.len() == 1
            && let Some(run) = runs.pop()
        {
            return self.make_alone(run, round).await;
        }
        match self.try_make(&runs, round).await {
            Ok(()) => {}
            Err(Failed::Sources(error)) if !error.is_transient() => {
                for run in runs {
                    self.make_alone(run, round).await;
                }
            }
            Err(failed) => {
                let partitions: Vec<_> = runs.iter().map(|run| run.partition).collect();
                round.failed(&partitions, failed.error());
            }
        }
    }

    async fn make_alone(&self, run: Run, round: &mut Going) {
        let partition = run.partition;
        let made = self.try_make(&[run], round).await;
        match &made {
            Err(Failed::Sources(error)) if !error.is_transient() => {
                round.unreadable.insert(partition);
            }
            _ => {
                round.unreadable.remove(&partition);
            }
        }
        if let Err(failed) = made {
            round.failed(&[partition], failed.error());
        }
    }

    async fn try_make(&self, runs: &[Run], round: &mut Going) -> Result<(), Failed> {
        let (merge, built) = self.build(runs).await.map_err(Failed::Sources)?;
        let put = rewrite::put(self.log.reader(), &merge.key, built.parts).await;
        let object = put.map_err(Failed::Other)?;
        let mut swaps = Swaps { is_named: false, is_in_doubt: false, object_size: built.size };
        let swapped = self.swap_all(merge.sections, built.sections, &mut swaps, round).await;
        if swaps.is_named {
            round.done.merges += 1;
        } else if !swaps.is_in_doubt {
            self.log.reader().store.delete(&[object]).await.map_err(Failed::Other)?;
        }
        swapped.map_err(Failed::Other)
    }

    /// Reads the sources, and builds the object.
    async fn build(&self, runs: &[Run]) -> Result<(Merge, MergedObject)> {
        let id = self.log.next_merge_id();
        let key = match runs {
            [run] => {
                let base_offset = run.sources.first().map_or(0, |source| source.base_offset);
                merged_key(run.partition, base_offset, id)
            }
            _ => shared_key(id),
        };
        let mut sections = Vec::with_capacity(runs.len());
        for run in runs {
            sections.push(self.section(run).await?);
        }
        let merge = Merge {
            cluster: self.log.config().cluster,
            key,
            extent_bytes_max: self.rules.extent_bytes_max,
            sections,
        };
        let sources: Vec<Extent> = runs.iter().flat_map(|run| run.sources.clone()).collect();
        let blocks = self.log.reader().blocks_once(&sources).await?;
        let (built, merge) =
            self.env.blocking(move || (object::build(&merge, blocks), merge)).await;
        Ok((merge, built?))
    }

    async fn section(&self, run: &Run) -> Result<Section> {
        let reader = self.log.reader();
        let is_cached =
            |source: &Extent| cache_key(source).is_none_or(|key| reader.cache.peek(&key).is_some());
        let aborted = rewrite::aborted(&self.metadata, run.partition, &run.sources).await?;
        Ok(Section {
            partition: run.partition,
            topic_name: run.topic_name.clone(),
            sources: run.sources.clone(),
            aborted: rewrite::footer(&aborted),
            cached: run.sources.iter().map(is_cached).collect(),
        })
    }

    /// Swaps the extents of one partition after the other; the first error ends it.
    async fn swap_all(
        &self,
        sections: Vec<Section>,
        merged: Vec<MergedSection>,
        swaps: &mut Swaps,
        round: &mut Going,
    ) -> Result<()> {
        for (section, MergedSection { extents, blocks }) in sections.into_iter().zip(merged) {
            let replacement = Replacement {
                partition: section.partition,
                sources: section.sources,
                replacement: extents,
                object_size: swaps.object_size,
                joins_object: swaps.is_named,
                forgotten_aborts: Vec::new(),
            };
            let swapped = rewrite::swap_extents(&self.log, &self.metadata, &replacement).await;
            swaps.is_in_doubt |= swapped.is_err() && !rewrite::is_certainly_not(&swapped);
            if !swapped? {
                continue;
            }
            swaps.is_named = true;
            let keys: Vec<Option<BlocksKey>> = replacement.sources.iter().map(cache_key).collect();
            self.log.reader().cache.replace(&keys, blocks);
            round.done.sources += keys.len();
            round.done.bytes += replacement.sources.iter().map(Extent::bytes).sum::<u64>();
        }
        Ok(())
    }
}

/// What is known of an object's swaps.
struct Swaps {
    /// A partition names it.
    is_named: bool,
    /// A partition may name it.
    is_in_doubt: bool,
    object_size: u64,
}
