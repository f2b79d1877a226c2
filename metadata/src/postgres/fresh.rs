//! Packed rows: how they are found, and what becomes of them when their extents are no longer
//! fresh.

use super::connection::{Connection, Parameters, Query, query};
use super::error::PgResult;
use super::log::{self, ExtentColumns};
use super::{columns, sql_limit};
use crate::codec;
use crate::fresh::{FreshIndex, FreshSegment, Placed, Released, Search, Wanted, released};
use crate::rows::FreshBounds;
use crate::validate::UNPACKED_PARTITIONS_MAX;
use floe_env::{Env, Error, Result};
use kfs::{PartitionIndex, TopicId, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use tokio_postgres::Row;

/// Packed rows that one query brings.
const SEGMENTS_PER_QUERY: usize = 64;

const SEGMENTS: &str = "SELECT f.object, o.key, f.extents
    FROM fresh_segments f JOIN objects o ON o.id = f.object
    WHERE f.object > $1 AND f.object <> ALL ($2) ORDER BY f.object LIMIT $3";
const OLDEST: &str = "SELECT f.object, f.extents FROM fresh_segments f, (
        SELECT min(f.object) AS object, count(*) AS segments,
            sum(o.fresh_extents)::bigint AS extents
        FROM fresh_segments f JOIN objects o ON o.id = f.object
    ) counted
    WHERE f.object = counted.object AND (counted.segments > $1 OR counted.extents > $2)";
const LOCK_OBJECTS: &str = "SELECT id FROM objects WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
const RELEASE: &str = "UPDATE objects SET live_bytes = live_bytes - gone.bytes,
        fresh_extents = fresh_extents - gone.extents,
        dead_since_ms = CASE WHEN live_bytes = gone.bytes THEN $4::bigint END
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS gone (object, extents, bytes)
    WHERE objects.id = gone.object";
const DROP_PACKED: &str = "DELETE FROM fresh_segments f USING objects o
    WHERE f.object = ANY ($1) AND o.id = f.object AND o.fresh_extents = 0";
const BEGIN_FROM: &str = "UPDATE partitions SET fresh_from = new.fresh_from
    FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS new (topic, partition, fresh_from)
    WHERE partitions.topic = new.topic AND partitions.partition = new.partition";

/// The extents with rows at or behind where fresh ones begin: markers.
const MARKERS: &str = "SELECT e.topic, e.partition, e.base_offset
    FROM partitions p JOIN extents e ON e.topic = p.topic AND e.partition = p.partition
        AND e.base_offset >= p.fresh_from
    WHERE (p.topic, p.partition) IN (SELECT * FROM unnest($1::uuid[], $2::int[]))
    ORDER BY e.topic, e.partition, e.base_offset";

/// Finds fresh extents.
#[derive(Clone, Copy)]
pub(super) struct FreshExtents<'a> {
    pub(super) sql: &'a Connection,
    pub(super) index: &'a Arc<FreshIndex>,
    pub(super) env: &'a Env,
}

