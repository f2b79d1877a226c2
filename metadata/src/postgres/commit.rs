//! Segments: committed, abandoned, forgotten. A commit is two flights, whatever its size: the first
//! locks and reads, `decide` decides, the second writes and commits.
//!
//! Two commits of one segment at the same time: both may find nothing decided; the second to insert
//! the outcome then fails with a unique violation, starts over, and finds it. So the outcome is
//! inserted first. Forgetting locks the fence alone, so that no commit of that registration is
//! under way.

use super::connection::{Connection, Parameters, query};
use super::error::{PgError, PgResult};
use super::producers::{self, SpilledColumns};
use super::{columns, facts, log, sql_limit};
use crate::codec::{self, to_stored};
use crate::decide::{self, CommitPartition, CommitRows, CommitWrites};
use crate::facts::Fence;
use crate::fresh::PartitionRow;
use crate::rows::{SegmentFacts, SegmentOutcome};
use crate::validate;
use floe_env::Error;
use kfs::{BrokerEpoch, BrokerId, PartitionIndex, SegmentId, TopicId, TopicPartition};
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
const LOCK_PARTITIONS: &str = "SELECT p.topic, p.partition, p.version, p.log_start_offset,
        p.high_watermark, p.last_stable_offset, p.bytes, p.fresh_from, p.producers
    FROM partitions p
    WHERE (p.topic, p.partition) IN (SELECT * FROM unnest($1::uuid[], $2::int[]))
    ORDER BY p.topic, p.partition FOR UPDATE";
const UPDATE_PARTITIONS: &str = "UPDATE partitions SET version = new.version,
        high_watermark = new.high_watermark, last_stable_offset = new.last_stable_offset,
        bytes = new.bytes, producers = new.producers
    FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bytea[]) AS new (topic, partition, version, high_watermark, last_stable_offset,
            bytes, producers)
    WHERE partitions.topic = new.topic AND partitions.partition = new.partition";
const INSERT_OBJECTS: &str = "INSERT INTO objects
        (id, key, size, live_bytes, fresh_extents, dead_since_ms)
    SELECT id, key, size, live_bytes, fresh_extents,
        CASE WHEN live_bytes = 0 THEN $6::bigint END
    FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS new (id, key, size, live_bytes, fresh_extents)";
const INSERT_FRESH: &str = "INSERT INTO fresh_segments
    SELECT * FROM unnest($1::bigint[], $2::bytea[])";

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
    let ids = IdColumns::new(segments.iter().map(|segment| segment.id))?;
    let objects = sql_limit(segments.len());
    let held: Parameters<'_> = &[&absent];
    let fenced: Parameters<'_> = &[&fence_key];
    let partitions: Parameters<'_> = &[&topics, &indexes];
    let decided: Parameters<'_> = &[&ids.brokers, &ids.epochs, &ids.counters];
    let registrations: Parameters<'_> = &[&ids.brokers, &ids.epochs];
    let wanted: Parameters<'_> = &[&objects];
    let mut queries = vec![
        query(facts::LOCK_FENCE, fenced),
        query(LOCK_PARTITIONS, partitions),
        query(OUTCOMES, decided),
        query(FORGOTTEN, registrations),
        query(super::NEW_OBJECT_IDS, wanted),
        query(super::NOW, &[]),
    ];
    if !absent.is_empty() {
        queries.insert(0, query(facts::HOLD_ABSENT, held));
    }
    let answers = connection.begin(&queries).await?;
    let [.., fence_rows, partition_rows, decided, forgotten, object_ids, now] = &answers[..] else {
        return Err(Error::bug("PostgreSQL answered fewer queries than asked").into());
    };
    facts::check_fence(fence, fence_rows)?;
    let ids: Vec<SegmentId> = segments.iter().map(|segment| segment.id).collect();
    let mut rows =
        CommitRows { decided: outcomes_of(decided, forgotten, &ids)?, ..CommitRows::default() };
    let mut read = Vec::with_capacity(partition_rows.len());
    for row in partition_rows {
        let (partition, PartitionRow { state, .. }) = log::partition_of_row(row)?;
        let producers = codec::decode_producers(row.try_get(8)?)?;
        read.push((partition, CommitPartition { state, producers, spilled: Vec::new() }));
    }
    rows.partitions = read.into_iter().collect();
    read_spilled(connection, segments, &mut rows).await?;
    let object_ids = super::object_ids_of(object_ids)?;
    Ok(Locked { rows, object_ids, now_ms: super::now_of(now)? })
}

