//! `docs/topic-configs.md`, made of the table.

use super::value::Kind;
use super::{TOPIC_CONFIGS, TopicConfig};
use crate::text::wrap;

const INTRODUCTION: &str = "\
<!-- Generated from broker/floe/src/topic_configs/table.rs by its test with UPDATE_DOCS=1; do not
     edit. -->

# Topic configs

Floe takes Kafka's topic configs by their names, with Kafka's types and defaults, when a topic is
made and later through any tool that alters configs. Names that start with `iceberg.` are Floe's
own. An unknown name and a value that is not allowed are refused with `INVALID_CONFIG`.

Not every config of Kafka means something here: there is no replication between brokers, there are
no segment files and no page cache. A config that is taken but does nothing says so below and in the
documentation that DescribeConfigs answers.
";

/// The page about all topic configs, in Markdown.
pub(super) fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for config in TOPIC_CONFIGS {
        page.push_str(&section(config));
    }
    page
}

fn section(config: &TopicConfig) -> String {
    let default = if config.default.is_empty() {
        "Empty by default.".to_owned()
    } else {
        format!("Default: `{}`.", config.default)
    };
    let mut facts = vec![format!("Takes {}.", takes(config)), default];
    if let Some(name) = config.server_name {
        facts.push(format!("The broker's name for it: `{name}`."));
    }
    let (doc, facts) = (wrap(&config.documentation()), wrap(&facts.join(" ")));
    format!("\n## `{}`\n\n{doc}\n\n{facts}\n", config.name)
}

fn takes(config: &TopicConfig) -> String {
    let quoted = |choices: &[&str]| {
        choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
    };
    match config.kind {
        Kind::Bool => "`true` or `false`".to_owned(),
        Kind::Int { min, max: i32::MAX } => format!("a number of 32 bits from {min}"),
        Kind::Int { min, max } => format!("a number from {min} to {max}"),
        Kind::Long(i64::MIN) => "a number of 64 bits".to_owned(),
        Kind::Long(min) => format!("a number of 64 bits from {min}"),
        Kind::Ratio => "a number from 0 to 1".to_owned(),
        Kind::Choice(choices) => format!("one of {}", quoted(choices)),
        Kind::List(choices) => format!("any of {}, with commas between them", quoted(choices)),
        Kind::GzipLevel => "a number from 1 to 9, or -1".to_owned(),
        Kind::Replicas => "`PARTITION:BROKER` pairs with commas between them, or `*`".to_owned(),
    }
}
