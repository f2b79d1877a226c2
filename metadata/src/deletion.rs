//! Whether objects may be deleted. A metadata store that was put back from a backup does not know
//! of everything that was committed since, and would have it deleted as never committed. So a new
//! incarnation stops all deletion in the same transaction, until somebody has looked at what is
//! there and what is lost (`floe doctor --reconcile`).

use crate::facts::{Change, ChangeOutcome, FactKey, Write};
use crate::store::{MetadataStore, from_json, put_json, unchanged};
use floe_env::Result;
use serde::{Deserialize, Serialize};

/// Why objects are not deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionStop {
    /// What happened.
    pub reason: String,
    /// Since when, by the store's clock, ms.
    pub since_ms: i64,
}

pub(crate) fn stop_key() -> FactKey {
    FactKey::new(&["cluster", "deletion-stopped"])
}

/// The write that stops deletion.
pub(crate) fn stop(stop: &DeletionStop) -> Write {
    put_json(stop_key(), stop)
}

impl MetadataStore {
    /// Why nothing may be deleted from the object store now; `None` where it may. Whoever deletes
    /// asks before each round.
    pub async fn deletion_stop(&self) -> Result<Option<DeletionStop>> {
        let key = stop_key();
        let value = self.fact(&key).await?;
        value.map(|value| from_json(&key, &value)).transpose()
    }

    /// Lets objects be deleted again. `Rejected` where deletion is stopped for another reason by
    /// now, or not at all.
    pub async fn allow_deletion(&self, stopped: &DeletionStop) -> Result<ChangeOutcome> {
        let key = stop_key();
        let value = self.fact(&key).await?;
        let current: Option<DeletionStop> =
            value.as_ref().map(|value| from_json(&key, value)).transpose()?;
        if current.as_ref() != Some(stopped) {
            return Ok(ChangeOutcome::Rejected);
        }
        let change = Change {
            checks: vec![unchanged(key.clone(), value)],
            writes: vec![Write::Delete(key)],
            ..Change::default()
        };
        self.change(&change).await
    }
}
