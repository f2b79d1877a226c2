//! What defaults depend on of the machine.

use std::path::Path;

/// Memory that is assumed where the system does not say.
const MEMORY_FALLBACK_BYTES: u64 = 1024 * 1024 * 1024;

/// The machine, or the container, that the broker runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Memory, bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine: its memory, or less where the container has a limit.
    pub fn current() -> Self {
        let installed = read(Path::new("/proc/meminfo")).and_then(|text| total_bytes(&text));
        let limit =
            read(Path::new("/sys/fs/cgroup/memory.max")).and_then(|text| limit_bytes(&text));
        let known = installed.into_iter().chain(limit).min();
        Self { memory_bytes: known.unwrap_or(MEMORY_FALLBACK_BYTES) }
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// `MemTotal` of `/proc/meminfo`, which counts in KiB.
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The limit of a control group, which is `max` where there is none.
fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}
