//! Keyed facts. Every fact that a change checks or writes is locked first: what is checked to be
//! absent, held by a row without a value, which is gone when the change ends; then the fence (which
//! others may share); then all in order of keys.

use super::connection::{Connection, Parameters, Query, query};
use super::error::PgResult;
use super::fresh::{self, FreshExtents, ReleasedColumns};
use super::{columns, log, sql_limit};
use crate::facts::{Change, ChangeOutcome, Expect, FactKey, FactRange, Fence, Write};
use crate::fresh::Wanted;
use crate::validate;
use bytes::Bytes;
use kfs::TopicPartition;
use std::collections::BTreeMap;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Parameter: the fence's key, or none.
pub(super) const LOCK_FENCE: &str = "SELECT value FROM facts WHERE key = ANY ($1) FOR SHARE";
pub(super) const LOCK_FENCE_ALONE: &str = "SELECT value FROM facts WHERE key = ANY ($1) FOR UPDATE";
/// Locks facts in the order of their keys.
pub(super) const LOCK_FACTS: &str =
    "SELECT key, value FROM facts WHERE key = ANY ($1) ORDER BY key FOR UPDATE";
/// Locks a fact that must have this value, or divides by zero; and the server's clock.
pub(super) const HOLD_FENCE: &str = "SELECT
        1 / (SELECT count(*) FROM (
            SELECT 1 FROM facts WHERE key = $1 AND value = $2 FOR SHARE
        ) held),
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// Holds the place of a fact that is to be absent.
pub(super) const HOLD_ABSENT: &str = "INSERT INTO facts (key)
    SELECT key FROM unnest($1::text[]) AS named (key) ORDER BY key ON CONFLICT DO NOTHING";
const RELEASE_ABSENT: &str = "DELETE FROM facts WHERE key = ANY ($1) AND value IS NULL";

/// The key of a fence, if there is one.
pub(super) fn fence_key(fence: Option<&Fence>) -> Vec<&str> {
    fence.map(|fence| fence.0.key.as_str()).into_iter().collect()
}

/// The key of a fence that holds while its fact is absent, if it is such a one.
pub(super) fn absent_key(fence: Option<&Fence>) -> Vec<&str> {
    let absent = fence.filter(|fence| fence.0.expect == Expect::Absent);
    fence_key(absent)
}

/// Fails with `Fenced` where the locked row is not what the fence needs.
pub(super) fn check_fence(fence: Option<&Fence>, rows: &[Row]) -> PgResult<()> {
    let Some(fence) = fence else {
        return Ok(());
    };
    let value: Option<Option<&[u8]>> = rows.first().map(|row| row.try_get(0)).transpose()?;
    if validate::holds(&fence.0, value.flatten()) {
        return Ok(());
    }
    Err(validate::fenced(fence).into())
}

