//! Objects and how many of their bytes extents name.

use super::connection::{Connection, Parameters, query};
use super::error::PgResult;
use super::sql_limit;
use crate::codec::stored_unsigned;
use crate::rows::DeadObject;

pub(super) async fn dead(
    connection: &Connection,
    dead_before_ms: i64,
    limit: usize,
) -> PgResult<Vec<DeadObject>> {
    let rows = connection
        .query(
            "SELECT key, size, dead_since_ms FROM objects
             WHERE dead_since_ms IS NOT NULL AND dead_since_ms < $1
             ORDER BY dead_since_ms, key LIMIT $2",
            &[&dead_before_ms, &sql_limit(limit)],
        )
        .await?;
    let objects = rows.iter().map(|row| {
        Ok(DeadObject {
            key: row.try_get(0)?,
            size: stored_unsigned(row.try_get(1)?)?,
            dead_since_ms: row.try_get(2)?,
        })
    });
    objects.collect()
}

pub(super) async fn known(connection: &Connection, keys: &[String]) -> PgResult<Vec<bool>> {
    let rows = connection
        .query(
            "SELECT objects.id IS NOT NULL
             FROM unnest($1::text[]) WITH ORDINALITY AS named (key, at)
             LEFT JOIN objects ON objects.key = named.key ORDER BY named.at",
            &[&keys],
        )
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) async fn forget(connection: &Connection, keys: &[String]) -> PgResult<()> {
    connection.begin(&[]).await?;
    let forgotten: Parameters<'_> = &[&keys];
    let sql = "DELETE FROM objects WHERE key = ANY ($1) AND dead_since_ms IS NOT NULL";
    connection.commit(&[query(sql, forgotten)]).await
}
