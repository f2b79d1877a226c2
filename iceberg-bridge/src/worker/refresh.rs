//! Which version of a table is the newest: read from the pointer, or asked of another catalog.

use super::Worker;
use crate::commit::{CommitEnd, LoadedTable, ResumeFrom, TableHead};
use crate::newest::Newest;
use crate::progress::Progress;
use crate::rest::{Found, RestCatalog};
use crate::status::TableStatus;
use floe_env::{Error, Result};
use std::sync::Arc;

impl Worker {
    /// Reads the pointer, and the version that it names if that is not known yet.
    pub(crate) async fn refresh(&self) -> Result<Option<Arc<LoadedTable>>> {
        self.refresh_head().await?;
        self.newest().await
    }

    /// As [`Worker::refresh`], for those who do not need the metadata.
    pub(crate) async fn refresh_head(&self) -> Result<Option<Arc<TableHead>>> {
        if let Some(catalog) = &self.shared.rest {
            return self.ask(catalog).await;
        }
        let known = self.head();
        let pointers = &self.shared.pointers;
        let same_name = match known.as_ref().map(|table| &table.pointer) {
            Some(known) => pointers.by_name(&known.namespace, &known.name).await?,
            None => None,
        };
        let pointer = match same_name.filter(|pointer| pointer.topic() == Some(self.topic)) {
            Some(pointer) => Some(pointer),
            // It may have got another name.
            None => pointers.by_topic(self.topic).await?,
        };
        match (known, pointer) {
            (Some(table), Some(pointer)) if table.pointer == pointer => Ok(Some(table)),
            (_, Some(pointer)) => {
                let (store, cluster) = (self.shared.store.as_ref(), self.shared.config.cluster);
                let loading = LoadedTable::load(&self.shared.env, store, cluster, pointer);
                self.set_newest(Arc::new(loading.await?));
                Ok(self.head())
            }
            (_, None) => {
                self.lose_newest(true);
                Ok(None)
            }
        }
    }

    fn lose_newest(&self, is_unmade: bool) {
        let mut state = self.state.lock();
        state.is_unmade = is_unmade;
        if state.newest.take().is_some() {
            state.scanned = Progress::start(self.topic);
            state.gaps.clear();
        }
    }

    /// Asks another catalog which version is the newest.
    async fn ask(&self, catalog: &RestCatalog) -> Result<Option<Arc<TableHead>>> {
        let asked = self.shared.env.monotonic();
        let (known, taken_over) = (self.head(), self.state.lock().taken_over);
        let found = catalog.find(self.topic, known.as_deref()).await?;
        let dropped = match found {
            Found::Same => None,
            Found::Newest(table) => {
                self.take_over_version(Arc::from(table), Some(taken_over));
                None
            }
            Found::Nothing => {
                self.lose_newest(true);
                None
            }
            Found::Dropped(name) => {
                self.lose_newest(false);
                Some(name)
            }
        };
        let mut state = self.state.lock();
        (state.dropped, state.asked) = (dropped, Some(asked));
        drop(state);
        Ok(self.head())
    }

    /// What the background job goes by. Another catalog is not asked about a table that goes on,
    /// which its next turn does, and about one that does not only once in `lag_max`; about none
    /// while it `is_away`.
    ///
    /// # Errors
    /// `Unavailable` where it would have to be asked; whatever it and the stores answer.
    pub(crate) async fn head_to_visit(&self, is_away: bool) -> Result<Option<Arc<TableHead>>> {
        if self.shared.rest.is_some() {
            let (now, lag_max) = (self.shared.env.monotonic(), self.shared.config.lag_max);
            let state = self.state.lock();
            let head = state.newest.as_ref().map(Newest::head);
            let goes_on = head.is_some_and(|head| head.stopped.is_none());
            let was_asked = state.asked.is_some_and(|asked| now < asked + lag_max);
            if goes_on || was_asked && (head.is_some() || state.dropped.is_some()) {
                return Ok(head.cloned());
            }
            if is_away {
                return Err(Error::unavailable("the catalog has just given no answer"));
            }
        }
        self.refresh_head().await
    }

    /// Why the table is not written any more, if another catalog has it no more.
    pub(crate) fn dropped(&self) -> Option<String> {
        self.state.lock().dropped.as_deref().map(why_dropped)
    }

