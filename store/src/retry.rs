//! A store that repeats what may be repeated: capped, jittered, exponential backoff within one
//! deadline for each call.
//!
//! Reads, listings and deletions are the same when done twice. A put is not: after a try whose
//! outcome is unknown, the next may find the key taken by that very try. Then the object itself is
//! asked: if it holds our content, the put has created it. A first try that finds the key taken
//! needs no look: somebody else was first.

use crate::object::{ObjectMeta, ObjectStore, PutOutcome};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::{Env, Error, ErrorKind, Instant, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// One read of a content check, bytes.
const CHECK_READ_BYTES_MAX: u64 = 8 << 20;

/// Doublings after which the backoff no longer grows whatever its cap.
const DOUBLINGS_MAX: u32 = 16;

/// A call that has been failing so long is told as a warning, once: before, it is a blip.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// How long to go on, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// All tries of one call together.
    pub deadline: Duration,
    /// The wait after the first try; each next is twice as long. Between half and all of it is
    /// waited.
    pub backoff_first: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            backoff_first: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
        }
    }
}

/// A store that tries again.
pub struct Retrying {
    env: Env,
    inner: Arc<dyn ObjectStore>,
    policy: RetryPolicy,
}

impl Retrying {
    /// Repeats the calls of a store.
    pub fn new(env: Env, inner: Arc<dyn ObjectStore>, policy: RetryPolicy) -> Self {
        Self { env, inner, policy }
    }

    fn deadline(&self) -> Instant {
        self.env.monotonic() + self.policy.deadline
    }

    fn telling(&self) -> Telling {
        Telling { began: self.env.monotonic(), is_told: false }
    }

    /// Callers may have given up by the time a call fails for good, so its reason is told on the
    /// way, where it will be tried again.
    fn note(&self, telling: &mut Telling, doing: &str, tries: u32, error: &Error) {
        if !telling.is_told && self.env.monotonic() - telling.began >= TOLD_AFTER {
            telling.is_told = true;
            tracing::warn!(doing, tries, %error, "the object store keeps failing; trying again");
        } else {
            tracing::debug!(doing, tries, %error, "object store call failed");
        }
    }

    fn left(&self, deadline: Instant) -> Duration {
        deadline.saturating_duration_since(self.env.monotonic())
    }

    /// Waits before the try after the `tries`-th. False where the deadline comes first.
    async fn back_off(&self, tries: u32, deadline: Instant) -> bool {
        let doubled = self.policy.backoff_first * (1 << (tries - 1).min(DOUBLINGS_MAX));
        let jitter = 0.5 + self.env.random_unit() / 2.0;
        let wait = doubled.min(self.policy.backoff_max).mul_f64(jitter);
        if wait >= self.left(deadline) {
            return false;
        }
        self.env.sleep(wait).await;
        true
    }

    async fn repeat<T, F>(&self, doing: &str, deadline: Instant, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (mut tries, mut telling) = (0, self.telling());
        loop {
            tries += 1;
            let Some(result) = self.env.timeout(self.left(deadline), call()).await else {
                let message = format!("{doing}: no answer in {:?}", self.policy.deadline);
                return Err(Error::unavailable(message));
            };
            let error = match result {
                Err(error) if is_repeatable(&error) => error,
                result => return result,
            };
            if !self.back_off(tries, deadline).await {
                return Err(error.context(&format!("{doing}: {tries} tries")));
            }
            self.note(&mut telling, doing, tries, &error);
        }
    }

    /// After an ambiguous try the key is taken: by us?
    async fn settle(&self, key: &str, parts: &[Bytes], deadline: Instant) -> Result<PutOutcome> {
        let check = || holds_content(self.inner.as_ref(), key, parts);
        match self.repeat("check an ambiguous put", deadline, check).await {
            Ok(true) => Ok(PutOutcome::Created),
            Ok(false) => Ok(PutOutcome::Exists),
            Err(error) => Err(ambiguous(key, &error)),
        }
    }
}

/// Since when a call has been failing, and whether that was told.
struct Telling {
    began: Instant,
    is_told: bool,
}

fn is_repeatable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Retry | ErrorKind::Unavailable | ErrorKind::UnknownOutcome)
}

fn ambiguous(key: &str, last: &Error) -> Error {
    let message = format!("write object {key}: it may or may not be there");
    Error::unknown_outcome(message).with_source(last.clone())
}

/// Whether an object holds exactly these parts, by its size and its CRC-32C; false where there is
/// none. For whoever sent a put twice and found the key taken.
///
/// # Errors
/// Those of the store's reads.
pub async fn holds_content(store: &dyn ObjectStore, key: &str, parts: &[Bytes]) -> Result<bool> {
    let size = parts.iter().map(|part| part.len() as u64).sum::<u64>();
    match store.head(key).await? {
        Some(found) if found.size == size => {}
        _ => return Ok(false),
    }
    let expected = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
    let mut crc = 0;
    let mut position = 0;
    while position < size {
        let end = size.min(position + CHECK_READ_BYTES_MAX);
        crc = crc32c::crc32c_append(crc, &store.get_range(key, position..end).await?);
        position = end;
    }
    Ok(crc == expected)
}

#[async_trait]
impl ObjectStore for Retrying {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        let deadline = self.deadline();
        let mut is_ambiguous = false;
        let (mut tries, mut telling) = (0, self.telling());
        loop {
            tries += 1;
            let call = self.inner.put(key, parts.clone());
            let Some(result) = self.env.timeout(self.left(deadline), call).await else {
                let late = format!("no answer in {:?}", self.policy.deadline);
                return Err(ambiguous(key, &Error::unavailable(late)));
            };
            let error = match result {
                Ok(PutOutcome::Exists) if is_ambiguous => {
                    return self.settle(key, &parts, deadline).await;
                }
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            is_ambiguous |= error.kind() == ErrorKind::UnknownOutcome;
            if !is_repeatable(&error) || !self.back_off(tries, deadline).await {
                return Err(if is_ambiguous { ambiguous(key, &error) } else { error });
            }
            self.note(&mut telling, &format!("write object {key}"), tries, &error);
        }
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let call = || self.inner.get_range(key, range.clone());
        self.repeat("read a range", self.deadline(), call).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        self.repeat("read an object", self.deadline(), || self.inner.get(key)).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.repeat("look at an object", self.deadline(), || self.inner.head(key)).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let call = || self.inner.list(prefix, after, limit);
        self.repeat("list a folder", self.deadline(), call).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        self.repeat("delete objects", self.deadline(), || self.inner.delete(keys)).await
    }

    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
