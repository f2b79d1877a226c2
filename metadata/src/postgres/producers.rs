//! Idempotent producers: those packed in their partition's row, and the spilled ones.

use super::connection::{Connection, Parameters, query};
use super::error::PgResult;
use super::{columns, facts};
use crate::codec;
use crate::facts::Fence;
use crate::producers::{PartitionProducers, is_expired};
use crate::rows::ProducerState;
use kfs::{ProducerEpoch, ProducerId, TopicPartition};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// Spilled producers by (topic, partition, id).
pub(super) const SPILLED: &str = "SELECT topic, partition, producer, epoch, batches,
        transaction_start, last_written_ms FROM producers
    WHERE (topic, partition, producer) IN
        (SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[]))";
const LOCK_PACKED: &str = "SELECT producers FROM partitions
    WHERE topic = $1 AND partition = $2 FOR UPDATE";
const ALL_SPILLED: &str = "SELECT producer, epoch, batches, transaction_start, last_written_ms
    FROM producers WHERE topic = $1 AND partition = $2";
/// One statement, so that no producer is missed between two.
const ALL: &str = "SELECT p.producers, s.producer, s.epoch, s.batches, s.transaction_start,
        s.last_written_ms
    FROM partitions p LEFT JOIN producers s ON s.topic = p.topic AND s.partition = p.partition
    WHERE p.topic = $1 AND p.partition = $2";
const DELETE_SPILLED: &str = "DELETE FROM producers WHERE topic = $1 AND partition = $2";
const WRITE_PACKED: &str = "UPDATE partitions SET producers = $3, version = version + 1
    WHERE topic = $1 AND partition = $2";

/// Producers that get rows of their own, as columns.
#[derive(Default)]
pub(super) struct SpilledColumns {
    topics: Vec<Uuid>,
    partitions: Vec<i32>,
    ids: Vec<i64>,
    epochs: Vec<i16>,
    batches: Vec<Vec<u8>>,
    transaction_starts: Vec<Option<i64>>,
    last_written: Vec<i64>,
}

impl SpilledColumns {
    pub(super) const UPSERT: &str = "INSERT INTO producers SELECT * FROM unnest($1::uuid[],
            $2::int[], $3::bigint[], $4::smallint[], $5::bytea[], $6::bigint[], $7::bigint[])
        ON CONFLICT (topic, partition, producer) DO UPDATE SET epoch = excluded.epoch,
            batches = excluded.batches, transaction_start = excluded.transaction_start,
            last_written_ms = excluded.last_written_ms";

    pub(super) fn push(&mut self, partition: TopicPartition, producer: &ProducerState) {
        self.topics.push(partition.topic.0);
        self.partitions.push(partition.partition.0);
        self.ids.push(producer.id.0);
        self.epochs.push(producer.epoch.0);
        self.batches.push(codec::encode_batches(&producer.batches));
        self.transaction_starts.push(producer.transaction_start);
        self.last_written.push(producer.last_written_ms);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The parameters of [`Self::UPSERT`].
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 7] {
        [
            &self.topics,
            &self.partitions,
            &self.ids,
            &self.epochs,
            &self.batches,
            &self.transaction_starts,
            &self.last_written,
        ]
    }
}

/// A producer of the columns (producer, epoch, batches, transaction start, last written).
pub(super) fn producer_of_row(row: &Row, at: usize) -> PgResult<ProducerState> {
    Ok(ProducerState {
        id: ProducerId(row.try_get(at)?),
        epoch: ProducerEpoch(row.try_get(at + 1)?),
        batches: codec::decode_batches(row.try_get(at + 2)?)?,
        transaction_start: row.try_get(at + 3)?,
        last_written_ms: row.try_get(at + 4)?,
    })
}

pub(super) async fn producers(
    connection: &Connection,
    partition: TopicPartition,
) -> PgResult<Vec<ProducerState>> {
    let named: Parameters<'_> = &[&partition.topic.0, &partition.partition.0];
    let rows = connection.query(ALL, named).await?;
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let mut producers = codec::decode_producers(first.try_get(0)?)?;
    for row in &rows {
        if row.try_get::<_, Option<i64>>(1)?.is_some() {
            producers.put_spilled(producer_of_row(row, 1)?);
        }
    }
    Ok(producers.into_states())
}

/// Holds the partition's lock, so that no commit reads what is forgotten here. All that is left is
/// packed again, as far as it fits.
pub(super) async fn expire(
    connection: &Connection,
    fence: Option<&Fence>,
    partition: TopicPartition,
    written_before_ms: i64,
) -> PgResult<usize> {
    let known = producers(connection, partition).await?;
    if !known.iter().any(|producer| is_expired(producer, written_before_ms)) {
        return Ok(0);
    }
    let named: Parameters<'_> = &[&partition.topic.0, &partition.partition.0];
    let (absent, key) = (facts::absent_key(fence), facts::fence_key(fence));
    let (held, fenced): (Parameters<'_>, Parameters<'_>) = (&[&absent], &[&key]);
    let answers = connection
        .begin(&[
            query(facts::HOLD_ABSENT, held),
            query(facts::LOCK_FENCE, fenced),
            query(LOCK_PACKED, named),
            query(ALL_SPILLED, named),
        ])
        .await?;
    facts::check_fence(fence, &answers[1])?;
    let mut producers = match answers[2].first() {
        Some(row) => codec::decode_producers(row.try_get(0)?)?,
        None => PartitionProducers::default(),
    };
    for row in &answers[3] {
        producers.put_spilled(producer_of_row(row, 0)?);
    }
    let expired = producers.expire(written_before_ms);
    producers.has_spilled = false;
    let mut spilled = SpilledColumns::default();
    for producer in producers.spill() {
        spilled.push(partition, &producer);
    }
    let packed = codec::encode_producers(&producers);
    let rows = spilled.parameters();
    let update: Parameters<'_> = &[&partition.topic.0, &partition.partition.0, &packed];
    connection
        .commit(&[
            query(DELETE_SPILLED, named),
            query(SpilledColumns::UPSERT, &rows),
            query(WRITE_PACKED, update),
            facts::release(held),
        ])
        .await?;
    Ok(expired)
}

/// The parameters of [`SPILLED`].
pub(super) fn spilled_columns(
    named: &[(TopicPartition, ProducerId)],
) -> (Vec<Uuid>, Vec<i32>, Vec<i64>) {
    let partitions: Vec<TopicPartition> = named.iter().map(|(partition, _)| *partition).collect();
    let (topics, indexes) = columns(&partitions);
    (topics, indexes, named.iter().map(|(_, id)| id.0).collect())
}
