//! Brokers: registrations, whose epochs fence every write, and leases, which say who is alive.
//!
//! `broker-epochs/{id}` holds the newest epoch and whether it is open. It changes only when a
//! broker starts or leaves, so that commits that check it never wait for a lease's renewal. All
//! epochs below the newest one are closed. `brokers/{id}` holds the address and the lease.

use crate::facts::{Change, ChangeOutcome, Check, Expect, FactKey, Fence, Write};
use crate::store::{
    Attempt, CONFLICT_ATTEMPTS_MAX, MetadataStore, counter, from_json, put_json, to_json,
    too_many_conflicts, unchanged,
};
use bytes::Bytes;
use floe_env::{Error, Result};
use kfs::{BrokerEpoch, BrokerId};
use serde::{Deserialize, Serialize};

/// Where clients reach a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerAddress {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The zone that it runs in, if it knows.
    #[serde(default)]
    pub zone: Option<String>,
}

/// One start of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The broker.
    pub id: BrokerId,
    /// Its epoch; never used before or again.
    pub epoch: BrokerEpoch,
    /// Holds while no later registration exists and the broker has not left.
    pub fence: Fence,
}

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// The broker.
    pub id: BrokerId,
    /// Its open epoch.
    pub epoch: BrokerEpoch,
    /// Its address.
    pub address: BrokerAddress,
    /// The end of its lease, by the store's clock, ms.
    pub lease_until_ms: i64,
}

/// What is known of a broker's epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerEpochs {
    /// The broker.
    pub id: BrokerId,
    /// Its newest epoch; all before it are closed.
    pub last: BrokerEpoch,
    /// Whether the newest one is open.
    pub is_open: bool,
}

impl BrokerEpochs {
    /// True where no commit of this epoch can succeed any more.
    pub fn is_closed(&self, epoch: BrokerEpoch) -> bool {
        epoch < self.last || (epoch == self.last && !self.is_open)
    }
}

#[derive(Serialize, Deserialize)]
struct BrokerRecord {
    epoch: i64,
    #[serde(flatten)]
    address: BrokerAddress,
    lease_until_ms: i64,
}

fn epoch_key(id: BrokerId) -> FactKey {
    FactKey::new(&["broker-epochs", &id.to_string()])
}

fn broker_key(id: BrokerId) -> FactKey {
    FactKey::new(&["brokers", &id.to_string()])
}

/// No epoch up to this one is issued again.
pub(crate) fn floor_key() -> FactKey {
    FactKey::new(&["broker-epoch-floor"])
}

fn epoch_value(epoch: BrokerEpoch, is_open: bool) -> Bytes {
    Bytes::from(format!("{} {epoch}", if is_open { "open" } else { "closed" }))
}

fn parse_epochs(id: BrokerId, key: &FactKey, value: &[u8]) -> Result<BrokerEpochs> {
    let corrupt = || Error::corrupt(format!("fact {} is malformed", key.as_str()));
    let text = std::str::from_utf8(value).map_err(|_| corrupt())?;
    let (state, epoch) = text.split_once(' ').ok_or_else(corrupt)?;
    let is_open = match state {
        "open" => true,
        "closed" => false,
        _ => return Err(corrupt()),
    };
    let last = epoch.parse().map(BrokerEpoch).map_err(|_| corrupt())?;
    Ok(BrokerEpochs { id, last, is_open })
}

fn id_of(key: &FactKey) -> Result<BrokerId> {
    let id = key.segments().pop().and_then(|id| id.parse().ok());
    id.map(BrokerId).ok_or_else(|| Error::corrupt(format!("{} names no broker", key.as_str())))
}

/// The fence of a registration.
pub fn broker_fence(id: BrokerId, epoch: BrokerEpoch) -> Fence {
    Fence(Check { key: epoch_key(id), expect: Expect::Value(epoch_value(epoch, true)) })
}

/// The check and write that close a broker's newest epoch.
pub(crate) fn close(broker: &BrokerEpochs) -> (Check, Write) {
    let key = epoch_key(broker.id);
    let check = unchanged(key.clone(), Some(epoch_value(broker.last, broker.is_open)));
    (check, Write::Put(key, epoch_value(broker.last, false)))
}

