//! The replacement of extents by another place of the same records.

use super::connection::{Connection, Parameters, query};
use super::error::PgResult;
use super::fresh::{self, FreshExtents, ReleasedColumns};
use super::log::{self, ExtentColumns};
use super::{facts, sql_limit};
use crate::codec::to_stored;
use crate::facts::{ChangeOutcome, Fence};
use crate::fresh::{PartitionRow, Placed, Wanted, page_of};
use crate::rows::{Extent, Place, Replacement};
use crate::validate;
use floe_env::Error;
use std::collections::BTreeMap;

/// The objects that a replacement names, locked: row ids of those that are there, and new ids for
/// the others.
struct Named<'a> {
    ids: BTreeMap<&'a str, i64>,
    new: Vec<&'a str>,
}

/// The fresh extents that a replacement changes.
#[derive(Default)]
struct FreshPart {
    /// Those before the sources, which get rows of their own.
    before: Vec<Placed>,
    /// Those that are sources.
    taken: Vec<Placed>,
}

impl FreshPart {
    /// The objects of both, by row id. Bytes are counted by key, with those of all sources.
    fn released(&self) -> ReleasedColumns {
        ReleasedColumns::unpacked(self.before.iter().chain(&self.taken))
    }
}

pub(super) async fn replace(
    fresh: FreshExtents<'_>,
    fence: &Fence,
    replacement: &Replacement,
) -> PgResult<ChangeOutcome> {
    let connection = fresh.sql;
    let (partition, sources) = (replacement.partition, &replacement.sources);
    let first = sources.first().map_or(0, |source| source.base_offset);
    let count = sources.len();
    let (page, now_ms) = log::begin_replacement(connection, fence, partition, first, count).await?;
    let Some((row, mut found)) = page else {
        connection.roll_back().await?;
        return Ok(ChangeOutcome::Rejected);
    };
    let wanted = Wanted::behind(partition, &row, &found, (first, count));
    let fresh_ones = fresh.find_all_locked(vec![wanted]).await?.pop().unwrap_or_default();
    found = page_of(found, &fresh_ones, count);
    if &found != sources {
        connection.roll_back().await?;
        return Ok(ChangeOutcome::Rejected);
    }
    let part = fresh_part(fresh, &row, replacement).await?;
    let changes = validate::reference_changes(replacement);
    let released = part.released();
    let joins = replacement.joins_object;
    let named = lock_objects(connection, &changes, &released.objects, joins).await?;
    let Some(named) = named else {
        connection.roll_back().await?;
        return Ok(ChangeOutcome::Rejected);
    };
    let changed = Changed { fence, replacement, row, part, released, changes, named, now_ms };
    changed.write(connection).await?;
    Ok(ChangeOutcome::Applied)
}

async fn fresh_part(
    fresh: FreshExtents<'_>,
    row: &PartitionRow,
    replacement: &Replacement,
) -> PgResult<FreshPart> {
    let end = replacement.sources.last().map_or(0, |last| last.last_offset + 1);
    let range = row.fresh_range().start..end;
    if range.is_empty() {
        return Ok(FreshPart::default());
    }
    let partition = replacement.partition;
    let mut before = fresh.find_locked(partition, range).await?;
    let start = replacement.sources.first().map_or(0, |first| first.base_offset);
    let taken = before.split_off(before.partition_point(|one| one.extent.base_offset < start));
    Ok(FreshPart { before, taken })
}

/// `None` where one that is to be joined is dead, or unknown.
async fn lock_objects<'a>(
    connection: &Connection,
    changes: &BTreeMap<&'a str, i64>,
    others: &[i64],
    joins: bool,
) -> PgResult<Option<Named<'a>>> {
    let keys: Vec<&str> = changes.keys().copied().collect();
    let rows = connection
        .query(
            "SELECT key, id, dead_since_ms IS NOT NULL FROM objects
             WHERE key = ANY ($1) OR id = ANY ($2) ORDER BY id FOR UPDATE",
            &[&keys, &others],
        )
        .await?;
    let mut found: BTreeMap<String, (i64, bool)> = BTreeMap::new();
    for row in rows {
        found.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
    }
    let mut named = Named { ids: BTreeMap::new(), new: Vec::new() };
    for (key, change) in changes {
        match found.get(*key) {
            Some((_, true)) | None if *change > 0 && joins => return Ok(None),
            Some((_, true)) if *change > 0 => return Err(validate::object_is_dead(key).into()),
            Some((id, _)) => {
                named.ids.insert(key, *id);
            }
            None if *change > 0 => named.new.push(key),
            None => return Err(Error::corrupt(format!("object {key} has no row")).into()),
        }
    }
    let wanted = sql_limit(named.new.len());
    let rows = connection.query(super::NEW_OBJECT_IDS, &[&wanted]).await?;
    let ids = super::object_ids_of(&rows)?;
    named.ids.extend(named.new.iter().copied().zip(ids));
    Ok(Some(named))
}