/// Lets go of what `HOLD_ABSENT` held.
pub(super) fn release(keys: Parameters<'_>) -> Query<'_> {
    query(RELEASE_ABSENT, keys)
}

pub(super) async fn get(connection: &Connection, keys: &[FactKey]) -> PgResult<Vec<Option<Bytes>>> {
    let names: Vec<&str> = keys.iter().map(FactKey::as_str).collect();
    let rows = connection
        .query(
            "SELECT facts.value FROM unnest($1::text[]) WITH ORDINALITY AS named (key, at)
             LEFT JOIN facts ON facts.key = named.key ORDER BY named.at",
            &[&names],
        )
        .await?;
    let values = rows.iter().map(|row| Ok(row.try_get::<_, Option<Vec<u8>>>(0)?.map(Bytes::from)));
    values.collect()
}

pub(super) async fn scan(
    connection: &Connection,
    range: &FactRange,
    limit: usize,
) -> PgResult<Vec<(FactKey, Bytes)>> {
    let rows = connection
        .query(
            "SELECT key, value FROM facts
             WHERE key >= $1 AND key < $2 AND value IS NOT NULL ORDER BY key LIMIT $3",
            &[&range.from, &range.until, &sql_limit(limit)],
        )
        .await?;
    let facts = rows.iter().map(|row| {
        let value: Vec<u8> = row.try_get(1)?;
        Ok((FactKey::from_stored(row.try_get(0)?), Bytes::from(value)))
    });
    facts.collect()
}

/// The keys whose absence a change needs, in order.
pub(super) fn absent_keys(change: &Change) -> Vec<&str> {
    let fence = change.fence.as_ref().map(|fence| &fence.0);
    let absent = fence.into_iter().chain(&change.checks);
    let absent = absent.filter(|check| check.expect == Expect::Absent);
    let mut absent: Vec<&str> = absent.map(|check| check.key.as_str()).collect();
    absent.sort_unstable();
    absent.dedup();
    absent
}

/// The keys that a change checks or writes.
pub(super) fn named_keys(change: &Change) -> Vec<&str> {
    let checked = change.checks.iter().map(|check| check.key.as_str());
    let written = change.writes.iter().map(|write| validate::write_key(write).as_str());
    checked.chain(written).collect()
}

/// The facts of rows (key, value); those that only hold a place are absent.
pub(super) fn facts_of(rows: &[Row]) -> PgResult<BTreeMap<String, Vec<u8>>> {
    let mut facts = BTreeMap::new();
    for row in rows {
        if let Some(value) = row.try_get::<_, Option<Vec<u8>>>(1)? {
            facts.insert(row.try_get(0)?, value);
        }
    }
    Ok(facts)
}

/// Whether every check of a change holds of the facts that it names.
pub(super) fn all_hold(change: &Change, facts: &BTreeMap<String, Vec<u8>>) -> bool {
    change.checks.iter().all(|check| {
        let value = facts.get(check.key.as_str());
        validate::holds(check, value.map(Vec::as_slice))
    })
}

/// What a change needs to know: the locked facts, and which partitions to create are there.
struct Locked {
    facts: BTreeMap<String, Vec<u8>>,
    existing: Vec<TopicPartition>,
    /// Fresh extents of the partitions that end.
    fresh: Vec<Wanted>,
    now_ms: i64,
}

pub(super) async fn change(fresh: FreshExtents<'_>, change: &Change) -> PgResult<ChangeOutcome> {
    let connection = fresh.sql;
    let absent = absent_keys(change);
    let (created, dropped) = log::partition_changes(change);
    let locked = lock(connection, change, &absent, &created.partitions, &dropped).await?;
    if !all_hold(change, &locked.facts) {
        connection.roll_back().await?;
        return Ok(ChangeOutcome::Rejected);
    }
    if let Some(partition) = locked.existing.first() {
        return Err(validate::partition_exists(*partition).into());
    }
    let wanted = fresh.with_markers(locked.fresh).await?;
    let gone = fresh.find_all_locked(wanted).await?;
    let released = ReleasedColumns::gone(gone.iter().flatten());
    let partitions = Partitions { created, dropped, released, now_ms: locked.now_ms };
    write(connection, change, &absent, &partitions).await?;
    Ok(ChangeOutcome::Applied)
}

async fn lock(
    connection: &Connection,
    change: &Change,
    absent: &[&str],
    created: &[TopicPartition],
    dropped: &[TopicPartition],
) -> PgResult<Locked> {
    let named = named_keys(change);
    let (create_topics, create_indexes) = columns(created);
    let (drop_topics, drop_indexes) = columns(dropped);
    let fence = change.fence.as_ref();
    let fence_key = fence_key(fence);
    let absent: Parameters<'_> = &[&absent];
    let fenced: Parameters<'_> = &[&fence_key];
    let facts: Parameters<'_> = &[&named];
    let drops: Parameters<'_> = &[&drop_topics, &drop_indexes];
    let creates: Parameters<'_> = &[&create_topics, &create_indexes];
    let answers = connection
        .begin(&[
            query(HOLD_ABSENT, absent),
            query(LOCK_FENCE, fenced),
            query(LOCK_FACTS, facts),
            query(log::LOCK_PARTITIONS, drops),
            query(log::PARTITIONS, creates),
            query(super::NOW, &[]),
        ])
        .await?;
    check_fence(fence, &answers[1])?;
    let facts = facts_of(&answers[2])?;
    let mut fresh = Vec::new();
    for row in &answers[3] {
        let (partition, row) = log::partition_of_row(row)?;
        let (range, limit, markers) = (row.fresh_range(), usize::MAX, Vec::new());
        fresh.push(Wanted { partition, range, limit, markers });
    }
    let existing = answers[4].iter().map(|row| Ok(log::partition_of_row(row)?.0));
    let existing: PgResult<Vec<TopicPartition>> = existing.collect();
    Ok(Locked { facts, existing: existing?, fresh, now_ms: super::now_of(&answers[5])? })
}

/// The partitions that begin and end with a change.
struct Partitions {
    created: log::Created,
    dropped: Vec<TopicPartition>,
    /// The fresh extents of those that end.
    released: ReleasedColumns,
    now_ms: i64,
}

async fn write(
    connection: &Connection,
    change: &Change,
    absent: &[&str],
    partitions: &Partitions,
) -> PgResult<()> {
    let Partitions { created, dropped, released, now_ms } = partitions;
    let facts = FactColumns::new(&change.writes, absent);
    let facts = facts.parameters();
    let (create_topics, create_indexes) = columns(&created.partitions);
    let (drop_topics, drop_indexes) = columns(dropped);
    let create: Parameters<'_> = &[&create_topics, &create_indexes, &created.offsets];
    let drop: Parameters<'_> = &[&drop_topics, &drop_indexes];
    let unnamed: Parameters<'_> = &[&drop_topics, &drop_indexes, now_ms];
    let released = released.parameters(now_ms);
    let mut changes = facts.changes();
    if !dropped.is_empty() {
        changes.extend(fresh::release(&released));
        changes.push(query(log::DROP_EXTENTS, unnamed));
        changes.extend(log::DROP_PARTITIONS.map(|sql| query(sql, drop)));
    }
    if !created.partitions.is_empty() {
        changes.push(query(log::CREATE_PARTITIONS, create));
    }
    connection.commit(&changes).await
}

/// Writes of facts, and places that are let go, as columns.
pub(super) struct FactColumns<'a> {
    keys: Vec<&'a str>,
    values: Vec<&'a [u8]>,
    deletes: Vec<&'a str>,
    absent: &'a [&'a str],
}

