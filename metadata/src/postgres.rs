//! The cluster's backend: one SQL schema in PostgreSQL, spoken plainly, so that databases of the
//! same protocol can stand in for it. Isolation is READ COMMITTED with explicit row locks, taken in
//! the order: facts by key, partitions by (topic, index), objects by id.
//!
//! | file | is |
//! |---|---|
//! | `options.rs` | the address |
//! | `tls.rs` | encrypted connections |
//! | `connection.rs` | a session: settings, prepared statements, flights |
//! | `pool.rs` | few connections, and what becomes of a failed try |
//! | `guard.rs` | the guard against a second broker |
//! | `migrate.rs` | the schema's versions |
//! | `commit.rs`, `commit_rows.rs` | commits of segments, and what they write |
//! | `recent.rs` | the rows that this process wrote last |
//! | `outcomes.rs` | segments' outcomes |
//! | `log.rs`, `objects.rs` | extents and the objects that they name |
//! | `fresh.rs` | packed rows of fresh extents |
//! | `replace.rs` | the replacement of extents |
//! | `producers.rs` | idempotent producers |
//! | `markers.rs` | ends of transactions |
//! | `facts.rs` | keyed facts |

mod commit;
mod commit_rows;
mod connection;
mod error;
mod facts;
mod fresh;
mod guard;
mod log;
mod markers;
mod migrate;
mod objects;
mod options;
mod outcomes;
mod pool;
mod producers;
mod recent;
mod replace;
mod tls;

pub use options::{DEFAULT_SCHEMA, PostgresOptions};

use crate::backend::Backend;
use crate::facts::{Change, ChangeOutcome, FactKey, FactRange, Fence};
use crate::fresh::FreshIndex;
use crate::rows::{
    AbortedInRange, DeadObject, Extent, ExtentPage, FreshBounds, MarkerFacts, MarkerOutcome,
    PartitionState, ProducerState, Replacement, SegmentFacts, SegmentOutcome,
};
use crate::validate;
use async_trait::async_trait;
use bytes::Bytes;
use commit::Committer;
use connection::Connection;
use error::PgResult;
use floe_env::{Env, Error, Result};
use fresh::FreshExtents;
use guard::Guard;
use kfs::{BrokerEpoch, BrokerId, SegmentId, TopicPartition};
use pool::{Attempts, Pool};
use recent::RecentRows;
use std::sync::Arc;
use tokio_postgres::Row;
use uuid::Uuid;

/// The store's clock.
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// Row ids for new objects; what is not used is lost.
const NEW_OBJECT_IDS: &str = "SELECT nextval('object_ids') FROM generate_series(1, $1::bigint)";

/// A metadata store in PostgreSQL.
pub struct PostgresBackend {
    env: Env,
    pool: Pool,
    schema: String,
    index: Arc<FreshIndex>,
    recent: RecentRows,
}

impl std::fmt::Debug for PostgresBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("PostgresBackend");
        debug.field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PostgresBackend {
    /// Connects, takes the single-broker guard unless the options are shared, and makes the schema
    /// or brings it to this version.
    ///
    /// Errors: `Unavailable` where the server does not answer or another broker holds the guard;
    /// `Invalid` where it refuses us, would lose acknowledged commits, or its schema is too new.
    pub async fn open(env: &Env, options: PostgresOptions) -> Result<Self> {
        let guard = match options.is_exclusive {
            true => Some(Guard::take(env, &options).await?),
            false => None,
        };
        let schema = options.schema.clone();
        // What is wrong with the settings is told as such, and here only.
        let first = Connection::open(env, &options).await?;
        let pool = Pool::new(env.clone(), options, guard, first);
        let mut attempts = Attempts::default();
        loop {
            let connection = pool.take().await?;
            let result = migrate::migrate(&connection, &schema).await;
            if let Some(done) = pool.settle(connection, result, &mut attempts).await {
                done?;
                let (env, index, recent) = (env.clone(), Arc::default(), RecentRows::default());
                return Ok(Self { env, pool, schema, index, recent });
            }
        }
    }
}

impl PostgresBackend {
    fn fresh<'a>(&'a self, sql: &'a Connection) -> FreshExtents<'a> {
        FreshExtents { sql, index: &self.index, env: &self.env }
    }

    fn committer<'a>(&'a self, sql: &'a Connection) -> Committer<'a> {
        Committer { env: &self.env, sql, recent: &self.recent }
    }
}

/// Runs one try after the other until a call has its answer.
macro_rules! with_retries {
    ($backend:ident, $connection:ident => $work:expr) => {{
        let mut attempts = Attempts::default();
        loop {
            let $connection = $backend.pool.take().await?;
            if $connection.is_new {
                $backend.recent.forget_all();
            }
            let result = $work.await;
            if let Some(answer) = $backend.pool.settle($connection, result, &mut attempts).await {
                break answer;
            }
        }
    }};
}

#[async_trait]
impl Backend for PostgresBackend {
    async fn commit_segments(
        &self,
        fence: &Fence,
        segments: &[SegmentFacts],
    ) -> Result<Vec<SegmentOutcome>> {
        validate::check_segments(segments)?;
        with_retries!(self, sql => self.committer(&sql).commit(fence, segments))
    }

    async fn segment_outcome(&self, id: SegmentId) -> Result<Option<SegmentOutcome>> {
        validate::check_segment_id(id)?;
        with_retries!(self, sql => outcomes::outcome(&sql, id))
    }

    async fn abandon_segment(&self, fence: &Fence, id: SegmentId) -> Result<SegmentOutcome> {
        validate::check_segment_id(id)?;
        with_retries!(self, sql => outcomes::abandon(&sql, fence, id))
    }

