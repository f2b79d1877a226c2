//! Committing segments: `decide` decides from the partitions' rows, and what it changes is written.
//! It takes one flight where this process wrote all those rows last (`recent.rs`): the changes are
//! sent at once, on condition that the fence holds and that no row's version has been raised. Where
//! that fails, or a row is not remembered, it takes two: the first locks and reads, the second
//! writes. The number of flights does not depend on the size.
//!
//! Where a batch begins its producer's transaction on a partition, the transactional id's row
//! decides, and the commit takes two flights.
//!
//! A condition that does not hold makes its statement divide by zero, which rolls everything back.

use super::commit_rows::{self, CommitColumns};
use super::connection::{Connection, Parameters, query};
use super::error::{PgError, PgResult};
use super::facts::FactColumns;
use super::outcomes::{self, IdColumns, outcomes_of};
use super::recent::RecentRows;
use super::{columns, facts, log, producers};
use crate::codec;
use crate::decide::{self, CommitPartition, CommitRows, CommitWrites};
use crate::facts::{Expect, FactKey, Fence, Write};
use crate::fresh::PartitionRow;
use crate::rows::{SegmentFacts, SegmentOutcome};
use crate::transactions::{TransactionRow, decode_row, put_row, transaction_key};
use crate::validate;
use floe_env::{Env, Error};
use kfs::{PartitionIndex, SegmentId, TopicId, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

/// How a condition that does not hold, a segment decided by another, and rows locked by others end
/// a commit in one flight.
fn is_lost_race(code: &SqlState) -> bool {
    [
        SqlState::DIVISION_BY_ZERO,
        SqlState::UNIQUE_VIOLATION,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
    ]
    .contains(code)
}

pub(super) const LOCK_PARTITIONS: &str =
    "SELECT p.topic, p.partition, p.version, p.log_start_offset,
        p.high_watermark, p.last_stable_offset, p.bytes, p.fresh_from, p.producers
    FROM partitions p
    WHERE (p.topic, p.partition) IN (SELECT * FROM unnest($1::uuid[], $2::int[]))
    ORDER BY p.topic, p.partition FOR UPDATE";

/// Commits on one connection.
pub(super) struct Committer<'a> {
    pub(super) env: &'a Env,
    pub(super) sql: &'a Connection,
    pub(super) recent: &'a RecentRows,
}

