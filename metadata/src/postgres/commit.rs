//! Segments: committed, abandoned, forgotten. A commit is two flights, whatever its size: the first
//! locks and reads, `decide` decides, the second writes and commits.
//!
//! Two commits of one segment at the same time: both may find nothing decided; the second to insert
//! the outcome then fails with a unique violation, starts over, and finds it. So the outcome is
//! inserted first. Forgetting locks the fence alone, so that no commit of that registration is
//! under way.

use super::connection::{Connection, Parameters, query};
use super::error::{PgError, PgResult};
use super::log::{self, ExtentColumns};
use super::{columns, facts, sql_limit};
use crate::codec::{self, to_stored};
use crate::decide::{self, CommitRows, CommitWrites};
use crate::facts::Fence;
use crate::rows::{PartitionState, ProducerState, SegmentFacts, SegmentOutcome};
use crate::validate;
use kfs::{BrokerEpoch, BrokerId, PartitionIndex, ProducerId, SegmentId, TopicId, TopicPartition};
use std::collections::BTreeMap;
use tokio_postgres::Row;
use uuid::Uuid;

const OUTCOMES: &str = "SELECT broker, epoch, counter, outcome FROM outcomes
    WHERE (broker, epoch, counter) IN
        (SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[]))";
const FORGOTTEN: &str = "SELECT broker, epoch, up_to FROM forgotten_outcomes
    WHERE (broker, epoch) IN (SELECT * FROM unnest($1::int[], $2::bigint[]))";
const INSERT_OUTCOMES: &str = "INSERT INTO outcomes
    SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bytea[])";
const PRODUCERS: &str = "SELECT topic, partition, producer, epoch, batches, transaction_start,
        last_written_ms FROM producers
    WHERE (topic, partition, producer) IN
        (SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[]))";
const UPSERT_PRODUCERS: &str = "INSERT INTO producers SELECT * FROM unnest($1::uuid[], $2::int[],
        $3::bigint[], $4::smallint[], $5::bytea[], $6::bigint[], $7::bigint[])
    ON CONFLICT (topic, partition, producer) DO UPDATE SET epoch = excluded.epoch,
        batches = excluded.batches, transaction_start = excluded.transaction_start,
        last_written_ms = excluded.last_written_ms";
const UPDATE_PARTITIONS: &str = "UPDATE partitions SET version = new.version,
        log_start_offset = new.log_start_offset, high_watermark = new.high_watermark,
        last_stable_offset = new.last_stable_offset, bytes = new.bytes
    FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[]) AS new (topic, partition, version, log_start_offset, high_watermark,
            last_stable_offset, bytes)
    WHERE partitions.topic = new.topic AND partitions.partition = new.partition";
const INSERT_OBJECTS: &str = "INSERT INTO objects (id, key, size, live_bytes, dead_since_ms)
    SELECT id, key, size, live_bytes, CASE WHEN live_bytes = 0 THEN $5::bigint END
    FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[])
        AS new (id, key, size, live_bytes)";

/// Segment ids as columns.
#[derive(Default)]
struct IdColumns {
    brokers: Vec<i32>,
    epochs: Vec<i64>,
    counters: Vec<i64>,
}

impl IdColumns {
    fn new(ids: impl IntoIterator<Item = SegmentId>) -> PgResult<Self> {
        let mut columns = Self::default();
        for id in ids {
            columns.brokers.push(id.broker.0);
            columns.epochs.push(id.epoch.0);
            columns.counters.push(to_stored(id.counter)?);
        }
        Ok(columns)
    }
}

/// What the first flight found.
struct Locked {
    rows: CommitRows,
    object_ids: Vec<i64>,
    now_ms: i64,
}

pub(super) async fn commit(
    connection: &Connection,
    fence: &Fence,
    segments: &[SegmentFacts],
) -> PgResult<Vec<SegmentOutcome>> {
    let locked = lock(connection, fence, segments).await?;
    let writes = decide::decide_commit(segments, locked.rows, locked.now_ms);
    write(connection, fence, &writes, &locked.object_ids, locked.now_ms)
        .await
        .map_err(|error| explain(error, &writes))?;
    Ok(writes.outcomes)
}

