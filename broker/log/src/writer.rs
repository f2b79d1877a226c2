//! The write path's one task: takes requests in order of arrival, fills the open segment, cuts it,
//! and starts its upload.

use crate::append::Observer;
use crate::commit::{InFlight, Progress};
use crate::cut::{CutPolicy, CutReason, Decision, OpenState};
use crate::open_segment::{AppendRequest, OpenSection, OpenSegment, SealedSection};
use crate::segment_object::{self, SegmentObject};
use crate::upload::Uploader;
use floe_env::{Env, Instant, Lane, Result, Shutdown};
use kfs::{BrokerEpoch, BrokerId, ClusterId, SegmentId, TopicPartition};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// Requests that are taken in one go before time is looked at again.
const REQUESTS_PER_TURN_MAX: usize = 256;

/// Segments up to this size are built inline: about 20 us.
const BUILD_INLINE_BYTES_MAX: u64 = 256 << 10;

/// What the writer needs.
pub(crate) struct Writer {
    pub(crate) env: Env,
    pub(crate) cluster: ClusterId,
    pub(crate) broker: BrokerId,
    pub(crate) epoch: BrokerEpoch,
    pub(crate) root: String,
    pub(crate) policy: CutPolicy,
    pub(crate) uploader: Uploader,
    pub(crate) upload_slots: Arc<Semaphore>,
    pub(crate) commits: mpsc::Sender<InFlight>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) next_counter: u64,
}

impl Writer {
    /// Works until the shutdown is given or the log is gone, then cuts what is left.
    pub(crate) async fn run(
        mut self,
        mut requests: mpsc::Receiver<AppendRequest>,
        shutdown: Shutdown,
    ) {
        let mut open: Option<OpenSegment> = None;
        let mut turn = Vec::with_capacity(REQUESTS_PER_TURN_MAX);
        loop {
            let in_flight = self.take_progress(open.as_ref());
            let decision = open.as_ref().map(|segment| self.decide(segment, in_flight));
            if let Some(Decision::Cut(reason)) = decision {
                if let Some(segment) = open.take() {
                    self.cut(segment, reason).await;
                }
                continue;
            }
            let wake_at = match decision {
                Some(Decision::WaitUntil(at)) => Some(at),
                _ => None,
            };
            tokio::select! {
                biased;
                // First, so that requests that answers have brought are not taken for older ones.
                () = self.progress.changed() => {}
                taken = requests.recv_many(&mut turn, REQUESTS_PER_TURN_MAX) => {
                    if taken == 0 {
                        break;
                    }
                    self.fill(&mut open, &mut turn).await;
                }
                () = sleep_until(&self.env, wake_at) => {}
                () = shutdown.wait() => break,
            }
        }
        requests.close();
        while requests.recv_many(&mut turn, REQUESTS_PER_TURN_MAX).await > 0 {
            self.fill(&mut open, &mut turn).await;
        }
        if let Some(segment) = open {
            self.cut(segment, CutReason::Shutdown).await;
        }
    }

    /// Takes requests in, in order; a segment that is full on the way is cut there.
    async fn fill(&mut self, open: &mut Option<OpenSegment>, turn: &mut Vec<AppendRequest>) {
        let now = self.env.monotonic();
        for request in turn.drain(..) {
            let segment = open.get_or_insert_with(|| OpenSegment::new(now));
            segment.push(request);
            if self.policy.is_full(segment.bytes)
                && let Some(full) = open.take()
            {
                self.cut(full, CutReason::Full).await;
            }
        }
    }

    /// Tells the policy what has happened since, and answers how many segments are in flight.
    fn take_progress(&mut self, open: Option<&OpenSegment>) -> usize {
        let progress = self.progress.take();
        if let Some(took) = progress.put_time {
            self.policy.put_took(took);
        }
        if progress.answered_bytes > 0 {
            let open_bytes = open.map_or(0, |segment| segment.bytes);
            self.policy.answered(progress.answered_bytes, open_bytes, self.env.monotonic());
        }
        progress.in_flight
    }

    fn decide(&self, open: &OpenSegment, in_flight: usize) -> Decision {
        let state = OpenState { bytes: open.bytes, first_batch: open.first_batch, in_flight };
        self.policy.decide(&state, self.env.monotonic())
    }

    /// Seals the segment and starts its upload; waits for a free upload slot, which slows the
    /// producers down.
    async fn cut(&mut self, segment: OpenSegment, reason: CutReason) {
        let slots = self.upload_slots.clone();
        let slot = slots.acquire_owned().await.expect("the upload slots are never closed");
        let now = self.env.monotonic();
        let (bytes, first_batch) = (segment.bytes, segment.first_batch);
        let (sections, waiting) = segment.close();
        self.policy.cut(bytes, now);
        self.observer.segment_cut(reason, bytes, sections.len());
        self.observer.waited_for_cut(now - first_batch);

        let id = SegmentId { broker: self.broker, epoch: self.epoch, counter: self.next_counter };
        self.next_counter += 1;
        let (built, sections) = self.build(id, sections, bytes).await;
        let object = match built {
            Ok(object) => object,
            Err(error) => {
                // Its requests see their reply dropped: the outcome of each is "not written".
                tracing::error!(segment = %id, %error, "segment dropped: it could not be built");
                return;
            }
        };
        let (uploader, parts) = (self.uploader.clone(), object.parts);
        let key = format!("{}/{}", self.root, object.facts.key);
        let upload = self.env.spawn("upload segment", Lane::Foreground, async move {
            uploader.put(&key, parts).await
        });
        self.progress.change(|state| state.in_flight += 1);
        let in_flight = InFlight { facts: object.facts, sections, waiting, bytes, upload, slot };
        if self.commits.send(in_flight).await.is_err() {
            tracing::error!(segment = %id, "segment dropped: the committer is gone");
        }
    }
}

impl Writer {
    /// Builds the object: a large one off the runtime's threads, since copy and checksums take a
    /// while.
    async fn build(
        &self,
        id: SegmentId,
        sections: Vec<(TopicPartition, OpenSection)>,
        bytes: u64,
    ) -> (Result<SegmentObject>, Vec<SealedSection>) {
        let cluster = self.cluster;
        let build = move || {
            let seal = |(partition, section)| SealedSection::seal(partition, section);
            let sections: Vec<SealedSection> = sections.into_iter().map(seal).collect();
            let built = segment_object::build(cluster, id, &sections);
            (built, sections)
        };
        if bytes > BUILD_INLINE_BYTES_MAX { self.env.blocking(build).await } else { build() }
    }
}

async fn sleep_until(env: &Env, at: Option<Instant>) {
    match at {
        Some(at) => env.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
