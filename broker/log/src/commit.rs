//! Commits uploaded segments in the order of their cuts, and only then answers. This is the log's
//! linearisation point: durable before visible, visible before acknowledged.

use crate::append::{AppendError, AppendResult, Appended, Observer};
use crate::blocks::{BlockCache, BlocksKey};
use crate::extents::to_blocks;
use crate::lost::LostBatches;
use crate::open_segment::{SealedSection, WaitingRequest};
use crate::partitions::Partitions;
use bytes::Bytes;
use floe_env::{Env, Error, ErrorKind, HashMap, Result, Task};
use floe_metadata::facts::Fence;
use floe_metadata::rows::{
    BatchFacts, BatchOutcome, Place, SectionOutcome, SegmentFacts, SegmentOutcome,
};
use floe_metadata::{Backend, accepted_extents};
use floe_store::ObjectStore;
use futures::FutureExt;
use kfs::TopicPartition;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};

/// Segments that one metadata transaction commits at most.
const SEGMENTS_PER_COMMIT_MAX: usize = 16;
/// Pause before an unanswered or failed commit is asked again: the first, and the longest.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A segment on its way: cut, being uploaded, not yet committed.
pub(crate) struct InFlight {
    pub(crate) facts: SegmentFacts,
    pub(crate) sections: Vec<SealedSection>,
    pub(crate) waiting: Vec<WaitingRequest>,
    /// Bytes of all batches.
    pub(crate) bytes: u64,
    pub(crate) upload: Task<Result<Duration>>,
    /// Its place among the uploads in flight, given back when it is answered.
    pub(crate) slot: OwnedSemaphorePermit,
}

/// What the metadata store made of a question.
enum Decision<T> {
    /// Its answer.
    Made(T),
    /// This broker may not write any more.
    Fenced,
    /// It will never answer this; nothing happened.
    Refused(Error),
}

/// What the committer needs.
pub(crate) struct Committer {
    pub(crate) env: Env,
    pub(crate) root: String,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) metadata: Arc<dyn Backend>,
    pub(crate) fence: Fence,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) cache: BlockCache,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) lost: Mutex<LostBatches>,
}

/// What the writer learns of the segments in flight.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<ProgressState>,
    changed: Notify,
    fenced: Notify,
    /// Segments up to this counter, plus one, are answered.
    answered: AtomicU64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct ProgressState {
    /// Segments that are cut and not yet answered.
    pub(crate) in_flight: usize,
    /// The newest PUT time that the writer has not taken yet.
    pub(crate) put_time: Option<Duration>,
    /// Bytes answered since the writer looked last.
    pub(crate) answered_bytes: u64,
    /// This broker may not write any more.
    pub(crate) fenced: bool,
}

impl Progress {
    /// Waits for the next change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What is known now; the PUT time and the answered bytes are given once.
    pub(crate) fn take(&self) -> ProgressState {
        let mut state = self.state.lock();
        let taken = *state;
        state.put_time = None;
        state.answered_bytes = 0;
        taken
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.state.lock().fenced
    }

    /// Waits until this broker is fenced.
    pub(crate) async fn fenced(&self) {
        let fenced = self.fenced.notified();
        tokio::pin!(fenced);
        fenced.as_mut().enable();
        if !self.is_fenced() {
            fenced.await;
        }
    }

    /// The counter up to which all segments are answered: they are answered in the order of their
    /// cuts. Nobody asks for their outcomes again.
    pub(crate) fn answered_up_to(&self) -> Option<u64> {
        self.answered.load(Ordering::Acquire).checked_sub(1)
    }

    /// A segment is answered, and none before it is left.
    fn answered(&self, counter: u64, bytes: u64) {
        self.answered.fetch_max(counter.saturating_add(1), Ordering::Release);
        self.change(|state| {
            state.in_flight -= 1;
            state.answered_bytes += bytes;
        });
    }

    pub(crate) fn fence(&self) {
        self.change(|state| state.fenced = true);
        self.fenced.notify_waiters();
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ProgressState)) {
        change(&mut self.state.lock());
        self.changed.notify_one();
    }
}

impl Committer {
    /// Works until the writer is gone and every segment is answered.
    pub(crate) async fn run(self, mut queue: mpsc::Receiver<InFlight>) {
        let mut next = queue.recv().await;
        while let Some(first) = next.take() {
            let mut group = Vec::new();
            next = self.collect(first, &mut queue, &mut group).await;
            if !group.is_empty() {
                self.commit(group).await;
            }
            if next.is_none() {
                next = queue.recv().await;
            }
        }
    }

    /// Waits for the first segment's upload, and takes along those behind it that are uploaded
    /// already. Answers a segment that was taken from the queue but is still being uploaded.
    async fn collect(
        &self,
        mut first: InFlight,
        queue: &mut mpsc::Receiver<InFlight>,
        group: &mut Vec<InFlight>,
    ) -> Option<InFlight> {
        let uploaded = (&mut first.upload).await;
        self.uploaded(first, uploaded, group).await;
        while group.len() < SEGMENTS_PER_COMMIT_MAX {
            let Ok(mut segment) = queue.try_recv() else { return None };
            match (&mut segment.upload).now_or_never() {
                None => return Some(segment),
                Some(uploaded) => self.uploaded(segment, uploaded, group).await,
            }
        }
        None
    }