impl FreshExtents<'_> {
    /// The extents of each partition that hold the offsets wanted. `None` where some have become
    /// rows of their own since the partitions' rows were read, or the index began anew meanwhile.
    pub(super) async fn find_all(&self, wanted: Vec<Wanted>) -> PgResult<Option<Vec<Vec<Placed>>>> {
        let mut search = Search::new(self.index, wanted);
        if !search.is_complete() {
            let known: Vec<i64> = self.index.known().into_iter().collect();
            self.show_all_but(&known, &mut search).await?;
        }
        Ok(search.is_complete().then(|| search.into_found()))
    }

    /// Reads which markers stand between the extents that are wanted; of nothing, nothing is left.
    pub(super) async fn with_markers(&self, mut wanted: Vec<Wanted>) -> PgResult<Vec<Wanted>> {
        wanted.retain(|one| !one.range.is_empty());
        let partitions: Vec<TopicPartition> = wanted.iter().map(|one| one.partition).collect();
        if partitions.is_empty() {
            return Ok(wanted);
        }
        let rows = self.sql.query(MARKERS, &named(&partitions).parameters()).await?;
        let mut markers: BTreeMap<TopicPartition, Vec<i64>> = BTreeMap::new();
        for row in &rows {
            let partition = TopicPartition {
                topic: TopicId(row.try_get::<_, uuid::Uuid>(0)?),
                partition: PartitionIndex(row.try_get(1)?),
            };
            markers.entry(partition).or_default().push(row.try_get(2)?);
        }
        for one in &mut wanted {
            one.markers = markers.remove(&one.partition).unwrap_or_default();
        }
        Ok(wanted)
    }

    /// The same, with a look at all packed rows whatever the index knows of.
    pub(super) async fn find_in_all(
        &self,
        wanted: Vec<Wanted>,
    ) -> PgResult<Option<Vec<Vec<Placed>>>> {
        let mut search = Search::new(self.index, wanted);
        if !search.is_complete() {
            self.show_all_but(&[], &mut search).await?;
        }
        Ok(search.is_complete().then(|| search.into_found()))
    }

    /// The same of partitions that are locked: only the index can have been in the way.
    pub(super) async fn find_all_locked(&self, wanted: Vec<Wanted>) -> PgResult<Vec<Vec<Placed>>> {
        if let Some(found) = self.find_all(wanted.clone()).await? {
            return Ok(found);
        }
        self.find_in_all(wanted).await?.ok_or_else(|| gap().into())
    }

    /// Shows a search the packed rows that the index did not know.
    async fn show_all_but(&self, known: &[i64], search: &mut Search<'_>) -> PgResult<()> {
        let limit = sql_limit(SEGMENTS_PER_QUERY);
        let mut after = i64::MIN;
        loop {
            let rows = self.sql.query(SEGMENTS, &[&after, &known, &limit]).await?;
            let segments = self.remember(&rows).await?;
            for segment in &segments {
                search.show(segment);
            }
            match segments.last() {
                Some(last) if segments.len() == SEGMENTS_PER_QUERY => after = last.object,
                _ => return Ok(()),
            }
        }
    }

    /// All fresh extents of a range of one partition that is locked.
    pub(super) async fn find_locked(
        &self,
        partition: TopicPartition,
        range: Range<i64>,
    ) -> PgResult<Vec<Placed>> {
        let wanted = Wanted { partition, range, limit: usize::MAX, markers: Vec::new() };
        let wanted = self.with_markers(vec![wanted]).await?;
        Ok(self.find_all_locked(wanted).await?.pop().unwrap_or_default())
    }

    async fn remember(&self, rows: &[Row]) -> PgResult<Vec<FreshSegment>> {
        let mut packed: Vec<(i64, String, Vec<u8>)> = Vec::with_capacity(rows.len());
        for row in rows {
            packed.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        }
        let index = Arc::clone(self.index);
        let remember = move || -> Result<Vec<FreshSegment>> {
            let mut segments = Vec::with_capacity(packed.len());
            for (object, key, extents) in packed {
                let extents = codec::decode_fresh(&extents)?;
                let segment = FreshSegment { object, key: key.into(), extents };
                index.insert(&segment);
                segments.push(segment);
            }
            Ok(segments)
        };
        Ok(self.env.blocking(remember).await?)
    }
}

/// The error of a partition whose extents do not follow one another.
pub(super) fn gap() -> Error {
    Error::corrupt("a partition's fresh extents have a gap")
}

/// Extents that are no longer fresh, as columns.
#[derive(Default)]
pub(super) struct ReleasedColumns {
    pub(super) objects: Vec<i64>,
    extents: Vec<i64>,
    bytes: Vec<i64>,
}

impl ReleasedColumns {
    pub(super) fn new(released: &BTreeMap<i64, Released>) -> Self {
        Self {
            objects: released.keys().copied().collect(),
            extents: released.values().map(|gone| gone.extents).collect(),
            bytes: released.values().map(|gone| gone.bytes).collect(),
        }
    }

    /// Of extents that are gone.
    pub(super) fn gone<'a>(extents: impl IntoIterator<Item = &'a Placed>) -> Self {
        Self::new(&released(extents))
    }

    /// Of extents that have rows now, and whose bytes are named still.
    pub(super) fn unpacked<'a>(extents: impl IntoIterator<Item = &'a Placed>) -> Self {
        let mut released = released(extents);
        released.values_mut().for_each(|gone| gone.bytes = 0);
        Self::new(&released)
    }

    /// The parameters of [`release`].
    pub(super) fn parameters<'a>(
        &'a self,
        now_ms: &'a i64,
    ) -> [&'a (dyn tokio_postgres::types::ToSql + Sync); 4] {
        [&self.objects, &self.extents, &self.bytes, now_ms]
    }
}

