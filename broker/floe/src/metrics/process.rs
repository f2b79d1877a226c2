//! This process, as the system sees it.

use super::registrar::Registrar;
use prometheus_client::metrics::gauge::Gauge;

/// This process.
pub struct ProcessMetrics {
    resident_bytes: Gauge,
    open_files: Gauge,
    /// The memory budget that the broker was given.
    pub memory_budget_bytes: Gauge,
    /// What is counted against the budget now.
    pub memory_counted_bytes: Gauge,
    /// 1 once the broker serves clients.
    pub ready: Gauge,
}

impl ProcessMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        Self {
            resident_bytes: registrar
                .gauge("process_resident_bytes", "Memory of the process that is in RAM."),
            open_files: registrar
                .gauge("process_open_files", "Files and sockets that the process has open."),
            memory_budget_bytes: registrar
                .gauge("memory_budget_bytes", "Memory that the broker may count."),
            memory_counted_bytes: registrar.gauge(
                "memory_counted_bytes",
                "Memory counted against the budget: requests, segments, answers, cache.",
            ),
            ready: registrar.gauge("ready", "1 while the broker serves clients, else 0."),
        }
    }

    /// Reads what the system knows; where it does not say, the last values stay.
    pub(super) fn refresh(&self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(bytes) = resident_bytes(&status) {
            self.resident_bytes.set(bytes);
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            self.open_files.set(i64::try_from(files.count()).unwrap_or(i64::MAX));
        }
    }
}

/// `VmRSS` of `/proc/self/status`, which counts in KiB whatever the page size is.
fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
