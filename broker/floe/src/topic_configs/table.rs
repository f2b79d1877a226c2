//! Every topic config: Kafka's 4.4 list under Kafka's names, and Floe's own.

use super::value::Kind::{self, Bool, Choice, GzipLevel, Int, List, Long, Ratio, Replicas};

pub(super) const ICEBERG_ENABLE: &str = floe_iceberg_bridge::ENABLE_CONFIG;
const ICEBERG_RETENTION: &str = floe_iceberg_bridge::RETENTION_CONFIG;
const ICEBERG_VALUE_FORMAT: &str = floe_iceberg_bridge::VALUE_FORMAT_CONFIG;
pub(super) const CLEANUP_POLICY: &str = "cleanup.policy";
pub(super) const RETENTION_BYTES: &str = "retention.bytes";
pub(super) const RETENTION_MS: &str = "retention.ms";
pub(super) const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
pub(super) const DELETE_RETENTION_MS: &str = "delete.retention.ms";
pub(super) const MIN_CLEANABLE_DIRTY_RATIO: &str = "min.cleanable.dirty.ratio";
pub(super) const MIN_COMPACTION_LAG_MS: &str = "min.compaction.lag.ms";
pub(super) const MAX_COMPACTION_LAG_MS: &str = "max.compaction.lag.ms";

/// The greatest number of 64 bits, which Kafka uses for "never".
const NEVER: &str = "9223372036854775807";

/// Whether a config does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It does what its documentation says.
    Acted,
    /// There is nothing that it could do, because of this.
    Never(&'static str),
}

/// A topic config.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopicConfig {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it takes.
    pub(crate) kind: Kind,
    /// Kafka's default, in its plain form.
    pub(crate) default: &'static str,
    /// The broker's setting that a topic falls back to, where Kafka names one.
    pub(crate) server_name: Option<&'static str>,
    /// What it does.
    pub(crate) doc: &'static str,
    /// Whether it does that here.
    pub(crate) effect: Effect,
    /// Set where only the default is taken: why others are refused.
    pub(crate) only_default: Option<&'static str>,
    /// False for a config that Kafka has dropped: it is shown only where it is set.
    pub(crate) is_listed: bool,
}

impl TopicConfig {
    const fn new(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            default,
            server_name: None,
            doc,
            effect: Effect::Acted,
            only_default: None,
            is_listed: true,
        }
    }

    const fn server(mut self, name: &'static str) -> Self {
        self.server_name = Some(name);
        self
    }

    const fn never(mut self, because: &'static str) -> Self {
        self.effect = Effect::Never(because);
        self
    }

    const fn only_default(mut self, why: &'static str) -> Self {
        self.only_default = Some(why);
        self
    }

    const fn unlisted(mut self) -> Self {
        self.is_listed = false;
        self
    }

    /// What the config does, and whether it does that here.
    pub(crate) fn documentation(&self) -> String {
        match self.effect {
            Effect::Acted => self.doc.to_owned(),
            Effect::Never(because) => format!("{} Not acted on by Floe: {because}.", self.doc),
        }
    }
}

/// The config of this name.
pub(super) fn topic_config(name: &str) -> Option<&'static TopicConfig> {
    TOPIC_CONFIGS.iter().find(|config| config.name == name)
}

const NO_SEGMENT_FILES: &str = "a topic has no segment files of its own";
const NO_REPLICATION: &str =
    "nothing is replicated between brokers, the object store keeps the data";
const NO_SECOND_TIER: &str = "all data is in the object store, there is no second tier";
const NO_FLUSHES: &str = "every acknowledged record is durable";
const NO_SHARE_GROUPS: &str = "there are no share groups";

/// What Kafka takes as `compression.type`.
const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