impl Committer<'_> {
    pub(super) async fn commit(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> PgResult<Vec<SegmentOutcome>> {
        if let Expect::Value(value) = &fence.0.expect
            && let Some(outcomes) = self.commit_at_once(fence, value, segments).await?
        {
            return Ok(outcomes);
        }
        let (rows, now_ms) = self.lock(fence, segments).await?;
        let before = versions(&rows);
        let writes = decide::decide_commit(segments, rows, now_ms);
        let columns = CommitColumns::new(&writes, &before)?;
        let absent = facts::absent_key(Some(fence));
        let joined = writes.transactions.iter();
        let joined: Vec<Write> = joined.map(|(id, row)| put_row(id, row)).collect();
        let facts = FactColumns::new(&joined, &absent);
        let facts = facts.parameters();
        let parameters = columns.parameters();
        let mut changes = parameters.changes();
        changes.extend(facts.changes());
        self.sql.commit(&changes).await.map_err(|error| explain(error, &writes))?;
        self.recent.put(columns.into_written(&writes));
        Ok(writes.outcomes)
    }

    /// Commits from remembered rows. `None`: nothing has been changed, and rows must be read.
    async fn commit_at_once(
        &self,
        fence: &Fence,
        fence_value: &[u8],
        segments: &[SegmentFacts],
    ) -> PgResult<Option<Vec<SegmentOutcome>>> {
        let named = decide::partitions_named(segments);
        let Some((rows, now_ms)) = self.recent.take(self.env, &named)? else {
            return Ok(None);
        };
        let is_known =
            rows.maybe_spilled(segments).is_empty() && rows.asks_transactions(segments).is_empty();
        if !is_known {
            return Ok(None);
        }
        let before = versions(&rows);
        let writes = decide::decide_commit(segments, rows, now_ms);
        // What changes no row checks no version: a refusal must come from rows as they are now.
        if writes.partitions.len() != named.len() {
            return Ok(None);
        }
        let columns = CommitColumns::new(&writes, &before)?;
        let key = fence.0.key.as_str();
        let fenced: Parameters<'_> = &[&key, &fence_value];
        let parameters = columns.parameters();
        let mut queries = vec![query(facts::HOLD_FENCE, fenced)];
        queries.extend(parameters.changes());
        let answers = match self.sql.run_at_once(&queries).await {
            Ok(answers) => answers,
            // Somebody else was first, or the fence does not hold: the locked rows will tell.
            Err(PgError::Sql(error)) if error.code().is_some() => {
                if !error.code().is_some_and(is_lost_race) {
                    self.recent.tell_refusal(&error);
                }
                self.sql.roll_back().await?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let clock = answers.first().and_then(|rows| rows.first());
        let clock = clock.ok_or_else(|| Error::bug("PostgreSQL answered no clock"))?;
        self.recent.note_clock(self.env, clock.try_get(1)?);
        self.recent.put(columns.into_written(&writes));
        Ok(Some(writes.outcomes))
    }

    /// Locks and reads the rows; answers them and the server's clock, ms.
    async fn lock(&self, fence: &Fence, segments: &[SegmentFacts]) -> PgResult<(CommitRows, i64)> {
        let absent = facts::absent_key(Some(fence));
        let fence_key = facts::fence_key(Some(fence));
        let (topics, indexes) = columns(&decide::partitions_named(segments));
        let ids: Vec<SegmentId> = segments.iter().map(|segment| segment.id).collect();
        let id_columns = IdColumns::new(ids.iter().copied())?;
        let held: Parameters<'_> = &[&absent];
        let fenced: Parameters<'_> = &[&fence_key];
        let named = decide::transactions_named(segments);
        let keys: Vec<FactKey> = named.iter().map(|id| transaction_key(id)).collect();
        let keys: Vec<&str> = keys.iter().map(FactKey::as_str).collect();
        let transactions: Parameters<'_> = &[&keys];
        let partitions: Parameters<'_> = &[&topics, &indexes];
        let decided: Parameters<'_> =
            &[&id_columns.brokers, &id_columns.epochs, &id_columns.counters];
        let registrations: Parameters<'_> = &[&id_columns.brokers, &id_columns.epochs];
        let mut queries = vec![
            query(facts::LOCK_FENCE, fenced),
            query(facts::LOCK_FACTS, transactions),
            query(LOCK_PARTITIONS, partitions),
            query(outcomes::OUTCOMES, decided),
            query(outcomes::FORGOTTEN, registrations),
            query(super::NOW, &[]),
        ];
        if !absent.is_empty() {
            queries.insert(0, query(facts::HOLD_ABSENT, held));
        }
        let answers = self.sql.begin(&queries).await?;
        let [.., fence_rows, facts, partition_rows, decided, forgotten, now] = &answers[..] else {
            return Err(Error::bug("PostgreSQL answered fewer queries than asked").into());
        };
        facts::check_fence(Some(fence), fence_rows)?;
        let decided = outcomes_of(decided, forgotten, &ids)?;
        let partitions = partitions_of(partition_rows)?;
        let transactions = transactions_of(named, facts)?;
        let mut rows = CommitRows { decided, partitions, transactions };
        self.read_spilled(segments, &mut rows).await?;
        let now_ms = super::now_of(now)?;
        self.recent.note_clock(self.env, now_ms);
        Ok((rows, now_ms))
    }

    /// Reads the producers that are named and not packed: a flight more, where there are any.
    async fn read_spilled(&self, segments: &[SegmentFacts], rows: &mut CommitRows) -> PgResult<()> {
        let named = rows.maybe_spilled(segments);
        if named.is_empty() {
            return Ok(());
        }
        let (topics, indexes, ids) = producers::spilled_columns(&named);
        for row in self.sql.query(producers::SPILLED, &[&topics, &indexes, &ids]).await? {
            let topic = TopicId(row.try_get::<_, Uuid>(0)?);
            let partition = TopicPartition { topic, partition: PartitionIndex(row.try_get(1)?) };
            if let Some(known) = rows.partitions.get_mut(&partition) {
                known.producers.put_spilled(producers::producer_of_row(&row, 2)?);
            }
        }
        Ok(())
    }
}

fn transactions_of(
    named: BTreeSet<Arc<str>>,
    rows: &[Row],
) -> PgResult<BTreeMap<Arc<str>, TransactionRow>> {
    let values = facts::facts_of(rows)?;
    let mut transactions = BTreeMap::new();
    for id in named {
        let key = transaction_key(&id);
        if let Some(value) = values.get(key.as_str()) {
            transactions.insert(id, decode_row(&key, value)?);
        }
    }
    Ok(transactions)
}

pub(super) fn partitions_of(rows: &[Row]) -> PgResult<BTreeMap<TopicPartition, CommitPartition>> {
    let mut read = Vec::with_capacity(rows.len());
    for row in rows {
        let (partition, PartitionRow { state, .. }) = log::partition_of_row(row)?;
        let producers = codec::decode_producers(row.try_get(8)?)?;
        read.push((partition, CommitPartition { state, producers, spilled: Vec::new() }));
    }
    Ok(read.into_iter().collect())
}

fn versions(rows: &CommitRows) -> BTreeMap<TopicPartition, u64> {
    rows.partitions.iter().map(|(named, row)| (*named, row.state.version)).collect()
}

/// A key that is known already is the caller's mistake and stays one.
fn explain(error: PgError, writes: &CommitWrites) -> PgError {
    let PgError::Sql(sql) = &error else {
        return error;
    };
    let failed = std::error::Error::source(sql)
        .and_then(|cause| cause.downcast_ref::<tokio_postgres::error::DbError>());
    let is_object_key =
        failed.and_then(|failed| failed.constraint()) == Some(commit_rows::OBJECT_KEY_CONSTRAINT);
    match writes.objects.first() {
        Some(first) if is_object_key => {
            let detail = failed.and_then(|failed| failed.detail()).unwrap_or_default();
            let named = writes.objects.iter().find(|object| detail.contains(&object.key));
            validate::object_exists(&named.unwrap_or(first).key).into()
        }
        _ => error,
    }
}
