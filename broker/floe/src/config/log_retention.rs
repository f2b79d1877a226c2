//! How long the log keeps records where a topic does not say so itself: Kafka's settings, and how
//! long records wait for tables.

use super::setting::Kind::Integer;
use super::setting::Preset::{Fixed, Unset};
use super::setting::Setting;
use std::time::Duration;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// The longest pause between rounds, ms.
const CHECK_INTERVAL_MS_MAX: i64 = 24 * HOUR_MS;
/// The shortest one, ms: each round reads all topics.
const CHECK_INTERVAL_MS_MIN: i64 = 100;

pub(super) const LOG_RETENTION_MS: Setting = Setting::new(
    "kafka.log.retention.ms",
    "FLOE_KAFKA_LOG_RETENTION_MS",
    Integer { min: -1, max: i64::MAX },
    Unset,
    "Records of topics without a retention.ms of their own are kept so long; -1 for ever. Unset, \
     kafka.log.retention.minutes says it.",
)
.unit("ms");
pub(super) const LOG_RETENTION_MINUTES: Setting = Setting::new(
    "kafka.log.retention.minutes",
    "FLOE_KAFKA_LOG_RETENTION_MINUTES",
    Integer { min: -1, max: i32::MAX as i64 },
    Unset,
    "The same in minutes. Unset, kafka.log.retention.hours says it.",
)
.unit("min");
pub(super) const LOG_RETENTION_HOURS: Setting = Setting::new(
    "kafka.log.retention.hours",
    "FLOE_KAFKA_LOG_RETENTION_HOURS",
    Integer { min: -1, max: i32::MAX as i64 },
    Fixed("168"),
    "The same in hours.",
)
.unit("h");
pub(super) const LOG_RETENTION_BYTES: Setting = Setting::new(
    "kafka.log.retention.bytes",
    "FLOE_KAFKA_LOG_RETENTION_BYTES",
    Integer { min: -1, max: i64::MAX },
    Fixed("-1"),
    "So much is kept of each partition of topics without a retention.bytes of their own; -1 for \
     all.",
)
.unit("bytes");
pub(super) const LOG_RETENTION_CHECK_INTERVAL_MS: Setting = Setting::new(
    "kafka.log.retention.check.interval.ms",
    "FLOE_KAFKA_LOG_RETENTION_CHECK_INTERVAL_MS",
    Integer { min: CHECK_INTERVAL_MS_MIN, max: CHECK_INTERVAL_MS_MAX },
    Fixed("300000"),
    "Pause between two rounds of retention, so how much later than asked records go.",
)
.unit("ms");
pub(super) const LOG_HOLD_MS: Setting = Setting::new(
    "iceberg.log_hold_ms",
    "FLOE_ICEBERG_LOG_HOLD_MS",
    Integer { min: 0, max: i64::MAX },
    Fixed("86400000"),
    "Records that are not in their table yet stay in the log for so long beyond retention.ms. Then \
     they go, and the table has a gap.",
)
.unit("ms");
pub(super) const LOG_HOLD_BYTES: Setting = Setting::new(
    "iceberg.log_hold_bytes",
    "FLOE_ICEBERG_LOG_HOLD_BYTES",
    Integer { min: 0, max: i64::MAX },
    Fixed("1073741824"),
    "Records that are not in their table yet stay in the log while a partition has no more than \
     so much beyond retention.bytes. Then they go, and the table has a gap.",
)
.unit("bytes");

/// How long the log keeps records by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRetention {
    /// `log.retention.ms`
    pub ms: Option<i64>,
    /// `log.retention.minutes`
    pub minutes: Option<i64>,
    /// `log.retention.hours`
    pub hours: i64,
    /// `log.retention.bytes`; below 0 for no bound.
    pub bytes: i64,
    /// `log.retention.check.interval.ms`
    pub check_interval: Duration,
}

impl LogRetention {
    /// As if nothing was set.
    #[cfg(test)]
    pub(crate) const PRESET: Self = Self {
        ms: None,
        minutes: None,
        hours: 168,
        bytes: -1,
        check_interval: Duration::from_secs(300),
    };

    /// How long records are kept, ms, by the first of the three that is set; -1 for ever.
    pub fn time_ms(&self) -> i64 {
        let minutes = || self.minutes.map(|minutes| in_ms(minutes, MINUTE_MS));
        self.ms.or_else(minutes).unwrap_or_else(|| in_ms(self.hours, HOUR_MS))
    }
}

/// Negative stays -1, whatever the unit.
fn in_ms(time: i64, unit_ms: i64) -> i64 {
    if time < 0 { -1 } else { time.saturating_mul(unit_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finest_unit_that_is_set_counts() {
        let hours = LogRetention::PRESET;
        let minutes = LogRetention { minutes: Some(2), ..hours };
        let ms = LogRetention { ms: Some(7), ..minutes };
        let of = |retention: LogRetention| retention.time_ms();
        assert_eq!((of(hours), of(minutes), of(ms)), (604_800_000, 120_000, 7));
        let for_ever = LogRetention { ms: Some(-1), ..minutes };
        assert_eq!(of(for_ever), -1);
        assert_eq!(of(LogRetention { hours: -1, ..hours }), -1);
        assert_eq!(of(LogRetention { minutes: Some(-1), ..hours }), -1);
    }
}
