//! Consumer groups of the newer protocol (KIP-848): Kafka's settings.

use super::setting::Kind::{Integer, Text};
use super::setting::Preset::Fixed;
use super::setting::{Kind, Setting};

/// The longest time-out or pause, ms.
const DAY_MS: i64 = 86_400_000;

pub(super) const SESSION_TIMEOUT_MS: Setting = Setting::new(
    "kafka.group.consumer.session.timeout.ms",
    "FLOE_KAFKA_GROUP_CONSUMER_SESSION_TIMEOUT_MS",
    milliseconds(1),
    Fixed("45000"),
    "A member of a consumer group of the newer protocol is removed after so long in silence.",
)
.unit("ms");
pub(super) const HEARTBEAT_INTERVAL_MS: Setting = Setting::new(
    "kafka.group.consumer.heartbeat.interval.ms",
    "FLOE_KAFKA_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS",
    milliseconds(1),
    Fixed("5000"),
    "How often members of such groups are told to send heartbeats; those that wait for \
     partitions, once a second.",
)
.unit("ms");
pub(super) const ASSIGNMENT_INTERVAL_MS: Setting = Setting::new(
    "kafka.group.consumer.assignment.interval.ms",
    "FLOE_KAFKA_GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS",
    milliseconds(0),
    Fixed("1000"),
    "The least time between two assignments of such a group: members that come together share \
     one.",
)
.unit("ms");
pub(super) const MAX_SIZE: Setting = Setting::new(
    "kafka.group.consumer.max.size",
    "FLOE_KAFKA_GROUP_CONSUMER_MAX_SIZE",
    Integer { min: 1, max: i32::MAX as i64 },
    Fixed("2147483647"),
    "Members that such a group may have.",
);
pub(super) const MIGRATION_POLICY: Setting = Setting::new(
    "kafka.group.consumer.migration.policy",
    "FLOE_KAFKA_GROUP_CONSUMER_MIGRATION_POLICY",
    Text,
    Fixed("bidirectional"),
    "Whether a group with members may change its protocol when members of the other one come \
     or go: `bidirectional`, `upgrade` (to the newer one), `downgrade`, `disabled`.",
);

const fn milliseconds(min: i64) -> Kind {
    Integer { min, max: DAY_MS }
}
