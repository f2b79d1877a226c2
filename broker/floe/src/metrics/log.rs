//! Segments on their way to the store.

use super::registrar::{Buckets, Registrar, label_values};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Why a segment was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CutReason {
    /// It was full.
    Full,
    /// Its time had come.
    Time,
    /// The broker shuts down.
    Shutdown,
}

label_values!(CutReason { Full => "full", Time => "time", Shutdown => "shutdown" });

/// How the metadata store answered a commit of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitOutcome {
    /// Committed.
    Applied,
    /// Not made, with certainty; asked for again where that may help.
    Rejected,
    /// Not known; asked again.
    Unknown,
}

label_values!(CommitOutcome { Applied => "applied", Rejected => "rejected", Unknown => "unknown" });

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: CutReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: CommitOutcome,
}

/// Segments on their way to the store.
pub struct LogMetrics {
    cuts: [Counter; 3],
    commits: [Counter; 3],
    /// Seconds from a batch's arrival to the cut of its segment.
    pub produce_queue_seconds: Histogram,
    /// Bytes of segments cut.
    pub segment_bytes: Histogram,
    /// Batches accepted.
    pub batches: Counter,
    /// Uploads in flight.
    pub uploads_in_flight: Gauge,
    /// Bytes of the uploads in flight.
    pub uploads_in_flight_bytes: Gauge,
    /// Uploads given up.
    pub uploads_abandoned: Counter,
    /// Seconds of an upload.
    pub upload_seconds: Histogram,
    /// Seconds of a commit in the metadata store.
    pub commit_seconds: Histogram,
}

impl LogMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        let cuts: Family<ReasonLabels, Counter> = registrar.counters(
            "log_segments_cut",
            &["reason"],
            "Segments cut, by why: full, time, shutdown.",
        );
        let commits: Family<OutcomeLabels, Counter> = registrar.counters(
            "log_commits",
            &["outcome"],
            "Commits of segments in the metadata store, by outcome.",
        );
        let reasons = [CutReason::Full, CutReason::Time, CutReason::Shutdown];
        let outcomes = [CommitOutcome::Applied, CommitOutcome::Rejected, CommitOutcome::Unknown];
        Self {
            cuts: reasons.map(|reason| cuts.get_or_create_owned(&ReasonLabels { reason })),
            commits: outcomes
                .map(|outcome| commits.get_or_create_owned(&OutcomeLabels { outcome })),
            produce_queue_seconds: registrar.histogram(
                "log_produce_queue_seconds",
                Buckets::Latency,
                "Time from a batch's arrival to the cut of its segment.",
            ),
            segment_bytes: registrar.histogram(
                "log_segment_bytes",
                Buckets::Sizes,
                "Sizes of segments cut.",
            ),
            batches: registrar.counter("log_batches", "Record batches accepted."),
            uploads_in_flight: registrar.gauge("log_uploads_in_flight", "Segments being uploaded."),
            uploads_in_flight_bytes: registrar
                .gauge("log_uploads_in_flight_bytes", "Bytes of the segments being uploaded."),
            uploads_abandoned: registrar
                .counter("log_uploads_abandoned", "Uploads given up after the upload timeout."),
            upload_seconds: registrar.histogram(
                "log_upload_seconds",
                Buckets::Latency,
                "Time of a segment's upload.",
            ),
            commit_seconds: registrar.histogram(
                "log_commit_seconds",
                Buckets::Latency,
                "Time of a commit in the metadata store.",
            ),
        }
    }

    /// Counts a cut of a segment of so many bytes.
    pub fn cut(&self, reason: CutReason, bytes: u64) {
        self.cuts[reason as usize].inc();
        self.segment_bytes.observe(bytes as f64);
    }

    /// Counts a commit.
    pub fn commit(&self, outcome: CommitOutcome) {
        self.commits[outcome as usize].inc();
    }
}
