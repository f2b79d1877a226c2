//! Partitions and their extents.

use super::error::SqlResult;
use super::fresh::{self, FreshExtents};
use super::{facts, objects, sql_limit};
use crate::codec::{self, stored_unsigned, to_stored};
use crate::facts::Fence;
use crate::fresh::{PartitionRow, Placed, Released, Wanted, page_of};
use crate::rows::{AbortedInRange, AbortedTransaction, Extent, ExtentPage, PartitionState, Place};
use crate::validate;
use floe_env::Error;
use kfs::{ProducerId, TopicPartition};
use rusqlite::{Connection, Row, params};
use std::ops::Range;

/// The columns that `extent_of_row` takes.
macro_rules! select_extent {
    ($rest:literal) => {
        concat!(
            "SELECT e.base_offset, e.last_offset, o.key, e.position, e.length, e.place, e.flags,
                 e.max_timestamp_ms
             FROM extents e LEFT JOIN objects o ON o.id = e.object
             WHERE e.topic = ?1 AND e.partition = ?2 ",
            $rest
        )
    };
}

fn extent_of_row(row: &Row<'_>) -> SqlResult<Extent> {
    let marker: Option<Vec<u8>> = row.get(5)?;
    let place = match (marker, row.get(2)?) {
        (Some(bytes), None) => codec::decode_place(&bytes)?,
        (None, Some(key)) => Place::Range {
            key,
            position: stored_unsigned(row.get(3)?)?,
            length: stored_unsigned(row.get(4)?)?,
        },
        _ => return Err(Error::corrupt("an extent has no place, or two").into()),
    };
    let (offset_mode, timestamp_type, has_transactional) = codec::decode_flags(row.get(6)?)?;
    Ok(Extent {
        base_offset: row.get(0)?,
        last_offset: row.get(1)?,
        place,
        offset_mode,
        max_timestamp_ms: row.get(7)?,
        timestamp_type,
        has_transactional,
    })
}

pub(crate) fn partition_row(
    sql: &Connection,
    partition: TopicPartition,
) -> SqlResult<Option<PartitionRow>> {
    let mut statement = sql.prepare_cached(
        "SELECT version, log_start_offset, high_watermark, last_stable_offset, bytes, fresh_from
         FROM partitions WHERE topic = ?1 AND partition = ?2",
    )?;
    let mut rows = statement.query((partition.topic.0.as_bytes(), partition.partition.0))?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    Ok(Some(PartitionRow { state: state_of_row(row)?, fresh_from: row.get(5)? }))
}

/// A partition's state of the first five columns.
pub(crate) fn state_of_row(row: &Row<'_>) -> SqlResult<PartitionState> {
    Ok(PartitionState {
        version: stored_unsigned(row.get(0)?)?,
        log_start_offset: row.get(1)?,
        high_watermark: row.get(2)?,
        last_stable_offset: row.get(3)?,
        bytes: stored_unsigned(row.get(4)?)?,
    })
}

/// States in the order asked. Partitions that follow one another in their topic are one step each
/// in a scan, where each would be a search: background jobs ask for all of them, time and again.
pub(crate) fn partition_states(
    sql: &Connection,
    partitions: &[TopicPartition],
) -> SqlResult<Vec<Option<PartitionState>>> {
    let mut statement = sql.prepare_cached(
        "SELECT version, log_start_offset, high_watermark, last_stable_offset, bytes, partition
         FROM partitions WHERE topic = ?1 AND partition BETWEEN ?2 AND ?3 ORDER BY partition",
    )?;
    let mut states = Vec::with_capacity(partitions.len());
    for run in partitions.chunk_by(is_next) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let asked = (first.topic.0.as_bytes(), first.partition.0, last.partition.0);
        let mut rows = statement.query(asked)?;
        let mut found = rows.next()?;
        for partition in run {
            let state = match found {
                Some(row) if row.get::<_, i32>(5)? == partition.partition.0 => {
                    Some(state_of_row(row)?)
                }
                _ => None,
            };
            if state.is_some() {
                found = rows.next()?;
            }
            states.push(state);
        }
    }
    Ok(states)
}

/// Whether a partition is the next of the same topic.
fn is_next(one: &TopicPartition, other: &TopicPartition) -> bool {
    one.topic == other.topic && one.partition.0.checked_add(1) == Some(other.partition.0)
}

