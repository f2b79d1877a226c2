//! Background jobs, copied from what each job knows of itself.

use super::registrar::Registrar;
use super::set_total;
use floe_env::BackgroundStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    job: &'static str,
}

/// Background jobs.
pub struct JobMetrics {
    rounds: Family<JobLabels, Counter>,
    failures: Family<JobLabels, Counter>,
    failing: Family<JobLabels, Gauge>,
    /// 1 where nothing is deleted from the object store.
    pub deletion_stopped: Gauge,
}

impl JobMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        let job = &["job"];
        Self {
            rounds: registrar.counters("job_rounds", job, "Rounds of a job that ended well."),
            failures: registrar.counters("job_failures", job, "Rounds of a job that failed."),
            failing: registrar.gauges(
                "job_failing",
                job,
                "1 where the newest round of a job failed, else 0.",
            ),
            deletion_stopped: registrar.gauge(
                "deletion_stopped",
                "1 where nothing is deleted from the object store until `floe doctor --reconcile`.",
            ),
        }
    }

    /// Shows what is known of a job.
    pub fn set(&self, job: &'static str, status: &BackgroundStatus) {
        let labels = JobLabels { job };
        set_total(&self.rounds.get_or_create(&labels), status.rounds);
        set_total(&self.failures.get_or_create(&labels), status.failures);
        self.failing.get_or_create(&labels).set(i64::from(status.last_error.is_some()));
    }
}
