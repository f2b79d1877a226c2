//! Keyed facts, and the partitions that begin and end with them.

use super::error::SqlResult;
use super::fresh::FreshExtents;
use super::{log, sql_limit};
use crate::facts::{Change, ChangeOutcome, FactKey, FactRange, Fence, PartitionChange, Write};
use crate::validate;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

pub(crate) fn value(sql: &Connection, key: &FactKey) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = sql.prepare_cached("SELECT value FROM facts WHERE key = ?1")?;
    statement.query_row([key.as_str()], |row| row.get(0)).optional()
}

/// Fails with `Fenced` where the fence does not hold.
pub(crate) fn check_fence(sql: &Connection, fence: &Fence) -> SqlResult<()> {
    if validate::holds(&fence.0, value(sql, &fence.0.key)?.as_deref()) {
        return Ok(());
    }
    Err(validate::fenced(fence).into())
}

pub(crate) fn get(sql: &Connection, keys: &[FactKey]) -> SqlResult<Vec<Option<Bytes>>> {
    let mut values = Vec::with_capacity(keys.len());
    for key in keys {
        values.push(value(sql, key)?.map(Bytes::from));
    }
    Ok(values)
}

pub(crate) fn scan(
    sql: &Connection,
    range: &FactRange,
    limit: usize,
) -> SqlResult<Vec<(FactKey, Bytes)>> {
    let mut statement = sql.prepare_cached(
        "SELECT key, value FROM facts WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3",
    )?;
    let mut rows = statement.query((&range.from, &range.until, sql_limit(limit)))?;
    let mut facts = Vec::new();
    while let Some(row) = rows.next()? {
        let value: Vec<u8> = row.get(1)?;
        facts.push((FactKey::from_stored(row.get(0)?), Bytes::from(value)));
    }
    Ok(facts)
}

/// Makes writes.
pub(crate) fn write_all<'a>(
    sql: &Connection,
    writes: impl IntoIterator<Item = &'a Write>,
) -> SqlResult<()> {
    let mut put = sql.prepare_cached(
        "INSERT INTO facts (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    )?;
    let mut delete = sql.prepare_cached("DELETE FROM facts WHERE key = ?1")?;
    for write in writes {
        match write {
            Write::Put(key, value) => put.execute((key.as_str(), value.as_ref()))?,
            Write::Delete(key) => delete.execute([key.as_str()])?,
        };
    }
    Ok(())
}

pub(crate) fn change(
    fresh: FreshExtents<'_>,
    change: &Change,
    now_ms: i64,
) -> SqlResult<ChangeOutcome> {
    let sql = fresh.sql;
    change.fence.iter().try_for_each(|fence| check_fence(sql, fence))?;
    for check in &change.checks {
        if !validate::holds(check, value(sql, &check.key)?.as_deref()) {
            return Ok(ChangeOutcome::Rejected);
        }
    }
    write_all(sql, &change.writes)?;
    let mut dropped = Vec::new();
    for change in &change.partitions {
        if let Some((partition, offset)) = validate::created_partition(change) {
            log::create_partition(sql, partition, offset)?;
        }
        if let PartitionChange::Drop(partition) = change {
            dropped.push(*partition);
        }
    }
    log::drop_partitions(fresh, &dropped, now_ms)?;
    Ok(ChangeOutcome::Applied)
}
