//! Partitions and their extents. A read is one statement, which sees one moment of the partition
//! and its extents with rows; the fresh ones are found then.

use super::connection::{Connection, Parameters, query};
use super::error::PgResult;
use super::fresh::{self, FreshExtents, ReleasedColumns};
use super::{facts, sql_limit};
use crate::codec::{self, stored_unsigned, to_stored};
use crate::facts::{Change, Fence, PartitionChange};
use crate::fresh::{PartitionRow, Placed, Wanted, first_at_time, first_of, newest, page_of};
use crate::rows::{AbortedInRange, AbortedTransaction, Extent, ExtentPage, PartitionState, Place};
use crate::validate;
use floe_env::Error;
use kfs::{PartitionIndex, ProducerId, TopicId, TopicPartition};
use tokio_postgres::Row;
use uuid::Uuid;

/// How often a read starts over because extents were merged meanwhile.
const READ_ATTEMPTS_MAX: u32 = 8;

/// The columns that [`partition_of_row`] takes, from the table `p`.
macro_rules! select_partitions {
    ($rest:literal) => {
        concat!(
            "SELECT p.topic, p.partition, p.version, p.log_start_offset, p.high_watermark,
                 p.last_stable_offset, p.bytes, p.fresh_from FROM ",
            $rest
        )
    };
}

/// The columns that [`partition_of_row`] and then [`extent_of_row`] take: a partition with some of
/// its extents that have rows, which are chosen from the table `x`.
macro_rules! select_extents {
    ($chosen:literal) => {
        concat!(
            "SELECT p.topic, p.partition, p.version, p.log_start_offset, p.high_watermark,
                 p.last_stable_offset, p.bytes, p.fresh_from,
                 e.base_offset, e.last_offset, o.key, e.position, e.length, e.place, e.flags,
                 e.max_timestamp_ms
             FROM partitions p LEFT JOIN LATERAL (
                 SELECT * FROM extents x
                 WHERE x.topic = p.topic AND x.partition = p.partition ",
            $chosen,
            ") e ON true LEFT JOIN objects o ON o.id = e.object
             WHERE p.topic = $1 AND p.partition = $2 ORDER BY e.base_offset"
        )
    };
}

pub(super) const PARTITIONS: &str = select_partitions!(
    "partitions p WHERE (p.topic, p.partition) IN (SELECT * FROM unnest($1::uuid[], $2::int[]))"
);
pub(super) const LOCK_PARTITIONS: &str = select_partitions!(
    "partitions p WHERE (p.topic, p.partition) IN (SELECT * FROM unnest($1::uuid[], $2::int[]))
     ORDER BY p.topic, p.partition FOR UPDATE"
);
pub(super) const CREATE_PARTITIONS: &str = "INSERT INTO partitions
    SELECT topic, partition, 0, at, at, at, 0, at, ''::bytea
    FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS named (topic, partition, at)";
pub(super) const DROP_PARTITIONS: [&str; 3] = [
    "DELETE FROM partitions WHERE (topic, partition) IN
         (SELECT * FROM unnest($1::uuid[], $2::int[]))",
    "DELETE FROM producers WHERE (topic, partition) IN
         (SELECT * FROM unnest($1::uuid[], $2::int[]))",
    "DELETE FROM aborted WHERE (topic, partition) IN
         (SELECT * FROM unnest($1::uuid[], $2::int[]))",
];
/// Drops all extents of partitions that have rows, and the references that they were.
pub(super) const DROP_EXTENTS: &str = "WITH gone AS (
        DELETE FROM extents WHERE (topic, partition) IN
            (SELECT * FROM unnest($1::uuid[], $2::int[])) RETURNING object, length
    ), counted AS (
        SELECT object, sum(length)::bigint AS bytes FROM gone WHERE object IS NOT NULL
        GROUP BY object
    )
    UPDATE objects SET live_bytes = live_bytes - counted.bytes,
        dead_since_ms = CASE WHEN live_bytes = counted.bytes THEN $3::bigint END
    FROM counted WHERE objects.id = counted.object";
