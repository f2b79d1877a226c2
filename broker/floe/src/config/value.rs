//! A setting's value, checked against its kind.

use super::secret::{HIDDEN, hide_password};
use super::setting::{Kind, Setting};
use super::{Address, MetadataLocation, Secret, StoreLocation};
use floe_env::{Error, Result};

/// A value that its setting allows. Texts, paths and addresses are all `Text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A number within the setting's range.
    Integer(i64),
    /// Text, not empty, of the setting's form.
    Text(String),
    /// A secret.
    Secret(Secret),
}

impl Value {
    /// Reads a value written as text, as in a variable or a flag.
    ///
    /// # Errors
    /// `Invalid`, without the setting's name, which the caller adds.
    pub(crate) fn from_text(setting: &Setting, text: &str) -> Result<Self> {
        let wrong = |expected: &str| Error::invalid(format!("'{text}' is not {expected}"));
        match setting.kind {
            Kind::Bool => {
                let value = text.parse().map_err(|_| wrong("true or false"))?;
                Ok(Self::Bool(value))
            }
            Kind::Integer { .. } => {
                let value = text.parse().map_err(|_| wrong("a whole number"))?;
                Self::from_integer(setting, value)
            }
            _ => Self::from_string(setting, text),
        }
    }

    /// Takes a number, as in the file.
    ///
    /// # Errors
    /// `Invalid` where the setting is no number, or does not allow this one.
    pub(crate) fn from_integer(setting: &Setting, value: i64) -> Result<Self> {
        let Kind::Integer { min, max } = setting.kind else {
            return Err(Error::invalid(format!("expected {}, found a number", expected(setting))));
        };
        if value < min || value > max {
            let unit = if setting.unit.is_empty() { "" } else { " " };
            let range = format!("from {min} to {max}{unit}{}", setting.unit);
            return Err(Error::invalid(format!("{value} is not {range}")));
        }
        Ok(Self::Integer(value))
    }

    /// Takes a yes or no, as in the file.
    ///
    /// # Errors
    /// `Invalid` where the setting is of another kind.
    pub(crate) fn from_bool(setting: &Setting, value: bool) -> Result<Self> {
        if setting.kind != Kind::Bool {
            let message = format!("expected {}, found true or false", expected(setting));
            return Err(Error::invalid(message));
        }
        Ok(Self::Bool(value))
    }

    /// Takes text, as in the file.
    ///
    /// # Errors
    /// `Invalid` where the setting is of another kind, or the text is empty or not of its form.
    pub(crate) fn from_string(setting: &Setting, text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::invalid("is empty"));
        }
        if text.contains('\0') {
            return Err(Error::invalid("holds a zero byte"));
        }
        match setting.kind {
            Kind::Bool | Kind::Integer { .. } => {
                return Err(Error::invalid(format!("expected {}, found text", expected(setting))));
            }
            Kind::Secret => return Ok(Self::Secret(Secret::new(text))),
            Kind::Address => drop(Address::parse(text)?),
            Kind::StoreUrl => drop(StoreLocation::parse(text)?),
            Kind::MetadataUrl => drop(MetadataLocation::parse(text)?),
            Kind::HttpUrl => check_http_url(text)?,
            Kind::Text | Kind::Path => {}
        }
        Ok(Self::Text(text.to_owned()))
    }

    /// The value as people may see it: no secret, and no password inside an address.
    pub fn shown(&self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Text(text) => hide_password(text),
            Self::Secret(_) => HIDDEN.to_owned(),
        }
    }
}

/// What a setting takes, in words.
pub(crate) fn expected(setting: &Setting) -> String {
    let text = match setting.kind {
        Kind::Bool => "true or false",
        Kind::Integer { min, max } => {
            let space = if setting.unit.is_empty() { "" } else { " " };
            return format!("a whole number from {min} to {max}{space}{}", setting.unit);
        }
        Kind::Text => "text",
        Kind::Secret => "a secret",
        Kind::Path => "a path",
        Kind::Address => "HOST:PORT",
        Kind::StoreUrl => "a directory or an address",
        Kind::MetadataUrl => "an address",
        Kind::HttpUrl => "an http:// or https:// address",
    };
    text.to_owned()
}

fn check_http_url(text: &str) -> Result<()> {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    // It is shown in messages, and so would they be.
    if text.contains('@') {
        return Err(Error::invalid(
            "has a user or a password in it, which have their own settings",
        ));
    }
    match host {
        Some(host) if !host.is_empty() && !host.contains(char::is_whitespace) => Ok(()),
        _ => Err(Error::invalid(format!("'{}' is not http:// or https://", hide_password(text)))),
    }
}