    async fn forget_outcomes(&self, fence: &Fence, up_to: SegmentId) -> Result<()> {
        validate::check_segment_id(up_to)?;
        with_retries!(self, sql => outcomes::forget(&sql, fence, up_to))
    }

    async fn forget_registrations(&self, broker: BrokerId, up_to: BrokerEpoch) -> Result<()> {
        with_retries!(self, sql => outcomes::forget_registrations(&sql, broker, up_to))
    }

    async fn partition_states(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<PartitionState>>> {
        with_retries!(self, sql => log::partition_states(&sql, partitions))
    }

    async fn extents(
        &self,
        partition: TopicPartition,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentPage>> {
        with_retries!(self, sql => log::extents(self.fresh(&sql), partition, offset, limit))
    }

    async fn extent_by_time(
        &self,
        partition: TopicPartition,
        timestamp_ms: i64,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        with_retries!(self, sql => log::extent_by_time(self.fresh(&sql), partition, timestamp_ms))
    }

    async fn extent_of_max_timestamp(
        &self,
        partition: TopicPartition,
    ) -> Result<Option<(PartitionState, Option<Extent>)>> {
        with_retries!(self, sql => log::extent_of_max_timestamp(self.fresh(&sql), partition))
    }

    async fn producers(&self, partition: TopicPartition) -> Result<Vec<ProducerState>> {
        with_retries!(self, sql => producers::producers(&sql, partition))
    }

    async fn expire_producers(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        written_before_ms: i64,
    ) -> Result<usize> {
        let before_ms = written_before_ms;
        let expired =
            with_retries!(self, sql => producers::expire(&sql, fence, partition, before_ms));
        self.recent.forget(&[partition]);
        expired
    }

    async fn end_transaction(
        &self,
        change: &Change,
        markers: &[MarkerFacts],
    ) -> Result<Option<Vec<MarkerOutcome>>> {
        validate::check_end(change, markers)?;
        // A commit that decides from what it remembers would only find that out.
        let named: Vec<TopicPartition> = markers.iter().map(|marker| marker.partition).collect();
        self.recent.forget(&named);
        with_retries!(self, sql => markers::end(&sql, change, markers))
    }

    async fn aborted(
        &self,
        partition: TopicPartition,
        from: i64,
        until: i64,
    ) -> Result<Option<AbortedInRange>> {
        with_retries!(self, sql => log::aborted(&sql, partition, from, until))
    }

    async fn advance_log_start(
        &self,
        fence: Option<&Fence>,
        partition: TopicPartition,
        offset: i64,
    ) -> Result<Option<PartitionState>> {
        let target = (partition, offset);
        let advanced =
            with_retries!(self, sql => log::advance_log_start(self.fresh(&sql), fence, target));
        self.recent.forget(&[partition]);
        advanced
    }

    async fn replace_extents(
        &self,
        fence: &Fence,
        replacement: &Replacement,
    ) -> Result<ChangeOutcome> {
        validate::check_replacement(replacement)?;
        let replaced =
            with_retries!(self, sql => replace::replace(self.fresh(&sql), fence, replacement));
        self.recent.forget(&[replacement.partition]);
        replaced
    }

    async fn unpack_fresh(&self, kept: FreshBounds) -> Result<usize> {
        with_retries!(self, sql => fresh::unpack_oldest(self.fresh(&sql), kept))
    }

    async fn dead_objects(&self, dead_before_ms: i64, limit: usize) -> Result<Vec<DeadObject>> {
        with_retries!(self, sql => objects::dead(&sql, dead_before_ms, limit))
    }

    async fn known_objects(&self, keys: &[String]) -> Result<Vec<bool>> {
        with_retries!(self, sql => objects::known(&sql, keys))
    }

    async fn forget_objects(&self, keys: &[String]) -> Result<()> {
        with_retries!(self, sql => objects::forget(&sql, keys))
    }

    async fn get(&self, keys: &[FactKey]) -> Result<Vec<Option<Bytes>>> {
        with_retries!(self, sql => facts::get(&sql, keys))
    }

    async fn scan(&self, range: &FactRange, limit: usize) -> Result<Vec<(FactKey, Bytes)>> {
        validate::check_range(range)?;
        let range = without_nul(range);
        with_retries!(self, sql => facts::scan(&sql, &range, limit))
    }

    async fn change(&self, change: &Change) -> Result<ChangeOutcome> {
        validate::check_change(change)?;
        let changed: Vec<TopicPartition> =
            change.partitions.iter().map(validate::changed_partition).collect();
        let outcome = with_retries!(self, sql => facts::change(self.fresh(&sql), change));
        self.recent.forget(&changed);
        outcome
    }

    async fn now_ms(&self) -> Result<i64> {
        with_retries!(self, sql => now(&sql))
    }
}

async fn now(connection: &connection::Connection) -> PgResult<i64> {
    now_of(&connection.query(NOW, &[]).await?)
}

fn now_of(rows: &[Row]) -> PgResult<i64> {
    let row = rows.first().ok_or_else(|| Error::bug("PostgreSQL answered no clock"))?;
    Ok(row.try_get(0)?)
}

fn object_ids_of(rows: &[Row]) -> PgResult<Vec<i64>> {
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Partitions as the columns (topic, index).
fn columns(partitions: &[TopicPartition]) -> (Vec<Uuid>, Vec<i32>) {
    partitions.iter().map(|named| (named.topic.0, named.partition.0)).unzip()
}

/// A limit as SQL takes it.
fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// PostgreSQL's text holds no NUL, and no key does. The least text above `a` and at least `a\0` is
/// among keys the same as `a\u{1}`.
fn without_nul(range: &FactRange) -> FactRange {
    let bound = |text: &str| text.replace('\0', "\u{1}");
    FactRange { from: bound(&range.from), until: bound(&range.until) }
}