pub(crate) fn update_partition(
    sql: &Connection,
    partition: TopicPartition,
    state: &PartitionState,
) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "UPDATE partitions SET version = ?3, log_start_offset = ?4, high_watermark = ?5,
             last_stable_offset = ?6, bytes = ?7
         WHERE topic = ?1 AND partition = ?2",
    )?;
    statement.execute((
        partition.topic.0.as_bytes(),
        partition.partition.0,
        to_stored(state.version)?,
        state.log_start_offset,
        state.high_watermark,
        state.last_stable_offset,
        to_stored(state.bytes)?,
    ))?;
    Ok(())
}

pub(crate) fn create_partition(
    sql: &Connection,
    partition: TopicPartition,
    offset: i64,
) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "INSERT INTO partitions VALUES (?1, ?2, 0, ?3, ?3, ?3, 0, ?3, x'')
         ON CONFLICT DO NOTHING",
    )?;
    let made = statement.execute((partition.topic.0.as_bytes(), partition.partition.0, offset))?;
    if made == 1 { Ok(()) } else { Err(validate::partition_exists(partition).into()) }
}

/// Drops partitions that exist, with all that is theirs.
pub(crate) fn drop_partitions(
    fresh: FreshExtents<'_>,
    partitions: &[TopicPartition],
    now_ms: i64,
) -> SqlResult<()> {
    let sql = fresh.sql;
    let mut wanted = Vec::with_capacity(partitions.len());
    for partition in partitions {
        if let Some(row) = partition_row(sql, *partition)? {
            wanted.push(wanted_of(sql, *partition, row.fresh_range())?);
        }
    }
    for extents in fresh.find_all(wanted)? {
        fresh::drop_all(sql, &extents, now_ms)?;
    }
    for partition in partitions {
        dereference_below(sql, *partition, i64::MAX, now_ms)?;
        let named = (partition.topic.0.as_bytes(), partition.partition.0);
        for statement in [
            "DELETE FROM partitions WHERE topic = ?1 AND partition = ?2",
            "DELETE FROM extents WHERE topic = ?1 AND partition = ?2",
            "DELETE FROM producers WHERE topic = ?1 AND partition = ?2",
            "DELETE FROM aborted WHERE topic = ?1 AND partition = ?2",
        ] {
            sql.prepare_cached(statement)?.execute(named)?;
        }
    }
    Ok(())
}

/// Takes away the references of all extents with rows that end below an offset, and answers their
/// bytes.
fn dereference_below(
    sql: &Connection,
    partition: TopicPartition,
    offset: i64,
    now_ms: i64,
) -> SqlResult<i64> {
    let mut statement = sql.prepare_cached(
        "SELECT object, sum(length) FROM extents
         WHERE topic = ?1 AND partition = ?2 AND base_offset < ?3 AND last_offset < ?3
             AND object IS NOT NULL
         GROUP BY object",
    )?;
    let named = (partition.topic.0.as_bytes(), partition.partition.0, offset);
    let mut rows = statement.query(named)?;
    let mut total = 0;
    while let Some(row) = rows.next()? {
        let (object, bytes): (i64, i64) = (row.get(0)?, row.get(1)?);
        objects::release(sql, object, Released { extents: 0, bytes }, now_ms)?;
        total += bytes;
    }
    Ok(total)
}

