//! The round of the background job: it looks at every topic, and asks for the commits that are due.
//!
//! The embedded catalog's tables are visited one after the other. Another catalog is asked about
//! each table once after a start, so there they are visited several at a time; and where it gives
//! no answer, a round asks it no more, since each question would wait for its time-out.

use super::{Bridge, REMOVAL_PAUSE};
use crate::convoy::Due;
use crate::log_reader::PartitionCut;
use crate::progress::Progress;
use crate::worker::{Worker, ends};
use bytes::Bytes;
use floe_env::{ErrorKind, Instant, Result};
use floe_metadata::topics::Topic;
use futures::stream::{self, StreamExt};
use kfs::TopicId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tables that another catalog is asked about at the same time.
const ASKED_PARALLEL_MAX: usize = 16;

impl Bridge {
    /// One round of the background job: asks for commits that are due, and waits for none.
    ///
    /// # Errors
    /// The first that a topic had; the others have had their turn all the same.
    pub async fn round(&self) -> Result<()> {
        let topics = self.topics().await?;
        let mut first_error = self.remove_what_is_gone().await.err();
        let tables: Vec<(&Topic, Arc<Worker>)> =
            topics.iter().filter_map(|topic| Some((topic, self.worker_of_topic(topic)?))).collect();
        let counts: Vec<(TopicId, i32)> =
            tables.iter().map(|(topic, _)| (topic.id, topic.partition_count)).collect();
        let cuts = self.inner.shared.log.cuts(&counts).await?;
        let workers: Vec<_> = tables.into_iter().map(|(_, worker)| worker).zip(cuts).collect();
        let (bridge, is_away, mut due) =
            (self.clone(), Arc::new(AtomicBool::new(false)), Vec::new());
        let visits = stream::iter(workers).map(move |(worker, cut)| {
            let (bridge, is_away) = (bridge.clone(), is_away.clone());
            async move { bridge.visit_and_tell(worker, cut, &is_away).await }
        });
        let parallel = if self.rest().is_some() { ASKED_PARALLEL_MAX } else { 1 };
        let mut visits = visits.buffered(parallel);
        while let Some(visited) = visits.next().await {
            match visited {
                Ok(visited) => due.extend(visited),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        self.workers().values().for_each(|worker| worker.rest());
        let (env, log) = (self.env(), self.inner.shared.log.as_ref());
        let started = self.inner.convoys.lock().await.start_next(env, log, due).await;
        first_error = first_error.or(started.err());
        first_error.map_or(Ok(()), Err)
    }

    /// Removes what deleted topics have left, where it may have become more.
    async fn remove_what_is_gone(&self) -> Result<()> {
        let (revision, now) = (self.inner.topics.lock().revision, self.env().monotonic());
        let removed = *self.inner.removed.lock();
        let is_fresh = |(at_revision, at): (Option<u64>, Instant)| {
            at_revision == revision && now < at + REMOVAL_PAUSE
        };
        if removed.is_some_and(is_fresh) {
            return Ok(());
        }
        self.remove_tables().await?;
        self.delete_files().await?;
        *self.inner.removed.lock() = Some((revision, now));
        Ok(())
    }

    /// The worker of a topic that has a table, or had one before it was switched off.
    fn worker_of_topic(&self, topic: &Topic) -> Option<Arc<Worker>> {
        if self.is_enabled(topic) {
            return Some(self.worker(topic.id, &topic.name));
        }
        self.inner.workers.lock().get(&topic.id).cloned()
    }

    async fn visit_and_tell(
        &self,
        worker: Arc<Worker>,
        cut: Option<Vec<PartitionCut>>,
        is_away: &AtomicBool,
    ) -> Result<Option<Due>> {
        let visited = self.visit(&worker, cut, is_away.load(Ordering::Relaxed)).await;
        if visited.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable) {
            is_away.store(true, Ordering::Relaxed);
        }
        let published = self.publish_progress(&worker).await;
        let visited = visited.and_then(|visited| published.map(|()| visited));
        worker.note_visit(visited.as_ref().err());
        visited
    }

    /// A table, if it is to be committed.
    async fn visit(
        &self,
        worker: &Arc<Worker>,
        cut: Option<Vec<PartitionCut>>,
        is_away: bool,
    ) -> Result<Option<Due>> {
        let shared = &self.inner.shared;
        let Some(cut) = cut else { return Ok(None) };
        let ends = ends(&cut);
        if worker.covers(&ends) {
            return Ok(None);
        }
        let table = worker.head_to_visit(is_away).await?;
        let is_stopped = table.as_ref().is_some_and(|table| table.stopped.is_some())
            || worker.dropped().is_some();
        if worker.covers(&ends) || is_stopped || !worker.settings().is_enabled {
            return Ok(None);
        }
        let (_, bytes) = worker.behind(&ends);
        let bytes = bytes.unsigned_abs();
        let is_due = table.is_none()
            || bytes >= shared.config.file_bytes_min
            || worker.lag() >= shared.config.lag_max;
        Ok(is_due.then(|| Due { worker: worker.clone(), cut, bytes }))
    }

    /// Gives the metadata store its copy of a table's progress, for retention and metrics. It is
    /// older than the table, or as old; where others have rolled the table back it is newer, until
    /// the bridge reads that version. A table that has yet to be made has none: what is there was
    /// another catalog's.
    async fn publish_progress(&self, worker: &Worker) -> Result<()> {
        let Some(progress) = worker.unpublished_progress() else { return Ok(()) };
        let metadata = &self.inner.metadata;
        if progress == Progress::start(worker.topic) {
            let copies = metadata.table_progress_of(&[worker.topic]).await?;
            if copies.into_iter().any(|copy| copy.is_some()) {
                metadata.set_table_progress(worker.topic, None).await?;
            }
        } else {
            let copy = Bytes::from(progress.pack());
            metadata.set_table_progress(worker.topic, Some(copy)).await?;
        }
        worker.note_published(progress);
        Ok(())
    }
}
