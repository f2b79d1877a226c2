//! The settings as pages: `docs/configuration.md`, and what `floe config` prints.

use super::Resolved;
use super::setting::{Kind, Preset, Setting};
use super::table::SETTINGS;
use super::value::expected;
use crate::text::{table, wrap};
use serde_json::json;

const INTRODUCTION: &str = "\
<!-- Generated from broker/floe/src/config/table.rs by `floe config --markdown`; do not edit. -->

# Configuration

Floe runs without any configuration. Each setting can be given in four places; the first that has
it decides:

1. a flag: its own, or `--set NAME=VALUE` for any setting that is no secret;
2. an environment variable (an empty one counts as not given);
3. the TOML file that `--config` or `FLOE_CONFIG` names;
4. the default.

`floe config` prints every value and where it came from. An unknown setting is refused with the
nearest known name. A secret can also be read from a file, which its variable or key with `_FILE` or
`_file` at the end names; it is never printed, and refused on the command line. In the TOML file the
part before the first dot is the table, and Kafka's own names are quoted:

```toml
data = \"/var/lib/floe\"

[store]
url = \"s3://bucket/floe\"
secret_key_file = \"/run/secrets/store\"

[kafka]
\"num.partitions\" = 6
```
";

/// The page about all settings, in Markdown.
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut group = "";
    for setting in SETTINGS {
        let own_group = setting.name.split_once('.').map_or("", |(group, _)| group);
        if own_group != group {
            group = own_group;
            page.push_str(&format!("\n## {group}\n"));
        }
        page.push_str(&section(setting));
    }
    page
}

fn section(setting: &Setting) -> String {
    let mut facts = vec![format!("Takes {}.", expected(setting))];
    facts.push(match setting.preset {
        Preset::Unset => "Not set by default.".to_owned(),
        Preset::Fixed(text) => format!("Default: `{text}`."),
        Preset::Derived(words) => format!("Default: {words}."),
    });
    if let Some(flag) = setting.flag {
        facts.push(format!("Flag `--{flag}`."));
    }
    let variable = setting.variable;
    facts.push(match setting.kind {
        Kind::Secret => format!("Variable `{variable}` or `{variable}_FILE`."),
        _ => format!("Variable `{variable}`."),
    });
    for alias in setting.aliases {
        facts.push(format!("Also `{alias}`."));
    }
    facts.push(format!("Since {}.", setting.since));
    let (doc, facts) = (wrap(setting.doc), wrap(&facts.join(" ")));
    format!("\n### `{}`\n\n{doc}\n\n{facts}\n", setting.name)
}

/// Every value with its source, as columns of text.
pub fn listing(resolved: &Resolved) -> String {
    let rows = resolved.entries().iter().map(|entry| {
        let value = entry.value.as_ref().map_or_else(|| "-".to_owned(), |value| value.shown());
        vec![entry.setting.name.to_owned(), value, entry.source.to_string()]
    });
    table(&["SETTING", "VALUE", "SOURCE"], rows.collect())
}

/// Every value with its source, as JSON: an array of objects.
pub fn json(resolved: &Resolved) -> serde_json::Value {
    let entries = resolved.entries().iter().map(|entry| {
        json!({
            "name": entry.setting.name,
            "value": entry.value.as_ref().map(|value| value.shown()),
            "unit": entry.setting.unit,
            "source": entry.source.to_string(),
        })
    });
    entries.collect()
}