const DROP_EXTENTS_BELOW: &str = "WITH gone AS (
        DELETE FROM extents
        WHERE topic = $1 AND partition = $2 AND base_offset < $3 AND last_offset < $3
        RETURNING object, length
    ), counted AS (
        SELECT object, sum(length)::bigint AS bytes FROM gone WHERE object IS NOT NULL
        GROUP BY object
    ), dereferenced AS (
        UPDATE objects SET live_bytes = live_bytes - counted.bytes,
            dead_since_ms = CASE WHEN live_bytes = counted.bytes THEN $4::bigint END
        FROM counted WHERE objects.id = counted.object
    )
    UPDATE partitions SET log_start_offset = $3, version = version + 1,
        last_stable_offset = greatest(last_stable_offset, $3),
        bytes = bytes - $5 - (SELECT coalesce(sum(bytes), 0) FROM counted)
    WHERE topic = $1 AND partition = $2";
const DROP_ABORTED_BELOW: &str =
    "DELETE FROM aborted WHERE topic = $1 AND partition = $2 AND last_offset < $3";

/// A partition of the first eight columns.
pub(super) fn partition_of_row(row: &Row) -> PgResult<(TopicPartition, PartitionRow)> {
    let partition = TopicPartition {
        topic: TopicId(row.try_get::<_, Uuid>(0)?),
        partition: PartitionIndex(row.try_get(1)?),
    };
    let state = PartitionState {
        version: stored_unsigned(row.try_get(2)?)?,
        log_start_offset: row.try_get(3)?,
        high_watermark: row.try_get(4)?,
        last_stable_offset: row.try_get(5)?,
        bytes: stored_unsigned(row.try_get(6)?)?,
    };
    Ok((partition, PartitionRow { state, fresh_from: row.try_get(7)? }))
}

/// An extent of eight columns from `at` on; `None` where a join found none.
pub(super) fn extent_of_row(row: &Row, at: usize) -> PgResult<Option<Extent>> {
    let Some(base_offset) = row.try_get::<_, Option<i64>>(at)? else {
        return Ok(None);
    };
    let key: Option<String> = row.try_get(at + 2)?;
    let place = match (row.try_get::<_, Option<&[u8]>>(at + 5)?, key) {
        (Some(bytes), None) => codec::decode_place(bytes)?,
        (None, Some(key)) => Place::Range {
            key,
            position: stored_unsigned(row.try_get(at + 3)?)?,
            length: stored_unsigned(row.try_get(at + 4)?)?,
        },
        _ => return Err(Error::corrupt("an extent has no place, or two").into()),
    };
    let flags: i16 = row.try_get(at + 6)?;
    let (offset_mode, timestamp_type, has_transactional) = codec::decode_flags(flags.into())?;
    Ok(Some(Extent {
        base_offset,
        last_offset: row.try_get(at + 1)?,
        place,
        offset_mode,
        max_timestamp_ms: row.try_get(at + 7)?,
        timestamp_type,
        has_transactional,
    }))
}

/// A partition and the extents with rows that were chosen of it.
type Page = (PartitionRow, Vec<Extent>);

fn page_of_rows(rows: &[Row]) -> PgResult<Option<Page>> {
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let (_, partition) = partition_of_row(first)?;
    let mut extents = Vec::with_capacity(rows.len());
    for row in rows {
        extents.extend(extent_of_row(row, 8)?);
    }
    Ok(Some((partition, extents)))
}

/// The partitions that a change creates.
pub(super) struct Created {
    pub(super) partitions: Vec<TopicPartition>,
    /// The offset of each one's first record.
    pub(super) offsets: Vec<i64>,
}

/// The partitions that a change creates, and those that it drops.
pub(super) fn partition_changes(change: &Change) -> (Created, Vec<TopicPartition>) {
    let created = change.partitions.iter().filter_map(validate::created_partition);
    let (partitions, offsets) = created.unzip();
    let dropped = change.partitions.iter().filter_map(|change| match change {
        PartitionChange::Drop(partition) => Some(*partition),
        PartitionChange::Create(_) | PartitionChange::CreateAt(..) => None,
    });
    (Created { partitions, offsets }, dropped.collect())
}

