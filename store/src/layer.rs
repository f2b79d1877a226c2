//! A store on top of another, for test stores that change a call or two and hand on the others.

use crate::object::{ObjectMeta, ObjectStore, PutOutcome};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::Result;
use std::ops::Range;

/// An [`ObjectStore`] whose calls go to another unless they are written. The stores of the product
/// write all of theirs: a call that is added must not pass them by.
#[async_trait]
pub trait StoreLayer: Send + Sync + 'static {
    /// Where calls go.
    fn inner(&self) -> &dyn ObjectStore;

    /// See [`ObjectStore::put`].
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        self.inner().put(key, parts).await
    }

    /// See [`ObjectStore::get_range`].
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.inner().get_range(key, range).await
    }
}

#[async_trait]
impl<Layer: StoreLayer> ObjectStore for Layer {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        StoreLayer::put(self, key, parts).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        StoreLayer::get_range(self, key, range).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        self.inner().get(key).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.inner().head(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        self.inner().list(prefix, after, limit).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        self.inner().delete(keys).await
    }

    fn url(&self, key: &str) -> String {
        self.inner().url(key)
    }
}
