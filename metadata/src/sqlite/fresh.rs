//! Packed rows: how they are found, and what becomes of them when their extents are no longer
//! fresh.

use super::error::SqlResult;
use super::{log, objects};
use crate::codec;
use crate::fresh::{FreshIndex, FreshSegment, Placed, Search, Wanted, released};
use crate::rows::FreshBounds;
use crate::validate::UNPACKED_PARTITIONS_MAX;
use floe_env::Error;
use kfs::TopicPartition;
use rusqlite::{Connection, OptionalExtension};
use std::collections::BTreeSet;

/// Finds fresh extents in a transaction.
#[derive(Clone, Copy)]
pub(crate) struct FreshExtents<'a> {
    pub(crate) sql: &'a Connection,
    index: &'a FreshIndex,
    /// What it reads is committed, so that the index may remember it.
    sees_committed: bool,
}

impl<'a> FreshExtents<'a> {
    /// For a reader.
    pub(crate) fn for_reader(sql: &'a Connection, index: &'a FreshIndex) -> Self {
        Self { sql, index, sees_committed: true }
    }

    /// For the writer, whose transaction may still be rolled back with what it reads.
    pub(crate) fn for_writer(sql: &'a Connection, index: &'a FreshIndex) -> Self {
        Self { sql, index, sees_committed: false }
    }

    /// The extents of each partition that hold the offsets wanted.
    pub(crate) fn find_all(&self, wanted: Vec<Wanted>) -> SqlResult<Vec<Vec<Placed>>> {
        let mut search = Search::new(self.index, wanted);
        if search.is_complete() {
            return Ok(search.into_found());
        }
        let known = self.index.known();
        // Row ids grow in the order of commits, so what is missing mostly is behind what is known;
        // not so where the index began anew, or where another reader saw a later moment.
        for (after, known) in
            [(newest(&known), &known), (i64::MIN, &known), (i64::MIN, &BTreeSet::new())]
        {
            self.each_segment(after, known, |segment| search.show(segment))?;
            if search.is_complete() {
                return Ok(search.into_found());
            }
        }
        Err(Error::corrupt("a partition's fresh extents have a gap").into())
    }

    /// The same of one partition.
    pub(crate) fn find(&self, wanted: Wanted) -> SqlResult<Vec<Placed>> {
        Ok(self.find_all(vec![wanted])?.pop().unwrap_or_default())
    }

    /// Forgets what is no longer fresh.
    pub(crate) fn forget_below(&self, partition: TopicPartition, offset: i64) {
        if self.sees_committed {
            self.index.forget_below(partition, offset);
        }
    }

    /// Brings the index up to date.
    pub(crate) fn refresh(&self) -> SqlResult<()> {
        let known = self.index.known();
        self.each_segment(newest(&known), &known, |_| ())
    }

    /// Reads the segments after a row id but those known, one after the other.
    fn each_segment(
        &self,
        after: i64,
        known: &BTreeSet<i64>,
        mut show: impl FnMut(&FreshSegment),
    ) -> SqlResult<()> {
        let mut ids = self.sql.prepare_cached(
            "SELECT object FROM fresh_segments WHERE object > ?1 ORDER BY object",
        )?;
        let mut missing: Vec<i64> = Vec::new();
        let mut rows = ids.query([after])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            if !known.contains(&id) {
                missing.push(id);
            }
        }
        for id in missing {
            let segment = segment(self.sql, id)?;
            if self.sees_committed {
                self.index.insert(&segment);
            }
            show(&segment);
        }
        Ok(())
    }
}

fn newest(known: &BTreeSet<i64>) -> i64 {
    known.last().copied().unwrap_or(i64::MIN)
}

/// A packed row by its object's row id.
fn segment(sql: &Connection, object: i64) -> SqlResult<FreshSegment> {
    let mut statement = sql.prepare_cached(
        "SELECT o.key, f.extents FROM fresh_segments f JOIN objects o ON o.id = f.object
         WHERE f.object = ?1",
    )?;
    let (key, extents): (String, Vec<u8>) =
        statement.query_row([object], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(FreshSegment { object, key: key.into(), extents: codec::decode_fresh(&extents)? })
}

/// Takes fresh extents away from their objects, with the references that they are.
pub(crate) fn drop_all(sql: &Connection, gone: &[Placed], now_ms: i64) -> SqlResult<()> {
    for (object, released) in released(gone) {
        objects::release(sql, object, released, now_ms)?;
    }
    Ok(())
}

/// Gives fresh extents rows of their own, in place.
pub(crate) fn unpack(
    sql: &Connection,
    partition: TopicPartition,
    extents: &[Placed],
    now_ms: i64,
) -> SqlResult<()> {
    for one in extents {
        log::insert_extent(sql, partition, &one.to_extent(), Some(one.object))?;
    }
    for (object, released) in released(extents) {
        let still_named = crate::fresh::Released { bytes: 0, ..released };
        objects::release(sql, object, still_named, now_ms)?;
    }
    Ok(())
}

/// Sets where a partition's fresh extents begin.
pub(crate) fn begin_from(
    sql: &Connection,
    partition: TopicPartition,
    offset: i64,
) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "UPDATE partitions SET fresh_from = ?3 WHERE topic = ?1 AND partition = ?2",
    )?;
    statement.execute((partition.topic.0.as_bytes(), partition.partition.0, offset))?;
    Ok(())
}

/// See [`Backend::unpack_fresh`](crate::Backend::unpack_fresh).
pub(crate) fn unpack_oldest(
    fresh: FreshExtents<'_>,
    kept: FreshBounds,
    now_ms: i64,
) -> SqlResult<usize> {
    let sql = fresh.sql;
    let Some(oldest) = oldest_beyond(sql, kept)? else {
        return Ok(0);
    };
    let mut wanted: Vec<Wanted> = Vec::new();
    for (partition, extent) in segment(sql, oldest)?.extents {
        if let Some(last) = wanted.last_mut().filter(|last| last.partition == partition) {
            last.range.end = extent.last_offset + 1;
            continue;
        }
        if wanted.len() == UNPACKED_PARTITIONS_MAX {
            break;
        }
        let Some(row) = log::partition_row(sql, partition)? else { continue };
        let range = row.fresh_range().start..extent.last_offset + 1;
        if !range.is_empty() {
            wanted.push(log::wanted_of(sql, partition, range)?);
        }
    }
    let found = fresh.find_all(wanted.clone())?;
    for (wanted, extents) in wanted.iter().zip(&found) {
        unpack(sql, wanted.partition, extents, now_ms)?;
        begin_from(sql, wanted.partition, wanted.range.end)?;
    }
    Ok(wanted.len())
}

/// The oldest packed row, where there are more than are kept.
fn oldest_beyond(sql: &Connection, kept: FreshBounds) -> SqlResult<Option<i64>> {
    let mut statement = sql.prepare_cached(
        "SELECT min(f.object), count(*), sum(o.fresh_extents)
         FROM fresh_segments f JOIN objects o ON o.id = f.object",
    )?;
    let counted: Option<(Option<i64>, i64, Option<i64>)> =
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((oldest, segments, extents)) = counted else {
        return Ok(None);
    };
    let is_within = segments <= super::sql_limit(kept.segments)
        && extents.unwrap_or(0) <= super::sql_limit(kept.extents);
    Ok(oldest.filter(|_| !is_within))
}
