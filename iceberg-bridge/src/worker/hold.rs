//! Bringing a table to a cut and no further, for whoever wants several at one.

use super::Worker;
use crate::log_reader::PartitionCut;
use floe_env::{Error, Result};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

impl Worker {
    /// Waits until no commit of a turn runs, and lets none begin while the answer is kept.
    pub(crate) async fn hold(&self) -> OwnedMutexGuard<()> {
        self.turn_gate.clone().lock_owned().await
    }

    /// Brings the table to exactly this cut. The caller holds it, so nothing takes it further.
    pub(crate) async fn bring_to(self: &Arc<Self>, cut: &[PartitionCut]) -> Result<()> {
        if !self.settings().is_enabled {
            return Err(Error::invalid("switched off: its topic has iceberg.enable=false"));
        }
        let permit = self.shared.commits.flush().await;
        self.state.lock().last_turn = Some(self.shared.env.monotonic());
        let ended = self.run_turn(cut, permit, None).await;
        self.note_end(&ended);
        ended
    }
}
