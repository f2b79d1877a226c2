//! Topic configs: one table, from which everything else follows.
//!
//! [`table::TOPIC_CONFIGS`] names each config once, with Kafka's name, type, default and the name
//! of the broker's setting behind it, and says what Floe does with it. [`check`] is the only way
//! for a config into a topic; [`change`](incremental) computes what IncrementalAlterConfigs asks
//! for; [`describe`] is what DescribeConfigs and CreateTopics answer; [`terms`] is
//! what retention keeps, [`compaction_terms`] how a topic is compacted; `page` makes
//! `docs/topic-configs.md`.
//!
//! Nothing is claimed silently: what is not acted on says so in its documentation, and a value that
//! would be wrong to accept is refused.

mod change;
mod check;
mod compaction;
mod describe;
#[cfg(test)]
mod page;
mod retention;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use change::{Operation, RequestedChange, incremental, replacement};
pub(crate) use check::check;
pub(crate) use compaction::compaction_terms;
pub(crate) use describe::describe;
pub(crate) use retention::{RETENTION_HOURS, inherited_from, terms};
pub(crate) use table::{TOPIC_CONFIGS, TopicConfig};

use crate::config::{Config, LogRetention};

/// The broker's settings that topics fall back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerValues {
    /// `message.max.bytes`, bytes.
    pub(crate) message_max_bytes: i32,
    /// `log.retention.*`
    pub(crate) log_retention: LogRetention,
    /// `iceberg.enable`: whether there are tables at all.
    pub(crate) iceberg_enable: bool,
    /// Whether the topic has a table where it does not say so itself, see
    /// `iceberg.exclude_topics`.
    pub(crate) table_by_default: bool,
}

impl ServerValues {
    /// Those of a configuration, for most topics.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            message_max_bytes: config.kafka.message_max_bytes,
            log_retention: config.kafka.log_retention,
            iceberg_enable: config.iceberg.enable,
            table_by_default: config.iceberg.enable,
        }
    }

    /// Those of a configuration, for a topic of this name.
    pub(crate) fn of_topic(config: &Config, topic: &str) -> Self {
        let is_excluded = config.iceberg.exclude_topics.matches(topic);
        Self { table_by_default: config.iceberg.enable && !is_excluded, ..Self::of(config) }
    }

    /// What a topic has that does not set `config` itself.
    pub(crate) fn value(&self, config: &TopicConfig) -> String {
        match config.name {
            table::MAX_MESSAGE_BYTES => self.message_max_bytes.to_string(),
            table::RETENTION_MS => self.log_retention.time_ms().to_string(),
            table::RETENTION_BYTES => self.log_retention.bytes.to_string(),
            table::ICEBERG_ENABLE => self.table_by_default.to_string(),
            _ => config.default.to_owned(),
        }
    }
}
