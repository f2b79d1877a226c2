//! Objects and how many of their bytes extents name.

use super::error::SqlResult;
use super::sql_limit;
use crate::codec::{stored_unsigned, to_stored};
use crate::decide::NewObject;
use crate::fresh::Released;
use crate::rows::DeadObject;
use crate::validate;
use rusqlite::{Connection, OptionalExtension};
use std::sync::atomic::{AtomicI64, Ordering};

/// A row id that no object has or had since this file was opened.
pub(crate) fn next_id(ids: &AtomicI64) -> i64 {
    ids.fetch_add(1, Ordering::Relaxed) + 1
}

/// The greatest row id.
pub(crate) fn greatest_id(sql: &Connection) -> SqlResult<i64> {
    Ok(sql.query_row("SELECT coalesce(max(id), 0) FROM objects", [], |row| row.get(0))?)
}

/// Inserts the object of a committed segment.
pub(crate) fn insert(sql: &Connection, id: i64, object: &NewObject, now_ms: i64) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "INSERT INTO objects (id, key, size, live_bytes, fresh_extents, dead_since_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, CASE WHEN ?4 = 0 THEN ?6 END) ON CONFLICT DO NOTHING",
    )?;
    let (size, live_bytes) = (to_stored(object.size)?, to_stored(object.live_bytes())?);
    let fresh_extents = sql_limit(object.extents.len());
    let row = (id, object.key.as_str(), size, live_bytes, fresh_extents, now_ms);
    match statement.execute(row)? {
        1 => Ok(()),
        _ => Err(validate::object_exists(&object.key).into()),
    }
}

/// Counts references to an object, which is made as `new_id` where it is new, and answers its row
/// id.
pub(crate) fn reference(
    sql: &Connection,
    new_id: i64,
    key: &str,
    size: u64,
    live_bytes: i64,
    now_ms: i64,
) -> SqlResult<i64> {
    let mut statement = sql.prepare_cached(
        "INSERT INTO objects (id, key, size, live_bytes, fresh_extents, dead_since_ms)
         VALUES (?1, ?2, ?3, ?4, 0, CASE WHEN ?4 = 0 THEN ?5 END)
         ON CONFLICT (key) DO UPDATE SET live_bytes = live_bytes + excluded.live_bytes
         WHERE dead_since_ms IS NULL
         RETURNING id",
    )?;
    let id = statement
        .query_row((new_id, key, to_stored(size)?, live_bytes, now_ms), |row| row.get(0))
        .optional()?;
    id.ok_or_else(|| validate::object_is_dead(key).into())
}

/// An object's row id.
pub(crate) fn id(sql: &Connection, key: &str) -> SqlResult<Option<i64>> {
    let mut statement = sql.prepare_cached("SELECT id FROM objects WHERE key = ?1")?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

/// Whether an object is known and not dead.
pub(crate) fn is_alive(sql: &Connection, key: &str) -> SqlResult<bool> {
    let mut statement = sql.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM objects WHERE key = ?1 AND dead_since_ms IS NULL)",
    )?;
    Ok(statement.query_row([key], |row| row.get(0))?)
}

/// Takes references and fresh extents away from an object. It dies with the last reference, and its
/// packed row goes with the last fresh extent.
pub(crate) fn release(sql: &Connection, id: i64, gone: Released, now_ms: i64) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "UPDATE objects SET live_bytes = live_bytes - ?2, fresh_extents = fresh_extents - ?3,
             dead_since_ms = CASE WHEN live_bytes = ?2 THEN ?4 END
         WHERE id = ?1 RETURNING fresh_extents",
    )?;
    let left: i64 =
        statement.query_row((id, gone.bytes, gone.extents, now_ms), |row| row.get(0))?;
    if left == 0 && gone.extents > 0 {
        sql.prepare_cached("DELETE FROM fresh_segments WHERE object = ?1")?.execute([id])?;
    }
    Ok(())
}

pub(crate) fn dead(
    sql: &Connection,
    dead_before_ms: i64,
    limit: usize,
) -> SqlResult<Vec<DeadObject>> {
    let mut statement = sql.prepare_cached(
        "SELECT key, size, dead_since_ms FROM objects
         WHERE dead_since_ms IS NOT NULL AND dead_since_ms < ?1
         ORDER BY dead_since_ms, key LIMIT ?2",
    )?;
    let mut rows = statement.query((dead_before_ms, sql_limit(limit)))?;
    let mut objects = Vec::new();
    while let Some(row) = rows.next()? {
        objects.push(DeadObject {
            key: row.get(0)?,
            size: stored_unsigned(row.get(1)?)?,
            dead_since_ms: row.get(2)?,
        });
    }
    Ok(objects)
}

pub(crate) fn known(sql: &Connection, keys: &[String]) -> SqlResult<Vec<bool>> {
    keys.iter().map(|key| Ok(id(sql, key)?.is_some())).collect()
}

pub(crate) fn forget(sql: &Connection, keys: &[String]) -> SqlResult<()> {
    let mut statement =
        sql.prepare_cached("DELETE FROM objects WHERE key = ?1 AND dead_since_ms IS NOT NULL")?;
    for key in keys {
        statement.execute([key])?;
    }
    Ok(())
}
