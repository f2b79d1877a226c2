//! Partitions and their extents.

use super::error::{SqlError, SqlResult};
use super::{commit, facts, objects, sql_limit};
use crate::codec::{self, stored_unsigned, to_stored};
use crate::facts::{ChangeOutcome, Fence};
use crate::rows::{
    AbortedTransaction, Extent, ExtentPage, PartitionState, Place, ProducerState, Replacement,
};
use crate::validate;
use floe_env::Error;
use kfs::{ProducerId, TopicPartition};
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;

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

pub(crate) fn partition_state(
    sql: &Connection,
    partition: TopicPartition,
) -> SqlResult<Option<PartitionState>> {
    let mut statement = sql.prepare_cached(
        "SELECT version, log_start_offset, high_watermark, last_stable_offset, bytes
         FROM partitions WHERE topic = ?1 AND partition = ?2",
    )?;
    let mut rows = statement.query((partition.topic.0.as_bytes(), partition.partition.0))?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    Ok(Some(PartitionState {
        version: stored_unsigned(row.get(0)?)?,
        log_start_offset: row.get(1)?,
        high_watermark: row.get(2)?,
        last_stable_offset: row.get(3)?,
        bytes: stored_unsigned(row.get(4)?)?,
    }))
}

pub(crate) fn partition_states(
    sql: &Connection,
    partitions: &[TopicPartition],
) -> SqlResult<Vec<Option<PartitionState>>> {
    partitions.iter().map(|partition| partition_state(sql, *partition)).collect()
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

pub(crate) fn create_partition(sql: &Connection, partition: TopicPartition) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "INSERT INTO partitions VALUES (?1, ?2, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING",
    )?;
    let made = statement.execute((partition.topic.0.as_bytes(), partition.partition.0))?;
    if made == 1 { Ok(()) } else { Err(validate::partition_exists(partition).into()) }
}

pub(crate) fn drop_partition(
    sql: &Connection,
    partition: TopicPartition,
    now_ms: i64,
) -> SqlResult<()> {
    dereference_below(sql, partition, i64::MAX, now_ms)?;
    let named = (partition.topic.0.as_bytes(), partition.partition.0);
    for statement in [
        "DELETE FROM partitions WHERE topic = ?1 AND partition = ?2",
        "DELETE FROM extents WHERE topic = ?1 AND partition = ?2",
        "DELETE FROM producers WHERE topic = ?1 AND partition = ?2",
        "DELETE FROM aborted WHERE topic = ?1 AND partition = ?2",
    ] {
        sql.prepare_cached(statement)?.execute(named)?;
    }
    Ok(())
}

/// Takes away the references of all extents that end below an offset, and answers their bytes.
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
        objects::dereference(sql, object, bytes, now_ms)?;
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
    sql: &Connection,
    partition: TopicPartition,
    offset: i64,
    limit: usize,
) -> SqlResult<Option<ExtentPage>> {
    let Some(state) = partition_state(sql, partition)? else {
        return Ok(None);
    };
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
    Ok(Some(ExtentPage { state, extents }))
}

pub(crate) fn extent_by_time(
    sql: &Connection,
    partition: TopicPartition,
    timestamp_ms: i64,
) -> SqlResult<Option<(PartitionState, Option<Extent>)>> {
    let Some(state) = partition_state(sql, partition)? else {
        return Ok(None);
    };
    let mut statement = sql.prepare_cached(select_extent!(
        "AND e.max_timestamp_ms >= ?3 ORDER BY e.base_offset LIMIT 1"
    ))?;
    let named = (partition.topic.0.as_bytes(), partition.partition.0, timestamp_ms);
    let mut rows = statement.query(named)?;
    let found = rows.next()?.map(extent_of_row).transpose()?;
    Ok(Some((state, found)))
}

pub(crate) fn extent_of_max_timestamp(
    sql: &Connection,
    partition: TopicPartition,
) -> SqlResult<Option<(PartitionState, Option<Extent>)>> {
    let Some(state) = partition_state(sql, partition)? else {
        return Ok(None);
    };
    let mut statement = sql.prepare_cached(select_extent!(
        "ORDER BY e.max_timestamp_ms DESC, e.base_offset LIMIT 1"
    ))?;
    let mut rows = statement.query((partition.topic.0.as_bytes(), partition.partition.0))?;
    let found = rows.next()?.map(extent_of_row).transpose()?;
    Ok(Some((state, found)))
}

pub(crate) fn producers(
    sql: &Connection,
    partition: TopicPartition,
) -> SqlResult<Vec<ProducerState>> {
    let mut statement = sql.prepare_cached(
        "SELECT producer, epoch, batches, transaction_start, last_written_ms FROM producers
         WHERE topic = ?1 AND partition = ?2 ORDER BY producer",
    )?;
    let mut rows = statement.query((partition.topic.0.as_bytes(), partition.partition.0))?;
    let mut producers = Vec::new();
    while let Some(row) = rows.next()? {
        producers.push(commit::producer_of_row(row)?);
    }
    Ok(producers)
}