    async fn uploaded(
        &self,
        segment: InFlight,
        upload: std::result::Result<Result<Duration>, floe_env::TaskError>,
        group: &mut Vec<InFlight>,
    ) {
        let failure = match upload {
            Ok(Ok(took)) => {
                self.observer.uploaded(took, segment.bytes, true);
                self.progress.change(|state| state.put_time = Some(took));
                group.push(segment);
                return;
            }
            Ok(Err(error)) => format!("its upload failed: {error}"),
            Err(error) => format!("its upload failed: {error}"),
        };
        self.observer.uploaded(Duration::ZERO, segment.bytes, false);
        // What was uploaded before this one is committed first: order is kept also around a
        // failure.
        if !group.is_empty() {
            self.commit(std::mem::take(group)).await;
        }
        self.abandon(segment, &failure).await;
    }

    /// Makes sure that the segment is never committed, answers its requests, and removes what may
    /// have arrived of it.
    async fn abandon(&self, segment: InFlight, failure: &str) {
        let id = segment.facts.id;
        tracing::warn!(segment = %id, error = failure, "segment abandoned");
        let outcome = self
            .until_decided("abandon a segment", || self.metadata.abandon_segment(&self.fence, id))
            .await;
        match outcome {
            Decision::Fenced => self.answer_all(segment, &AppendError::Fenced),
            Decision::Refused(error) => {
                // Nothing asks for this commit again, so it is as good as abandoned.
                tracing::error!(segment = %id, %error, "segment not marked abandoned");
                self.lose(segment, failure);
            }
            Decision::Made(SegmentOutcome::Committed(outcomes)) => self.finish(segment, outcomes),
            Decision::Made(SegmentOutcome::Abandoned) => {
                let key = format!("{}/{}", self.root, segment.facts.key);
                self.lose(segment, failure);
                // An upload that arrives later still is removed with the broker's epoch.
                if let Err(error) = self.store.delete(&[key]).await {
                    tracing::debug!(segment = %id, %error, "abandoned object not deleted yet");
                }
            }
        }
    }

    async fn commit(&self, group: Vec<InFlight>) {
        let started = self.env.monotonic();
        let mut facts: Vec<SegmentFacts> =
            group.iter().map(|segment| segment.facts.clone()).collect();
        facts.iter_mut().for_each(|segment| self.lost.lock().mark(segment, started));
        let facts = &facts;
        let ask = || async move {
            let answer = self.metadata.commit_segments(&self.fence, facts).await;
            answer.inspect_err(|error| self.observer.not_committed(error.kind()))
        };
        let outcomes = self.until_decided("commit segments", ask).await;
        let outcomes = match outcomes {
            Decision::Made(outcomes) => outcomes,
            Decision::Fenced => {
                let fenced = |segment| self.answer_all(segment, &AppendError::Fenced);
                return group.into_iter().for_each(fenced);
            }
            Decision::Refused(error) => return self.commit_one_by_one(group, &error).await,
        };
        let batches = group.iter().flat_map(|segment| &segment.facts.sections);
        let batches = batches.map(|section| section.batches.len()).sum();
        self.observer.committed(self.env.monotonic() - started, batches);
        for (segment, outcome) in group.into_iter().zip(outcomes) {
            match outcome {
                SegmentOutcome::Committed(sections) => self.finish(segment, sections),
                SegmentOutcome::Abandoned => self.lose(segment, "the segment was abandoned"),
            }
        }
    }

    /// What one segment is refused for must not hold back the others: each is asked for alone, and
    /// the one at fault is abandoned.
    async fn commit_one_by_one(&self, mut group: Vec<InFlight>, error: &Error) {
        if group.len() == 1
            && let Some(segment) = group.pop()
        {
            return self.abandon(segment, &format!("its commit is refused: {error}")).await;
        }
        for segment in group {
            Box::pin(self.commit(vec![segment])).await;
        }
    }

