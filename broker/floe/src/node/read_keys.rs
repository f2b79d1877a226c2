//! Whether the keys that engines get can do no more than they must: read the files of tables. They
//! are tried before anybody gets them, because a pair that can write is a pair that can delete.

use super::stores::store_options;
use crate::config::Config;
use bytes::Bytes;
use floe_env::{Env, Error, ErrorKind, Result};
use floe_iceberg_bridge::ReadKeys;
use floe_store::{ObjectStore, Secret};
use kfs::ClusterId;
use std::sync::Arc;

const PROBE: Bytes = Bytes::from_static(b"probe");

/// Refuses keys that can write, delete, or read what is no table's, and those that cannot read
/// what is one's.
///
/// # Errors
/// `Invalid` where they can do too much, with what; what the store answers where it says nothing of
/// permission.
pub(super) async fn check(
    env: &Env,
    config: &Config,
    cluster: ClusterId,
    own: &dyn ObjectStore,
) -> Result<()> {
    let Some(keys) = &config.iceberg.catalog.read_keys else { return Ok(()) };
    let theirs = open(env, config, keys).await?;
    let probe = env.uuid();
    for (folder, is_tables) in [("tables/read-keys", true), ("read-keys", false)] {
        let key = format!("{cluster}/{folder}/{probe}");
        let shown = own.url(&key);
        if is_allowed(theirs.put(&key, vec![PROBE]).await)? {
            own.delete(std::slice::from_ref(&key)).await?;
            return Err(too_much(&format!("write {shown}")));
        }
        // An object of its own, so that a deletion that is allowed is seen and harms nothing.
        own.put(&key, vec![PROBE]).await?;
        let readable = is_allowed(theirs.get_range(&key, 0..1).await);
        let deletable = is_allowed(theirs.delete(std::slice::from_ref(&key)).await);
        own.delete(std::slice::from_ref(&key)).await?;
        if deletable? {
            return Err(too_much(&format!("delete {shown}")));
        }
        match (readable?, is_tables) {
            (true, false) => return Err(too_much(&format!("read {shown}, which is no table's"))),
            (false, true) => {
                let why = format!("the keys of iceberg.read_access_key cannot read {shown}");
                return Err(Error::invalid(why));
            }
            _ => {}
        }
    }
    Ok(())
}

async fn open(env: &Env, config: &Config, keys: &ReadKeys) -> Result<Arc<dyn ObjectStore>> {
    let mut options = store_options(&config.store);
    options.s3.access_key_id = Some(keys.access_key.expose().to_owned());
    options.s3.secret_access_key = Some(Secret::new(keys.secret_key.expose()));
    options.s3.session_token = keys.session_token.clone();
    floe_store::open(env.clone(), &config.store.location.to_string(), &options).await
}

/// Whether a call was allowed; only a refusal that the store means is one.
fn is_allowed<T>(answer: Result<T>) -> Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(false),
        Err(error) => Err(error.context("try the keys of iceberg.read_access_key")),
    }
}

fn too_much(what: &str) -> Error {
    Error::invalid(format!(
        "the keys of iceberg.read_access_key can {what}: engines would get them; allow that key \
         to read the files of tables, and nothing else"
    ))
}