/// A key that is known already is the caller's mistake and stays one.
fn explain(error: PgError, writes: &CommitWrites) -> PgError {
    let PgError::Sql(sql) = &error else {
        return error;
    };
    let failed = std::error::Error::source(sql)
        .and_then(|cause| cause.downcast_ref::<tokio_postgres::error::DbError>());
    let is_object_key = failed.and_then(|failed| failed.constraint()) == Some("objects_key_key");
    match writes.objects.first() {
        Some(first) if is_object_key => {
            let detail = failed.and_then(|failed| failed.detail()).unwrap_or_default();
            let named = writes.objects.iter().find(|object| detail.contains(&object.key));
            validate::object_exists(&named.unwrap_or(first).key).into()
        }
        _ => error,
    }
}

async fn lock(
    connection: &Connection,
    fence: &Fence,
    segments: &[SegmentFacts],
) -> PgResult<Locked> {
    let absent = facts::absent_key(fence);
    let fence_key = fence.0.key.as_str();
    let (topics, indexes) = columns(&decide::partitions_named(segments));
    let producers = decide::producers_named(segments);
    let named: Vec<TopicPartition> = producers.iter().map(|(partition, _)| *partition).collect();
    let (producer_topics, producer_indexes) = columns(&named);
    let producer_ids: Vec<i64> = producers.iter().map(|(_, id)| id.0).collect();
    let ids = IdColumns::new(segments.iter().map(|segment| segment.id))?;
    let objects = sql_limit(segments.len());
    let held: Parameters<'_> = &[&absent];
    let fenced: Parameters<'_> = &[&fence_key];
    let partitions: Parameters<'_> = &[&topics, &indexes];
    let decided: Parameters<'_> = &[&ids.brokers, &ids.epochs, &ids.counters];
    let registrations: Parameters<'_> = &[&ids.brokers, &ids.epochs];
    let remembered: Parameters<'_> = &[&producer_topics, &producer_indexes, &producer_ids];
    let wanted: Parameters<'_> = &[&objects];
    let answers = connection
        .begin(&[
            query(facts::HOLD_ABSENT, held),
            query(facts::LOCK_FENCE, fenced),
            query(log::LOCK_PARTITIONS, partitions),
            query(OUTCOMES, decided),
            query(FORGOTTEN, registrations),
            query(PRODUCERS, remembered),
            query(super::NEW_OBJECT_IDS, wanted),
            query(super::NOW, &[]),
        ])
        .await?;
    facts::check_fence(fence, &answers[1])?;
    let ids: Vec<SegmentId> = segments.iter().map(|segment| segment.id).collect();
    let mut rows = CommitRows {
        decided: outcomes_of(&answers[3], &answers[4], &ids)?,
        ..CommitRows::default()
    };
    for row in &answers[2] {
        let (partition, state) = log::state_of_row(row)?;
        rows.partitions.insert(partition, state);
    }
    for row in &answers[5] {
        let topic = TopicId(row.try_get::<_, Uuid>(0)?);
        let partition = TopicPartition { topic, partition: PartitionIndex(row.try_get(1)?) };
        let producer = log::producer_of_row(row, 2)?;
        rows.producers.insert((partition, producer.id), producer);
    }
    let object_ids = super::object_ids_of(&answers[6])?;
    Ok(Locked { rows, object_ids, now_ms: super::now_of(&answers[7])? })
}

/// What was decided of these segments; an error if one has been forgotten.
fn outcomes_of(
    decided: &[Row],
    forgotten: &[Row],
    ids: &[SegmentId],
) -> PgResult<BTreeMap<SegmentId, SegmentOutcome>> {
    let mut outcomes = BTreeMap::new();
    for row in decided {
        let id = SegmentId {
            broker: BrokerId(row.try_get(0)?),
            epoch: BrokerEpoch(row.try_get(1)?),
            counter: codec::stored_unsigned(row.try_get(2)?)?,
        };
        outcomes.insert(id, codec::decode_outcome(row.try_get(3)?)?);
    }
    let mut gone = BTreeMap::new();
    for row in forgotten {
        let registration = (BrokerId(row.try_get(0)?), BrokerEpoch(row.try_get(1)?));
        gone.insert(registration, codec::stored_unsigned(row.try_get(2)?)?);
    }
    for id in ids {
        let up_to = gone.get(&(id.broker, id.epoch));
        if up_to.is_some_and(|up_to| id.counter <= *up_to) && !outcomes.contains_key(id) {
            return Err(validate::forgotten(*id).into());
        }
    }
    Ok(outcomes)
}