    /// Asks until the store has decided; asking again by id changes nothing. Only what may succeed
    /// later is asked again.
    async fn until_decided<T, F>(&self, doing: &str, ask: impl Fn() -> F) -> Decision<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            match ask().await {
                Ok(decided) => return Decision::Made(decided),
                Err(error) => match error.kind() {
                    ErrorKind::Fenced => {
                        tracing::error!(%error, "this broker is fenced: another took its place");
                        self.progress.fence();
                        return Decision::Fenced;
                    }
                    ErrorKind::Retry | ErrorKind::Unavailable | ErrorKind::UnknownOutcome => {
                        tracing::warn!(%error, doing, "the metadata store did not decide");
                    }
                    ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Limit | ErrorKind::Bug => {
                        tracing::error!(%error, doing, "the metadata store refuses");
                        return Decision::Refused(error);
                    }
                },
            }
            self.env.sleep(pause.mul_f64(0.5 + self.env.random_unit() / 2.0)).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    fn finish(&self, segment: InFlight, outcomes: Vec<SectionOutcome>) {
        let object: Arc<str> = segment.facts.key.as_str().into();
        let mut results = HashMap::default();
        let sections = segment.sections.into_iter().zip(&segment.facts.sections).zip(outcomes);
        for ((section, facts), outcome) in sections {
            let partition = section.partition;
            let now = self.env.monotonic();
            self.lost.lock().decided(partition, &facts.batches, &outcome.batches, now);
            self.publish(&object, section, &facts.batches, &outcome);
            results.insert(partition, section_results(&outcome));
        }
        for waiting in segment.waiting {
            reply(waiting, |partition, batch| results[&partition][batch].clone());
        }
        drop(segment.slot);
        self.progress.answered(segment.facts.id.counter, segment.bytes);
    }

    /// Makes a section visible here: blocks first, then the watermark that leads readers to them.
    fn publish(
        &self,
        object: &Arc<str>,
        section: SealedSection,
        batches: &[BatchFacts],
        outcome: &SectionOutcome,
    ) {
        let Some(state) = outcome.state else { return };
        let extents = accepted_extents(object, section.partition, batches, &outcome.batches);
        let start = batches.first().map_or(0, |batch| batch.position);
        let mut pieces = place_pieces(section.pieces, start);
        for extent in &extents {
            let Place::Range { position, length, .. } = extent.place else { continue };
            let bytes = take_range(&mut pieces, position, length);
            match to_blocks(extent, bytes, false, self.cache.memory()) {
                Ok(blocks) => {
                    self.cache.insert(BlocksKey { object: object.clone(), position }, blocks);
                }
                Err(error) => tracing::error!(%error, "a committed section is not what was cut"),
            }
        }
        self.partitions.committed(section.partition, state, extents);
    }

    /// Answers the requests of a segment that is not in the log: they may come again.
    fn lose(&self, segment: InFlight, failure: &str) {
        self.lost.lock().abandoned(&segment.facts, self.env.monotonic());
        self.answer_all(segment, &AppendError::Retry(failure.to_owned()));
    }

    fn answer_all(&self, segment: InFlight, error: &AppendError) {
        for waiting in segment.waiting {
            reply(waiting, |_, _| Err(error.clone()));
        }
        drop(segment.slot);
        self.progress.answered(segment.facts.id.counter, segment.bytes);
    }
}

fn reply(waiting: WaitingRequest, result: impl Fn(TopicPartition, usize) -> AppendResult) {
    let results = waiting.places.iter().map(|(partition, batch)| result(*partition, *batch));
    // The connection may be gone; the records are in the log all the same.
    let _ = waiting.reply.send(results.collect());
    drop(waiting.memory);
}

fn section_results(outcome: &SectionOutcome) -> Vec<AppendResult> {
    let log_start_offset = outcome.state.map(|state| state.log_start_offset);
    let result = |batch: &BatchOutcome| match *batch {
        BatchOutcome::Accepted { base_offset } => Ok(Appended {
            base_offset,
            log_start_offset: log_start_offset.unwrap_or(0),
            duplicate_timestamp_ms: None,
        }),
        BatchOutcome::Duplicate { base_offset, max_timestamp_ms } => Ok(Appended {
            base_offset,
            log_start_offset: log_start_offset.unwrap_or(0),
            duplicate_timestamp_ms: Some(max_timestamp_ms),
        }),
        BatchOutcome::Refused(refusal) => Err(AppendError::Refused { refusal, log_start_offset }),
    };
    outcome.batches.iter().map(result).collect()
}

/// A section's pieces with where each begins in the object. A piece that was moved out leaves an
/// empty one.
fn place_pieces(pieces: Vec<Bytes>, start: u64) -> Vec<(u64, Bytes)> {
    let mut next = start;
    let place = |piece: Bytes| {
        let begins = next;
        next += piece.len() as u64;
        (begins, piece)
    };
    pieces.into_iter().map(place).collect()
}

/// Takes the bytes of `position..position + length`; whole pieces are moved out, so that they can
/// be patched in place.
fn take_range(pieces: &mut [(u64, Bytes)], position: u64, length: u64) -> Vec<Bytes> {
    let until = position + length;
    let mut taken = Vec::new();
    for (begins, piece) in pieces {
        let ends = *begins + piece.len() as u64;
        let (from, to) = (position.max(*begins), until.min(ends));
        if from >= to {
            continue;
        }
        if from == *begins && to == ends {
            taken.push(std::mem::take(piece));
        } else {
            taken.push(piece.slice((from - *begins) as usize..(to - *begins) as usize));
        }
    }
    taken
}

#[cfg(test)]
mod tests;
