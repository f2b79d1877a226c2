//! The broker's own settings as DescribeConfigs answers them, under Kafka's names: those that tools
//! read, and every setting that a topic config falls back to. All are read-only: they are set where
//! the broker is started.

use crate::broker::Identity;
use crate::config::{Config, StoreLocation};
use crate::described_config::ConfigType::{Boolean, Int, List, Long, String as Text};
use crate::described_config::{ConfigSource, ConfigType, DescribedConfig, Synonym};
use crate::topic_configs::{RETENTION_HOURS, ServerValues, TOPIC_CONFIGS, inherited_from};
use std::time::Duration;

/// All settings of the broker, by name.
pub(crate) fn describe(config: &Config, identity: &Identity) -> Vec<DescribedConfig> {
    let mut described = own(config, identity);
    described.extend(kafkas(config));
    described.extend(of_groups(config));
    described.extend(retention(config));
    described.extend(cleaner(config));
    described.extend(behind_topic_configs(config, &described));
    described.sort_by_key(|config| config.name);
    described
}

/// Where everything is.
pub(crate) fn log_dir(config: &Config) -> String {
    match &config.store.location {
        StoreLocation::Directory(path) => path.display().to_string(),
        StoreLocation::Remote { cloud, bucket, prefix } => {
            format!("{}://{bucket}/{prefix}", cloud.scheme())
        }
    }
}

/// A setting with its default; `None` for none.
fn setting(
    name: &'static str,
    kind: ConfigType,
    value: Option<String>,
    default: Option<&str>,
    documentation: &str,
) -> DescribedConfig {
    let is_default = value.as_deref() == default;
    let mut synonyms = Vec::new();
    if let Some(value) = value.clone().filter(|_| !is_default) {
        synonyms.push(Synonym { name, value, source: ConfigSource::StaticBroker });
    }
    if let Some(default) = default {
        let value = default.to_owned();
        synonyms.push(Synonym { name, value, source: ConfigSource::Default });
    }
    DescribedConfig {
        name,
        value,
        source: if is_default { ConfigSource::Default } else { ConfigSource::StaticBroker },
        kind,
        is_read_only: true,
        synonyms,
        documentation: documentation.to_owned(),
    }
}

/// Who and where the broker is.
fn own(config: &Config, identity: &Identity) -> Vec<DescribedConfig> {
    let advertised = format!("PLAINTEXT://{}:{}", identity.host, identity.port);
    let listener = format!("PLAINTEXT://{}", config.listen.kafka);
    let id = || Some(identity.node_id.to_string());
    let id_doc = "Id of this broker.";
    vec![
        setting("advertised.listeners", List, Some(advertised), None, "Where clients connect to."),
        setting("broker.id", Int, id(), Some("-1"), id_doc),
        setting("broker.rack", Text, identity.rack.clone(), None, "Zone of this broker."),
        setting("listeners", List, Some(listener), None, "Where this broker listens."),
        setting("log.dirs", List, Some(log_dir(config)), None, "The object store."),
        setting("node.id", Int, id(), None, id_doc),
    ]
}

/// Settings that Floe has from Kafka.
fn kafkas(config: &Config) -> Vec<DescribedConfig> {
    let kafka = &config.kafka;
    let flag = |name, value: bool, doc: &str| {
        setting(name, Boolean, Some(value.to_string()), Some("true"), doc)
    };
    let idle = ms(kafka.connections_max_idle).to_string();
    vec![
        flag("auto.create.topics.enable", kafka.auto_create_topics, "Makes topics on first use."),
        flag("delete.topic.enable", kafka.delete_topic, "Lets clients delete topics."),
        setting(
            "connections.max.idle.ms",
            Long,
            Some(idle),
            Some("600000"),
            "A connection without a request for so long is closed, ms.",
        ),
        int(
            "default.replication.factor",
            kafka.default_replication_factor.into(),
            "1",
            "Replication factor that is shown for topics made without one. It has no effect: the \
             object store keeps the data.",
        ),
        int(
            "num.partitions",
            kafka.num_partitions.into(),
            "1",
            "Partitions of a topic that is made without a number of its own.",
        ),
        int(
            "producer.id.expiration.ms",
            ms(kafka.producer_id_expiration),
            "86400000",
            "How long a producer that writes no more is remembered, ms.",
        ),
        int(
            "transaction.max.timeout.ms",
            ms(kafka.transaction_max_timeout),
            "900000",
            "Longest time-out that a transactional producer may ask for, ms.",
        ),
        int(
            "transactional.id.expiration.ms",
            ms(kafka.transactional_id_expiration),
            "604800000",
            "How long a transactional id that nobody uses is remembered, ms.",
        ),
        int(
            "socket.request.max.bytes",
            kafka.socket_request_max_bytes.into(),
            "104857600",
            "Largest request, bytes.",
        ),
    ]
}

