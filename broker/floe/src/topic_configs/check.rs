//! Whether configs may be set on a topic.

use super::table::{
    ICEBERG_ENABLE, MAX_COMPACTION_LAG_MS, MIN_COMPACTION_LAG_MS, TOPIC_CONFIGS, topic_config,
};
use super::{ServerValues, TopicConfig};
use crate::config::nearest;
use std::collections::BTreeMap;

/// Checks all configs that a topic is to have, and gives each value its plain form.
///
/// # Errors
/// What is wrong with the first bad one, in Kafka's words where it has some.
pub(crate) fn check(
    configs: BTreeMap<String, String>,
    server: ServerValues,
) -> Result<BTreeMap<String, String>, String> {
    if let Some(unknown) = configs.keys().find(|name| topic_config(name).is_none()) {
        return Err(unknown_name(unknown));
    }
    let mut checked = BTreeMap::new();
    for (name, text) in configs {
        let Some(config) = topic_config(&name) else { continue };
        let value = config.parse(&text)?;
        check_served(config, &value, server)?;
        checked.insert(name, value);
    }
    check_lags(&checked)?;
    Ok(checked)
}

fn unknown_name(name: &str) -> String {
    let names = TOPIC_CONFIGS.iter().map(|config| config.name);
    let hint = nearest(name, names).map(|near| format!("; did you mean '{near}'?"));
    format!("Unknown topic config name: {name}{}", hint.unwrap_or_default())
}

/// Refuses values whose effect a client would wait for in vain.
fn check_served(config: &TopicConfig, value: &str, server: ServerValues) -> Result<(), String> {
    let refused =
        |why: &str| Err(format!("Invalid value {value} for configuration {}: {why}", config.name));
    match config.only_default {
        Some(why) if value != config.default => refused(why),
        _ if config.name == ICEBERG_ENABLE && value == "true" && !server.iceberg_enable => {
            refused("this broker keeps no tables, as its setting iceberg.enable says")
        }
        _ => Ok(()),
    }
}

fn check_lags(configs: &BTreeMap<String, String>) -> Result<(), String> {
    let lag = |name: &str| configs.get(name).and_then(|value| value.parse::<i64>().ok());
    let (Some(min), Some(max)) = (lag(MIN_COMPACTION_LAG_MS), lag(MAX_COMPACTION_LAG_MS)) else {
        return Ok(());
    };
    if min <= max {
        return Ok(());
    }
    Err(format!(
        "conflict topic config setting {MIN_COMPACTION_LAG_MS} ({min}) > \
         {MAX_COMPACTION_LAG_MS} ({max})"
    ))
}
