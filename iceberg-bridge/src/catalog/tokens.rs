//! Bearer tokens: facts of the metadata store, so that every broker knows those that another has
//! given, also after a restart. A token begins with the time at which it ends, so that the oldest
//! come first and are forgotten when new ones are given.

use bytes::Bytes;
use floe_env::{Env, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::{Change, FactKey, Write};
use std::time::Duration;
use uuid::Uuid;

const TOKENS: &str = "catalog-tokens";
/// Tokens that have ended and that are forgotten when another is given, at most.
const FORGOTTEN_MAX: usize = 100;
/// Digits of the time in a token: milliseconds in base 16.
const TIME_DIGITS: usize = 16;

fn key_of(token: &str) -> FactKey {
    FactKey::new(&[TOKENS, token])
}

/// When a token ends, ms since the Unix epoch. `None` for what is no token.
fn end_of(token: &str) -> Option<i64> {
    let (time, id) = (token.get(..TIME_DIGITS)?, token.get(TIME_DIGITS..)?);
    Uuid::parse_str(id.strip_prefix('-')?).ok()?;
    i64::from_str_radix(time, 16).ok()
}

/// Gives a token that is good for `lifetime`.
pub(super) async fn give(
    env: &Env,
    metadata: &MetadataStore,
    lifetime: Duration,
) -> Result<String> {
    let now_ms = env.now_ms();
    let lifetime_ms = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
    let end_ms = now_ms.saturating_add(lifetime_ms).max(0);
    let token = format!("{end_ms:016x}-{}", env.uuid());
    let mut writes = vec![Write::Put(key_of(&token), Bytes::new())];
    let oldest = metadata.backend().scan(&FactKey::new(&[TOKENS]).folder(), FORGOTTEN_MAX).await?;
    for (key, _) in oldest {
        let end_ms = key.segments().get(1).and_then(|token| end_of(token));
        if end_ms.is_none_or(|end_ms| end_ms <= now_ms) {
            writes.push(Write::Delete(key));
        }
    }
    metadata.change(&Change { writes, ..Change::default() }).await?;
    Ok(token)
}

/// Whether a token was given, and has not ended.
pub(super) async fn is_good(env: &Env, metadata: &MetadataStore, token: &str) -> Result<bool> {
    if end_of(token).is_none_or(|end_ms| end_ms <= env.now_ms()) {
        return Ok(false);
    }
    let found = metadata.backend().get(&[key_of(token)]).await?;
    Ok(found.into_iter().flatten().next().is_some())
}
