//! Segments: committed, abandoned, forgotten. The rows are read, `decide` decides, the rows are
//! written; the writer is alone, so nothing needs a lock.

use super::error::SqlResult;
use super::{facts, log, objects, producers};
use crate::codec;
use crate::decide::{self, CommitPartition, CommitRows, CommitWrites, NewObject};
use crate::facts::{Fence, Write};
use crate::rows::{SegmentFacts, SegmentOutcome};
use crate::transactions::{decode_row, put_row, transaction_key};
use crate::validate;
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicPartition};
use rusqlite::{Connection, Statement};
use std::sync::atomic::AtomicI64;

pub(crate) fn commit(
    sql: &Connection,
    object_ids: &AtomicI64,
    fence: &Fence,
    segments: &[SegmentFacts],
    now_ms: i64,
) -> SqlResult<Vec<SegmentOutcome>> {
    facts::check_fence(sql, fence)?;
    let rows = read_rows(sql, segments)?;
    let writes = decide::decide_commit(segments, rows, now_ms);
    write_rows(sql, object_ids, &writes, now_ms)?;
    Ok(writes.outcomes)
}

fn read_rows(sql: &Connection, segments: &[SegmentFacts]) -> SqlResult<CommitRows> {
    let mut rows = CommitRows::default();
    for segment in segments {
        if let Some(outcome) = outcome(sql, segment.id)? {
            rows.decided.insert(segment.id, outcome);
        }
    }
    let mut statement = sql.prepare_cached(READ_PARTITION)?;
    let mut partitions = Vec::new();
    for partition in decide::partitions_named(segments) {
        if let Some(row) = read_partition(&mut statement, partition)? {
            partitions.push((partition, row));
        }
    }
    rows.partitions = partitions.into_iter().collect();
    for (partition, id) in rows.maybe_spilled(segments) {
        if let Some(row) = rows.partitions.get_mut(&partition) {
            producers::add_spilled(sql, partition, id, &mut row.producers)?;
        }
    }
    for id in rows.asks_transactions(segments) {
        let key = transaction_key(&id);
        if let Some(value) = facts::value(sql, &key)? {
            rows.transactions.insert(id, decode_row(&key, &value)?);
        }
    }
    Ok(rows)
}

/// What [`read_partition`] takes.
pub(crate) const READ_PARTITION: &str =
    "SELECT version, log_start_offset, high_watermark, last_stable_offset, bytes, producers
     FROM partitions WHERE topic = ?1 AND partition = ?2";

pub(crate) fn read_partition(
    statement: &mut Statement<'_>,
    partition: TopicPartition,
) -> SqlResult<Option<CommitPartition>> {
    let mut rows = statement.query((partition.topic.0.as_bytes(), partition.partition.0))?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let packed = row.get_ref(5)?.as_blob().map_err(rusqlite::Error::from)?;
    let producers = codec::decode_producers(packed)?;
    let state = log::state_of_row(row)?;
    Ok(Some(CommitPartition { state, producers, spilled: Vec::new() }))
}

pub(crate) fn write_partitions(
    sql: &Connection,
    partitions: &[(TopicPartition, CommitPartition)],
) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "UPDATE partitions SET version = ?3, high_watermark = ?4, last_stable_offset = ?5,
             bytes = ?6, producers = ?7
         WHERE topic = ?1 AND partition = ?2",
    )?;
    for (partition, row) in partitions {
        producers::spill(sql, *partition, &row.spilled)?;
        statement.execute((
            partition.topic.0.as_bytes(),
            partition.partition.0,
            codec::to_stored(row.state.version)?,
            row.state.high_watermark,
            row.state.last_stable_offset,
            codec::to_stored(row.state.bytes)?,
            codec::encode_producers(&row.producers),
        ))?;
    }
    Ok(())
}

