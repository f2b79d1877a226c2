//! Where the metadata is: `postgres://user:password@host:port/database?schema=name`. All other
//! parameters are PostgreSQL's own, but for `sslmode`: `disable`, as without it, is plain text, and
//! `require` and `verify-full` are both TLS with a verified certificate, whose authority is in the
//! file `sslrootcert` or known to the system.

#[cfg(test)]
mod tests;

use super::tls::Roots;
use floe_env::{Error, Result};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

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
    /// Whom TLS trusts; without, nothing is encrypted.
    pub(crate) tls: Option<Roots>,
}

impl PostgresOptions {
    /// Options from an address.
    pub fn parse(url: &str) -> Result<Self> {
        let (base, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut schema = DEFAULT_SCHEMA.to_owned();
        let (mut mode, mut root_file) = ("disable", None);
        let mut others = Vec::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("schema", name)) => schema = name.to_owned(),
                Some(("sslmode", name)) => mode = name,
                Some(("sslrootcert", path)) => root_file = Some(percent_decoded(path)?),
                _ => others.push(parameter),
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
        let tls = tls_of(mode, root_file)?;
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Self { config, schema, is_exclusive: true, tls })
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

/// What `sslmode` and `sslrootcert` ask for.
fn tls_of(mode: &str, root_file: Option<String>) -> Result<Option<Roots>> {
    let roots = root_file.map_or(Roots::System, |path| Roots::File(path.into()));
    match (mode, &roots) {
        ("require" | "verify-full", _) => Ok(Some(roots)),
        ("disable", Roots::System) => Ok(None),
        ("disable", Roots::File(_)) => Err(Error::invalid(
            "sslrootcert without TLS: add sslmode=verify-full to the PostgreSQL address",
        )),
        _ => Err(Error::invalid(format!(
            "sslmode={mode}: Floe knows disable, and verify-full (or require, which is the same \
             here), which always verify the server's certificate and name"
        ))),
    }
}

/// A parameter of an address without its `%` escapes.
fn percent_decoded(text: &str) -> Result<String> {
    let malformed = || Error::invalid("the PostgreSQL address has a malformed % escape");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).ok_or_else(malformed)?;
        bytes.push(u8::from_str_radix(code, 16).map_err(|_| malformed())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| malformed())
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