pub(super) async fn partition_states(
    connection: &Connection,
    partitions: &[TopicPartition],
) -> PgResult<Vec<Option<PartitionState>>> {
    let (topics, indexes) = super::columns(partitions);
    let rows = connection
        .query(
            select_partitions!(
                "unnest($1::uuid[], $2::int[]) WITH ORDINALITY AS named (topic, partition, at)
                 LEFT JOIN partitions p
                     ON p.topic = named.topic AND p.partition = named.partition
                 ORDER BY named.at"
            ),
            &[&topics, &indexes],
        )
        .await?;
    let states = rows.iter().map(|row| match row.try_get::<_, Option<Uuid>>(0)? {
        Some(_) => Ok(Some(partition_of_row(row)?.1.state)),
        None => Ok(None),
    });
    states.collect()
}

/// Which fresh extents complete a page of those with rows.
enum Missing {
    /// These, among markers that are on the page.
    Behind(Wanted),
    /// All of the partition.
    All,
    /// None.
    Nothing,
}

/// Takes a page of a partition's extents with rows, and the fresh ones that `missing` says then. If
/// some of these are packed no longer, it starts over: they have rows by now.
async fn read(
    fresh: FreshExtents<'_>,
    sql: &'static str,
    parameters: Parameters<'_>,
    missing: impl Fn(&PartitionRow, &[Extent]) -> Missing,
) -> PgResult<Option<(PartitionRow, Vec<Extent>, Vec<Placed>)>> {
    for attempt in 0..READ_ATTEMPTS_MAX {
        let rows = fresh.sql.query(sql, parameters).await?;
        let Some((row, extents)) = page_of_rows(&rows)? else {
            return Ok(None);
        };
        let (partition, _) = partition_of_row(&rows[0])?;
        let wanted = match missing(&row, &extents) {
            Missing::Behind(wanted) => vec![wanted],
            Missing::All => {
                let (range, limit, markers) = (row.fresh_range(), usize::MAX, Vec::new());
                fresh.with_markers(vec![Wanted { partition, range, limit, markers }]).await?
            }
            Missing::Nothing => Vec::new(),
        };
        let found = match attempt {
            0 => fresh.find_all(wanted).await?,
            // There may be more packed rows than the index holds.
            _ => fresh.find_in_all(wanted).await?,
        };
        if let Some(mut found) = found {
            fresh.index.forget_below(partition, row.fresh_range().start);
            return Ok(Some((row, extents, found.pop().unwrap_or_default())));
        }
    }
    Err(fresh::gap().into())
}

pub(super) async fn extents(
    fresh: FreshExtents<'_>,
    partition: TopicPartition,
    offset: i64,
    limit: usize,
) -> PgResult<Option<ExtentPage>> {
    // The inner query finds the extent that holds the offset, so that the scan begins there.
    let sql = select_extents!(
        "AND x.base_offset >= coalesce((
             SELECT base_offset FROM extents
             WHERE topic = p.topic AND partition = p.partition AND base_offset <= $3
             ORDER BY base_offset DESC LIMIT 1), $3)
         AND x.last_offset >= $3 ORDER BY x.base_offset LIMIT $4"
    );
    let most = sql_limit(limit);
    let parameters: Parameters<'_> = &[&partition.topic.0, &partition.partition.0, &offset, &most];
    let missing = |row: &PartitionRow, rows: &[Extent]| {
        Missing::Behind(Wanted::behind(partition, row, rows, (offset, limit)))
    };
    let read = read(fresh, sql, parameters, missing).await?;
    Ok(read.map(|(row, rows, found)| {
        let extents = page_of(rows, &found, limit);
        ExtentPage { state: row.state, extents }
    }))
}

pub(super) async fn extent_by_time(
    fresh: FreshExtents<'_>,
    partition: TopicPartition,
    timestamp_ms: i64,
) -> PgResult<Option<(PartitionState, Option<Extent>)>> {
    let sql = select_extents!("AND x.max_timestamp_ms >= $3 ORDER BY x.base_offset LIMIT 1");
    let parameters: Parameters<'_> = &[&partition.topic.0, &partition.partition.0, &timestamp_ms];
    let missing = |row: &PartitionRow, rows: &[Extent]| {
        let is_before = |extent: &Extent| extent.base_offset < row.fresh_from;
        if rows.first().is_some_and(is_before) { Missing::Nothing } else { Missing::All }
    };
    let read = read(fresh, sql, parameters, missing).await?;
    Ok(read.map(|(row, mut rows, found)| {
        let extent = first_of(rows.pop(), first_at_time(&found, timestamp_ms));
        (row.state, extent)
    }))
}