/// A replacement whose rows are locked and found as they should be.
struct Changed<'a> {
    fence: &'a Fence,
    replacement: &'a Replacement,
    row: PartitionRow,
    part: FreshPart,
    released: ReleasedColumns,
    changes: BTreeMap<&'a str, i64>,
    named: Named<'a>,
    now_ms: i64,
}

impl Changed<'_> {
    /// The extents' rows that are new.
    fn inserted(&self) -> PgResult<ExtentColumns> {
        let partition = self.replacement.partition;
        let mut inserted = ExtentColumns::default();
        for one in &self.part.before {
            inserted.push(partition, &one.to_extent(), Some(one.object))?;
        }
        for extent in &self.replacement.replacement {
            let object = match &extent.place {
                Place::Range { key, .. } => self.named.ids.get(key.as_str()).copied(),
                Place::Marker { .. } | Place::Hole => None,
            };
            inserted.push(partition, extent, object)?;
        }
        Ok(inserted)
    }

    async fn write(&self, connection: &Connection) -> PgResult<()> {
        let Self { replacement, changes, named, now_ms, .. } = self;
        let partition = replacement.partition;
        let size = to_stored(replacement.object_size)?;
        let new_ids: Vec<i64> = named.new.iter().map(|key| named.ids[key]).collect();
        let keys: Vec<&str> = changes.keys().copied().collect();
        let amounts: Vec<i64> = changes.values().copied().collect();
        let sources = &replacement.sources;
        let gone: Vec<i64> = sources.iter().map(|source| source.base_offset).collect();
        let after_sources = sources.last().map_or(0, |last| last.last_offset + 1);
        let fresh_from = self.row.fresh_from.max(after_sources);
        let total = |extents: &[Extent]| to_stored(extents.iter().map(Extent::bytes).sum());
        let grown = total(&replacement.replacement)? - total(sources)?;
        let absent = facts::absent_key(Some(self.fence));
        let (topic, index) = (partition.topic.0, partition.partition.0);
        let release: Parameters<'_> = &[&absent];
        let objects: Parameters<'_> = &[&new_ids, &named.new, &size];
        let counts: Parameters<'_> = &[&keys, &amounts, now_ms];
        let delete: Parameters<'_> = &[&topic, &index, &gone];
        let update: Parameters<'_> = &[&topic, &index, &grown, &fresh_from];
        let inserted = self.inserted()?;
        let extents = inserted.parameters();
        let released = self.released.parameters(now_ms);
        let [_, release_fresh, drop_packed] = fresh::release(&released);
        let forget: Parameters<'_> = &[&topic, &index, &replacement.forgotten_aborts];
        let mut changes = vec![
            facts::release(release),
            query(INSERT_OBJECTS, objects),
            release_fresh,
            drop_packed,
            query(COUNT_REFERENCES, counts),
            query(DELETE_EXTENTS, delete),
            query(ExtentColumns::INSERT, &extents),
            query(UPDATE_PARTITION, update),
        ];
        if !replacement.forgotten_aborts.is_empty() {
            changes.push(query(FORGET_ABORTED, forget));
        }
        connection.commit(&changes).await
    }
}

/// New objects begin without references; the count follows in the same transaction.
const INSERT_OBJECTS: &str = "INSERT INTO objects (id, key, size, live_bytes, fresh_extents)
    SELECT id, key, $3::bigint, 0, 0 FROM unnest($1::bigint[], $2::text[]) AS new (id, key)";
const DELETE_EXTENTS: &str =
    "DELETE FROM extents WHERE topic = $1 AND partition = $2 AND base_offset = ANY ($3)";
const UPDATE_PARTITION: &str =
    "UPDATE partitions SET version = version + 1, bytes = bytes + $3, fresh_from = $4
     WHERE topic = $1 AND partition = $2";
const FORGET_ABORTED: &str =
    "DELETE FROM aborted WHERE topic = $1 AND partition = $2 AND last_offset = ANY ($3)";
const COUNT_REFERENCES: &str = "UPDATE objects SET live_bytes = live_bytes + counted.bytes,
        dead_since_ms = CASE WHEN live_bytes + counted.bytes = 0 THEN $3::bigint END
    FROM unnest($1::text[], $2::bigint[]) AS counted (key, bytes)
    WHERE objects.key = counted.key";
