//! Segments' outcomes: asked for, abandoned, forgotten.
//!
//! Two who decide one segment at the same time: both may find nothing decided; the second to insert
//! the outcome then fails with a unique violation, starts over, and finds it. So the outcome is
//! inserted before anything else is changed. Forgetting locks the fence alone, so that no commit of
//! that registration is under way.

use super::connection::{Connection, Parameters, query};
use super::error::PgResult;
use super::facts;
use crate::codec::{self, to_stored};
use crate::facts::Fence;
use crate::rows::SegmentOutcome;
use crate::validate;
use kfs::{BrokerEpoch, BrokerId, SegmentId};
use std::collections::BTreeMap;
use tokio_postgres::Row;

pub(super) const OUTCOMES: &str = "SELECT broker, epoch, counter, outcome FROM outcomes
    WHERE (broker, epoch, counter) IN
        (SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[]))";
pub(super) const FORGOTTEN: &str = "SELECT broker, epoch, up_to FROM forgotten_outcomes
    WHERE (broker, epoch) IN (SELECT * FROM unnest($1::int[], $2::bigint[]))";
/// Inserts outcomes, or divides by zero where one of them has been forgotten.
pub(super) const INSERT_OUTCOMES: &str = "WITH new AS (
        SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bytea[])
            AS new (broker, epoch, counter, outcome)
    ), inserted AS (
        INSERT INTO outcomes SELECT * FROM new
    )
    SELECT 1 / CASE WHEN EXISTS (
        SELECT 1 FROM new JOIN forgotten_outcomes gone USING (broker, epoch)
        WHERE new.counter <= gone.up_to
    ) THEN 0 ELSE 1 END";

/// Segment ids as columns.
#[derive(Default)]
pub(super) struct IdColumns {
    pub(super) brokers: Vec<i32>,
    pub(super) epochs: Vec<i64>,
    pub(super) counters: Vec<i64>,
}

impl IdColumns {
    pub(super) fn new(ids: impl IntoIterator<Item = SegmentId>) -> PgResult<Self> {
        let mut columns = Self::default();
        for id in ids {
            columns.brokers.push(id.broker.0);
            columns.epochs.push(id.epoch.0);
            columns.counters.push(to_stored(id.counter)?);
        }
        Ok(columns)
    }
}

/// What was decided of these segments; an error if one has been forgotten.
pub(super) fn outcomes_of(
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
    let absent = facts::absent_key(Some(fence));
    let fence_key = facts::fence_key(Some(fence));
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
    facts::check_fence(Some(fence), &answers[1])?;
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
    let absent = facts::absent_key(Some(fence));
    let fence_key = facts::fence_key(Some(fence));
    let held: Parameters<'_> = &[&absent];
    let fenced: Parameters<'_> = &[&fence_key];
    let answers = connection
        .begin(&[query(facts::HOLD_ABSENT, held), query(facts::LOCK_FENCE_ALONE, fenced)])
        .await?;
    facts::check_fence(Some(fence), &answers[1])?;
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
