//! Ends of transactions whose outcome this broker does not know: the metadata store may have made
//! them, or may still do so. What an end makes of its partitions reaches readers by what is
//! observed of them (`Log::observe`), so whoever learns later that it was made must look at them,
//! or readers of committed records would wait for the next write.
//!
//! An end is in doubt while its transactional id's row is the one that it began from: it is made on
//! that condition. Once the row is another, nothing of it can come any more.

use super::{Transactions, failed};
use floe_env::Result;
use floe_metadata::transactions::KnownTransaction;
use floe_wire::ErrorCode;
use kfs::TopicPartition;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Ends in doubt at most. Of further ones the partitions are asked for again at once, and an end
/// that comes later still shows with the next change there.
const DOUBTS_MAX: usize = 10_000;
/// Partitions whose ends one read of the metadata store brings.
const STATES_PER_QUERY: usize = 1000;

/// The ends in doubt, by transactional id; of each the row that it began from.
#[derive(Debug, Default)]
pub(crate) struct DoubtfulEnds(Mutex<BTreeMap<String, KnownTransaction>>);

impl DoubtfulEnds {
    /// Notes one; false where there are too many.
    fn note(&self, known: &KnownTransaction) -> bool {
        let mut doubts = self.0.lock();
        let has_room = doubts.len() < DOUBTS_MAX || doubts.contains_key(&known.id);
        if has_room {
            doubts.insert(known.id.clone(), known.clone());
        }
        has_room
    }

    /// The one of this id that is no longer in doubt, now that its row is this.
    fn decided(&self, id: &str, now: Option<&KnownTransaction>) -> Option<KnownTransaction> {
        self.0.lock().get(id).filter(|doubt| Some(*doubt) != now).cloned()
    }

    fn remove(&self, settled: &KnownTransaction) {
        let mut doubts = self.0.lock();
        if doubts.get(&settled.id) == Some(settled) {
            doubts.remove(&settled.id);
        }
    }

    fn ids(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }
}

impl Transactions<'_> {
    /// Nobody knows whether what was open in this row has ended.
    pub(super) async fn doubt(
        &self,
        known: &KnownTransaction,
    ) -> std::result::Result<(), ErrorCode> {
        if self.0.doubtful_ends.note(known) {
            return Ok(());
        }
        self.look_at_partitions(known).await.map_err(|error| failed(&error))
    }

    /// Takes in what became of an end in doubt, where the row of its id, just read, tells.
    pub(super) async fn settle(&self, id: &str, now: Option<&KnownTransaction>) -> Result<()> {
        if let Some(decided) = self.0.doubtful_ends.decided(id, now) {
            self.look_at_partitions(&decided).await?;
            self.0.doubtful_ends.remove(&decided);
        }
        Ok(())
    }

    /// The same of all that are in doubt.
    pub(super) async fn settle_all(&self) -> Result<()> {
        for id in self.0.doubtful_ends.ids() {
            let now = self.0.metadata.transaction(&id).await?;
            self.settle(&id, now.as_ref()).await?;
        }
        Ok(())
    }

    async fn look_at_partitions(&self, known: &KnownTransaction) -> Result<()> {
        let partitions: Vec<TopicPartition> = known.row.partitions.iter().copied().collect();
        for some in partitions.chunks(STATES_PER_QUERY) {
            let states = self.0.metadata.partition_states(some).await?;
            for (partition, state) in some.iter().zip(states) {
                if let Some(state) = state {
                    self.0.log.observe(*partition, state);
                }
            }
        }
        Ok(())
    }
}
