//! What a topic's configs say of compaction.

use super::ServerValues;
use super::table::{
    CLEANUP_POLICY, DELETE_RETENTION_MS, ICEBERG_ENABLE, MAX_COMPACTION_LAG_MS,
    MIN_CLEANABLE_DIRTY_RATIO, MIN_COMPACTION_LAG_MS, topic_config,
};
use super::value::parts;
use floe_log::CompactionTerms;
use std::collections::BTreeMap;
use std::str::FromStr;

/// How a topic with these configs is compacted; `None` where it is not, and where a config is no
/// number all the same: configs are checked when they are set.
pub(crate) fn compaction_terms(
    configs: &BTreeMap<String, String>,
    server: ServerValues,
) -> Option<CompactionTerms> {
    let text = |name: &str| configs.get(name).map(|value| value.trim());
    if !parts(text(CLEANUP_POLICY)?).contains(&"compact") {
        return None;
    }
    let has_table = text(ICEBERG_ENABLE).map_or(server.table_by_default, |value| value == "true");
    Some(CompactionTerms {
        dirty_ratio_min: number(configs, MIN_CLEANABLE_DIRTY_RATIO)?,
        lag_ms_min: number(configs, MIN_COMPACTION_LAG_MS)?,
        lag_ms_max: number(configs, MAX_COMPACTION_LAG_MS)?,
        delete_retention_ms: number(configs, DELETE_RETENTION_MS)?,
        has_table: has_table && server.iceberg_enable,
    })
}

/// The topic's value, or the default.
fn number<T: FromStr>(configs: &BTreeMap<String, String>, name: &str) -> Option<T> {
    let default = || topic_config(name).map(|config| config.default);
    configs.get(name).map(|value| value.trim()).or_else(default)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogRetention;

    const SERVER: ServerValues = ServerValues {
        message_max_bytes: 1,
        log_retention: LogRetention::PRESET,
        iceberg_enable: true,
        table_by_default: true,
    };

    fn of(pairs: &[(&str, &str)], server: ServerValues) -> Option<CompactionTerms> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        compaction_terms(&pairs.collect(), server)
    }

    #[test]
    fn only_a_policy_that_compacts_is_one() {
        for (policy, compacts) in
            [("delete", false), ("compact", true), ("delete,compact", true), ("", false)]
        {
            assert_eq!(of(&[("cleanup.policy", policy)], SERVER).is_some(), compacts, "{policy}");
        }
        assert_eq!(of(&[], SERVER), None);
    }

    #[test]
    fn what_is_not_set_has_kafkas_default() {
        let preset = CompactionTerms {
            dirty_ratio_min: 0.5,
            lag_ms_min: 0,
            lag_ms_max: i64::MAX,
            delete_retention_ms: 86_400_000,
            has_table: true,
        };
        assert_eq!(of(&[("cleanup.policy", "compact")], SERVER), Some(preset));
        let set = [
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", " 0.01 "),
            ("min.compaction.lag.ms", "2"),
            ("max.compaction.lag.ms", "3"),
            ("delete.retention.ms", "4"),
            ("iceberg.enable", "false"),
        ];
        let own = CompactionTerms {
            dirty_ratio_min: 0.01,
            lag_ms_min: 2,
            lag_ms_max: 3,
            delete_retention_ms: 4,
            has_table: false,
        };
        assert_eq!(of(&set, SERVER), Some(own));
        let without = ServerValues { iceberg_enable: false, ..SERVER };
        let terms = of(&[("cleanup.policy", "compact"), ("iceberg.enable", "true")], without);
        assert!(terms.is_some_and(|terms| !terms.has_table));
    }
}
