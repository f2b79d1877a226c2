//! Defaults that follow from other settings and from the machine.

use super::{Machine, MetadataLocation, StoreLocation, Value};

/// On a directory a cut costs nothing, so waiting longer than this gains nothing.
const FLUSH_INTERVAL_DIRECTORY_MS: i64 = 10;
/// On a remote store each cut costs a request.
const FLUSH_INTERVAL_REMOTE_MS: i64 = 250;
/// What a lost disk may take with it, where the records themselves are elsewhere.
const SNAPSHOT_INTERVAL_MS: i64 = 60_000;
/// More than this is taken only where it is asked for: a broker holds no state, and a cache of half
/// of this serves the tails of many partitions.
pub(crate) const MEMORY_BUDGET_DEFAULT_MAX_BYTES: u64 = 256 * 1024 * 1024;
/// The least budget that the setting allows.
const MEMORY_BUDGET_MIN_BYTES: u64 = 64 * 1024 * 1024;

/// The default of a setting whose preset is `Derived`; `known` gives the values settled before it.
pub(crate) fn derive(
    name: &str,
    machine: Machine,
    known: impl Fn(&str) -> Option<Value>,
) -> Option<Value> {
    let text = |name: &str| match known(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    match name {
        "listen.advertise" => known("listen.kafka"),
        "store.url" => Some(Value::Text(format!("{}/store", text("data")?))),
        // Without one, the environment's may be meant, which the store's client looks up.
        "store.unsigned_payload" => {
            text("store.endpoint").map(|url| Value::Bool(!url.starts_with("http:")))
        }
        "store.path_style" => known("store.endpoint").map(|_| Value::Bool(true)),
        "iceberg.read_endpoint" => known("store.endpoint"),
        "iceberg.catalog.sigv4_region" => known("store.region"),
        "metadata.url" => Some(Value::Text(format!("sqlite:{}/metadata.sqlite", text("data")?))),
        "metadata.snapshot_interval_ms" => {
            let store = StoreLocation::parse(&text("store.url")?).ok()?;
            let metadata = MetadataLocation::parse(&text("metadata.url")?).ok()?;
            let is_alone = matches!(metadata, MetadataLocation::Sqlite(_)) && store.is_remote();
            Some(Value::Integer(if is_alone { SNAPSHOT_INTERVAL_MS } else { 0 }))
        }
        "flush.interval_ms" => {
            let location = StoreLocation::parse(&text("store.url")?).ok()?;
            let interval_ms = if location.is_remote() {
                FLUSH_INTERVAL_REMOTE_MS
            } else {
                FLUSH_INTERVAL_DIRECTORY_MS
            };
            Some(Value::Integer(interval_ms))
        }
        "memory.budget_bytes" => {
            let half = machine.memory_bytes / 2;
            let budget = half.clamp(MEMORY_BUDGET_MIN_BYTES, MEMORY_BUDGET_DEFAULT_MAX_BYTES);
            i64::try_from(budget).ok().map(Value::Integer)
        }
        "memory.cache_bytes" => match known("memory.budget_bytes")? {
            Value::Integer(budget_bytes) => Some(Value::Integer(budget_bytes / 2)),
            _ => None,
        },
        _ => None,
    }
}
