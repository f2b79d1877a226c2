//! Objects and how many of their bytes extents name.

use super::error::SqlResult;
use super::sql_limit;
use crate::codec::{stored_unsigned, to_stored};
use crate::rows::DeadObject;
use crate::validate;
use rusqlite::{Connection, OptionalExtension};

/// Inserts the object of a committed segment and answers its row id.
pub(crate) fn insert(
    sql: &Connection,
    key: &str,
    size: u64,
    live_bytes: i64,
    now_ms: i64,
) -> SqlResult<i64> {
    let mut statement = sql.prepare_cached(
        "INSERT INTO objects (key, size, live_bytes, dead_since_ms)
         VALUES (?1, ?2, ?3, CASE WHEN ?3 = 0 THEN ?4 END)
         ON CONFLICT DO NOTHING RETURNING id",
    )?;
    let id = statement
        .query_row((key, to_stored(size)?, live_bytes, now_ms), |row| row.get(0))
        .optional()?;
    id.ok_or_else(|| validate::object_exists(key).into())
}

/// Counts references to an object, which is made where it is new, and answers its row id.
pub(crate) fn reference(
    sql: &Connection,
    key: &str,
    size: u64,
    live_bytes: i64,
    now_ms: i64,
) -> SqlResult<i64> {
    let mut statement = sql.prepare_cached(
        "INSERT INTO objects (key, size, live_bytes, dead_since_ms)
         VALUES (?1, ?2, ?3, CASE WHEN ?3 = 0 THEN ?4 END)
         ON CONFLICT (key) DO UPDATE SET live_bytes = live_bytes + excluded.live_bytes
         WHERE dead_since_ms IS NULL
         RETURNING id",
    )?;
    let id = statement
        .query_row((key, to_stored(size)?, live_bytes, now_ms), |row| row.get(0))
        .optional()?;
    id.ok_or_else(|| validate::object_is_dead(key).into())
}

/// An object's row id.
pub(crate) fn id(sql: &Connection, key: &str) -> SqlResult<Option<i64>> {
    let mut statement = sql.prepare_cached("SELECT id FROM objects WHERE key = ?1")?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

/// Takes references away; the object dies with the last one.
pub(crate) fn dereference(sql: &Connection, id: i64, bytes: i64, now_ms: i64) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "UPDATE objects SET live_bytes = live_bytes - ?2,
             dead_since_ms = CASE WHEN live_bytes = ?2 THEN ?3 END
         WHERE id = ?1",
    )?;
    statement.execute((id, bytes, now_ms))?;
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
