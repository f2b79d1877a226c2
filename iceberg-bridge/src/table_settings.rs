//! What a topic's settings ask of its table.

use crate::encode::ValueFormat;
use std::collections::BTreeMap;

/// Topic setting: whether the topic has a table.
pub const ENABLE_CONFIG: &str = "iceberg.enable";
/// Topic setting: how values become rows, `auto` or `raw`.
pub const VALUE_FORMAT_CONFIG: &str = "iceberg.value.format";
/// Topic setting: the age at which rows leave the table, ms; -1 for never.
pub const RETENTION_CONFIG: &str = "iceberg.retention.ms";

/// The settings of one table. Configs are checked when they are set; what makes no sense all the
/// same counts as not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSettings {
    /// The topic wants a table.
    pub(crate) is_enabled: bool,
    pub(crate) value_format: ValueFormat,
    /// Age at which rows leave the table, ms; `None` for never.
    pub(crate) retention_ms: Option<i64>,
}

impl Default for TableSettings {
    fn default() -> Self {
        Self { is_enabled: true, value_format: ValueFormat::Auto, retention_ms: None }
    }
}

impl TableSettings {
    /// Of a topic's configs; `by_default` is whether it has a table if it does not say so itself.
    pub(crate) fn of(configs: &BTreeMap<String, String>, by_default: bool) -> Self {
        let config = |name: &str| configs.get(name).map(|value| value.trim());
        let is_enabled =
            config(ENABLE_CONFIG).map_or(by_default, |value| value.eq_ignore_ascii_case("true"));
        let value_format = match config(VALUE_FORMAT_CONFIG) {
            Some("raw") => ValueFormat::Raw,
            _ => ValueFormat::Auto,
        };
        let retention = config(RETENTION_CONFIG).and_then(|value| value.parse().ok());
        let retention_ms = retention.filter(|retention_ms| *retention_ms >= 0);
        Self { is_enabled, value_format, retention_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_says_what_its_table_is_to_be() {
        let of = |pairs: &[(&str, &str)], by_default| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            TableSettings::of(&pairs.collect(), by_default)
        };
        assert_eq!(of(&[], true), TableSettings::default());
        assert!(!of(&[], false).is_enabled);
        assert!(of(&[(ENABLE_CONFIG, "TRUE")], false).is_enabled);
        assert!(!of(&[(ENABLE_CONFIG, "false")], true).is_enabled);
        assert_eq!(of(&[(VALUE_FORMAT_CONFIG, "raw")], true).value_format, ValueFormat::Raw);
        for (text, retention_ms) in [("-1", None), ("0", Some(0)), (" 5 ", Some(5)), ("x", None)] {
            assert_eq!(of(&[(RETENTION_CONFIG, text)], true).retention_ms, retention_ms);
        }
    }
}
