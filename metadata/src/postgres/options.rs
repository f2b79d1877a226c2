//! Where the metadata is: `postgres://user:password@host:port/database?schema=name`. All other
//! parameters are PostgreSQL's own. TLS is not spoken yet: `sslmode=require` fails at the start.

#[cfg(test)]
mod tests;

use floe_env::{Error, Result};
use std::time::Duration;
use tokio_postgres::Config;

/// The SQL schema without `schema=`.
pub const DEFAULT_SCHEMA: &str = "floe";
/// PostgreSQL cuts longer names.
const SCHEMA_BYTES_MAX: usize = 63;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that acknowledges nothing for so long is lost.
const SILENT_SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) is_exclusive: bool,
}

impl PostgresOptions {
    /// Options from an address.
    pub fn parse(url: &str) -> Result<Self> {
        let (base, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut schema = DEFAULT_SCHEMA.to_owned();
        let mut others = Vec::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.strip_prefix("schema=") {
                Some(name) => schema = name.to_owned(),
                None => others.push(parameter),
            }
        }
        check_schema(&schema)?;
        let rest = format!("{base}?{}", others.join("&"));
        let mut config: Config = rest.trim_end_matches('?').parse().map_err(|error| {
            // The source names no more than the part that is wrong; the address holds a password.
            Error::invalid("the PostgreSQL address is malformed").with_source(error)
        })?;
        if config.get_application_name().is_none() {
            config.application_name(format!("floe (pid {})", std::process::id()));
        }
        config.connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(SILENT_SERVER_TIMEOUT);
        Ok(Self { config, schema, is_exclusive: true })
    }

    /// The same in another SQL schema.
    ///
    /// Errors: `Invalid` for a name that would need quotes.
    pub fn in_schema(mut self, name: &str) -> Result<Self> {
        check_schema(name)?;
        name.clone_into(&mut self.schema);
        Ok(self)
    }

    /// The same with a password that the address does not show.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.config.password(password);
        self
    }

    /// Lets several brokers use the metadata at the same time.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.is_exclusive = false;
        self
    }

    /// The cluster's SQL schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }
}

/// So that the name needs no quotes anywhere.
fn check_schema(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let begins_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if begins_well && name.len() <= SCHEMA_BYTES_MAX && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "schema \"{name}\": 1 to {SCHEMA_BYTES_MAX} of a-z, 0-9 and _, not a digit first"
    )))
}
