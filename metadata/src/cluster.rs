//! The cluster's identity and the metadata store's incarnation.
//!
//! The incarnation changes when the store is restored from a snapshot. Then every broker epoch
//! closes, and the counters that must never issue a number twice leap over all that the lost part
//! may have issued.

use crate::brokers::{self, BrokerEpochs};
use crate::deletion::{self, DeletionStop};
use crate::facts::{Change, ChangeOutcome, FactKey, Write};
use crate::producer_ids;
use crate::store::{
    Attempt, CONFLICT_ATTEMPTS_MAX, MetadataStore, counter, counter_value, too_many_conflicts,
    unchanged,
};
use bytes::Bytes;
use floe_env::{Error, Result};
use kfs::ClusterId;
use uuid::Uuid;

/// How far broker epochs leap at the first new incarnation: more starts than a lost part can hold.
const EPOCH_LEAP: i64 = 1 << 20;
/// How far producer ids leap at the first new incarnation: more ids than a lost part can hold.
const PRODUCER_ID_LEAP: i64 = 1 << 40;
/// New incarnations at most. Each leaps twice as far as the one before, so that it lands behind all
/// of them, whichever backup it begins from.
const INCARNATIONS_MAX: u64 = 21;

fn id_key() -> FactKey {
    FactKey::new(&["cluster", "id"])
}

fn incarnation_key() -> FactKey {
    FactKey::new(&["cluster", "incarnation"])
}

fn parse_uuid(key: &FactKey, value: &Bytes) -> Result<Uuid> {
    let text = std::str::from_utf8(value).ok().and_then(|text| Uuid::parse_str(text).ok());
    text.ok_or_else(|| Error::corrupt(format!("fact {} is no UUID", key.as_str())))
}

impl MetadataStore {
    /// The cluster that this store belongs to; `None` before the first start.
    pub async fn cluster_id(&self) -> Result<Option<ClusterId>> {
        let key = id_key();
        let value = self.fact(&key).await?;
        value.map(|value| parse_uuid(&key, &value).map(ClusterId)).transpose()
    }

    /// Makes the store belong to a cluster, with a fresh incarnation, unless it belongs to one
    /// already. Answers the id that stands afterwards.
    pub async fn initialise_cluster(&self, id: ClusterId) -> Result<ClusterId> {
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            if let Some(existing) = self.cluster_id().await? {
                return Ok(existing);
            }
            let incarnation = Bytes::from(self.env().uuid().to_string());
            let change = Change {
                checks: vec![unchanged(id_key(), None)],
                writes: vec![
                    Write::Put(id_key(), Bytes::from(id.to_string())),
                    Write::Put(incarnation_key(), incarnation),
                ],
                ..Change::default()
            };
            if let Attempt::Applied = self.attempt(&change).await? {
                return Ok(id);
            }
            self.wait_for_conflict(attempt).await;
        }
        Err(too_many_conflicts("initialise the cluster"))
    }

    /// The store's incarnation; `None` before the first start.
    pub async fn incarnation(&self) -> Result<Option<Uuid>> {
        let key = incarnation_key();
        let value = self.fact(&key).await?;
        value.map(|value| parse_uuid(&key, &value)).transpose()
    }

    /// Begins a new incarnation after a restore: closes every broker epoch, makes sure that no
    /// broker epoch or producer id of the lost part is ever issued again, and stops the deletion
    /// of objects for this reason. `number` is the incarnation's: 1 for the first one that is begun
    /// anew. No broker may run. `Rejected` if the incarnation is not `previous`, or a broker was
    /// seen to start after all.
    ///
    /// # Errors
    /// `Limit` where there were too many of them; whatever the store answers.
    pub async fn begin_incarnation(
        &self,
        previous: Uuid,
        (next, number): (Uuid, u64),
        reason: &str,
    ) -> Result<ChangeOutcome> {
        let doublings = number.checked_sub(1).filter(|before| *before < INCARNATIONS_MAX);
        let doublings = doublings.ok_or_else(|| {
            Error::limit(format!("the metadata has had {INCARNATIONS_MAX} new incarnations"))
        })?;
        let since_ms = self.now_ms().await?;
        let stop = DeletionStop { reason: reason.to_owned(), since_ms };
        let floor_key = brokers::floor_key();
        let ids_key = producer_ids::next_key();
        let values = self.backend().get(&[floor_key.clone(), ids_key.clone()]).await?;
        let [floor, ids] = values.as_slice() else {
            return Err(Error::bug("the backend answered another number of facts"));
        };
        let registered: Vec<BrokerEpochs> = self.broker_epochs().await?;
        let newest = registered.iter().map(|broker| broker.last.0).max().unwrap_or(0);
        let next_floor = newest.max(counter(&floor_key, floor.as_ref())?);
        let next_floor = next_floor.saturating_add(EPOCH_LEAP << doublings);
        let next_id = counter::<i64>(&ids_key, ids.as_ref())?;
        let next_id = next_id.saturating_add(PRODUCER_ID_LEAP << doublings);
        let mut change = Change {
            checks: vec![
                unchanged(incarnation_key(), Some(Bytes::from(previous.to_string()))),
                unchanged(floor_key.clone(), floor.clone()),
                unchanged(ids_key.clone(), ids.clone()),
            ],
            writes: vec![
                Write::Put(incarnation_key(), Bytes::from(next.to_string())),
                Write::Put(floor_key, counter_value(next_floor)),
                Write::Put(ids_key, counter_value(next_id)),
                deletion::stop(&stop),
            ],
            ..Change::default()
        };
        for broker in registered {
            let (check, write) = brokers::close(&broker);
            change.checks.push(check);
            change.writes.push(write);
        }
        self.backend().change(&change).await
    }
}