fn write_rows(
    sql: &Connection,
    object_ids: &AtomicI64,
    writes: &CommitWrites,
    now_ms: i64,
) -> SqlResult<()> {
    write_partitions(sql, &writes.partitions)?;
    for object in &writes.objects {
        write_object(sql, objects::next_id(object_ids), object, now_ms)?;
    }
    for (id, outcome) in writes.decided() {
        insert_outcome(sql, id, outcome)?;
    }
    let joined = writes.transactions.iter();
    let joined: Vec<Write> = joined.map(|(id, row)| put_row(id, row)).collect();
    facts::write_all(sql, &joined)
}

fn write_object(sql: &Connection, id: i64, object: &NewObject, now_ms: i64) -> SqlResult<()> {
    objects::insert(sql, id, object, now_ms)?;
    if !object.extents.is_empty() {
        sql.prepare_cached("INSERT INTO fresh_segments VALUES (?1, ?2)")?
            .execute((id, codec::encode_fresh(&object.extents)))?;
    }
    Ok(())
}

/// What was decided about a segment; an error if that has been forgotten.
pub(crate) fn outcome(sql: &Connection, id: SegmentId) -> SqlResult<Option<SegmentOutcome>> {
    let counter = codec::to_stored(id.counter)?;
    let mut statement = sql.prepare_cached(
        "SELECT (SELECT outcome FROM outcomes WHERE broker = ?1 AND epoch = ?2 AND counter = ?3),
             (SELECT up_to FROM forgotten_outcomes WHERE broker = ?1 AND epoch = ?2)",
    )?;
    let (stored, forgotten): (Option<Vec<u8>>, Option<i64>) = statement
        .query_row((id.broker.0, id.epoch.0, counter), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let Some(stored) = stored {
        return Ok(Some(codec::decode_outcome(&stored)?));
    }
    if forgotten.is_some_and(|up_to| counter <= up_to) {
        return Err(validate::forgotten(id).into());
    }
    Ok(None)
}

fn insert_outcome(sql: &Connection, id: SegmentId, outcome: &SegmentOutcome) -> SqlResult<()> {
    let mut statement = sql.prepare_cached("INSERT INTO outcomes VALUES (?1, ?2, ?3, ?4)")?;
    let counter = codec::to_stored(id.counter)?;
    statement.execute((id.broker.0, id.epoch.0, counter, codec::encode_outcome(outcome)))?;
    Ok(())
}

pub(crate) fn abandon(sql: &Connection, fence: &Fence, id: SegmentId) -> SqlResult<SegmentOutcome> {
    facts::check_fence(sql, fence)?;
    if let Some(decided) = outcome(sql, id)? {
        return Ok(decided);
    }
    insert_outcome(sql, id, &SegmentOutcome::Abandoned)?;
    Ok(SegmentOutcome::Abandoned)
}

pub(crate) fn forget(sql: &Connection, fence: &Fence, up_to: SegmentId) -> SqlResult<()> {
    facts::check_fence(sql, fence)?;
    let registration = (up_to.broker.0, up_to.epoch.0, codec::to_stored(up_to.counter)?);
    sql.prepare_cached(
        "INSERT INTO forgotten_outcomes VALUES (?1, ?2, ?3)
         ON CONFLICT (broker, epoch) DO UPDATE SET up_to = max(up_to, excluded.up_to)",
    )?
    .execute(registration)?;
    sql.prepare_cached("DELETE FROM outcomes WHERE broker = ?1 AND epoch = ?2 AND counter <= ?3")?
        .execute(registration)?;
    Ok(())
}

pub(crate) fn forget_registrations(
    sql: &Connection,
    broker: BrokerId,
    up_to: BrokerEpoch,
) -> SqlResult<()> {
    for statement in [
        "DELETE FROM outcomes WHERE broker = ?1 AND epoch <= ?2",
        "DELETE FROM forgotten_outcomes WHERE broker = ?1 AND epoch <= ?2",
    ] {
        sql.prepare_cached(statement)?.execute((broker.0, up_to.0))?;
    }
    Ok(())
}