impl MetadataStore {
    /// Registers a start of a broker and closes every earlier epoch of the same id. The lease
    /// begins now and lasts `lease_ms`.
    pub async fn register_broker(
        &self,
        id: BrokerId,
        address: &BrokerAddress,
        lease_ms: i64,
    ) -> Result<Registration> {
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            let keys = [epoch_key(id), floor_key()];
            let values = self.backend().get(&keys).await?;
            let [known, floor] = values.as_slice() else {
                return Err(Error::bug("the backend answered another number of facts"));
            };
            let last = match known {
                Some(value) => parse_epochs(id, &keys[0], value)?.last.0,
                None => 0,
            };
            let epoch = BrokerEpoch(last.max(counter(&keys[1], floor.as_ref())?) + 1);
            let lease_until_ms = self.now_ms().await?.saturating_add(lease_ms);
            let record = BrokerRecord { epoch: epoch.0, address: address.clone(), lease_until_ms };
            let change = Change {
                checks: vec![
                    unchanged(epoch_key(id), known.clone()),
                    unchanged(floor_key(), floor.clone()),
                ],
                writes: vec![
                    Write::Put(epoch_key(id), epoch_value(epoch, true)),
                    put_json(broker_key(id), &record),
                ],
                ..Change::default()
            };
            // After an unknown outcome the next try takes another epoch, which closes this one.
            if let Attempt::Applied = self.attempt(&change).await? {
                return Ok(Registration { id, epoch, fence: broker_fence(id, epoch) });
            }
            self.wait_for_conflict(attempt).await;
        }
        Err(too_many_conflicts("register a broker"))
    }

    /// Prolongs a registration's lease to `lease_ms` from now, by the store's clock. `Fenced` if
    /// the epoch has been closed.
    pub async fn renew_broker_lease(
        &self,
        registration: &Registration,
        address: &BrokerAddress,
        lease_ms: i64,
    ) -> Result<()> {
        let lease_until_ms = self.now_ms().await?.saturating_add(lease_ms);
        let epoch = registration.epoch.0;
        let record = BrokerRecord { epoch, address: address.clone(), lease_until_ms };
        let write = Write::Put(broker_key(registration.id), to_json(&record));
        self.change_fenced(&registration.fence, vec![write]).await
    }

    /// Closes a registration's epoch and removes the broker from the list. `Fenced` if that epoch
    /// was closed before.
    pub async fn deregister_broker(&self, registration: &Registration) -> Result<()> {
        let writes = vec![
            Write::Put(epoch_key(registration.id), epoch_value(registration.epoch, false)),
            Write::Delete(broker_key(registration.id)),
        ];
        self.change_fenced(&registration.fence, writes).await
    }

    async fn change_fenced(&self, fence: &Fence, writes: Vec<Write>) -> Result<()> {
        let change = Change { writes, fence: Some(fence.clone()), ..Change::default() };
        match self.change(&change).await? {
            ChangeOutcome::Applied => Ok(()),
            ChangeOutcome::Rejected => Err(Error::bug("a change without checks was rejected")),
        }
    }

    /// The brokers that have not left, alive or not, by id.
    pub async fn brokers(&self) -> Result<Vec<Broker>> {
        let facts = self.scan_all(FactKey::new(&["brokers"]).folder()).await?;
        let mut brokers = Vec::with_capacity(facts.len());
        for (key, value) in facts {
            let record: BrokerRecord = from_json(&key, &value)?;
            brokers.push(Broker {
                id: id_of(&key)?,
                epoch: BrokerEpoch(record.epoch),
                address: record.address,
                lease_until_ms: record.lease_until_ms,
            });
        }
        brokers.sort_by_key(|broker| broker.id);
        Ok(brokers)
    }

    /// The epochs of every broker that ever registered, by id: what an orphan's cleaner goes by.
    pub async fn broker_epochs(&self) -> Result<Vec<BrokerEpochs>> {
        let facts = self.scan_all(FactKey::new(&["broker-epochs"]).folder()).await?;
        let mut epochs = Vec::with_capacity(facts.len());
        for (key, value) in facts {
            epochs.push(parse_epochs(id_of(&key)?, &key, &value)?);
        }
        epochs.sort_by_key(|broker| broker.id);
        Ok(epochs)
    }
}
