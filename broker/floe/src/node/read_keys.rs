//! Whether the keys that engines get can do no more than they must: read the files of tables. They
//! are tried before anybody gets them, because a pair that can write is a pair that can delete.

use super::stores::store_options;
use crate::config::Config;
use bytes::Bytes;
use floe_env::{Env, Error, Result};
use floe_iceberg_bridge::ReadKeys;
use floe_store::ObjectStore;
use kfs::ClusterId;
use std::sync::Arc;

const PROBE: Bytes = Bytes::from_static(b"probe");

/// Refuses keys that can write, delete, or read what is no table's, and those that cannot read
/// what is one's.
///
/// # Errors
/// `Invalid` where they can do too much or too little, with what; whatever the store answers to
/// the broker's own keys.
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
        // What counts is what they have done: stores refuse in different words.
        let _ = theirs.put(&key, vec![PROBE]).await;
        if own.head(&key).await?.is_some() {
            own.delete(std::slice::from_ref(&key)).await?;
            return Err(too_much(&format!("write {shown}")));
        }
        own.put(&key, vec![PROBE]).await?;
        let is_readable = theirs.get_range(&key, 0..1).await.is_ok();
        let _ = theirs.delete(std::slice::from_ref(&key)).await;
        let is_deleted = own.head(&key).await?.is_none();
        own.delete(std::slice::from_ref(&key)).await?;
        if is_deleted {
            return Err(too_much(&format!("delete {shown}")));
        }
        match (is_readable, is_tables) {
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
    options.s3.secret_access_key = Some(keys.secret_key.clone());
    options.s3.session_token = keys.session_token.clone();
    floe_store::open(env.clone(), &config.store.location.to_string(), &options).await
}

fn too_much(what: &str) -> Error {
    Error::invalid(format!(
        "the keys of iceberg.read_access_key can {what}: engines would get them; allow that key \
         to read the files of tables, and nothing else"
    ))
}
