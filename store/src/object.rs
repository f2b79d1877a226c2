//! What Floe asks of an object store. A key is written once: there is no overwrite, so nothing that
//! was read can change.

use async_trait::async_trait;
use bytes::Bytes;
use floe_env::Result;
use std::ops::Range;

/// What a store knows of an object without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Its key, segments joined by `/`, relative to the store's root.
    pub key: String,
    /// Its size, bytes.
    pub size: u64,
}

/// What a conditional create did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object is durable under its key.
    Created,
    /// The key was taken before, perhaps by an earlier try of the same put; nothing was written.
    Exists,
}

/// An object store. Keys are relative, `/`-separated, of `[A-Za-z0-9._=-]` segments, none of which
/// is `.` or `..`.
///
/// Rules for every implementation, which the public suite checks:
///
/// * `put` is atomic and durable: when it answers `Created`, every reader finds the whole object,
///   also after a crash.
/// * Two puts of one key: exactly one answers `Created`.
/// * An error of kind `UnknownOutcome` from `put` means that the object may be there, now or later.
/// * A missing object is an error of kind `Invalid` from `get_range`, and `None` from `head`.
/// * A call that is dropped may still take effect.
#[async_trait]
pub trait ObjectStore: Send + Sync + 'static {
    /// Creates an object from parts that are written one after the other.
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome>;

    /// Reads `range` of an object; the whole range must lie inside it.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes>;

    /// Reads a whole object. `None` if there is none.
    async fn get(&self, key: &str) -> Result<Option<Bytes>>;

    /// What is known of an object. `None` if there is none.
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>>;

    /// Objects whose key begins with the folder `prefix`, by key, after `after` if given, up to
    /// `limit`.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>>;

    /// Removes objects, also those that others have put under keys which no put takes; those that
    /// are not there count as removed.
    async fn delete(&self, keys: &[String]) -> Result<()>;

    /// The address under which engines outside Floe find a key, such as `s3://bucket/prefix/key` or
    /// `file:///folder/key`.
    fn url(&self, key: &str) -> String;
}