/// Partitions' states as columns.
#[derive(Default)]
struct StateColumns {
    versions: Vec<i64>,
    log_starts: Vec<i64>,
    high_watermarks: Vec<i64>,
    stable_offsets: Vec<i64>,
    bytes: Vec<i64>,
}

impl StateColumns {
    fn new<'a>(states: impl Iterator<Item = &'a PartitionState>) -> PgResult<Self> {
        let mut columns = Self::default();
        for state in states {
            columns.versions.push(to_stored(state.version)?);
            columns.log_starts.push(state.log_start_offset);
            columns.high_watermarks.push(state.high_watermark);
            columns.stable_offsets.push(state.last_stable_offset);
            columns.bytes.push(to_stored(state.bytes)?);
        }
        Ok(columns)
    }
}

/// Producers as columns.
#[derive(Default)]
struct ProducerColumns {
    ids: Vec<i64>,
    epochs: Vec<i16>,
    batches: Vec<Vec<u8>>,
    transaction_starts: Vec<Option<i64>>,
    last_written: Vec<i64>,
}

impl ProducerColumns {
    fn new<'a>(producers: impl Iterator<Item = &'a ProducerState>) -> Self {
        let mut columns = Self::default();
        for producer in producers {
            columns.ids.push(producer.id.0);
            columns.epochs.push(producer.epoch.0);
            columns.batches.push(codec::encode_batches(&producer.batches));
            columns.transaction_starts.push(producer.transaction_start);
            columns.last_written.push(producer.last_written_ms);
        }
        columns
    }
}

/// New objects and their extents as columns.
#[derive(Default)]
struct ObjectColumns<'a> {
    ids: Vec<i64>,
    keys: Vec<&'a str>,
    sizes: Vec<i64>,
    live_bytes: Vec<i64>,
    extents: ExtentColumns,
}

impl<'a> ObjectColumns<'a> {
    fn new(writes: &'a CommitWrites, ids: &[i64]) -> PgResult<Self> {
        let mut columns = Self::default();
        for (object, id) in writes.objects.iter().zip(ids) {
            columns.ids.push(*id);
            columns.keys.push(&object.key);
            columns.sizes.push(to_stored(object.size)?);
            columns.live_bytes.push(to_stored(object.live_bytes())?);
            for (partition, extent) in &object.extents {
                columns.extents.push(*partition, extent, Some(*id))?;
            }
        }
        Ok(columns)
    }
}

async fn write(
    connection: &Connection,
    fence: &Fence,
    writes: &CommitWrites,
    object_ids: &[i64],
    now_ms: i64,
) -> PgResult<()> {
    let ids = IdColumns::new(writes.decided.iter().map(|(id, _)| *id))?;
    let outcomes = writes.decided.iter().map(|(_, outcome)| codec::encode_outcome(outcome));
    let outcomes: Vec<Vec<u8>> = outcomes.collect();
    let objects = ObjectColumns::new(writes, object_ids)?;
    let changed: Vec<TopicPartition> = writes.partitions.keys().copied().collect();
    let (topics, indexes) = columns(&changed);
    let states = StateColumns::new(writes.partitions.values())?;
    let named: Vec<(TopicPartition, ProducerId)> = writes.producers.keys().copied().collect();
    let named: Vec<TopicPartition> = named.iter().map(|(partition, _)| *partition).collect();
    let (producer_topics, producer_indexes) = columns(&named);
    let producers = ProducerColumns::new(writes.producers.values());
    let absent = facts::absent_key(fence);
    let release: Parameters<'_> = &[&absent];
    let decided: Parameters<'_> = &[&ids.brokers, &ids.epochs, &ids.counters, &outcomes];
    let new: Parameters<'_> =
        &[&objects.ids, &objects.keys, &objects.sizes, &objects.live_bytes, &now_ms];
    let extents = objects.extents.parameters();
    let partitions: Parameters<'_> = &[
        &topics,
        &indexes,
        &states.versions,
        &states.log_starts,
        &states.high_watermarks,
        &states.stable_offsets,
        &states.bytes,
    ];
    let remembered: Parameters<'_> = &[
        &producer_topics,
        &producer_indexes,
        &producers.ids,
        &producers.epochs,
        &producers.batches,
        &producers.transaction_starts,
        &producers.last_written,
    ];
    connection
        .commit(&[
            query(INSERT_OUTCOMES, decided),
            query(INSERT_OBJECTS, new),
            query(ExtentColumns::INSERT, &extents),
            query(UPDATE_PARTITIONS, partitions),
            query(UPSERT_PRODUCERS, remembered),
            facts::release(release),
        ])
        .await
}

