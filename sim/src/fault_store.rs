//! The object store with faults: all lives of the broker share one world of objects.

use crate::audit::Audit;
use crate::calls::{Effects, Link};
use crate::planted::{Plant, Renumbered, first_key, put_later};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::Result;
use floe_store::{ObjectMeta, ObjectStore, PutOutcome};
use futures::FutureExt;
use std::ops::Range;
use std::sync::Arc;

/// One life's handle on the objects.
pub struct FaultStore {
    /// How it reaches them.
    pub link: Link,
    /// The objects, as this life's machine has them.
    pub objects: Arc<dyn ObjectStore>,
    /// Looks on.
    pub audit: Audit,
    /// A planted bug.
    pub plant: Plant,
    /// Another one.
    pub renumbered: Option<Renumbered>,
}

impl FaultStore {
    fn key(&self, key: &str) -> String {
        match &self.renumbered {
            Some(renumbered) => renumbered.key(key),
            None => first_key(key).to_owned(),
        }
    }
}

/// The kind of a put, by whose object it is.
fn put_kind(key: &str) -> &'static str {
    if key.contains("/log/") {
        "put_merged"
    } else if key.contains("/tables/") {
        "put_table"
    } else {
        "put"
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        let kind = put_kind(key);
        let (objects, key) = (self.objects.clone(), self.key(key));
        if self.plant.puts_later(&key) {
            return Ok(put_later(self.link.env(), objects, key, parts));
        }
        let parts = self.plant.put(&objects, &key, parts).await;
        let what = key.clone();
        let work = move || async move { objects.put(&key, parts).await }.boxed();
        let outcome = self.link.call(kind, Effects::Upload, what, work).await?;
        let is_ignored = self.renumbered.is_some();
        Ok(if is_ignored { PutOutcome::Created } else { outcome })
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let (objects, key) = (self.objects.clone(), self.key(key));
        let what = format!("{key} {}..{}", range.start, range.end);
        let work = move || async move { objects.get_range(&key, range).await }.boxed();
        self.link.call("get_range", Effects::Read, what, work).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let (objects, key) = (self.objects.clone(), self.key(key));
        let what = key.clone();
        let work = move || async move { objects.get(&key).await }.boxed();
        self.link.call("get", Effects::Read, what, work).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let (objects, key) = (self.objects.clone(), self.key(key));
        let what = key.clone();
        let work = move || async move { objects.head(&key).await }.boxed();
        self.link.call("head", Effects::Read, what, work).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let (objects, prefix) = (self.objects.clone(), prefix.to_owned());
        let (what, after) = (prefix.clone(), after.map(str::to_owned));
        let work =
            move || async move { objects.list(&prefix, after.as_deref(), limit).await }.boxed();
        self.link.call("list", Effects::Read, what, work).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        let (objects, audit) = (self.objects.clone(), self.audit.clone());
        let keys: Vec<String> = keys.iter().map(|key| self.key(key)).collect();
        let what = keys.join(" ");
        // What is kept under other keys must not be taken for what nobody needs.
        let deletes_nothing = self.plant == Plant::DeletesNothing || self.plant.renames_objects();
        let work = move || {
            async move {
                if deletes_nothing {
                    return Ok(());
                }
                audit.deleting(&keys).await;
                objects.delete(&keys).await
            }
            .boxed()
        };
        self.link.call("delete", Effects::Change, what, work).await
    }

    fn url(&self, key: &str) -> String {
        self.objects.url(key)
    }
}
