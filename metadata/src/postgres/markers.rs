//! The end of a transaction: facts and markers in one transaction of two flights. The first locks
//! and reads, facts before partitions; the second writes.

use super::commit::{self, LOCK_PARTITIONS};
use super::commit_rows::PartitionColumns;
use super::connection::{Connection, Parameters, query};
use super::error::PgResult;
use super::facts::{self, FactColumns};
use super::log::ExtentColumns;
use super::producers;
use crate::decide::{self, CommitPartition, MarkerRow};
use crate::facts::Change;
use crate::rows::{AbortedTransaction, MarkerFacts, MarkerOutcome};
use kfs::{PartitionIndex, ProducerId, TopicId, TopicPartition};
use std::collections::BTreeMap;
use tokio_postgres::Row;
use uuid::Uuid;

const INSERT_ABORTED: &str = "INSERT INTO aborted (topic, partition, last_offset, producer,
        first_offset, last_stable_offset)
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[],
        $6::bigint[])";

type Partitions = BTreeMap<TopicPartition, CommitPartition>;

/// See [`Backend::end_transaction`](crate::Backend::end_transaction).
pub(super) async fn end(
    connection: &Connection,
    change: &Change,
    markers: &[MarkerFacts],
) -> PgResult<Option<Vec<MarkerOutcome>>> {
    let absent = facts::absent_keys(change);
    let Some((partitions, now_ms)) = lock(connection, change, &absent, markers).await? else {
        connection.roll_back().await?;
        return Ok(None);
    };
    let written = Written::decide(partitions, markers, now_ms)?;
    let facts = FactColumns::new(&change.writes, &absent);
    let facts = facts.parameters();
    let rows = written.rows.parameters();
    let extents = written.extents.parameters();
    let aborted = written.aborted.parameters();
    let mut changes = facts.changes();
    changes.extend(rows.changes());
    changes.push(query(ExtentColumns::INSERT, &extents));
    if !written.aborted.topics.is_empty() {
        changes.push(query(INSERT_ABORTED, &aborted));
    }
    connection.commit(&changes).await?;
    Ok(Some(written.outcomes))
}

/// Locks and reads the rows; answers the partitions and the server's clock, ms. `None`: a check
/// does not hold.
async fn lock(
    connection: &Connection,
    change: &Change,
    absent: &[&str],
    markers: &[MarkerFacts],
) -> PgResult<Option<(Partitions, i64)>> {
    let named: Vec<(TopicPartition, ProducerId)> =
        markers.iter().map(|marker| (marker.partition, marker.producer)).collect();
    let (topics, indexes, ids) = producers::spilled_columns(&named);
    let (fence_key, keys) = (facts::fence_key(change.fence.as_ref()), facts::named_keys(change));
    let held: Parameters<'_> = &[&absent];
    let fenced: Parameters<'_> = &[&fence_key];
    let locked: Parameters<'_> = &[&keys];
    let partitions: Parameters<'_> = &[&topics, &indexes];
    let spilled: Parameters<'_> = &[&topics, &indexes, &ids];
    let answers = connection
        .begin(&[
            query(facts::HOLD_ABSENT, held),
            query(facts::LOCK_FENCE, fenced),
            query(facts::LOCK_FACTS, locked),
            query(LOCK_PARTITIONS, partitions),
            query(producers::SPILLED, spilled),
            query(super::NOW, &[]),
        ])
        .await?;
    facts::check_fence(change.fence.as_ref(), &answers[1])?;
    if !facts::all_hold(change, &facts::facts_of(&answers[2])?) {
        return Ok(None);
    }
    let mut partitions = commit::partitions_of(&answers[3])?;
    add_spilled(&answers[4], &mut partitions)?;
    Ok(Some((partitions, super::now_of(&answers[5])?)))
}

fn add_spilled(rows: &[Row], partitions: &mut Partitions) -> PgResult<()> {
    for row in rows {
        let partition = TopicPartition {
            topic: TopicId(row.try_get::<_, Uuid>(0)?),
            partition: PartitionIndex(row.try_get(1)?),
        };
        if let Some(known) = partitions.get_mut(&partition) {
            known.producers.put_spilled(producers::producer_of_row(row, 2)?);
        }
    }
    Ok(())
}

/// What the second flight writes.
struct Written {
    outcomes: Vec<MarkerOutcome>,
    rows: PartitionColumns,
    extents: ExtentColumns,
    aborted: AbortedColumns,
}

impl Written {
    fn decide(mut partitions: Partitions, markers: &[MarkerFacts], now_ms: i64) -> PgResult<Self> {
        let versions = partitions.iter().map(|(named, row)| (*named, row.state.version)).collect();
        let mut outcomes = Vec::with_capacity(markers.len());
        let mut changed = Vec::with_capacity(markers.len());
        let (mut extents, mut aborted) = (ExtentColumns::default(), AbortedColumns::default());
        for marker in markers {
            let Some(mut row) = partitions.remove(&marker.partition) else {
                outcomes.push(MarkerOutcome::UnknownPartition);
                continue;
            };
            let (outcome, written) = decide::decide_marker(&mut row, marker, now_ms);
            outcomes.push(outcome);
            let Some(MarkerRow { extent, aborted: of_marker }) = written else { continue };
            row.spilled = row.producers.spill();
            changed.push((marker.partition, row));
            extents.push(marker.partition, &extent, None)?;
            of_marker.iter().for_each(|one| aborted.push(marker.partition, one));
        }
        let rows = PartitionColumns::new(&changed, &versions)?;
        Ok(Self { outcomes, rows, extents, aborted })
    }
}

/// Aborted transactions as columns.
#[derive(Default)]
struct AbortedColumns {
    topics: Vec<Uuid>,
    partitions: Vec<i32>,
    last_offsets: Vec<i64>,
    producers: Vec<i64>,
    first_offsets: Vec<i64>,
    stable_offsets: Vec<i64>,
}

impl AbortedColumns {
    fn push(&mut self, partition: TopicPartition, aborted: &AbortedTransaction) {
        self.topics.push(partition.topic.0);
        self.partitions.push(partition.partition.0);
        self.last_offsets.push(aborted.last_offset);
        self.producers.push(aborted.producer.0);
        self.first_offsets.push(aborted.first_offset);
        self.stable_offsets.push(aborted.last_stable_offset);
    }

    /// The parameters of [`INSERT_ABORTED`].
    fn parameters(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 6] {
        [
            &self.topics,
            &self.partitions,
            &self.last_offsets,
            &self.producers,
            &self.first_offsets,
            &self.stable_offsets,
        ]
    }
}