impl<'a> FactColumns<'a> {
    pub(super) fn new(writes: &'a [Write], absent: &'a [&'a str]) -> Self {
        let mut puts: BTreeMap<&str, &[u8]> = BTreeMap::new();
        let mut deletes: Vec<&str> = Vec::new();
        for write in writes {
            match write {
                Write::Put(key, value) => {
                    puts.insert(key.as_str(), value);
                }
                Write::Delete(key) => deletes.push(key.as_str()),
            }
        }
        let (keys, values) = puts.into_iter().unzip();
        Self { keys, values, deletes, absent }
    }

    pub(super) fn parameters(&self) -> FactParameters<'_> {
        FactParameters {
            put: (!self.keys.is_empty()).then_some([&self.keys, &self.values]),
            delete: (!self.deletes.is_empty()).then_some([&self.deletes]),
            release: (!self.absent.is_empty()).then_some([&self.absent]),
        }
    }
}

/// The parameters of the statements that write facts.
pub(super) struct FactParameters<'a> {
    put: Option<[&'a (dyn ToSql + Sync); 2]>,
    delete: Option<[&'a (dyn ToSql + Sync); 1]>,
    release: Option<[&'a (dyn ToSql + Sync); 1]>,
}

impl FactParameters<'_> {
    /// The statements.
    pub(super) fn changes(&self) -> Vec<Query<'_>> {
        let mut changes = Vec::new();
        changes.extend(self.put.iter().map(|put| query(PUT, put)));
        changes.extend(self.delete.iter().map(|keys| query(DELETE, keys)));
        changes.extend(self.release.iter().map(|keys| release(keys)));
        changes
    }
}

const DELETE: &str = "DELETE FROM facts WHERE key = ANY ($1)";
const PUT: &str = "INSERT INTO facts (key, value)
    SELECT key, value FROM unnest($1::text[], $2::bytea[]) AS put (key, value) ORDER BY key
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";