pub(super) async fn extent_of_max_timestamp(
    fresh: FreshExtents<'_>,
    partition: TopicPartition,
) -> PgResult<Option<(PartitionState, Option<Extent>)>> {
    let sql = select_extents!("ORDER BY x.max_timestamp_ms DESC, x.base_offset LIMIT 1");
    let parameters: Parameters<'_> = &[&partition.topic.0, &partition.partition.0];
    let read = read(fresh, sql, parameters, |_, _| Missing::All).await?;
    Ok(read.map(|(row, mut extents, found)| (row.state, newest(extents.pop(), &found))))
}

pub(super) async fn aborted(
    connection: &Connection,
    partition: TopicPartition,
    from: i64,
    until: i64,
) -> PgResult<Option<AbortedInRange>> {
    // Behind one that left everything before `until` stable, none can begin before it.
    let rows = connection
        .query(
            "SELECT p.topic, p.partition, p.version, p.log_start_offset, p.high_watermark,
                 p.last_stable_offset, p.bytes, p.fresh_from,
                 a.producer, a.first_offset, a.last_offset, a.last_stable_offset
             FROM partitions p LEFT JOIN aborted a
                 ON a.topic = p.topic AND a.partition = p.partition
                 AND a.last_offset >= $3 AND a.first_offset < $4
                 AND a.last_offset <= coalesce((
                     SELECT last_offset FROM aborted
                     WHERE topic = $1 AND partition = $2 AND last_offset >= $3
                         AND last_stable_offset >= $4
                     ORDER BY last_offset LIMIT 1), 9223372036854775807)
             WHERE p.topic = $1 AND p.partition = $2
             ORDER BY a.last_offset",
            &[&partition.topic.0, &partition.partition.0, &from, &until],
        )
        .await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let (_, PartitionRow { state, .. }) = partition_of_row(first)?;
    let mut transactions = Vec::with_capacity(rows.len());
    for row in &rows {
        // None of the partition's were found.
        let Some(producer) = row.try_get::<_, Option<i64>>(8)? else { continue };
        transactions.push(AbortedTransaction {
            producer: ProducerId(producer),
            first_offset: row.try_get(9)?,
            last_offset: row.try_get(10)?,
            last_stable_offset: row.try_get(11)?,
        });
    }
    Ok(Some(AbortedInRange { state, transactions }))
}

pub(super) async fn advance_log_start(
    fresh: FreshExtents<'_>,
    fence: Option<&Fence>,
    (partition, offset): (TopicPartition, i64),
) -> PgResult<Option<PartitionState>> {
    let connection = fresh.sql;
    let (topics, indexes) = super::columns(&[partition]);
    let named: Parameters<'_> = &[&topics, &indexes];
    let (absent, key) = (facts::absent_key(fence), facts::fence_key(fence));
    let (held, fenced): (Parameters<'_>, Parameters<'_>) = (&[&absent], &[&key]);
    let answers = connection
        .begin(&[
            query(facts::HOLD_ABSENT, held),
            query(facts::LOCK_FENCE, fenced),
            query(LOCK_PARTITIONS, named),
            query(super::NOW, &[]),
        ])
        .await?;
    facts::check_fence(fence, &answers[1])?;
    let before = answers[2].first().map(partition_of_row).transpose()?.map(|(_, row)| row);
    let now_ms = super::now_of(&answers[3])?;
    let target = before.map(|row| (offset.min(row.state.high_watermark), row));
    let Some((log_start, row)) = target.filter(|(start, row)| *start > row.state.log_start_offset)
    else {
        connection.roll_back().await?;
        return Ok(before.map(|row| row.state));
    };
    let range = row.fresh_range().start..log_start;
    let mut gone = fresh.find_locked(partition, range).await?;
    gone.retain(|one| one.extent.last_offset < log_start);
    let gone_bytes = to_stored(gone.iter().map(|one| one.extent.length).sum())?;
    let released = ReleasedColumns::gone(&gone);
    let released = released.parameters(&now_ms);
    let [lock, release, drop] = fresh::release(&released);
    let (topic, index) = (partition.topic.0, partition.partition.0);
    let below: Parameters<'_> = &[&topic, &index, &log_start];
    let dropped: Parameters<'_> = &[&topic, &index, &log_start, &now_ms, &gone_bytes];
    // The state afterwards is read in the transaction, while the partition is locked.
    connection.query(DROP_EXTENTS_BELOW, dropped).await?;
    let rows = connection.query(PARTITIONS, named).await?;
    let after = rows.first().map(partition_of_row).transpose()?;
    let aborted = query(DROP_ABORTED_BELOW, below);
    connection.commit(&[lock, release, drop, aborted, facts::release(held)]).await?;
    Ok(after.map(|(_, row)| row.state))
}