/// Takes fresh extents away from their objects.
pub(super) fn release<'a>(
    parameters: &'a [&'a (dyn tokio_postgres::types::ToSql + Sync); 4],
) -> [Query<'a>; 3] {
    let objects = &parameters[..1];
    [query(LOCK_OBJECTS, objects), query(RELEASE, parameters), query(DROP_PACKED, objects)]
}

/// Sets where partitions' fresh extents begin. Parameters: topics, indexes, offsets.
pub(super) fn begin_from(parameters: Parameters<'_>) -> Query<'_> {
    query(BEGIN_FROM, parameters)
}

/// See [`Backend::unpack_fresh`](crate::Backend::unpack_fresh).
pub(super) async fn unpack_oldest(fresh: FreshExtents<'_>, kept: FreshBounds) -> PgResult<usize> {
    let (segments, extents) = (sql_limit(kept.segments), sql_limit(kept.extents));
    let rows = fresh.sql.query(OLDEST, &[&segments, &extents]).await?;
    let Some(row) = rows.first() else {
        return Ok(0);
    };
    let mut ends: BTreeMap<TopicPartition, i64> = BTreeMap::new();
    for (partition, extent) in codec::decode_fresh(row.try_get(1)?)? {
        ends.insert(partition, extent.last_offset + 1);
    }
    let all: Vec<TopicPartition> = ends.keys().copied().collect();
    let live = live(&fresh.sql.query(log::PARTITIONS, &named(&all).parameters()).await?, &ends)?;
    let some: BTreeSet<TopicPartition> =
        live.iter().map(|wanted| wanted.partition).take(UNPACKED_PARTITIONS_MAX).collect();
    let some: Vec<TopicPartition> = some.into_iter().collect();
    let locked = named(&some);
    let parameters = locked.parameters();
    let answers = fresh
        .sql
        .begin(&[query(log::LOCK_PARTITIONS, &parameters), query(super::NOW, &[])])
        .await?;
    let now_ms = super::now_of(&answers[1])?;
    let wanted = fresh.with_markers(self::live(&answers[0], &ends)?).await?;
    let found = fresh.find_all_locked(wanted.clone()).await?;
    let mut inserted = ExtentColumns::default();
    for (wanted, extents) in wanted.iter().zip(&found) {
        for one in extents {
            inserted.push(wanted.partition, &one.to_extent(), Some(one.object))?;
        }
    }
    let unpacked = ReleasedColumns::unpacked(found.iter().flatten());
    let changed: Vec<TopicPartition> = wanted.iter().map(|wanted| wanted.partition).collect();
    let (topics, indexes) = columns(&changed);
    let ends: Vec<i64> = wanted.iter().map(|wanted| wanted.range.end).collect();
    let released = unpacked.parameters(&now_ms);
    let [lock, release, drop] = release(&released);
    let rows = inserted.parameters();
    let insert = query(ExtentColumns::INSERT, &rows);
    let begin: Parameters<'_> = &[&topics, &indexes, &ends];
    fresh.sql.commit(&[lock, insert, release, drop, begin_from(begin)]).await?;
    Ok(wanted.len())
}

/// Which fresh extents the partitions of these rows have up to an offset each.
fn live(rows: &[Row], ends: &BTreeMap<TopicPartition, i64>) -> PgResult<Vec<Wanted>> {
    let mut wanted = Vec::new();
    for row in rows {
        let (partition, row) = log::partition_of_row(row)?;
        let end = ends.get(&partition).copied().unwrap_or(0);
        let range = row.fresh_range().start..end;
        if !range.is_empty() {
            wanted.push(Wanted { partition, range, limit: usize::MAX, markers: Vec::new() });
        }
    }
    Ok(wanted)
}

/// Partitions as parameters.
struct Named {
    topics: Vec<uuid::Uuid>,
    indexes: Vec<i32>,
}

impl Named {
    fn parameters(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 2] {
        [&self.topics, &self.indexes]
    }
}

fn named(partitions: &[TopicPartition]) -> Named {
    let (topics, indexes) = columns(partitions);
    Named { topics, indexes }
}
