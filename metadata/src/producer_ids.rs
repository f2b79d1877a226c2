//! Producer ids, handed out in blocks and never reissued.

use crate::facts::{Change, FactKey, Write};
use crate::store::{
    Attempt, CONFLICT_ATTEMPTS_MAX, MetadataStore, counter, counter_value, too_many_conflicts,
    unchanged,
};
use floe_env::{Error, Result};
use std::ops::Range;

/// Ids in one block.
pub const PRODUCER_ID_BLOCK_MAX: u32 = 1_000_000;

/// The first id that was never issued.
pub(crate) fn next_key() -> FactKey {
    FactKey::new(&["producer-ids", "next"])
}

impl MetadataStore {
    /// A block of ids that nobody else gets. Where an answer was lost, its block is lost with it.
    pub async fn allocate_producer_ids(&self, count: u32) -> Result<Range<i64>> {
        if count == 0 || count > PRODUCER_ID_BLOCK_MAX {
            return Err(Error::invalid(format!("a block has 1 to {PRODUCER_ID_BLOCK_MAX} ids")));
        }
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            let key = next_key();
            let value = self.fact(&key).await?;
            let first: i64 = counter(&key, value.as_ref())?;
            let end = first.checked_add(i64::from(count));
            let end = end.ok_or_else(|| Error::limit("all producer ids have been issued"))?;
            let change = Change {
                checks: vec![unchanged(key.clone(), value)],
                writes: vec![Write::Put(key, counter_value(end))],
                ..Change::default()
            };
            if let Attempt::Applied = self.attempt(&change).await? {
                return Ok(first..end);
            }
            self.wait_for_conflict(attempt).await;
        }
        Err(too_many_conflicts("allocate producer ids"))
    }
}
