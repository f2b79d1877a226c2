//! Values of topic configs: their forms, and their plain form as text.

use super::TopicConfig;
use crate::described_config::ConfigType;

/// What a config takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `true` or `false`, in any case.
    Bool,
    /// A number of 32 bits, from `min` to `max`.
    Int {
        /// The least.
        min: i32,
        /// The greatest.
        max: i32,
    },
    /// A number of 64 bits, from this on.
    Long(i64),
    /// A number from 0 to 1.
    Ratio,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Any of these, with commas between them, or none.
    List(&'static [&'static str]),
    /// A level of gzip: 1 to 9, or -1 for its default.
    GzipLevel,
    /// `PARTITION:BROKER` pairs with commas between them, or `*`.
    Replicas,
}

impl Kind {
    /// The type that tools are told.
    pub(crate) fn config_type(self) -> ConfigType {
        match self {
            Self::Bool => ConfigType::Boolean,
            Self::Int { .. } | Self::GzipLevel => ConfigType::Int,
            Self::Long(_) => ConfigType::Long,
            Self::Ratio => ConfigType::Double,
            Self::Choice(_) => ConfigType::String,
            Self::List(_) | Self::Replicas => ConfigType::List,
        }
    }

    /// The plain form of a value.
    ///
    /// # Errors
    /// The value, or the part of it, that is wrong, and why.
    fn parse(self, text: &str) -> Result<String, (String, String)> {
        let wrong = |value: String, why: &str| Err((value, why.to_owned()));
        let trimmed = text.trim();
        match self {
            Self::Bool => match trimmed.to_ascii_lowercase().as_str() {
                value @ ("true" | "false") => Ok(value.to_owned()),
                _ => wrong(text.to_owned(), "Expected value to be either true or false"),
            },
            Self::Int { min, max } => int(text, |value| within(value, min.into(), max.into())),
            Self::GzipLevel => int(text, |value| match value {
                -1 | 1..=9 => Ok(()),
                _ => Err("Value must be between 1 and 9 or equal to -1".to_owned()),
            }),
            Self::Long(min) => match trimmed.parse::<i64>() {
                Err(_) => wrong(text.to_owned(), "Not a number of type LONG"),
                Ok(value) => within(value, min, i64::MAX)
                    .map(|()| value.to_string())
                    .map_err(|why| (value.to_string(), why)),
            },
            Self::Ratio => match trimmed.parse::<f64>() {
                Err(_) => wrong(text.to_owned(), "Not a number of type DOUBLE"),
                Ok(value) if value < 0.0 => wrong(format!("{value:?}"), "Value must be at least 0"),
                Ok(value) if value <= 1.0 => Ok(format!("{value:?}")),
                Ok(value) => wrong(format!("{value:?}"), "Value must be no more than 1"),
            },
            Self::Choice(choices) if choices.contains(&trimmed) => Ok(trimmed.to_owned()),
            Self::Choice(choices) => Err((trimmed.to_owned(), one_of(choices))),
            Self::List(choices) => {
                let parts = parts(trimmed);
                match parts.iter().find(|part| !choices.contains(part)) {
                    Some(part) => Err(((*part).to_owned(), one_of(choices))),
                    None => Ok(joined(&parts)),
                }
            }
            Self::Replicas => {
                let parts = parts(trimmed);
                if parts == ["*"] || parts.iter().all(|part| is_replica(part)) {
                    return Ok(joined(&parts));
                }
                let why = "must be the literal '*' or a list of replicas in the following format: \
                           [partitionId]:[brokerId],[partitionId]:[brokerId],...";
                wrong(text.to_owned(), why)
            }
        }
    }
}

impl TopicConfig {
    /// The plain form of a value: trimmed, numbers without leading zeros, lists without blanks and
    /// repetitions.
    ///
    /// # Errors
    /// What is wrong, in Kafka's words.
    pub(crate) fn parse(&self, text: &str) -> Result<String, String> {
        self.kind.parse(text).map_err(|(value, why)| {
            format!("Invalid value {value} for configuration {}: {why}", self.name)
        })
    }
}

/// The parts of a list, each once.
pub(super) fn parts(list: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts
}

/// A list of its parts.
pub(super) fn joined(parts: &[&str]) -> String {
    parts.join(",")
}

fn int(text: &str, check: impl Fn(i64) -> Result<(), String>) -> Result<String, (String, String)> {
    let Ok(value) = text.trim().parse::<i32>() else {
        return Err((text.to_owned(), "Not a number of type INT".to_owned()));
    };
    check(value.into()).map(|()| value.to_string()).map_err(|why| (value.to_string(), why))
}

fn within(value: i64, min: i64, max: i64) -> Result<(), String> {
    if value < min {
        return Err(format!("Value must be at least {min}"));
    }
    if value > max {
        return Err(format!("Value must be no more than {max}"));
    }
    Ok(())
}

fn one_of(choices: &[&str]) -> String {
    format!("String must be one of: {}", choices.join(", "))
}

fn is_replica(part: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    part.split_once(':')
        .is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
}
