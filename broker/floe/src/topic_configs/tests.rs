use super::value::Kind;
use super::*;
use crate::described_config::{ConfigSource, DescribedConfig};
use crate::text::check_page;
use floe_wire::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};

const SERVER: ServerValues = ServerValues {
    message_max_bytes: 1_048_588,
    log_retention: LogRetention::PRESET,
    iceberg_enable: true,
    table_by_default: true,
};

/// The names that Kafka 4.4.0 answered for a topic, as recorded.
const KAFKA_NAMES: &str = "cleanup.policy compression.gzip.level compression.lz4.level \
    compression.type compression.zstd.level delete.retention.ms \
    errors.deadletterqueue.group.enable file.delete.delay.ms flush.messages flush.ms \
    follower.replication.throttled.replicas index.interval.bytes \
    leader.replication.throttled.replicas local.retention.bytes local.retention.ms \
    max.compaction.lag.ms max.decompressed.message.bytes max.message.bytes \
    message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type \
    min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate \
    remote.copy.lag.bytes remote.copy.lag.ms remote.log.copy.disable \
    remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms segment.bytes \
    segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable";

fn configs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn checked(name: &str, value: &str) -> Result<String, String> {
    check(configs(&[(name, value)]), SERVER).map(|mut configs| configs.remove(name).unwrap())
}

fn named<'a>(described: &'a [DescribedConfig], name: &str) -> &'a DescribedConfig {
    described.iter().find(|config| config.name == name).unwrap()
}

fn change(name: &str, operation: i8, value: Option<&str>) -> RequestedChange {
    RequestedChange {
        name: name.to_owned(),
        operation: Operation::of(operation),
        value: value.map(str::to_owned),
    }
}

#[test]
fn the_page_is_up_to_date() {
    check_page("topic-configs.md", &page::markdown());
}

#[test]
fn the_table_is_sorted_and_its_defaults_are_plain_values() {
    let names: Vec<&str> = TOPIC_CONFIGS.iter().map(|config| config.name).collect();
    assert!(names.is_sorted_by(|left, right| left < right), "{names:?}");
    for config in TOPIC_CONFIGS {
        assert_eq!(config.parse(config.default).as_deref(), Ok(config.default), "{}", config.name);
        assert!(config.doc.ends_with('.'), "{}", config.name);
    }
}

#[test]
fn every_config_of_kafka_is_listed_and_only_our_own_besides() {
    let described = describe(&BTreeMap::new(), SERVER);
    let (ours, kafkas): (Vec<&str>, Vec<&str>) = described
        .iter()
        .map(|config| config.name)
        .partition(|name| name.starts_with("iceberg.") || name.starts_with("floe."));
    assert_eq!(kafkas, KAFKA_NAMES.split_whitespace().collect::<Vec<_>>());
    assert_eq!(ours, ["iceberg.enable", "iceberg.retention.ms", "iceberg.value.format"]);
    assert!(described.iter().all(|config| config.source == ConfigSource::Default));
}

#[test]
fn values_get_their_plain_form() {
    for (name, value, plain) in [
        ("max.message.bytes", " 2000 ", "2000"),
        ("cleanup.policy", "", ""),
        ("cleanup.policy", " delete , compact,delete", "delete,compact"),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("retention.ms", "-1", "-1"),
        ("compression.gzip.level", "-1", "-1"),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("follower.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2"),
        ("iceberg.enable", "False", "false"),
    ] {
        assert_eq!(checked(name, value).as_deref(), Ok(plain), "{name}={value}");
    }
}