pub(crate) fn expire_producers(
    sql: &Connection,
    partition: TopicPartition,
    written_before_ms: i64,
) -> SqlResult<usize> {
    let mut statement = sql.prepare_cached(
        "DELETE FROM producers WHERE topic = ?1 AND partition = ?2
             AND last_written_ms < ?3 AND transaction_start IS NULL",
    )?;
    let topic = partition.topic.0.as_bytes();
    Ok(statement.execute((topic, partition.partition.0, written_before_ms))?)
}

pub(crate) fn aborted(
    sql: &Connection,
    partition: TopicPartition,
    from: i64,
    until: i64,
) -> SqlResult<Vec<AbortedTransaction>> {
    let mut statement = sql.prepare_cached(
        "SELECT producer, first_offset, last_offset, last_stable_offset FROM aborted
         WHERE topic = ?1 AND partition = ?2 AND last_offset >= ?3 AND first_offset < ?4
         ORDER BY last_offset",
    )?;
    let named = (partition.topic.0.as_bytes(), partition.partition.0, from, until);
    let rows = statement.query_map(named, |row| {
        Ok(AbortedTransaction {
            producer: ProducerId(row.get(0)?),
            first_offset: row.get(1)?,
            last_offset: row.get(2)?,
            last_stable_offset: row.get(3)?,
        })
    })?;
    rows.map(|row| row.map_err(SqlError::from)).collect()
}

pub(crate) fn advance_log_start(
    sql: &Connection,
    partition: TopicPartition,
    offset: i64,
    now_ms: i64,
) -> SqlResult<Option<PartitionState>> {
    let Some(mut state) = partition_state(sql, partition)? else {
        return Ok(None);
    };
    let log_start = offset.min(state.high_watermark);
    if log_start <= state.log_start_offset {
        return Ok(Some(state));
    }
    let dropped = dereference_below(sql, partition, log_start, now_ms)?;
    let named = (partition.topic.0.as_bytes(), partition.partition.0, log_start);
    for statement in [
        "DELETE FROM extents
         WHERE topic = ?1 AND partition = ?2 AND base_offset < ?3 AND last_offset < ?3",
        "DELETE FROM aborted WHERE topic = ?1 AND partition = ?2 AND last_offset < ?3",
    ] {
        sql.prepare_cached(statement)?.execute(named)?;
    }
    state.log_start_offset = log_start;
    state.version += 1;
    let bytes = state.bytes.checked_sub(stored_unsigned(dropped)?);
    state.bytes =
        bytes.ok_or_else(|| Error::corrupt("a partition has fewer bytes than extents"))?;
    update_partition(sql, partition, &state)?;
    Ok(Some(state))
}

pub(crate) fn replace(
    sql: &Connection,
    fence: &Fence,
    replacement: &Replacement,
    now_ms: i64,
) -> SqlResult<ChangeOutcome> {
    facts::check_fence(sql, fence)?;
    let partition = replacement.partition;
    let Some(first) = replacement.sources.first() else {
        return Ok(ChangeOutcome::Rejected);
    };
    let found = extents(sql, partition, first.base_offset, replacement.sources.len())?;
    let Some(found) = found.filter(|page| page.extents == replacement.sources) else {
        return Ok(ChangeOutcome::Rejected);
    };
    let mut ids = BTreeMap::new();
    for (key, change) in validate::reference_changes(replacement) {
        ids.insert(key, count_references(sql, key, change, replacement.object_size, now_ms)?);
    }
    let mut delete = sql.prepare_cached(
        "DELETE FROM extents WHERE topic = ?1 AND partition = ?2 AND base_offset = ?3",
    )?;
    let mut state = found.state;
    for source in &replacement.sources {
        let named = (partition.topic.0.as_bytes(), partition.partition.0, source.base_offset);
        delete.execute(named)?;
        state.bytes = state.bytes.saturating_sub(source.bytes());
    }
    for extent in &replacement.replacement {
        let object = match &extent.place {
            Place::Range { key, .. } => ids.get(key.as_str()).copied(),
            Place::Marker { .. } | Place::Hole => None,
        };
        insert_extent(sql, partition, extent, object)?;
        state.bytes += extent.bytes();
    }
    state.version += 1;
    update_partition(sql, partition, &state)?;
    Ok(ChangeOutcome::Applied)
}

/// Counts an object's references up or down and answers its row id.
fn count_references(
    sql: &Connection,
    key: &str,
    change: i64,
    size: u64,
    now_ms: i64,
) -> SqlResult<i64> {
    if change > 0 {
        return objects::reference(sql, key, size, change, now_ms);
    }
    let id = objects::id(sql, key)?;
    let id = id.ok_or_else(|| Error::corrupt(format!("object {key} has no row")))?;
    objects::dereference(sql, id, -change, now_ms)?;
    Ok(id)
}