/// Extents as the columns of an insert.
#[derive(Default)]
pub(super) struct ExtentColumns {
    topics: Vec<Uuid>,
    partitions: Vec<i32>,
    base_offsets: Vec<i64>,
    last_offsets: Vec<i64>,
    objects: Vec<Option<i64>>,
    positions: Vec<Option<i64>>,
    lengths: Vec<Option<i64>>,
    places: Vec<Option<Vec<u8>>>,
    flags: Vec<i16>,
    max_timestamps: Vec<i64>,
}

impl ExtentColumns {
    pub(super) const INSERT: &str = "INSERT INTO extents SELECT * FROM unnest($1::uuid[],
        $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bytea[], $9::smallint[], $10::bigint[])";

    /// Adds an extent; `object` is the row id of the object that it names.
    pub(super) fn push(
        &mut self,
        partition: TopicPartition,
        extent: &Extent,
        object: Option<i64>,
    ) -> PgResult<()> {
        let range = match &extent.place {
            Place::Range { position, length, .. } => {
                Some((to_stored(*position)?, to_stored(*length)?))
            }
            Place::Marker { .. } | Place::Hole => None,
        };
        let (mode, kind) = (extent.offset_mode, extent.timestamp_type);
        self.topics.push(partition.topic.0);
        self.partitions.push(partition.partition.0);
        self.base_offsets.push(extent.base_offset);
        self.last_offsets.push(extent.last_offset);
        self.objects.push(range.and(object));
        self.positions.push(range.map(|(position, _)| position));
        self.lengths.push(range.map(|(_, length)| length));
        self.places.push(codec::encode_place(&extent.place));
        self.flags.push(codec::extent_flags(mode, kind, extent.has_transactional));
        self.max_timestamps.push(extent.max_timestamp_ms);
        Ok(())
    }

    /// The parameters of [`Self::INSERT`].
    pub(super) fn parameters(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 10] {
        [
            &self.topics,
            &self.partitions,
            &self.base_offsets,
            &self.last_offsets,
            &self.objects,
            &self.positions,
            &self.lengths,
            &self.places,
            &self.flags,
            &self.max_timestamps,
        ]
    }
}

/// The fence's lock and a partition's, in one flight, with the extents from `offset` on.
pub(super) async fn begin_replacement(
    connection: &Connection,
    fence: &Fence,
    partition: TopicPartition,
    offset: i64,
    count: usize,
) -> PgResult<(Option<Page>, i64)> {
    let absent = facts::absent_key(Some(fence));
    let (topics, indexes) = super::columns(&[partition]);
    let limit = sql_limit(count);
    let held: Parameters<'_> = &[&absent];
    let key = facts::fence_key(Some(fence));
    let fence_key: Parameters<'_> = &[&key];
    let named: Parameters<'_> = &[&topics, &indexes];
    let page: Parameters<'_> = &[&partition.topic.0, &partition.partition.0, &offset, &limit];
    let answers = connection
        .begin(&[
            query(facts::HOLD_ABSENT, held),
            query(facts::LOCK_FENCE, fence_key),
            query(LOCK_PARTITIONS, named),
            query(select_extents!("AND x.base_offset >= $3 ORDER BY x.base_offset LIMIT $4"), page),
            query(super::NOW, &[]),
        ])
        .await?;
    facts::check_fence(Some(fence), &answers[1])?;
    Ok((page_of_rows(&answers[3])?, super::now_of(&answers[4])?))
}