/// Settings of groups that Floe has from Kafka.
fn of_groups(config: &Config) -> Vec<DescribedConfig> {
    let kafka = &config.kafka;
    let mut described = of_consumer_groups(config);
    described.extend([
        int(
            "group.initial.rebalance.delay.ms",
            ms(kafka.group_initial_rebalance_delay),
            "3000",
            "How long an empty group waits for more members, ms.",
        ),
        int(
            "group.max.session.timeout.ms",
            ms(kafka.group_max_session_timeout),
            "1800000",
            "Longest session timeout that a member may ask for, ms.",
        ),
        int(
            "group.min.session.timeout.ms",
            ms(kafka.group_min_session_timeout),
            "6000",
            "Shortest session timeout that a member may ask for, ms.",
        ),
        int(
            "offsets.retention.minutes",
            ms(kafka.offsets_retention) / 60_000,
            "10080",
            "How long offsets of a group without members are kept, min.",
        ),
    ]);
    described
}

/// Settings of groups of the newer protocol.
fn of_consumer_groups(config: &Config) -> Vec<DescribedConfig> {
    let kafka = &config.kafka;
    vec![
        int(
            "group.consumer.assignment.interval.ms",
            ms(kafka.group_consumer_assignment_interval),
            "1000",
            "The least time between two assignments of a consumer group, ms.",
        ),
        setting(
            "group.consumer.assignors",
            List,
            Some("uniform,range".to_owned()),
            Some("uniform,range"),
            "The assignors that members may ask for; the first is the default.",
        ),
        int(
            "group.consumer.heartbeat.interval.ms",
            ms(kafka.group_consumer_heartbeat_interval),
            "5000",
            "How often members of consumer groups are told to send heartbeats, ms.",
        ),
        int(
            "group.consumer.max.size",
            i64::try_from(kafka.group_consumer_max_size).unwrap_or(i64::MAX),
            "2147483647",
            "Members that a consumer group may have.",
        ),
        setting(
            "group.consumer.migration.policy",
            Text,
            Some(kafka.group_consumer_migration_policy.name().to_owned()),
            Some("bidirectional"),
            "Whether a group with members may change its protocol.",
        ),
        int(
            "group.consumer.session.timeout.ms",
            ms(kafka.group_consumer_session_timeout),
            "45000",
            "A member of a consumer group is removed after so long in silence, ms.",
        ),
    ]
}