/// Inserts an extent; `object` is the row id of the object that it names.
pub(crate) fn insert_extent(
    sql: &Connection,
    partition: TopicPartition,
    extent: &Extent,
    object: Option<i64>,
) -> SqlResult<()> {
    let mut statement =
        sql.prepare_cached("INSERT INTO extents VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
    let range = match &extent.place {
        Place::Range { position, length, .. } => Some((to_stored(*position)?, to_stored(*length)?)),
        Place::Marker { .. } | Place::Hole => None,
    };
    statement.execute(params![
        partition.topic.0.as_bytes(),
        partition.partition.0,
        extent.base_offset,
        extent.last_offset,
        range.and(object),
        range.map(|(position, _)| position),
        range.map(|(_, length)| length),
        codec::encode_place(&extent.place),
        codec::extent_flags(extent.offset_mode, extent.timestamp_type, extent.has_transactional),
        extent.max_timestamp_ms,
    ])?;
    Ok(())
}

pub(crate) fn extents(
    fresh: FreshExtents<'_>,
    partition: TopicPartition,
    offset: i64,
    limit: usize,
) -> SqlResult<Option<ExtentPage>> {
    let Some(row) = partition_row(fresh.sql, partition)? else {
        return Ok(None);
    };
    let extents = extents_of(fresh, partition, &row, offset, limit)?;
    fresh.forget_below(partition, row.fresh_range().start);
    Ok(Some(ExtentPage { state: row.state, extents }))
}

/// Up to `limit` extents from the one that holds `offset`.
pub(crate) fn extents_of(
    fresh: FreshExtents<'_>,
    partition: TopicPartition,
    row: &PartitionRow,
    offset: i64,
    limit: usize,
) -> SqlResult<Vec<Extent>> {
    let rows = extents_with_rows(fresh.sql, partition, offset, limit)?;
    let wanted = Wanted::behind(partition, row, &rows, (offset, limit));
    Ok(page_of(rows, &fresh.find(wanted)?, limit))
}

/// All fresh extents of a range, which begins at or behind the partition's `fresh_from`.
pub(crate) fn wanted_of(
    sql: &Connection,
    partition: TopicPartition,
    range: Range<i64>,
) -> SqlResult<Wanted> {
    let mut statement = sql.prepare_cached(
        "SELECT base_offset FROM extents
         WHERE topic = ?1 AND partition = ?2 AND base_offset >= ?3 AND base_offset < ?4
         ORDER BY base_offset",
    )?;
    let (topic, index) = (partition.topic.0.as_bytes(), partition.partition.0);
    let markers = statement.query_map((topic, index, range.start, range.end), |row| row.get(0))?;
    let markers = markers.collect::<rusqlite::Result<_>>()?;
    Ok(Wanted { partition, range, limit: usize::MAX, markers })
}

fn extents_with_rows(
    sql: &Connection,
    partition: TopicPartition,
    offset: i64,
    limit: usize,
) -> SqlResult<Vec<Extent>> {
    // The subquery finds the extent that holds the offset, so that the scan begins there.
    let mut statement = sql.prepare_cached(select_extent!(
        "AND e.base_offset >= coalesce((
             SELECT base_offset FROM extents
             WHERE topic = ?1 AND partition = ?2 AND base_offset <= ?3
             ORDER BY base_offset DESC LIMIT 1), ?3)
         AND e.last_offset >= ?3
         ORDER BY e.base_offset LIMIT ?4"
    ))?;
    let named = (partition.topic.0.as_bytes(), partition.partition.0, offset, sql_limit(limit));
    let mut rows = statement.query(named)?;
    let mut extents = Vec::new();
    while let Some(row) = rows.next()? {
        extents.push(extent_of_row(row)?);
    }
    Ok(extents)
}

/// All fresh extents of a partition.
fn all_fresh(
    fresh: FreshExtents<'_>,
    partition: TopicPartition,
    row: &PartitionRow,
) -> SqlResult<Vec<Placed>> {
    let found = fresh.find(wanted_of(fresh.sql, partition, row.fresh_range())?)?;
    fresh.forget_below(partition, row.fresh_range().start);
    Ok(found)
}

pub(crate) fn extent_by_time(
    fresh: FreshExtents<'_>,
    partition: TopicPartition,
    timestamp_ms: i64,
) -> SqlResult<Option<(PartitionState, Option<Extent>)>> {
    let sql = fresh.sql;
    let Some(row) = partition_row(sql, partition)? else {
        return Ok(None);
    };
    let mut statement = sql.prepare_cached(select_extent!(
        "AND e.max_timestamp_ms >= ?3 ORDER BY e.base_offset LIMIT 1"
    ))?;
    let named = (partition.topic.0.as_bytes(), partition.partition.0, timestamp_ms);
    let mut rows = statement.query(named)?;
    let with_row = rows.next()?.map(extent_of_row).transpose()?;
    if with_row.as_ref().is_some_and(|extent| extent.base_offset < row.fresh_from) {
        return Ok(Some((row.state, with_row)));
    }
    let placed = all_fresh(fresh, partition, &row)?;
    let found = crate::fresh::first_at_time(&placed, timestamp_ms);
    Ok(Some((row.state, crate::fresh::first_of(with_row, found))))
}

