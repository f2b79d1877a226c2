//! What becomes of the files of an attempt that did not get through: they go where it certainly was
//! not made, and never comes to be made; else they are left to the orphan sweep.

use super::garbage;
use super::outcome::delete_unnamed;
use super::{CommitEnd, Committer, LoadedTable, Moved, Prepared, Staged};
use floe_env::{Error, ErrorKind, Result};
use kfs::TopicId;
use std::sync::Arc;

impl Committer {
    /// The table after a move that was rejected. Where that fails, the attempt's files go, unless
    /// an earlier try of the move may have worked, or the table is in another catalog: somebody
    /// between may have asked that twice, so that the refusal is the second answer.
    pub(super) async fn load_after(
        &self,
        moved: Moved,
        topic: TopicId,
        staged: &Staged,
        prepared: &Prepared,
    ) -> Result<Option<LoadedTable>> {
        let loaded = self.load(topic).await;
        match loaded {
            Err(error) if moved == Moved::Undecided || self.rest.is_some() => {
                let unknown = "whether the table has a commit that was made more than once";
                Err(Error::unknown_outcome(unknown).with_source(error))
            }
            Err(error) => {
                self.discard(staged, prepared).await;
                Err(error)
            }
            found => found,
        }
    }

    /// An attempt whose answer was lost, and which the table has. What it let go is garbage, if the
    /// table has it no more.
    pub(super) fn found(&self, table: LoadedTable, prepared: Prepared) -> CommitEnd {
        let table = Arc::new(table);
        let mut expired = prepared.expired;
        expired.retain(|old| table.metadata.snapshot_by_id(old.snapshot_id()).is_none());
        let (env, store, pointers) = (&self.env, self.store.clone(), self.pointers.clone());
        garbage::collect_later(env, store, pointers, table.clone(), expired, Vec::new());
        CommitEnd::Committed(table)
    }

    /// A topic's table was made by somebody: by us, if our snapshot is in it.
    pub(super) async fn after_conflict(
        &self,
        current: LoadedTable,
        staged: Staged,
        prepared: &Prepared,
    ) -> Result<CommitEnd> {
        if current.metadata.snapshot_by_id(prepared.snapshot_id).is_some() {
            return Ok(CommitEnd::Committed(Arc::new(current)));
        }
        self.discard(&staged, prepared).await;
        Ok(CommitEnd::Overtaken)
    }

    /// Deletes the attempt's files where the move certainly was not made.
    pub(super) async fn clean_up_after<T>(
        &self,
        moved: Result<T>,
        staged: &Staged,
        prepared: &Prepared,
    ) -> Result<T> {
        if moved.as_ref().is_err_and(|error| error.kind() != ErrorKind::UnknownOutcome) {
            self.discard(staged, prepared).await;
        }
        moved
    }

    pub(super) async fn discard(&self, staged: &Staged, prepared: &Prepared) {
        self.discard_data(staged).await;
        self.discard_attempt(prepared).await;
    }

    /// Deletes what was staged, unless an earlier attempt may have brought it into the table.
    pub(super) async fn discard_data(&self, staged: &Staged) {
        if staged.may_be_named {
            return;
        }
        let keys: Vec<String> = staged.files.iter().map(|file| file.key.clone()).collect();
        delete_unnamed(self.store.as_ref(), &keys).await;
    }

    pub(super) async fn discard_attempt(&self, prepared: &Prepared) {
        let keys: Vec<String> = prepared.puts.iter().map(|(key, _)| key.clone()).collect();
        delete_unnamed(self.store.as_ref(), &keys).await;
    }
}
