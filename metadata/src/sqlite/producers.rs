//! Idempotent producers: those packed in their partition's row, and the spilled ones.

use super::error::SqlResult;
use super::facts;
use crate::codec;
use crate::facts::Fence;
use crate::producers::PartitionProducers;
use crate::rows::ProducerState;
use kfs::{ProducerEpoch, ProducerId, TopicPartition};
use rusqlite::{Connection, OptionalExtension, Row};

/// Adds a spilled producer to those packed, if there is one of this id.
pub(crate) fn add_spilled(
    sql: &Connection,
    partition: TopicPartition,
    id: ProducerId,
    producers: &mut PartitionProducers,
) -> SqlResult<()> {
    let mut statement = sql.prepare_cached(
        "SELECT producer, epoch, batches, transaction_start, last_written_ms FROM producers
         WHERE topic = ?1 AND partition = ?2 AND producer = ?3",
    )?;
    let mut rows = statement.query((partition.topic.0.as_bytes(), partition.partition.0, id.0))?;
    if let Some(row) = rows.next()? {
        producers.put_spilled(producer_of_row(row)?);
    }
    Ok(())
}

/// Writes producers into rows of their own.
pub(crate) fn spill(
    sql: &Connection,
    partition: TopicPartition,
    spilled: &[ProducerState],
) -> SqlResult<()> {
    if spilled.is_empty() {
        return Ok(());
    }
    let mut upsert = sql.prepare_cached(
        "INSERT INTO producers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (topic, partition, producer) DO UPDATE SET epoch = excluded.epoch,
             batches = excluded.batches, transaction_start = excluded.transaction_start,
             last_written_ms = excluded.last_written_ms",
    )?;
    for producer in spilled {
        upsert.execute((
            partition.topic.0.as_bytes(),
            partition.partition.0,
            producer.id.0,
            producer.epoch.0,
            codec::encode_batches(&producer.batches),
            producer.transaction_start,
            producer.last_written_ms,
        ))?;
    }
    Ok(())
}

/// All producers of a partition; `None` where there is no such partition.
fn all_of(sql: &Connection, partition: TopicPartition) -> SqlResult<Option<PartitionProducers>> {
    let mut statement =
        sql.prepare_cached("SELECT producers FROM partitions WHERE topic = ?1 AND partition = ?2")?;
    let named = (partition.topic.0.as_bytes(), partition.partition.0);
    let packed: Option<Vec<u8>> = statement.query_row(named, |row| row.get(0)).optional()?;
    let Some(packed) = packed else {
        return Ok(None);
    };
    let mut producers = codec::decode_producers(&packed)?;
    if producers.has_spilled {
        let mut statement = sql.prepare_cached(
            "SELECT producer, epoch, batches, transaction_start, last_written_ms FROM producers
             WHERE topic = ?1 AND partition = ?2",
        )?;
        let mut rows = statement.query(named)?;
        while let Some(row) = rows.next()? {
            producers.put_spilled(producer_of_row(row)?);
        }
    }
    Ok(Some(producers))
}

pub(crate) fn producers(
    sql: &Connection,
    partition: TopicPartition,
) -> SqlResult<Vec<ProducerState>> {
    Ok(all_of(sql, partition)?.map(PartitionProducers::into_states).unwrap_or_default())
}

/// All that is left is packed again, as far as it fits.
pub(crate) fn expire(
    sql: &Connection,
    fence: Option<&Fence>,
    partition: TopicPartition,
    written_before_ms: i64,
) -> SqlResult<usize> {
    fence.into_iter().try_for_each(|fence| facts::check_fence(sql, fence))?;
    let Some(mut producers) = all_of(sql, partition)? else {
        return Ok(0);
    };
    let expired = producers.expire(written_before_ms);
    if expired == 0 {
        return Ok(0);
    }
    let named = (partition.topic.0.as_bytes(), partition.partition.0);
    if producers.has_spilled {
        sql.prepare_cached("DELETE FROM producers WHERE topic = ?1 AND partition = ?2")?
            .execute(named)?;
        producers.has_spilled = false;
        spill(sql, partition, &producers.spill())?;
    }
    let mut update = sql.prepare_cached(
        "UPDATE partitions SET producers = ?3, version = version + 1
         WHERE topic = ?1 AND partition = ?2",
    )?;
    update.execute((named.0, named.1, codec::encode_producers(&producers)))?;
    Ok(expired)
}

/// A producer of the columns (producer, epoch, batches, transaction start, last written).
fn producer_of_row(row: &Row<'_>) -> SqlResult<ProducerState> {
    let batches = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
    Ok(ProducerState {
        id: ProducerId(row.get(0)?),
        epoch: ProducerEpoch(row.get(1)?),
        batches: codec::decode_batches(batches)?,
        transaction_start: row.get(3)?,
        last_written_ms: row.get(4)?,
    })
}
