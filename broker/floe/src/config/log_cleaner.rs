//! Log compaction: Kafka's settings.

use super::setting::Kind::{Bool, Integer};
use super::setting::Preset::Fixed;
use super::setting::Setting;
use std::time::Duration;

/// The longest pause between rounds, ms.
const BACKOFF_MS_MAX: i64 = 24 * 3_600_000;
/// The shortest one, ms: each round reads all topics.
const BACKOFF_MS_MIN: i64 = 100;
/// The least room for keys, bytes.
const KEY_BYTES_MIN: i64 = 1 << 20;

pub(super) const LOG_CLEANER_ENABLE: Setting = Setting::new(
    "kafka.log.cleaner.enable",
    "FLOE_KAFKA_LOG_CLEANER_ENABLE",
    Bool,
    Fixed("true"),
    "Compacts topics whose cleanup.policy contains compact.",
);
pub(super) const LOG_CLEANER_BACKOFF_MS: Setting = Setting::new(
    "kafka.log.cleaner.backoff.ms",
    "FLOE_KAFKA_LOG_CLEANER_BACKOFF_MS",
    Integer { min: BACKOFF_MS_MIN, max: BACKOFF_MS_MAX },
    Fixed("15000"),
    "Pause between two looks for partitions that are worth compacting.",
)
.unit("ms");
pub(super) const LOG_CLEANER_DEDUPE_BUFFER_SIZE: Setting = Setting::new(
    "kafka.log.cleaner.dedupe.buffer.size",
    "FLOE_KAFKA_LOG_CLEANER_DEDUPE_BUFFER_SIZE",
    Integer { min: KEY_BYTES_MIN, max: i32::MAX as i64 },
    Fixed("134217728"),
    "Memory for the keys of one pass, 32 bytes each; at most an eighth of memory.budget_bytes. A \
     part of a log with more keys takes several passes.",
)
.unit("bytes");

/// How topics are compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCleaner {
    /// `log.cleaner.enable`
    pub enable: bool,
    /// `log.cleaner.backoff.ms`
    pub backoff: Duration,
    /// `log.cleaner.dedupe.buffer.size`, bytes
    pub dedupe_buffer_bytes: usize,
}