pub(super) async fn outcome(
    connection: &Connection,
    id: SegmentId,
) -> PgResult<Option<SegmentOutcome>> {
    // One statement, so that an outcome is not forgotten between two.
    let rows = connection
        .query(
            "SELECT o.outcome, f.up_to FROM (SELECT $1::int AS broker, $2::bigint AS epoch) named
             LEFT JOIN outcomes o ON o.broker = named.broker AND o.epoch = named.epoch
                 AND o.counter = $3
             LEFT JOIN forgotten_outcomes f ON f.broker = named.broker AND f.epoch = named.epoch",
            &[&id.broker.0, &id.epoch.0, &to_stored(id.counter)?],
        )
        .await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    if let Some(stored) = row.try_get::<_, Option<&[u8]>>(0)? {
        return Ok(Some(codec::decode_outcome(stored)?));
    }
    let up_to = row.try_get::<_, Option<i64>>(1)?;
    if up_to.is_some_and(|up_to| id.counter <= up_to.unsigned_abs()) {
        return Err(validate::forgotten(id).into());
    }
    Ok(None)
}

pub(super) async fn abandon(
    connection: &Connection,
    fence: &Fence,
    id: SegmentId,
) -> PgResult<SegmentOutcome> {
    let absent = facts::absent_key(fence);
    let fence_key = fence.0.key.as_str();
    let ids = IdColumns::new([id])?;
    let held: Parameters<'_> = &[&absent];
    let fenced: Parameters<'_> = &[&fence_key];
    let decided: Parameters<'_> = &[&ids.brokers, &ids.epochs, &ids.counters];
    let registrations: Parameters<'_> = &[&ids.brokers, &ids.epochs];
    let answers = connection
        .begin(&[
            query(facts::HOLD_ABSENT, held),
            query(facts::LOCK_FENCE, fenced),
            query(OUTCOMES, decided),
            query(FORGOTTEN, registrations),
        ])
        .await?;
    facts::check_fence(fence, &answers[1])?;
    let known = outcomes_of(&answers[2], &answers[3], &[id])?.remove(&id);
    if let Some(known) = known {
        connection.roll_back().await?;
        return Ok(known);
    }
    let outcomes = vec![codec::encode_outcome(&SegmentOutcome::Abandoned)];
    let insert: Parameters<'_> = &[&ids.brokers, &ids.epochs, &ids.counters, &outcomes];
    connection.commit(&[query(INSERT_OUTCOMES, insert), facts::release(held)]).await?;
    Ok(SegmentOutcome::Abandoned)
}

pub(super) async fn forget(
    connection: &Connection,
    fence: &Fence,
    up_to: SegmentId,
) -> PgResult<()> {
    let absent = facts::absent_key(fence);
    let fence_key = fence.0.key.as_str();
    let held: Parameters<'_> = &[&absent];
    let fenced: Parameters<'_> = &[&fence_key];
    let answers = connection
        .begin(&[query(facts::HOLD_ABSENT, held), query(facts::LOCK_FENCE_ALONE, fenced)])
        .await?;
    facts::check_fence(fence, &answers[1])?;
    let counter = to_stored(up_to.counter)?;
    let registration: Parameters<'_> = &[&up_to.broker.0, &up_to.epoch.0, &counter];
    connection
        .commit(&[
            query(
                "INSERT INTO forgotten_outcomes VALUES ($1, $2, $3) ON CONFLICT (broker, epoch)
                 DO UPDATE SET up_to = greatest(forgotten_outcomes.up_to, excluded.up_to)",
                registration,
            ),
            query(
                "DELETE FROM outcomes WHERE broker = $1 AND epoch = $2 AND counter <= $3",
                registration,
            ),
            facts::release(held),
        ])
        .await
}
