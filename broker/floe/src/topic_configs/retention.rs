//! What a topic's configs keep of its log, and where `retention.ms` comes from.

use super::ServerValues;
use super::table::{CLEANUP_POLICY, ICEBERG_ENABLE, RETENTION_BYTES, RETENTION_MS};
use super::value::parts;
use crate::config::LogRetention;
use crate::described_config::{ConfigSource, Synonym};
use floe_log::RetentionTerms;
use std::collections::BTreeMap;

/// `log.retention.hours` where nobody sets it.
pub(crate) const RETENTION_HOURS: &str = "168";

/// What retention keeps of a topic with these configs. Configs are checked when they are set; what
/// is no number all the same keeps everything.
pub(crate) fn terms(configs: &BTreeMap<String, String>, server: ServerValues) -> RetentionTerms {
    let text = |name: &str| configs.get(name).map(|value| value.trim());
    let has_table = text(ICEBERG_ENABLE).map_or(server.table_by_default, |value| value == "true");
    let is_deleted = text(CLEANUP_POLICY).is_none_or(|policy| parts(policy).contains(&"delete"));
    if !is_deleted {
        return RetentionTerms::default();
    }
    let number = |name: &str, inherited: i64| {
        text(name).map_or(Some(inherited), |value| value.parse::<i64>().ok())
    };
    let time_ms = number(RETENTION_MS, server.log_retention.time_ms());
    let bytes = number(RETENTION_BYTES, server.log_retention.bytes);
    RetentionTerms {
        time_ms: time_ms.filter(|time_ms| *time_ms >= 0),
        bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()),
        has_table: has_table && server.iceberg_enable,
    }
}

/// The broker's settings that say a topic's `retention.ms`, nearest first; none where nobody has
/// set one, as in Kafka.
pub(crate) fn inherited_from(set: &LogRetention) -> Vec<Synonym> {
    let hours = Some(set.hours.to_string()).filter(|hours| hours != RETENTION_HOURS);
    let given = [
        ("log.retention.ms", set.ms.map(|ms| ms.to_string())),
        ("log.retention.minutes", set.minutes.map(|minutes| minutes.to_string())),
        ("log.retention.hours", hours),
    ];
    let source = ConfigSource::StaticBroker;
    let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let mut from: Vec<Synonym> =
        given.map(|(name, value)| Synonym { name, value, source }).collect();
    if !from.is_empty() {
        let (value, source) = (RETENTION_HOURS.to_owned(), ConfigSource::Default);
        from.push(Synonym { name: "log.retention.hours", value, source });
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: ServerValues = ServerValues {
        message_max_bytes: 1,
        log_retention: LogRetention::PRESET,
        iceberg_enable: true,
        table_by_default: true,
    };

    fn of(pairs: &[(&str, &str)], server: ServerValues) -> RetentionTerms {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        terms(&pairs.collect(), server)
    }

    #[test]
    fn a_topic_says_it_itself_or_has_what_the_broker_says() {
        let week = RetentionTerms { time_ms: Some(604_800_000), bytes: None, has_table: true };
        assert_eq!(of(&[], SERVER), week);
        let set = [("retention.ms", "5"), ("retention.bytes", "0"), ("iceberg.enable", "false")];
        let both = RetentionTerms { time_ms: Some(5), bytes: Some(0), has_table: false };
        assert_eq!(of(&set, SERVER), both);
        let log_retention = LogRetention { ms: Some(-1), bytes: 9, ..SERVER.log_retention };
        let server = ServerValues { log_retention, table_by_default: false, ..SERVER };
        let bytes = RetentionTerms { time_ms: None, bytes: Some(9), has_table: false };
        assert_eq!(of(&[], server), bytes);
        let none = of(&[("retention.bytes", "-7")], server);
        assert!(none.keeps_all());
        assert!(!of(&[("iceberg.enable", "true")], SERVER).keeps_all());
        let without = ServerValues { iceberg_enable: false, ..SERVER };
        assert!(!of(&[("iceberg.enable", "true")], without).has_table);
    }

    #[test]
    fn only_a_policy_that_deletes_lets_something_go() {
        for (policy, keeps_all) in
            [("delete", false), ("compact,delete", false), ("compact", true), ("", true)]
        {
            let pairs = [("cleanup.policy", policy), ("retention.ms", "1")];
            assert_eq!(of(&pairs, SERVER).keeps_all(), keeps_all, "{policy}");
        }
    }
}