/// Every topic config, by name.
pub(crate) const TOPIC_CONFIGS: &[TopicConfig] = &[
    TopicConfig::new(
        CLEANUP_POLICY,
        List(&["compact", "delete"]),
        "delete",
        "What becomes of old records: `delete` removes them by age and size, `compact` keeps \
         the last one of each key. A compacted topic takes no record without a key, and one \
         that is only compacted refuses DeleteRecords. With neither, all records are kept.",
    )
    .server("log.cleanup.policy"),
    TopicConfig::new(
        "compression.gzip.level",
        GzipLevel,
        "-1",
        "Level of gzip, where the topic's `compression.type` is gzip.",
    )
    .server("compression.gzip.level"),
    TopicConfig::new(
        "compression.lz4.level",
        Int { min: 1, max: 17 },
        "9",
        "Level of lz4, where the topic's `compression.type` is lz4.",
    )
    .server("compression.lz4.level")
    .never("its lz4 has one level"),
    TopicConfig::new(
        "compression.type",
        Choice(CODECS),
        "producer",
        "Codec of the topic's batches. `producer` stores each as its producer sent it; with any \
         other value a batch of another codec is compressed anew when it arrives, which costs the \
         broker time.",
    )
    .server("compression.type"),
    TopicConfig::new(
        "compression.zstd.level",
        Int { min: -131_072, max: 22 },
        "3",
        "Level of zstd, where the topic's `compression.type` is zstd.",
    )
    .server("compression.zstd.level"),
    TopicConfig::new(
        DELETE_RETENTION_MS,
        Long(0),
        "86400000",
        "How long compaction keeps the record that deletes a key, a tombstone, after it has first \
         passed it, ms.",
    )
    .server("log.cleaner.delete.retention.ms"),
    TopicConfig::new(
        "errors.deadletterqueue.group.enable",
        Bool,
        "false",
        "Allows share groups to use the topic for records that they give up.",
    )
    .never(NO_SHARE_GROUPS),
    TopicConfig::new(
        "file.delete.delay.ms",
        Long(0),
        "60000",
        "How long a deleted segment file is kept, ms.",
    )
    .server("log.segment.delete.delay.ms")
    .never(NO_SEGMENT_FILES),
    TopicConfig::new(
        "flush.messages",
        Long(1),
        NEVER,
        "After how many records the log is forced to disk.",
    )
    .server("log.flush.interval.messages")
    .never(NO_FLUSHES),
    TopicConfig::new("flush.ms", Long(0), NEVER, "After how long the log is forced to disk, ms.")
        .never(NO_FLUSHES),
    TopicConfig::new(
        "follower.replication.throttled.replicas",
        Replicas,
        "",
        "Followers whose replication is throttled.",
    )
    .never(NO_REPLICATION),
    TopicConfig::new(
        ICEBERG_ENABLE,
        Bool,
        "true",
        "Keeps an Iceberg table of the topic. It can be switched off and on again; what was \
         written meanwhile is caught up on. The default is `false` for topics that the broker's \
         setting iceberg.exclude_topics names. Refused as `true` where the broker keeps no \
         tables.",
    )
    .server("iceberg.enable"),
    TopicConfig::new(
        ICEBERG_RETENTION,
        Long(-1),
        "-1",
        "Age at which rows leave the topic's table, ms, by their timestamps; -1 for never. They go \
         in whole files, once a file's newest row is that old. The log has a retention of its own, \
         which takes nothing out of the table.",
    ),
    TopicConfig::new(
        ICEBERG_VALUE_FORMAT,
        Choice(&["auto", "raw"]),
        "auto",
        "What of the topic's table the values become. With `auto` a value that is a JSON object \
         becomes columns, and any other stays in `_kafka_value`; with `raw` all stay there. A \
         change holds for records that are not in the table yet.",
    ),
    TopicConfig::new(
        "index.interval.bytes",
        Int { min: 0, max: i32::MAX },
        "4096",
        "How far apart the entries of a segment file's index are, bytes.",
    )
    .server("log.index.interval.bytes")
    .never(NO_SEGMENT_FILES),
    TopicConfig::new(
        "leader.replication.throttled.replicas",
        Replicas,
        "",
        "Leaders whose replication is throttled.",
    )
    .never(NO_REPLICATION),
    TopicConfig::new(
        "local.retention.bytes",
        Long(-2),
        "-2",
        "How much of the log is kept outside the second tier, bytes; -2 for as much as \
         `retention.bytes`.",
    )
    .server("log.local.retention.bytes")
    .never(NO_SECOND_TIER),
    TopicConfig::new(
        "local.retention.ms",
        Long(-2),
        "-2",
        "How long records are kept outside the second tier, ms; -2 for as long as \
         `retention.ms`.",
    )
    .server("log.local.retention.ms")
    .never(NO_SECOND_TIER),
    TopicConfig::new(
        MAX_COMPACTION_LAG_MS,
        Long(1),
        NEVER,
        "After how long a record is compacted at the latest, ms, however little is uncompacted.",
    )
    .server("log.cleaner.max.compaction.lag.ms"),
    TopicConfig::new(
        "max.decompressed.message.bytes",
        Int { min: 1, max: i32::MAX },
        "2147483639",
        "What the records of one batch may decompress to, bytes. Above 268435456 (256 MiB) it \
         has no effect: that is the limit of every topic.",
    )
    .server("max.decompressed.message.bytes"),
    TopicConfig::new(
        MAX_MESSAGE_BYTES,
        Int { min: 0, max: i32::MAX },
        "1048588",
        "Largest record batch that is accepted, bytes, as it is sent.",
    )
    .server("message.max.bytes"),
    TopicConfig::new(
        "message.downconversion.enable",
        Bool,
        "true",
        "Allowed old consumers to read newer message formats. Kafka has dropped it; it is \
         taken because older tools set it.",
    )
    .never("there is one message format")
    .unlisted(),
    TopicConfig::new(
        "message.timestamp.after.max.ms",
        Long(0),
        "3600000",
        "How far a record's timestamp may be ahead of the broker's clock, ms. Does not count \
         under LogAppendTime.",
    )
    .server("log.message.timestamp.after.max.ms"),
    TopicConfig::new(
        "message.timestamp.before.max.ms",
        Long(0),
        NEVER,
        "How far a record's timestamp may be behind the broker's clock, ms. Does not count \
         under LogAppendTime.",
    )
    .server("log.message.timestamp.before.max.ms"),
    TopicConfig::new(
        "message.timestamp.type",
        Choice(&["CreateTime", "LogAppendTime"]),
        "CreateTime",
        "Whether a record keeps its producer's timestamp or gets the broker's on arrival.",
    )
    .server("log.message.timestamp.type"),
    TopicConfig::new(
        MIN_CLEANABLE_DIRTY_RATIO,
        Ratio,
        "0.5",
        "A partition is compacted once more than this part of its bytes has come since the last \
         time. What its table has not read stays.",
    )
    .server("log.cleaner.min.cleanable.ratio"),
    TopicConfig::new(
        MIN_COMPACTION_LAG_MS,
        Long(0),
        "0",
        "How long a record is not compacted, ms.",
    )
    .server("log.cleaner.min.compaction.lag.ms"),
    TopicConfig::new(
        "min.insync.replicas",
        Int { min: 1, max: i32::MAX },
        "1",
        "How many replicas must have a record before it is acknowledged.",
    )
    .server("min.insync.replicas")
    .never("a record is acknowledged when the object store and the metadata store have it"),
    TopicConfig::new("preallocate", Bool, "false", "Allocates segment files at their full size.")
        .server("log.preallocate")
        .never(NO_SEGMENT_FILES),
    TopicConfig::new(
        "remote.copy.lag.bytes",
        Long(-1),
        "-1",
        "How much may wait to be copied to the second tier, bytes.",
    )
    .server("log.remote.copy.lag.bytes")
    .never(NO_SECOND_TIER),
    TopicConfig::new(
        "remote.copy.lag.ms",
        Long(-1),
        "0",
        "How long a segment may wait to be copied to the second tier, ms.",
    )
    .server("log.remote.copy.lag.ms")
    .never(NO_SECOND_TIER),
    TopicConfig::new("remote.log.copy.disable", Bool, "false", "Stops copying to the second tier.")
        .never(NO_SECOND_TIER),
    TopicConfig::new(
        "remote.log.delete.on.disable",
        Bool,
        "false",
        "Deletes what the second tier has when it is switched off.",
    )
    .never(NO_SECOND_TIER),
    TopicConfig::new(
        "remote.storage.enable",
        Bool,
        "false",
        "Copies the log to a second tier; only `false` is taken.",
    )
    .never(NO_SECOND_TIER)
    .only_default(NO_SECOND_TIER),
    TopicConfig::new(
        RETENTION_BYTES,
        Long(i64::MIN),
        "-1",
        "How much of a partition is kept under `delete`, bytes as stored; -1 for all. The oldest \
         extent goes as long as this much is left without it. An extent is what one segment \
         brought of the partition, or 1 MiB of it once it is merged, so more than this is kept by \
         less than one extent. What the topic's table has not read yet stays longer, see \
         `iceberg.log_hold_bytes`.",
    )
    .server("log.retention.bytes"),
    TopicConfig::new(
        RETENTION_MS,
        Long(-1),
        "604800000",
        "How long records are kept under `delete`, ms by their timestamps; -1 for ever. As in \
         Kafka nothing goes before it is older than this, and nothing behind a record that stays; \
         what goes is a whole extent (what one segment brought of the partition, or 1 MiB of it \
         once it is merged) after its newest record, the newest extent too. A record without a \
         timestamp is as old as the first look at it. One with a timestamp in the future stays \
         until then, and `floe topics` says so. What the topic's table has not read yet stays \
         longer, see `iceberg.log_hold_ms`. The broker's names for it: `log.retention.ms`, \
         `log.retention.minutes` and `log.retention.hours`, the first that is set.",
    ),
    TopicConfig::new(
        "segment.bytes",
        Int { min: 1_048_576, max: i32::MAX },
        "1073741824",
        "The largest batch that the topic takes, bytes, as in Kafka, where a batch must fit into a \
         segment file; a topic has no segment files of its own here.",
    )
    .server("log.segment.bytes"),
    TopicConfig::new(
        "segment.index.bytes",
        Int { min: 4, max: i32::MAX },
        "10485760",
        "Size of a segment file's index, bytes.",
    )
    .server("log.index.size.max.bytes")
    .never(NO_SEGMENT_FILES),
    TopicConfig::new(
        "segment.jitter.ms",
        Long(0),
        "0",
        "By how much the ends of segment files are spread, ms.",
    )
    .never(NO_SEGMENT_FILES),
    TopicConfig::new(
        "segment.ms",
        Long(1),
        "604800000",
        "After how long a segment file is closed, ms.",
    )
    .never(
        "a topic has no segment files of its own, and records need not wait for one to be \
            closed until they go",
    ),
    TopicConfig::new(
        "unclean.leader.election.enable",
        Bool,
        "false",
        "Lets a replica lead that has not all data.",
    )
    .server("unclean.leader.election.enable")
    .never(NO_REPLICATION),
];