    /// Makes the table in another catalog, without a row.
    pub(super) async fn make_at_catalog(&self) -> Result<Option<Arc<LoadedTable>>> {
        let Some(catalog) = &self.shared.rest else { return Ok(None) };
        let made = Arc::new(catalog.create(self.topic, &self.topic_name).await?);
        self.set_newest(made.clone());
        self.state.lock().asked = Some(self.shared.env.monotonic());
        Ok(Some(made))
    }

    /// Makes the snapshot with which a stopped table goes on.
    pub(super) async fn resumed(
        &self,
        base: Arc<LoadedTable>,
        from: ResumeFrom,
    ) -> Result<CommitEnd> {
        let Some(catalog) = &self.shared.rest else {
            return self.committer.resume(base, from).await;
        };
        let Some(log_ends) = catalog.log_ends(self.topic).await? else {
            return self.committer.resume(base, from).await;
        };
        if from != ResumeFrom::Rewind {
            let why = base.stopped.as_deref().unwrap_or_default();
            return Err(Error::invalid(format!("records would be left out ({why})")));
        }
        let end = self.committer.resume_at(base, &log_ends).await?;
        catalog.note_log_ends(self.topic, None).await?;
        Ok(end)
    }

    /// Lets a table be made anew that another catalog has no more.
    pub(super) async fn resume_dropped(&self, from: ResumeFrom) -> Result<Option<TableStatus>> {
        let (Some(catalog), Some(why)) = (&self.shared.rest, self.dropped()) else {
            return Ok(None);
        };
        if from != ResumeFrom::Rewind {
            return Err(Error::invalid(format!("{why}; there is nothing to go on behind")));
        }
        let name = self.status().table;
        catalog.forget(self.topic).await?;
        let mut state = self.state.lock();
        state.dropped = None;
        state.status.last_error = None;
        drop(state);
        Ok(Some(TableStatus { table: name, ..self.status() }))
    }

    /// Takes over a version unless a newer one is known.
    pub(super) fn set_newest(&self, table: Arc<LoadedTable>) {
        self.take_over_version(table, None);
    }

    /// The same of what another catalog answered. `asked_at` is the count of versions when it was
    /// asked: an older one is taken over too if none has been since, for then the catalog itself
    /// has gone back, to a backup of its own or to an older metadata file.
    fn take_over_version(&self, table: Arc<LoadedTable>, asked_at: Option<u64>) {
        let now = self.shared.env.monotonic();
        let mut state = self.state.lock();
        let known = state.newest.as_ref().map(Newest::head);
        let is_newer = |known: &Arc<TableHead>| {
            known.pointer.table_id == table.pointer.table_id
                && known.pointer.metadata_version > table.pointer.metadata_version
        };
        if known.is_some_and(is_newer) {
            if asked_at != Some(state.taken_over) {
                return;
            }
            let name = &table.pointer.name;
            tracing::warn!(table = %name, "the catalog has gone back to an older version");
        }
        let has_same_progress =
            |known: &Arc<TableHead>| known.stopped.is_none() && known.progress == table.progress;
        if table.stopped.is_some() || !known.is_some_and(has_same_progress) {
            state.scanned = table.progress.clone();
        }
        // A table that is there notes its gaps as they are found.
        state.gaps.clear();
        state.newest = Some(Newest::new(table, now));
        state.taken_over += 1;
    }

    /// The newest known version if what was staged for `base` can go onto it: so a commit of this
    /// broker that came in between is no conflict.
    pub(super) async fn newest_like(&self, base: Arc<LoadedTable>) -> Result<Arc<LoadedTable>> {
        let is_like = |newest: &Arc<LoadedTable>| {
            newest.pointer.table_id == base.pointer.table_id
                && newest.pointer.sweeps == base.pointer.sweeps
        };
        Ok(self.newest().await?.filter(is_like).unwrap_or(base))
    }

    /// The same for a commit that nobody waits for, on a table that may not have been looked at for
    /// long: another catalog is asked first. What others have tagged there must not expire, and no
    /// condition of the commit would say so.
    pub(super) async fn asked_like(&self, base: Arc<LoadedTable>) -> Result<Arc<LoadedTable>> {
        if self.shared.rest.is_some() {
            self.refresh_head().await?;
        }
        self.newest_like(base).await
    }
}

/// A table that another catalog has no more, and what leads on.
pub(super) fn why_dropped(name: &str) -> String {
    format!("dropped: the catalog has no table {name}; resume it with --rewind to make it anew")
}
