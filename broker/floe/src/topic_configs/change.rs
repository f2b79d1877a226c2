//! What a topic's configs become by a request to change them. Pure: the caller stores the result if
//! the topic still has the configs that it was computed from.

use super::value::{joined, parts};
use super::{ServerValues, check};
use crate::described_config::ConfigType;
use crate::refused::Refused;
use floe_wire::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};

/// What is done to one config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// It gets the value.
    Set,
    /// It falls back to the broker's.
    Delete,
    /// The value is added to the list.
    Append,
    /// The value is taken out of the list.
    Subtract,
}

impl Operation {
    /// The operation of Kafka's number.
    pub(crate) fn of(number: i8) -> Option<Self> {
        match number {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }
}

/// One change, as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedChange {
    /// The config.
    pub(crate) name: String,
    /// What is done to it; `None` for a number that Kafka does not have.
    pub(crate) operation: Option<Operation>,
    /// The value.
    pub(crate) value: Option<String>,
}

/// The configs after IncrementalAlterConfigs: all changes, or an error and none.
pub(crate) fn incremental(
    current: &BTreeMap<String, String>,
    changes: &[RequestedChange],
    server: ServerValues,
) -> Result<BTreeMap<String, String>, Refused> {
    check_names_and_values(changes.iter().map(|change| {
        let needs_value = change.operation != Some(Operation::Delete);
        (change.name.as_str(), change.value.is_some() || !needs_value)
    }))?;
    let mut configs = current.clone();
    for change in changes {
        let value = change.value.as_deref().unwrap_or_default();
        let new = match change.operation {
            None => return Err(Refused::wordless(ErrorCode::UnknownServerError)),
            Some(Operation::Delete) => None,
            Some(Operation::Set) => Some(value.to_owned()),
            Some(Operation::Append) => {
                let list = list(&configs, &change.name, "APPEND", server)?;
                let mut all = parts(&list);
                all.extend(parts(value));
                Some(joined(&all))
            }
            Some(Operation::Subtract) => {
                let list = list(&configs, &change.name, "SUBTRACT", server)?;
                let gone = parts(value);
                let left: Vec<&str> =
                    parts(&list).into_iter().filter(|part| !gone.contains(part)).collect();
                Some(joined(&left))
            }
        };
        match new {
            Some(value) => configs.insert(change.name.clone(), value),
            None => configs.remove(&change.name),
        };
    }
    check(configs, server).map_err(|message| Refused::new(ErrorCode::InvalidConfig, message))
}

/// The configs after AlterConfigs: these and no others.
pub(crate) fn replacement(
    configs: &[(String, Option<String>)],
    server: ServerValues,
) -> Result<BTreeMap<String, String>, Refused> {
    let names = configs.iter().map(|(name, value)| (name.as_str(), value.is_some()));
    check_names_and_values(names)?;
    let configs = configs.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    check(configs.collect(), server)
        .map_err(|message| Refused::new(ErrorCode::InvalidConfig, message))
}

fn check_names_and_values<'a>(
    changes: impl Iterator<Item = (&'a str, bool)>,
) -> Result<(), Refused> {
    let mut names = BTreeSet::new();
    let mut without_value = Vec::new();
    for (name, has_value) in changes {
        if !names.insert(name) {
            let message = "Error due to duplicate config keys";
            return Err(Refused::new(ErrorCode::InvalidRequest, message));
        }
        if !has_value {
            without_value.push(name);
        }
    }
    if without_value.is_empty() {
        return Ok(());
    }
    let message = format!("Null value not supported for : {}", without_value.join(", "));
    Err(Refused::new(ErrorCode::InvalidRequest, message))
}

/// The list that an operation starts from: the topic's, else the broker's.
fn list(
    configs: &BTreeMap<String, String>,
    name: &str,
    operation: &str,
    server: ServerValues,
) -> Result<String, Refused> {
    let config = super::table::topic_config(name);
    let config = config.filter(|config| config.kind.config_type() == ConfigType::List);
    let Some(config) = config else {
        let message = format!("Can't {operation} to key {name} because its type is not LIST.");
        return Err(Refused::new(ErrorCode::InvalidConfig, message));
    };
    Ok(configs.get(name).cloned().unwrap_or_else(|| server.value(config)))
}
