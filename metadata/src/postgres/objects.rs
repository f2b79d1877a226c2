//! Objects and how many of their bytes extents name; the replacement of extents.

use super::connection::{Connection, Parameters, query};
use super::error::PgResult;
use super::log::{self, ExtentColumns};
use super::{facts, sql_limit};
use crate::codec::{stored_unsigned, to_stored};
use crate::facts::{ChangeOutcome, Fence};
use crate::rows::{DeadObject, Extent, Place, Replacement};
use crate::validate;
use floe_env::Error;
use std::collections::BTreeMap;

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

/// The objects that a replacement names, locked: row ids of those that are there, and new ids for
/// the others.
struct Named<'a> {
    ids: BTreeMap<&'a str, i64>,
    new: Vec<&'a str>,
}

pub(super) async fn replace(
    connection: &Connection,
    fence: &Fence,
    replacement: &Replacement,
) -> PgResult<ChangeOutcome> {
    let partition = replacement.partition;
    let first = replacement.sources.first().map_or(0, |source| source.base_offset);
    let count = replacement.sources.len();
    let (page, now_ms) = log::begin_replacement(connection, fence, partition, first, count).await?;
    if page.is_none_or(|page| page.extents != replacement.sources) {
        connection.roll_back().await?;
        return Ok(ChangeOutcome::Rejected);
    }
    let changes = validate::reference_changes(replacement);
    let named = lock_objects(connection, &changes).await?;
    write(connection, fence, replacement, &changes, &named, now_ms).await?;
    Ok(ChangeOutcome::Applied)
}

async fn lock_objects<'a>(
    connection: &Connection,
    changes: &BTreeMap<&'a str, i64>,
) -> PgResult<Named<'a>> {
    let keys: Vec<&str> = changes.keys().copied().collect();
    let rows = connection
        .query(
            "SELECT key, id, dead_since_ms IS NOT NULL FROM objects WHERE key = ANY ($1)
             ORDER BY id FOR UPDATE",
            &[&keys],
        )
        .await?;
    let mut found: BTreeMap<String, (i64, bool)> = BTreeMap::new();
    for row in rows {
        found.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
    }
    let mut named = Named { ids: BTreeMap::new(), new: Vec::new() };
    for (key, change) in changes {
        match found.get(*key) {
            Some((_, true)) if *change > 0 => return Err(validate::object_is_dead(key).into()),
            Some((id, _)) => {
                named.ids.insert(key, *id);
            }
            None if *change > 0 => named.new.push(key),
            None => return Err(Error::corrupt(format!("object {key} has no row")).into()),
        }
    }
    let wanted = sql_limit(named.new.len());
    let rows = connection.query(super::NEW_OBJECT_IDS, &[&wanted]).await?;
    let ids = super::object_ids_of(&rows)?;
    named.ids.extend(named.new.iter().copied().zip(ids));
    Ok(named)
}

async fn write(
    connection: &Connection,
    fence: &Fence,
    replacement: &Replacement,
    changes: &BTreeMap<&str, i64>,
    named: &Named<'_>,
    now_ms: i64,
) -> PgResult<()> {
    let partition = replacement.partition;
    let size = to_stored(replacement.object_size)?;
    let new_ids: Vec<i64> = named.new.iter().map(|key| named.ids[key]).collect();
    let keys: Vec<&str> = changes.keys().copied().collect();
    let amounts: Vec<i64> = changes.values().copied().collect();
    let gone: Vec<i64> = replacement.sources.iter().map(|source| source.base_offset).collect();
    let mut inserted = ExtentColumns::default();
    for extent in &replacement.replacement {
        let object = match &extent.place {
            Place::Range { key, .. } => named.ids.get(key.as_str()).copied(),
            Place::Marker { .. } | Place::Hole => None,
        };
        inserted.push(partition, extent, object)?;
    }
    let total = |extents: &[Extent]| to_stored(extents.iter().map(Extent::bytes).sum());
    let grown = total(&replacement.replacement)? - total(&replacement.sources)?;
    let absent = facts::absent_key(fence);
    let (topic, index) = (partition.topic.0, partition.partition.0);
    let release: Parameters<'_> = &[&absent];
    let objects: Parameters<'_> = &[&new_ids, &named.new, &size];
    let counts: Parameters<'_> = &[&keys, &amounts, &now_ms];
    let delete: Parameters<'_> = &[&topic, &index, &gone];
    let update: Parameters<'_> = &[&topic, &index, &grown];
    let extents = inserted.parameters();
    connection
        .commit(&[
            facts::release(release),
            query(INSERT_OBJECTS, objects),
            query(COUNT_REFERENCES, counts),
            query(
                "DELETE FROM extents
                 WHERE topic = $1 AND partition = $2 AND base_offset = ANY ($3)",
                delete,
            ),
            query(ExtentColumns::INSERT, &extents),
            query(
                "UPDATE partitions SET version = version + 1, bytes = bytes + $3
                 WHERE topic = $1 AND partition = $2",
                update,
            ),
        ])
        .await
}

/// New objects begin without references; the count follows in the same transaction.
const INSERT_OBJECTS: &str = "INSERT INTO objects (id, key, size, live_bytes)
    SELECT id, key, $3::bigint, 0 FROM unnest($1::bigint[], $2::text[]) AS new (id, key)";
const COUNT_REFERENCES: &str = "UPDATE objects SET live_bytes = live_bytes + counted.bytes,
        dead_since_ms = CASE WHEN live_bytes + counted.bytes = 0 THEN $3::bigint END
    FROM unnest($1::text[], $2::bigint[]) AS counted (key, bytes)
    WHERE objects.key = counted.key";
