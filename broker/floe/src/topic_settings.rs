//! A topic's settings as the produce path needs them: typed once when the topic is read, not for
//! each batch.

use kfs::{Codec, Rules, TimestampRule, TimestampType};
use std::collections::BTreeMap;

/// Kafka's default of `message.timestamp.after.max.ms`: an hour.
const TIMESTAMP_AFTER_MS: i64 = 3_600_000;
/// Kafka's default of `segment.bytes`: 1 GiB.
const SEGMENT_BYTES: usize = 1 << 30;
/// What one batch may decompress to, bytes: far above any honest ratio of a batch that is small
/// enough to be sent.
pub const DECOMPRESSED_BYTES_MAX: usize = 256 << 20;

/// What a topic's batches are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicCodec {
    /// The codec.
    pub codec: Codec,
    /// Its level; `None` for its default.
    pub level: Option<i32>,
}

/// What a topic asks of batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// `max.message.bytes`
    pub message_bytes_max: usize,
    /// `segment.bytes`. A topic has no segments here, but no batch may be larger than one.
    pub segment_bytes: usize,
    /// `message.timestamp.type`
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_ms: i64,
    /// `max.decompressed.message.bytes`, [`DECOMPRESSED_BYTES_MAX`] at most
    pub decompressed_bytes_max: usize,
    /// `compression.type` with its level; `None` for what the producer chose
    pub codec: Option<TopicCodec>,
    /// `cleanup.policy` contains `compact`
    pub is_compacted: bool,
    /// `cleanup.policy` contains `delete`
    pub is_deleted: bool,
}

impl TopicSettings {
    /// The settings of these configs; what is not set, or set to nothing that makes sense, has
    /// Kafka's default, or for `max.message.bytes` the broker's, `message_max_bytes`. Configs are
    /// checked when they are set.
    pub fn of(configs: &BTreeMap<String, String>, message_max_bytes: usize) -> Self {
        let text = |name: &str| configs.get(name).map(|value| value.trim());
        let number = |name: &str, default: i64| {
            text(name).and_then(|value| value.parse::<i64>().ok()).unwrap_or(default)
        };
        let bytes = |name: &str, default: usize| {
            text(name).and_then(|value| value.parse::<usize>().ok()).unwrap_or(default)
        };
        let is_append_time = text("message.timestamp.type") == Some("LogAppendTime");
        let has_policy = |policy: &str| {
            let policies = text("cleanup.policy").unwrap_or("delete");
            policies.split(',').any(|part| part.trim() == policy)
        };
        Self {
            message_bytes_max: bytes("max.message.bytes", message_max_bytes),
            segment_bytes: bytes("segment.bytes", SEGMENT_BYTES),
            timestamp_type: if is_append_time {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            timestamp_before_ms: number("message.timestamp.before.max.ms", i64::MAX),
            timestamp_after_ms: number("message.timestamp.after.max.ms", TIMESTAMP_AFTER_MS),
            decompressed_bytes_max: bytes("max.decompressed.message.bytes", usize::MAX)
                .min(DECOMPRESSED_BYTES_MAX),
            codec: codec(configs),
            is_compacted: has_policy("compact"),
            is_deleted: has_policy("delete"),
        }
    }

    /// The rules for a batch that arrives now.
    pub fn rules(&self, now_ms: i64, zstd_allowed: bool) -> Rules {
        let timestamps = match self.timestamp_type {
            TimestampType::LogAppendTime => TimestampRule::LogAppendTime,
            TimestampType::CreateTime => TimestampRule::CreateTime {
                earliest_ms: now_ms.saturating_sub(self.timestamp_before_ms),
                latest_ms: now_ms.saturating_add(self.timestamp_after_ms),
            },
        };
        Rules {
            batch_bytes_max: self.message_bytes_max,
            decompressed_bytes_max: self.decompressed_bytes_max,
            require_key: self.is_compacted,
            zstd_allowed,
            timestamps,
        }
    }
}

fn codec(configs: &BTreeMap<String, String>) -> Option<TopicCodec> {
    let level = |name: &str| configs.get(name)?.trim().parse::<i32>().ok();
    let (codec, level) = match configs.get("compression.type")?.trim() {
        "uncompressed" => (Codec::None, None),
        // -1 is the codec's own default.
        "gzip" => (Codec::Gzip, level("compression.gzip.level").filter(|level| *level > 0)),
        "snappy" => (Codec::Snappy, None),
        "lz4" => (Codec::Lz4, None),
        "zstd" => (Codec::Zstd, level("compression.zstd.level")),
        _ => return None,
    };
    Some(TopicCodec { codec, level })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> TopicSettings {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TopicSettings::of(&pairs.collect(), 1000)
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let settings = settings(&[]);
        assert_eq!(settings.message_bytes_max, 1000);
        assert_eq!(settings.decompressed_bytes_max, DECOMPRESSED_BYTES_MAX);
        assert_eq!(settings.timestamp_type, TimestampType::CreateTime);
        assert_eq!(settings.timestamp_before_ms, i64::MAX);
        assert_eq!(settings.timestamp_after_ms, 3_600_000);
        assert!(settings.is_deleted && !settings.is_compacted);
    }

    #[test]
    fn what_is_set_counts() {
        let settings = settings(&[
            ("max.message.bytes", "5"),
            ("max.decompressed.message.bytes", "7"),
            ("message.timestamp.type", "LogAppendTime"),
            ("cleanup.policy", "compact"),
        ]);
        assert_eq!((settings.message_bytes_max, settings.decompressed_bytes_max), (5, 7));
        assert_eq!(settings.timestamp_type, TimestampType::LogAppendTime);
        assert!(settings.is_compacted && !settings.is_deleted);
        assert_eq!(settings.rules(0, true).decompressed_bytes_max, 7);
    }

    #[test]
    fn codecs_have_levels_of_their_own() {
        let codec = |pairs: &[(&str, &str)]| {
            settings(pairs).codec.map(|wanted| (wanted.codec, wanted.level))
        };
        let kind = |kind: &'static str| ("compression.type", kind);
        assert_eq!(codec(&[]), None);
        assert_eq!(codec(&[kind("producer")]), None);
        assert_eq!(codec(&[kind("uncompressed")]), Some((Codec::None, None)));
        assert_eq!(codec(&[kind("gzip")]), Some((Codec::Gzip, None)));
        let level = ("compression.gzip.level", "-1");
        assert_eq!(codec(&[kind("gzip"), level]), Some((Codec::Gzip, None)));
        let level = ("compression.gzip.level", "9");
        assert_eq!(codec(&[kind("gzip"), level]), Some((Codec::Gzip, Some(9))));
        let level = ("compression.zstd.level", "-5");
        assert_eq!(codec(&[kind("zstd"), level]), Some((Codec::Zstd, Some(-5))));
        assert_eq!(codec(&[kind("snappy"), level]), Some((Codec::Snappy, None)));
    }

    #[test]
    fn an_empty_policy_neither_deletes_nor_compacts() {
        let settings = settings(&[("cleanup.policy", "")]);
        assert!(!settings.is_compacted && !settings.is_deleted);
    }
}