/// Reads the producers that are named and not packed: a flight more, where there are any.
async fn read_spilled(
    connection: &Connection,
    segments: &[SegmentFacts],
    rows: &mut CommitRows,
) -> PgResult<()> {
    let named = rows.maybe_spilled(segments);
    if named.is_empty() {
        return Ok(());
    }
    let (topics, indexes, ids) = producers::spilled_columns(&named);
    for row in connection.query(producers::SPILLED, &[&topics, &indexes, &ids]).await? {
        let topic = TopicId(row.try_get::<_, Uuid>(0)?);
        let partition = TopicPartition { topic, partition: PartitionIndex(row.try_get(1)?) };
        if let Some(known) = rows.partitions.get_mut(&partition) {
            known.producers.put_spilled(producers::producer_of_row(&row, 2)?);
        }
    }
    Ok(())
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

/// Partitions as columns.
#[derive(Default)]
struct PartitionColumns {
    topics: Vec<Uuid>,
    indexes: Vec<i32>,
    versions: Vec<i64>,
    high_watermarks: Vec<i64>,
    stable_offsets: Vec<i64>,
    bytes: Vec<i64>,
    producers: Vec<Vec<u8>>,
    spilled: SpilledColumns,
}

impl PartitionColumns {
    fn new(partitions: &[(TopicPartition, CommitPartition)]) -> PgResult<Self> {
        let mut columns = Self::default();
        for (partition, row) in partitions {
            columns.topics.push(partition.topic.0);
            columns.indexes.push(partition.partition.0);
            columns.versions.push(to_stored(row.state.version)?);
            columns.high_watermarks.push(row.state.high_watermark);
            columns.stable_offsets.push(row.state.last_stable_offset);
            columns.bytes.push(to_stored(row.state.bytes)?);
            columns.producers.push(codec::encode_producers(&row.producers));
            for producer in &row.spilled {
                columns.spilled.push(*partition, producer);
            }
        }
        Ok(columns)
    }
}

/// New objects and their packed extents as columns.
#[derive(Default)]
struct ObjectColumns<'a> {
    ids: Vec<i64>,
    keys: Vec<&'a str>,
    sizes: Vec<i64>,
    live_bytes: Vec<i64>,
    fresh_extents: Vec<i64>,
    /// Of those that have any.
    packed_ids: Vec<i64>,
    packed: Vec<Vec<u8>>,
}

impl<'a> ObjectColumns<'a> {
    fn new(writes: &'a CommitWrites, ids: &[i64]) -> PgResult<Self> {
        let mut columns = Self::default();
        for (object, id) in writes.objects.iter().zip(ids) {
            columns.ids.push(*id);
            columns.keys.push(&object.key);
            columns.sizes.push(to_stored(object.size)?);
            columns.live_bytes.push(to_stored(object.live_bytes())?);
            columns.fresh_extents.push(sql_limit(object.extents.len()));
            if !object.extents.is_empty() {
                columns.packed_ids.push(*id);
                columns.packed.push(codec::encode_fresh(&object.extents));
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
    let ids = IdColumns::new(writes.decided().map(|(id, _)| id))?;
    let outcomes = writes.decided().map(|(_, outcome)| codec::encode_outcome(outcome));
    let outcomes: Vec<Vec<u8>> = outcomes.collect();
    let objects = ObjectColumns::new(writes, object_ids)?;
    let rows = PartitionColumns::new(&writes.partitions)?;
    let absent = facts::absent_key(fence);
    let release: Parameters<'_> = &[&absent];
    let decided: Parameters<'_> = &[&ids.brokers, &ids.epochs, &ids.counters, &outcomes];
    let new: Parameters<'_> = &[
        &objects.ids,
        &objects.keys,
        &objects.sizes,
        &objects.live_bytes,
        &objects.fresh_extents,
        &now_ms,
    ];
    let packed: Parameters<'_> = &[&objects.packed_ids, &objects.packed];
    let partitions: Parameters<'_> = &[
        &rows.topics,
        &rows.indexes,
        &rows.versions,
        &rows.high_watermarks,
        &rows.stable_offsets,
        &rows.bytes,
        &rows.producers,
    ];
    let spilled = rows.spilled.parameters();
    let mut changes = vec![
        query(INSERT_OUTCOMES, decided),
        query(INSERT_OBJECTS, new),
        query(INSERT_FRESH, packed),
        query(UPDATE_PARTITIONS, partitions),
    ];
    if !rows.spilled.is_empty() {
        changes.push(query(SpilledColumns::UPSERT, &spilled));
    }
    if !absent.is_empty() {
        changes.push(facts::release(release));
    }
    connection.commit(&changes).await
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

pub(super) async fn forget_registrations(
    connection: &Connection,
    broker: BrokerId,
    up_to: BrokerEpoch,
) -> PgResult<()> {
    let registrations: Parameters<'_> = &[&broker.0, &up_to.0];
    connection.begin(&[]).await?;
    let outcomes = "DELETE FROM outcomes WHERE broker = $1 AND epoch <= $2";
    let forgotten = "DELETE FROM forgotten_outcomes WHERE broker = $1 AND epoch <= $2";
    connection.commit(&[query(outcomes, registrations), query(forgotten, registrations)]).await
}
