//! Counts what the log tells of its write path.

use crate::metrics::{CommitOutcome, CutReason, Metrics};
use floe_env::ErrorKind;
use floe_log::Observer;
use std::time::Duration;

/// The log's observer.
pub(crate) struct LogObserver(pub(crate) Metrics);

impl Observer for LogObserver {
    fn segment_cut(&self, reason: floe_log::CutReason, bytes: u64, _sections: usize) {
        let reason = match reason {
            floe_log::CutReason::Full => CutReason::Full,
            floe_log::CutReason::Time => CutReason::Time,
            floe_log::CutReason::Shutdown => CutReason::Shutdown,
        };
        self.0.log.cut(reason, bytes);
        self.0.log.uploads_in_flight.inc();
        self.0.log.uploads_in_flight_bytes.inc_by(bytes.cast_signed());
    }

    fn waited_for_cut(&self, waited: Duration) {
        self.0.log.produce_queue_seconds.observe(waited.as_secs_f64());
    }

    fn uploaded(&self, took: Duration, bytes: u64, ok: bool) {
        self.0.log.uploads_in_flight.dec();
        self.0.log.uploads_in_flight_bytes.dec_by(bytes.cast_signed());
        if ok {
            self.0.log.upload_seconds.observe(took.as_secs_f64());
        } else {
            self.0.log.uploads_abandoned.inc();
        }
    }

    fn committed(&self, took: Duration, batches: usize) {
        self.0.log.commit(CommitOutcome::Applied);
        self.0.log.commit_seconds.observe(took.as_secs_f64());
        self.0.log.batches.inc_by(batches as u64);
    }

    fn not_committed(&self, why: ErrorKind) {
        self.0.log.commit(match why {
            ErrorKind::UnknownOutcome => CommitOutcome::Unknown,
            _ => CommitOutcome::Rejected,
        });
    }
}
