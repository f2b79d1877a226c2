//! What a commit writes, as the columns of its statements.

use super::connection::{Query, query};
use super::error::PgResult;
use super::outcomes::{INSERT_OUTCOMES, IdColumns};
use super::producers::SpilledColumns;
use super::recent::WrittenRow;
use super::sql_limit;
use crate::codec::{self, to_stored};
use crate::decide::{CommitPartition, CommitWrites};
use kfs::TopicPartition;
use std::collections::BTreeMap;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// What fails where an object's key is known already.
pub(super) const OBJECT_KEY_CONSTRAINT: &str = "objects_key_key";

/// Objects, and the packed extents of those that have any.
const INSERT_OBJECTS: &str = "WITH new AS (
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])
            AS new (key, size, live_bytes, fresh_extents, extents)
    ), inserted AS (
        INSERT INTO objects (id, key, size, live_bytes, fresh_extents, dead_since_ms)
        SELECT nextval('object_ids'), key, size, live_bytes, fresh_extents,
            CASE WHEN live_bytes = 0
                THEN (extract(epoch FROM clock_timestamp()) * 1000)::bigint END
        FROM new RETURNING id, key
    )
    INSERT INTO fresh_segments
    SELECT inserted.id, new.extents FROM inserted JOIN new USING (key)
    WHERE new.fresh_extents > 0";
/// Writes partitions, or divides by zero where one has another version than it was decided from.
const UPDATE_PARTITIONS: &str = "WITH updated AS (
        UPDATE partitions SET version = new.version, high_watermark = new.high_watermark,
            last_stable_offset = new.last_stable_offset, bytes = new.bytes,
            producers = new.producers
        FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bytea[]) AS new (topic, partition, before, version,
                high_watermark, last_stable_offset, bytes, producers)
        WHERE partitions.topic = new.topic AND partitions.partition = new.partition
            AND partitions.version = new.before
        RETURNING 1
    )
    SELECT 1 / CASE WHEN count(*) = cardinality($2::int[]) THEN 1 ELSE 0 END FROM updated";

type Column<'a> = &'a (dyn ToSql + Sync);

/// The columns of all statements.
pub(super) struct CommitColumns<'a> {
    ids: IdColumns,
    outcomes: Vec<Vec<u8>>,
    objects: ObjectColumns<'a>,
    partitions: PartitionColumns,
}

impl<'a> CommitColumns<'a> {
    /// Of what was decided from partitions of these versions.
    pub(super) fn new(
        writes: &'a CommitWrites,
        before: &BTreeMap<TopicPartition, u64>,
    ) -> PgResult<Self> {
        Ok(Self {
            ids: IdColumns::new(writes.decided().map(|(id, _)| id))?,
            outcomes: writes.decided().map(|(_, one)| codec::encode_outcome(one)).collect(),
            objects: ObjectColumns::new(writes)?,
            partitions: PartitionColumns::new(&writes.partitions, before)?,
        })
    }

    /// The same as parameters.
    pub(super) fn parameters(&self) -> CommitParameters<'_> {
        let (ids, objects, rows) = (&self.ids, &self.objects, &self.partitions);
        CommitParameters {
            outcomes: [&ids.brokers, &ids.epochs, &ids.counters, &self.outcomes],
            objects: [
                &objects.keys,
                &objects.sizes,
                &objects.live_bytes,
                &objects.fresh_extents,
                &objects.packed,
            ],
            partitions: rows.parameters(),
        }
    }

    /// The partitions' rows as they are once this has been committed.
    pub(super) fn into_written(
        self,
        writes: &CommitWrites,
    ) -> impl Iterator<Item = (TopicPartition, WrittenRow)> {
        let rows = writes.partitions.iter().zip(self.partitions.producers);
        rows.map(|((partition, row), producers)| {
            (*partition, WrittenRow { state: row.state, producers })
        })
    }
}

/// The parameters of all statements.
pub(super) struct CommitParameters<'a> {
    outcomes: [Column<'a>; 4],
    objects: [Column<'a>; 5],
    partitions: PartitionParameters<'a>,
}

impl CommitParameters<'_> {
    /// The statements, in the order in which they take locks.
    pub(super) fn changes(&self) -> Vec<Query<'_>> {
        let mut changes = vec![query(INSERT_OUTCOMES, &self.outcomes)];
        changes.extend(self.partitions.changes());
        changes.push(query(INSERT_OBJECTS, &self.objects));
        changes
    }
}

/// The parameters of the statements that write partitions.
pub(super) struct PartitionParameters<'a> {
    rows: [Column<'a>; 8],
    spilled: Option<[Column<'a>; 7]>,
}

impl PartitionParameters<'_> {
    /// The statements.
    pub(super) fn changes(&self) -> Vec<Query<'_>> {
        let mut changes = vec![query(UPDATE_PARTITIONS, &self.rows)];
        changes.extend(self.spilled.iter().map(|rows| query(SpilledColumns::UPSERT, rows)));
        changes
    }
}

/// Partitions as columns.
#[derive(Default)]
pub(super) struct PartitionColumns {
    topics: Vec<Uuid>,
    indexes: Vec<i32>,
    before: Vec<i64>,
    versions: Vec<i64>,
    high_watermarks: Vec<i64>,
    stable_offsets: Vec<i64>,
    bytes: Vec<i64>,
    producers: Vec<Vec<u8>>,
    spilled: SpilledColumns,
}

impl PartitionColumns {
    /// Of partitions that had these versions.
    pub(super) fn new(
        partitions: &[(TopicPartition, CommitPartition)],
        before: &BTreeMap<TopicPartition, u64>,
    ) -> PgResult<Self> {
        let mut columns = Self::default();
        for (partition, row) in partitions {
            columns.topics.push(partition.topic.0);
            columns.indexes.push(partition.partition.0);
            columns.before.push(to_stored(before.get(partition).copied().unwrap_or_default())?);
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

    pub(super) fn parameters(&self) -> PartitionParameters<'_> {
        PartitionParameters {
            rows: [
                &self.topics,
                &self.indexes,
                &self.before,
                &self.versions,
                &self.high_watermarks,
                &self.stable_offsets,
                &self.bytes,
                &self.producers,
            ],
            spilled: (!self.spilled.is_empty()).then(|| self.spilled.parameters()),
        }
    }
}

/// New objects and their packed extents as columns.
#[derive(Default)]
struct ObjectColumns<'a> {
    keys: Vec<&'a str>,
    sizes: Vec<i64>,
    live_bytes: Vec<i64>,
    fresh_extents: Vec<i64>,
    packed: Vec<Vec<u8>>,
}

impl<'a> ObjectColumns<'a> {
    fn new(writes: &'a CommitWrites) -> PgResult<Self> {
        let mut columns = Self::default();
        for object in &writes.objects {
            columns.keys.push(&object.key);
            columns.sizes.push(to_stored(object.size)?);
            columns.live_bytes.push(to_stored(object.live_bytes())?);
            columns.fresh_extents.push(sql_limit(object.extents.len()));
            columns.packed.push(codec::encode_fresh(&object.extents));
        }
        Ok(columns)
    }
}