pub(crate) fn extent_of_max_timestamp(
    fresh: FreshExtents<'_>,
    partition: TopicPartition,
) -> SqlResult<Option<(PartitionState, Option<Extent>)>> {
    let sql = fresh.sql;
    let Some(row) = partition_row(sql, partition)? else {
        return Ok(None);
    };
    let mut statement = sql.prepare_cached(select_extent!(
        "ORDER BY e.max_timestamp_ms DESC, e.base_offset LIMIT 1"
    ))?;
    let mut rows = statement.query((partition.topic.0.as_bytes(), partition.partition.0))?;
    let before = rows.next()?.map(extent_of_row).transpose()?;
    let placed = all_fresh(fresh, partition, &row)?;
    Ok(Some((row.state, crate::fresh::newest(before, &placed))))
}

pub(crate) fn aborted(
    sql: &Connection,
    partition: TopicPartition,
    from: i64,
    until: i64,
) -> SqlResult<Option<AbortedInRange>> {
    let Some(PartitionRow { state, .. }) = partition_row(sql, partition)? else {
        return Ok(None);
    };
    let mut statement = sql.prepare_cached(
        "SELECT producer, first_offset, last_offset, last_stable_offset FROM aborted
         WHERE topic = ?1 AND partition = ?2 AND last_offset >= ?3 AND first_offset < ?4
             AND last_offset <= coalesce((
                 SELECT last_offset FROM aborted
                 WHERE topic = ?1 AND partition = ?2 AND last_offset >= ?3
                     AND last_stable_offset >= ?4
                 ORDER BY last_offset LIMIT 1), ?5)
         ORDER BY last_offset",
    )?;
    // Behind one that left everything before `until` stable, none can begin before it.
    let named = (partition.topic.0.as_bytes(), partition.partition.0, from, until, i64::MAX);
    let rows = statement.query_map(named, |row| {
        Ok(AbortedTransaction {
            producer: ProducerId(row.get(0)?),
            first_offset: row.get(1)?,
            last_offset: row.get(2)?,
            last_stable_offset: row.get(3)?,
        })
    })?;
    let transactions = rows.collect::<rusqlite::Result<_>>()?;
    Ok(Some(AbortedInRange { state, transactions }))
}

pub(crate) fn advance_log_start(
    fresh: FreshExtents<'_>,
    fence: Option<&Fence>,
    (partition, offset): (TopicPartition, i64),
    now_ms: i64,
) -> SqlResult<Option<PartitionState>> {
    let sql = fresh.sql;
    fence.into_iter().try_for_each(|fence| facts::check_fence(sql, fence))?;
    let Some(row) = partition_row(sql, partition)? else {
        return Ok(None);
    };
    let mut state = row.state;
    let log_start = offset.min(state.high_watermark);
    if log_start <= state.log_start_offset {
        return Ok(Some(state));
    }
    let range = row.fresh_range().start..log_start;
    let mut gone = fresh.find(wanted_of(sql, partition, range)?)?;
    gone.retain(|one| one.extent.last_offset < log_start);
    fresh::drop_all(sql, &gone, now_ms)?;
    let dropped = stored_unsigned(dereference_below(sql, partition, log_start, now_ms)?)?
        + gone.iter().map(|one| one.extent.length).sum::<u64>();
    let named = (partition.topic.0.as_bytes(), partition.partition.0, log_start);
    for statement in [
        "DELETE FROM extents
         WHERE topic = ?1 AND partition = ?2 AND base_offset < ?3 AND last_offset < ?3",
        "DELETE FROM aborted WHERE topic = ?1 AND partition = ?2 AND last_offset < ?3",
    ] {
        sql.prepare_cached(statement)?.execute(named)?;
    }
    state.log_start_offset = log_start;
    state.last_stable_offset = state.last_stable_offset.max(log_start);
    state.version += 1;
    let bytes = state.bytes.checked_sub(dropped);
    state.bytes =
        bytes.ok_or_else(|| Error::corrupt("a partition has fewer bytes than extents"))?;
    update_partition(sql, partition, &state)?;
    Ok(Some(state))
}
