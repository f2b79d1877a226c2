//! The replacement of extents by another place of the same records.

use super::error::SqlResult;
use super::fresh::FreshExtents;
use super::{facts, fresh, log, objects};
use crate::facts::{ChangeOutcome, Fence};
use crate::fresh::{Placed, Released, released};
use crate::rows::{Extent, Place, Replacement};
use crate::validate;
use floe_env::Error;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;

/// What a replacement works with.
pub(crate) struct Replacer<'a> {
    pub(crate) fresh: FreshExtents<'a>,
    pub(crate) object_ids: &'a AtomicI64,
    pub(crate) now_ms: i64,
}

impl Replacer<'_> {
    pub(crate) fn replace(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> SqlResult<ChangeOutcome> {
        let (sql, sources) = (self.fresh.sql, &replacement.sources);
        facts::check_fence(sql, fence)?;
        let partition = replacement.partition;
        let (Some(first), Some(last)) = (sources.first(), sources.last()) else {
            return Ok(ChangeOutcome::Rejected);
        };
        let Some(row) = log::partition_row(sql, partition)? else {
            return Ok(ChangeOutcome::Rejected);
        };
        let found = log::extents_of(self.fresh, partition, &row, first.base_offset, sources.len())?;
        if &found != sources {
            return Ok(ChangeOutcome::Rejected);
        }
        if replacement.joins_object {
            for key in validate::named_objects(replacement) {
                if !objects::is_alive(sql, key)? {
                    return Ok(ChangeOutcome::Rejected);
                }
            }
        }
        let after_sources = last.last_offset + 1;
        if after_sources > row.fresh_from {
            self.take_fresh(replacement, row.fresh_range().start)?;
            fresh::begin_from(sql, partition, after_sources)?;
        }
        let ids = self.count_references(replacement)?;
        let mut state = row.state;
        let mut delete = sql.prepare_cached(
            "DELETE FROM extents WHERE topic = ?1 AND partition = ?2 AND base_offset = ?3",
        )?;
        for source in sources {
            let named = (partition.topic.0.as_bytes(), partition.partition.0, source.base_offset);
            delete.execute(named)?;
            state.bytes = state.bytes.saturating_sub(source.bytes());
        }
        for extent in &replacement.replacement {
            let object = match &extent.place {
                Place::Range { key, .. } => ids.get(key.as_str()).copied(),
                Place::Marker { .. } | Place::Hole => None,
            };
            log::insert_extent(sql, partition, extent, object)?;
            state.bytes += extent.bytes();
        }
        let mut forget = sql.prepare_cached(
            "DELETE FROM aborted WHERE topic = ?1 AND partition = ?2 AND last_offset = ?3",
        )?;
        for marker in &replacement.forgotten_aborts {
            forget.execute((partition.topic.0.as_bytes(), partition.partition.0, marker))?;
        }
        state.version += 1;
        log::update_partition(sql, partition, &state)?;
        Ok(ChangeOutcome::Applied)
    }

    /// Makes sources that are fresh no longer so, and gives rows to the fresh extents before them.
    /// Bytes are counted by key, with those of all sources.
    fn take_fresh(&self, replacement: &Replacement, fresh_from: i64) -> SqlResult<()> {
        let partition = replacement.partition;
        let run = |extents: &[Extent]| {
            extents.first().map_or(0, |first| first.base_offset)
                ..extents.last().map_or(0, |last| last.last_offset + 1)
        };
        let sources = run(&replacement.sources);
        let range = fresh_from..sources.end;
        let found = self.fresh.find(log::wanted_of(self.fresh.sql, partition, range)?)?;
        let at = found.partition_point(|one| one.extent.base_offset < sources.start);
        let (before, taken): (&[Placed], &[Placed]) = found.split_at(at);
        fresh::unpack(self.fresh.sql, partition, before, self.now_ms)?;
        for (object, gone) in released(taken) {
            let counted_by_key = Released { bytes: 0, ..gone };
            objects::release(self.fresh.sql, object, counted_by_key, self.now_ms)?;
        }
        Ok(())
    }

    /// Counts references up or down, and answers the objects' row ids.
    fn count_references<'r>(
        &self,
        replacement: &'r Replacement,
    ) -> SqlResult<BTreeMap<&'r str, i64>> {
        let (sql, now_ms) = (self.fresh.sql, self.now_ms);
        let mut ids = BTreeMap::new();
        for (key, change) in validate::reference_changes(replacement) {
            let id = if change > 0 {
                let new_id = objects::next_id(self.object_ids);
                objects::reference(sql, new_id, key, replacement.object_size, change, now_ms)?
            } else {
                let id = objects::id(sql, key)?;
                let id = id.ok_or_else(|| Error::corrupt(format!("object {key} has no row")))?;
                objects::release(sql, id, Released { extents: 0, bytes: -change }, now_ms)?;
                id
            };
            ids.insert(key, id);
        }
        Ok(ids)
    }
}
