//! A topic's configs with their values and where those come from.

use super::retention::inherited_from;
use super::table::RETENTION_MS;
use super::{ServerValues, TOPIC_CONFIGS, TopicConfig};
use crate::described_config::{ConfigSource, DescribedConfig, Synonym};
use std::collections::BTreeMap;

/// All configs of a topic that sets `configs` itself.
pub(crate) fn describe(
    configs: &BTreeMap<String, String>,
    server: ServerValues,
) -> Vec<DescribedConfig> {
    let shown =
        TOPIC_CONFIGS.iter().filter(|config| config.is_listed || configs.contains_key(config.name));
    shown.map(|config| entry(config, configs.get(config.name), server)).collect()
}

fn entry(config: &TopicConfig, set: Option<&String>, server: ServerValues) -> DescribedConfig {
    let inherited = server.value(config);
    let inherited_source = if inherited == config.default {
        ConfigSource::Default
    } else {
        ConfigSource::StaticBroker
    };
    let mut synonyms = Vec::new();
    if let Some(value) = set {
        synonyms.push(Synonym {
            name: config.name,
            value: value.clone(),
            source: ConfigSource::Topic,
        });
    }
    if let Some(name) = config.server_name {
        if inherited_source == ConfigSource::StaticBroker {
            synonyms.push(Synonym { name, value: inherited.clone(), source: inherited_source });
        }
        let value = config.default.to_owned();
        synonyms.push(Synonym { name, value, source: ConfigSource::Default });
    }
    if config.name == RETENTION_MS {
        synonyms.extend(inherited_from(&server.log_retention));
    }
    DescribedConfig {
        name: config.name,
        value: Some(set.cloned().unwrap_or(inherited)),
        source: if set.is_some() { ConfigSource::Topic } else { inherited_source },
        kind: config.kind.config_type(),
        is_read_only: false,
        synonyms,
        documentation: config.documentation(),
    }
}
