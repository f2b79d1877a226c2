//! `HOST:PORT` addresses.

use floe_env::{Error, Result};
use std::fmt;
use std::net::IpAddr;

/// A host and a port. The host is a name or an IP address, without brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host name or IP address.
    pub host: String,
    /// Port; 0 means any free one where the address is listened on.
    pub port: u16,
}

/// The longest host name that DNS allows.
const HOST_BYTES_MAX: usize = 253;

impl Address {
    /// Reads `HOST:PORT`, with an IPv6 address in brackets.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::invalid(format!("'{text}' is not HOST:PORT"));
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bracketed {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_host_name(host),
        };
        if !is_host {
            return Err(wrong());
        }
        Ok(Self { host: bracketed.unwrap_or(host).to_owned(), port })
    }

    fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        match self.ip() {
            Some(ip) => ip.to_canonical().is_loopback(),
            None => self.host.eq_ignore_ascii_case("localhost"),
        }
    }

    /// Whether it is 0.0.0.0 or [::], on which a server may listen but to which nobody connects.
    pub fn is_unspecified(&self) -> bool {
        self.ip().is_some_and(|ip| ip.to_canonical().is_unspecified())
    }
}

fn is_host_name(host: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(is_allowed)
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(formatter, "[{}]:{}", self.host, self.port);
        }
        write!(formatter, "{}:{}", self.host, self.port)
    }
}
