//! Rules between settings, each with its remedy.

use super::{Cloud, Config, MetadataLocation, StoreLocation};
use floe_env::{Error, Result};

/// Checks a whole configuration.
///
/// # Errors
/// `Invalid` for the first broken rule.
pub(crate) fn check(config: &Config) -> Result<()> {
    check_addresses(config)?;
    check_store(config)?;
    check_metadata(config)?;
    check_limits(config)
}

fn refuse(message: impl Into<String>) -> Result<()> {
    Err(Error::invalid(message))
}

fn check_addresses(config: &Config) -> Result<()> {
    let listen = &config.listen;
    for (flag, address) in [("--kafka", &listen.kafka), ("--http", &listen.http)] {
        if !address.is_loopback() && !listen.insecure {
            return refuse(format!(
                "{flag} {address} is reachable from other machines, and there is no \
                 authentication: whoever reaches it can read and delete everything. Give \
                 --insecure-listen to accept that, or listen on 127.0.0.1"
            ));
        }
    }
    if listen.advertise.is_unspecified() {
        let address = &listen.advertise;
        return refuse(format!(
            "clients cannot connect to {address}: give --advertise HOST:PORT with a host name or \
             address by which they reach this broker"
        ));
    }
    if listen.advertise.port == 0 && listen.kafka.port != 0 {
        return refuse("setting listen.advertise: port 0 is no port that clients can connect to");
    }
    Ok(())
}

fn check_store(config: &Config) -> Result<()> {
    let s3 = &config.store.s3;
    if s3.access_key.is_some() != s3.secret_key.is_some() {
        return refuse("settings store.access_key and store.secret_key go together: give both");
    }
    if s3.session_token.is_some() && s3.access_key.is_none() {
        return refuse("setting store.session_token needs store.access_key and store.secret_key");
    }
    check_read_keys(config)?;
    let endpoint = config.store.endpoint.as_ref();
    if endpoint.is_some() && !config.store.location.is_remote() {
        return refuse("setting store.endpoint is for remote stores, and the store is a directory");
    }
    let without_tls = endpoint.is_some_and(|url| url.starts_with("http://"));
    if without_tls && !config.store.allow_http {
        return refuse(
            "setting store.endpoint is without TLS: set store.allow_http = true to accept that \
             keys and data cross the network unprotected, or use https://",
        );
    }
    Ok(())
}

/// The broker's own keys are nobody else's.
fn check_read_keys(config: &Config) -> Result<()> {
    let Some(keys) = &config.iceberg.catalog.read_keys else { return Ok(()) };
    let is_s3 = matches!(config.store.location, StoreLocation::Remote { cloud: Cloud::S3, .. });
    if !is_s3 {
        return refuse("setting iceberg.read_access_key is for s3:// stores, and this is none");
    }
    let own = config.store.s3.access_key.as_ref();
    if own.is_some_and(|own| own.expose() == keys.access_key.expose()) {
        return refuse(
            "setting iceberg.read_access_key is the broker's own key, with which engines could \
             delete everything: make one that may only read tables",
        );
    }
    Ok(())
}

fn check_metadata(config: &Config) -> Result<()> {
    let is_sqlite = matches!(config.metadata.location, MetadataLocation::Sqlite(_));
    if is_sqlite && config.metadata.password.is_some() {
        return refuse("setting metadata.password is for postgres://, and the store is SQLite");
    }
    let schema = &config.metadata.schema;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if schema.len() > 63 || !schema.bytes().all(is_name) {
        return refuse("setting metadata.schema: at most 63 of a-z, 0-9 and _ are allowed");
    }
    Ok(())
}

fn check_limits(config: &Config) -> Result<()> {
    let (memory, kafka) = (&config.memory, &config.kafka);
    if memory.cache_bytes > memory.budget_bytes {
        return refuse("setting memory.cache_bytes is more than memory.budget_bytes, its whole");
    }
    if kafka.group_min_session_timeout > kafka.group_max_session_timeout {
        return refuse(
            "setting kafka.group.min.session.timeout.ms is more than \
             kafka.group.max.session.timeout.ms",
        );
    }
    let retention = &kafka.log_retention;
    if [retention.ms, retention.minutes, Some(retention.hours)].contains(&Some(0)) {
        return refuse(
            "settings kafka.log.retention.ms, .minutes and .hours: 0 would keep nothing; take at \
             least 1, or -1 to keep everything",
        );
    }
    if kafka.group_consumer_heartbeat_interval >= kafka.group_consumer_session_timeout {
        return refuse(
            "setting kafka.group.consumer.heartbeat.interval.ms is not less than \
             kafka.group.consumer.session.timeout.ms: members would be removed between heartbeats",
        );
    }
    if kafka.message_max_bytes > kafka.socket_request_max_bytes {
        return refuse(
            "setting kafka.message.max.bytes is more than kafka.socket.request.max.bytes: no \
             request could carry such a batch",
        );
    }
    Ok(())
}
