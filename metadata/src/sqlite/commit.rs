//! Segments: committed, abandoned, forgotten. The rows are read, `decide` decides, the rows are
//! written; the writer is alone, so nothing needs a lock.

use super::error::SqlResult;
use super::{facts, log, objects};
use crate::codec;
use crate::decide::{self, CommitRows, CommitWrites};
use crate::facts::Fence;
use crate::rows::{ProducerState, SegmentFacts, SegmentOutcome};
use crate::validate;
use kfs::{ProducerEpoch, ProducerId, SegmentId, TopicPartition};
use rusqlite::{Connection, OptionalExtension, Row};

pub(crate) fn commit(
    sql: &Connection,
    fence: &Fence,
    segments: &[SegmentFacts],
    now_ms: i64,
) -> SqlResult<Vec<SegmentOutcome>> {
    facts::check_fence(sql, fence)?;
    let rows = read_rows(sql, segments)?;
    let writes = decide::decide_commit(segments, rows, now_ms);
    write_rows(sql, &writes, now_ms)?;
    Ok(writes.outcomes)
}

fn read_rows(sql: &Connection, segments: &[SegmentFacts]) -> SqlResult<CommitRows> {
    let mut rows = CommitRows::default();
    for segment in segments {
        if let Some(outcome) = outcome(sql, segment.id)? {
            rows.decided.insert(segment.id, outcome);
        }
    }
    for partition in decide::partitions_named(segments) {
        if let Some(state) = log::partition_state(sql, partition)? {
            rows.partitions.insert(partition, state);
        }
    }
    for (partition, id) in decide::producers_named(segments) {
        if let Some(producer) = producer(sql, partition, id)? {
            rows.producers.insert((partition, id), producer);
        }
    }
    Ok(rows)
}

fn write_rows(sql: &Connection, writes: &CommitWrites, now_ms: i64) -> SqlResult<()> {
    for (partition, state) in &writes.partitions {
        log::update_partition(sql, *partition, state)?;
    }
    let mut upsert = sql.prepare_cached(
        "INSERT INTO producers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (topic, partition, producer) DO UPDATE SET epoch = excluded.epoch,
             batches = excluded.batches, transaction_start = excluded.transaction_start,
             last_written_ms = excluded.last_written_ms",
    )?;
    for ((partition, id), producer) in &writes.producers {
        upsert.execute((
            partition.topic.0.as_bytes(),
            partition.partition.0,
            id.0,
            producer.epoch.0,
            codec::encode_batches(&producer.batches),
            producer.transaction_start,
            producer.last_written_ms,
        ))?;
    }
    for object in &writes.objects {
        let live_bytes = codec::to_stored(object.live_bytes())?;
        let id = objects::insert(sql, &object.key, object.size, live_bytes, now_ms)?;
        for (partition, extent) in &object.extents {
            log::insert_extent(sql, *partition, extent, Some(id))?;
        }
    }
    for (id, outcome) in &writes.decided {
        insert_outcome(sql, *id, outcome)?;
    }
    Ok(())
}

/// What was decided about a segment; an error if that has been forgotten.
pub(crate) fn outcome(sql: &Connection, id: SegmentId) -> SqlResult<Option<SegmentOutcome>> {
    let counter = codec::to_stored(id.counter)?;
    let mut statement = sql.prepare_cached(
        "SELECT outcome FROM outcomes WHERE broker = ?1 AND epoch = ?2 AND counter = ?3",
    )?;
    let stored: Option<Vec<u8>> =
        statement.query_row((id.broker.0, id.epoch.0, counter), |row| row.get(0)).optional()?;
    if let Some(stored) = stored {
        return Ok(Some(codec::decode_outcome(&stored)?));
    }
    let mut statement = sql
        .prepare_cached("SELECT up_to FROM forgotten_outcomes WHERE broker = ?1 AND epoch = ?2")?;
    let forgotten: Option<i64> =
        statement.query_row((id.broker.0, id.epoch.0), |row| row.get(0)).optional()?;
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

fn producer(
    sql: &Connection,
    partition: TopicPartition,
    id: ProducerId,
) -> SqlResult<Option<ProducerState>> {
    let mut statement = sql.prepare_cached(
        "SELECT producer, epoch, batches, transaction_start, last_written_ms FROM producers
         WHERE topic = ?1 AND partition = ?2 AND producer = ?3",
    )?;
    let mut rows = statement.query((partition.topic.0.as_bytes(), partition.partition.0, id.0))?;
    rows.next()?.map(producer_of_row).transpose()
}

/// A producer of the columns (producer, epoch, batches, transaction start, last written).
pub(crate) fn producer_of_row(row: &Row<'_>) -> SqlResult<ProducerState> {
    let batches: Vec<u8> = row.get(2)?;
    Ok(ProducerState {
        id: ProducerId(row.get(0)?),
        epoch: ProducerEpoch(row.get(1)?),
        batches: codec::decode_batches(&batches)?,
        transaction_start: row.get(3)?,
        last_written_ms: row.get(4)?,
    })
}