#[test]
fn bad_values_are_refused_in_kafkas_words() {
    for (name, value, words) in [
        (
            "retention.ms",
            "abc",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "retention.ms",
            "-2",
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            "cleanup.policy",
            "shred",
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "segment.bytes",
            "100",
            "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "compression.type",
            "rar",
            "Invalid value rar for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "min.insync.replicas",
            "0",
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
        (
            "preallocate",
            "maybe",
            "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        ("no.such", "1", "Unknown topic config name: no.such"),
        ("message.format.version", "2.8", "Unknown topic config name: message.format.version"),
    ] {
        assert_eq!(checked(name, value), Err(words.to_owned()), "{name}={value}");
    }
}

#[test]
fn more_bad_values_are_refused() {
    for (name, value) in [
        ("max.message.bytes", "99999999999"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("leader.replication.throttled.replicas", "0:1,*"),
        ("leader.replication.throttled.replicas", ":1"),
    ] {
        assert!(checked(name, value).unwrap_err().starts_with("Invalid value"), "{name}={value}");
    }
}

#[test]
fn what_is_not_built_is_refused_or_says_so() {
    assert!(checked("remote.storage.enable", "true").unwrap_err().contains("no second tier"));
    assert_eq!(checked("remote.storage.enable", "false").as_deref(), Ok("false"));
    let off = ServerValues { iceberg_enable: false, table_by_default: false, ..SERVER };
    let refused = check(configs(&[("iceberg.enable", "true")]), off).unwrap_err();
    assert!(refused.contains("this broker keeps no tables"), "{refused}");
    let level = named(&describe(&BTreeMap::new(), SERVER), "preallocate").clone();
    assert!(level.documentation.contains("Not acted on by Floe: "));
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest() {
    let message = checked("retention.millis", "1").unwrap_err();
    assert_eq!(
        message,
        "Unknown topic config name: retention.millis; did you mean 'retention.ms'?"
    );
}

#[test]
fn compaction_lags_must_not_cross() {
    let crossed = configs(&[("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")]);
    assert!(check(crossed, SERVER).unwrap_err().contains("(9) > max.compaction.lag.ms (8)"));
    let equal = configs(&[("min.compaction.lag.ms", "8"), ("max.compaction.lag.ms", "8")]);
    assert_eq!(check(equal.clone(), SERVER), Ok(equal));
}

#[test]
fn a_dropped_config_is_taken_and_shown_only_where_it_is_set() {
    let set = check(configs(&[("message.downconversion.enable", "false")]), SERVER).unwrap();
    let shown = describe(&set, SERVER);
    assert_eq!(named(&shown, "message.downconversion.enable").source, ConfigSource::Topic);
    let names: BTreeSet<&str> =
        describe(&BTreeMap::new(), SERVER).iter().map(|config| config.name).collect();
    assert!(!names.contains("message.downconversion.enable"));
}

#[test]
fn sources_and_synonyms_are_those_of_kafka() {
    let told = |config: &DescribedConfig| {
        let synonyms = config.synonyms.iter();
        let synonyms = synonyms.map(|one| (one.name, one.value.clone(), one.source as i8));
        (config.value.clone().unwrap(), config.source as i8, synonyms.collect::<Vec<_>>())
    };
    let text = |text: &str| text.to_owned();
    let server = ServerValues { message_max_bytes: 5000, ..SERVER };
    let set = configs(&[("retention.ms", "1000"), ("cleanup.policy", "compact")]);
    let described = describe(&set, server);
    assert_eq!(
        told(named(&described, "retention.ms")),
        (text("1000"), 1, vec![("retention.ms", text("1000"), 1)])
    );
    assert_eq!(
        told(named(&described, "cleanup.policy")),
        (
            text("compact"),
            1,
            vec![("cleanup.policy", text("compact"), 1), ("log.cleanup.policy", text("delete"), 5)]
        )
    );
    assert_eq!(
        told(named(&described, "max.message.bytes")),
        (
            text("5000"),
            4,
            vec![("message.max.bytes", text("5000"), 4), ("message.max.bytes", text("1048588"), 5)]
        )
    );
    assert_eq!(told(named(&described, "segment.ms")), (text("604800000"), 5, vec![]));
    let defaults = describe(&BTreeMap::new(), SERVER);
    assert_eq!(told(named(&defaults, "retention.ms")), (text("604800000"), 5, vec![]));
    let minutes = LogRetention { minutes: Some(2), bytes: 77, ..LogRetention::PRESET };
    let described = describe(&set, ServerValues { log_retention: minutes, ..SERVER });
    let of_the_broker =
        [("log.retention.minutes", text("2"), 4), ("log.retention.hours", text("168"), 5)];
    assert_eq!(told(named(&described, "retention.ms")).2[1..], of_the_broker);
    let bytes = [("log.retention.bytes", text("77"), 4), ("log.retention.bytes", text("-1"), 5)];
    assert_eq!(told(named(&described, "retention.bytes")), (text("77"), 4, bytes.to_vec()));
    let described = describe(&BTreeMap::new(), ServerValues { log_retention: minutes, ..SERVER });
    let inherited = (text("120000"), 4, of_the_broker.to_vec());
    assert_eq!(told(named(&described, "retention.ms")), inherited);
}

#[test]
fn incremental_operations_work_on_lists() {
    let mut now = BTreeMap::new();
    for (operation, value, after) in [
        (0, Some("compact"), Some("compact")),
        (2, Some("delete"), Some("compact,delete")),
        (2, Some("delete"), Some("compact,delete")),
        (3, Some("compact"), Some("delete")),
        (3, Some("compact"), Some("delete")),
        (1, None, None),
        (1, None, None),
        (2, Some("compact"), Some("delete,compact")),
        (3, Some("compact,delete"), Some("")),
    ] {
        now = incremental(&now, &[change("cleanup.policy", operation, value)], SERVER).unwrap();
        assert_eq!(now.get("cleanup.policy").map(String::as_str), after, "{operation} {value:?}");
    }
}

#[test]
fn incremental_errors_are_those_of_kafka() {
    let current = configs(&[("retention.ms", "5")]);
    for (changes, code, words) in [
        (
            vec![change("no.such", 0, Some("1"))],
            ErrorCode::InvalidConfig,
            "Unknown topic config name: no.such",
        ),
        (
            vec![change("retention.ms", 0, Some("x"))],
            ErrorCode::InvalidConfig,
            "Not a number of type LONG",
        ),
        (
            vec![change("retention.ms", 0, None)],
            ErrorCode::InvalidRequest,
            "Null value not supported for : retention.ms",
        ),
        (
            vec![change("retention.ms", 0, Some("1")), change("retention.ms", 1, None)],
            ErrorCode::InvalidRequest,
            "Error due to duplicate config keys",
        ),
        (
            vec![change("retention.ms", 2, Some("1"))],
            ErrorCode::InvalidConfig,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            vec![change("retention.ms", 3, Some("1"))],
            ErrorCode::InvalidConfig,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (vec![change("retention.ms", 9, Some("1"))], ErrorCode::UnknownServerError, ""),
        (
            vec![change("retention.ms", 0, Some("77")), change("no.such", 0, Some("1"))],
            ErrorCode::InvalidConfig,
            "no.such",
        ),
    ] {
        let refused = incremental(&current, &changes, SERVER).unwrap_err();
        assert_eq!(refused.code, code, "{changes:?}");
        assert!(refused.message.contains(words), "{} <> {words}", refused.message);
    }
    assert_eq!(incremental(&current, &[change("no.such", 1, None)], SERVER), Ok(current.clone()));
    assert_eq!(incremental(&current, &[], SERVER), Ok(current));
}

#[test]
fn a_replacement_is_the_whole_set() {
    let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
    let set = replacement(&[pair("retention.ms", Some("2000"))], SERVER).unwrap();
    assert_eq!(set, configs(&[("retention.ms", "2000")]));
    assert_eq!(replacement(&[], SERVER), Ok(BTreeMap::new()));
    let refused = replacement(&[pair("retention.ms", None)], SERVER).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidRequest);
    let refused = replacement(&[pair("no.such", Some("1"))], SERVER).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidConfig);
}

#[test]
fn kinds_tell_kafkas_types() {
    let number = |name: &str| {
        let config = TOPIC_CONFIGS.iter().find(|config| config.name == name).unwrap();
        config.kind.config_type() as i8
    };
    assert_eq!(number("preallocate"), 1);
    assert_eq!(number("compression.type"), 2);
    assert_eq!(number("compression.gzip.level"), 3);
    assert_eq!(number("retention.ms"), 5);
    assert_eq!(number("min.cleanable.dirty.ratio"), 6);
    assert_eq!(number("leader.replication.throttled.replicas"), 7);
    assert_eq!(Kind::List(&[]).config_type() as i8, 7);
}