fn int(name: &'static str, value: i64, default: &str, doc: &str) -> DescribedConfig {
    setting(name, Int, Some(value.to_string()), Some(default), doc)
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Kafka's three names for `retention.ms`, and how often it is looked at.
fn retention(config: &Config) -> Vec<DescribedConfig> {
    let set = &config.kafka.log_retention;
    let doc = |unit: &str| format!("How long records are kept, {unit}; -1 for ever.");
    let text = |number: Option<i64>| number.map(|number| number.to_string());
    let hours = Some(set.hours.to_string());
    let mut described = vec![
        setting("log.retention.hours", Int, hours, Some(RETENTION_HOURS), &doc("h")),
        setting("log.retention.minutes", Int, text(set.minutes), None, &doc("min")),
        setting("log.retention.ms", Long, text(set.ms), None, &doc("ms")),
    ];
    // One that is set stands before those that it hides.
    for config in described.iter_mut().filter(|config| config.value.is_some()) {
        let all = inherited_from(set).into_iter();
        let from_it_on: Vec<Synonym> = all.skip_while(|one| one.name != config.name).collect();
        if !from_it_on.is_empty() {
            config.synonyms = from_it_on;
        }
    }
    let interval = ms(set.check_interval).to_string();
    let doc = "Pause between two looks for records that are over, ms.";
    let name = "log.retention.check.interval.ms";
    described.push(setting(name, Long, Some(interval), Some("300000"), doc));
    described
}

/// Compaction.
fn cleaner(config: &Config) -> Vec<DescribedConfig> {
    let set = &config.kafka.log_cleaner;
    let (backoff, enable) = (ms(set.backoff).to_string(), set.enable.to_string());
    let buffer = set.dedupe_buffer_bytes.to_string();
    let doc = "Pause between two looks for partitions that are worth compacting, ms.";
    let keys = "Memory for the keys of one pass, bytes.";
    vec![
        setting("log.cleaner.backoff.ms", Long, Some(backoff), Some("15000"), doc),
        setting("log.cleaner.dedupe.buffer.size", Long, Some(buffer), Some("134217728"), keys),
        setting("log.cleaner.enable", Boolean, Some(enable), Some("true"), "Compacts topics."),
        int("log.cleaner.threads", 1, "1", "Partitions that are compacted at the same time."),
    ]
}

/// The settings that topic configs fall back to, but for those that are there already.
fn behind_topic_configs(config: &Config, there: &[DescribedConfig]) -> Vec<DescribedConfig> {
    let server = ServerValues::of(config);
    let named = TOPIC_CONFIGS.iter().filter_map(|topic| Some((topic.server_name?, topic)));
    let new = named.filter(|(name, _)| there.iter().all(|config| config.name != *name));
    let described = new.map(|(name, topic)| {
        let doc = format!("What a topic without a {} of its own has.", topic.name);
        let doc = format!("{doc} {}", topic.documentation());
        let value = Some(server.value(topic));
        setting(name, topic.kind.config_type(), value, Some(topic.default), &doc)
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Given, Inputs, Machine, resolve};
    use kfs::ClusterId;
    use std::collections::{BTreeMap, BTreeSet};
    use uuid::Uuid;

    fn config(set: &[(&str, &str)]) -> Config {
        let given = |(name, value): &(&str, &str)| Given {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            flag: "--set".to_owned(),
        };
        let inputs = Inputs {
            flags: set.iter().map(given).collect(),
            environment: BTreeMap::new(),
            file: None,
            machine: Machine { memory_bytes: 4 << 30 },
        };
        Config::from_resolved(&resolve(&inputs).unwrap()).unwrap()
    }

    fn identity() -> Identity {
        Identity {
            cluster: ClusterId(Uuid::nil()),
            node_id: 7,
            host: "broker.example".to_owned(),
            port: 9092,
            rack: None,
        }
    }

    fn told(described: &[DescribedConfig], name: &str) -> (Option<String>, i8, i8) {
        let config = described.iter().find(|config| config.name == name).unwrap();
        (config.value.clone(), config.kind as i8, config.source as i8)
    }

    #[test]
    fn what_tools_read_is_there_with_kafkas_types() {
        let set = [("kafka.num.partitions", "6"), ("kafka.message.max.bytes", "2000000")];
        let described = describe(&config(&set), &identity());
        let text = |text: &str| Some(text.to_owned());
        for (name, expected) in [
            ("num.partitions", (text("6"), 3, 4)),
            ("default.replication.factor", (text("1"), 3, 5)),
            ("auto.create.topics.enable", (text("true"), 1, 5)),
            ("delete.topic.enable", (text("true"), 1, 5)),
            ("log.retention.ms", (None, 5, 5)),
            ("log.retention.hours", (text("168"), 3, 5)),
            ("log.retention.bytes", (text("-1"), 5, 5)),
            ("log.cleanup.policy", (text("delete"), 7, 5)),
            ("message.max.bytes", (text("2000000"), 3, 4)),
            ("min.insync.replicas", (text("1"), 3, 5)),
            ("offsets.retention.minutes", (text("10080"), 3, 5)),
            ("compression.type", (text("producer"), 2, 5)),
            ("broker.rack", (None, 2, 5)),
            ("broker.id", (text("7"), 3, 4)),
            ("node.id", (text("7"), 3, 4)),
            ("advertised.listeners", (text("PLAINTEXT://broker.example:9092"), 7, 4)),
        ] {
            assert_eq!(told(&described, name), expected, "{name}");
        }
        assert!(told(&described, "log.dirs").0.is_some_and(|dir| !dir.is_empty()));
    }

    #[test]
    fn names_are_sorted_and_there_once() {
        let described = describe(&config(&[]), &identity());
        let names: BTreeSet<&str> = described.iter().map(|config| config.name).collect();
        assert_eq!(names.len(), described.len());
        assert!(described.is_sorted_by_key(|config| config.name));
        assert!(described.iter().all(|config| config.is_read_only));
    }

    #[test]
    fn log_retention_is_told_with_what_it_hides() {
        let set = [("kafka.log.retention.minutes", "2"), ("kafka.log.retention.bytes", "9")];
        let described = describe(&config(&set), &identity());
        let find = |name: &str| described.iter().find(|config| config.name == name).unwrap();
        let synonyms = |name: &str| {
            let synonyms = find(name).synonyms.iter();
            synonyms.map(|one| (one.name, one.value.as_str(), one.source as i8)).collect::<Vec<_>>()
        };
        let hours = ("log.retention.hours", "168", 5);
        let minutes = vec![("log.retention.minutes", "2", 4), hours];
        assert_eq!(synonyms("log.retention.minutes"), minutes);
        assert_eq!(synonyms("log.retention.hours"), [hours]);
        assert!(synonyms("log.retention.ms").is_empty());
        assert_eq!(told(&described, "log.retention.bytes"), (Some("9".to_owned()), 5, 4));
        let interval = (Some("300000".to_owned()), 5, 5);
        assert_eq!(told(&described, "log.retention.check.interval.ms"), interval);
    }

    #[test]
    fn the_log_dir_names_a_remote_store() {
        let config = config(&[("store.url", "s3://bucket/floe")]);
        assert_eq!(log_dir(&config), "s3://bucket/floe");
    }
}
