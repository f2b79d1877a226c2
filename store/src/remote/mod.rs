//! S3 and what speaks its protocol, Google Cloud Storage and Azure, through the object_store crate.
//! One call here is one request (a listing: one a page; a deletion on S3: one for 1,000 keys).
//! Nothing is repeated here: the retry layer decides, since it knows what an ambiguous put means.

mod connect;
mod errors;
#[cfg(test)]
mod tests;

pub use connect::Provider;

use crate::key::{check_folder, check_key, check_listed_key, check_range, missing, outside};
use crate::object::{ObjectMeta, ObjectStore, PutOutcome};
use crate::options::StoreOptions;
use async_trait::async_trait;
use bytes::Bytes;
use errors::{Operation, explained, is_conflict, is_missing_object, is_outside};
use floe_env::{Error, Result};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore as Remote, PutMode, PutOptions, PutPayload};
use std::ops::Range;
use std::sync::Arc;

/// A store behind a provider's API, below a prefix in one bucket.
#[derive(Debug)]
pub struct RemoteStore {
    remote: Arc<dyn Remote>,
    /// `s3://bucket/prefix`, without a slash at its end.
    url: String,
    /// Without slashes around it; empty for the bucket's root.
    prefix: String,
}

impl RemoteStore {
    /// Prepares a client; nothing is asked yet.
    ///
    /// # Errors
    /// `Invalid` for settings that cannot be.
    pub fn open(
        provider: Provider,
        bucket: &str,
        prefix: &str,
        options: &StoreOptions,
    ) -> Result<Self> {
        connect::install_tls();
        let base = format!("{}://{bucket}", provider.scheme());
        let remote = connect::connect(provider, bucket, options)
            .map_err(|error| Error::invalid(format!("object store {base}")).with_source(error))?;
        let url = if prefix.is_empty() { base } else { format!("{base}/{prefix}") };
        Ok(Self { remote, url, prefix: prefix.to_owned() })
    }

    fn path(&self, key: &str) -> Result<Path> {
        check_key(key)?;
        self.path_of_checked(key)
    }

    fn path_of_checked(&self, key: &str) -> Result<Path> {
        let whole = match (self.prefix.as_str(), key) {
            ("", key) => key.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, key) => format!("{prefix}/{key}"),
        };
        Path::parse(&whole)
            .map_err(|error| Error::invalid(format!("object key {whole}")).with_source(error))
    }

    /// A path in the bucket as a key of this store.
    fn key(&self, path: &Path) -> Option<String> {
        let path = path.as_ref();
        if self.prefix.is_empty() {
            return Some(path.to_owned());
        }
        path.strip_prefix(&self.prefix)?.strip_prefix('/').map(str::to_owned)
    }

    /// A put met a conflict, which some stores answer for a taken key, and some for two puts that
    /// met: look.
    async fn conflicted(&self, key: &str, error: object_store::Error) -> Result<PutOutcome> {
        match self.head(key).await? {
            Some(_) => Ok(PutOutcome::Exists),
            None => Err(explained(Operation::Put, &self.url(key), &error)),
        }
    }

    async fn read(
        &self,
        operation: Operation,
        key: &str,
        options: GetOptions,
    ) -> Result<Option<Bytes>> {
        let path = self.path(key)?;
        let read = match self.remote.get_opts(&path, options).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_missing_object(&error) => Ok(None),
            Err(error) => Err(explained(operation, &self.url(key), &error)),
        }
    }
}

#[async_trait]
impl ObjectStore for RemoteStore {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        let path = self.path(key)?;
        let payload = PutPayload::from_iter(parts);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.remote.put_opts(&path, payload, options).await {
            Ok(_) => Ok(PutOutcome::Created),
            Err(error) if is_conflict(&error) => self.conflicted(key, error).await,
            Err(object_store::Error::AlreadyExists { .. }) => Ok(PutOutcome::Exists),
            Err(error) => Err(explained(Operation::Put, &self.url(key), &error)),
        }
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        check_range(key, &range)?;
        let options =
            GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let path = self.path(key)?;
        let bytes = match self.remote.get_opts(&path, options).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        match bytes {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => Ok(bytes),
            Ok(_) => Err(outside(key, &range)),
            Err(error) if is_missing_object(&error) => Err(missing(key)),
            Err(error) if is_outside(&error) => Err(outside(key, &range)),
            Err(error) => Err(explained(Operation::Read, &self.url(key), &error)),
        }
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        self.read(Operation::Read, key, GetOptions::default()).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let path = self.path(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.remote.get_opts(&path, options).await {
            Ok(found) => Ok(Some(ObjectMeta { key: key.to_owned(), size: found.meta.size })),
            Err(error) if is_missing_object(&error) => Ok(None),
            Err(error) => Err(explained(Operation::Read, &self.url(key), &error)),
        }
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let folder = self.path_of_checked(check_folder(prefix)?)?;
        let folder = (!folder.as_ref().is_empty()).then_some(folder);
        let pages = match after.filter(|after| !after.is_empty()) {
            Some(after) => {
                check_listed_key(after)?;
                let after = self.path_of_checked(after)?;
                self.remote.list_with_offset(folder.as_ref(), &after)
            }
            None => self.remote.list(folder.as_ref()),
        };
        let found = pages.take(limit).try_collect::<Vec<_>>().await;
        let found = found.map_err(|error| explained(Operation::List, &self.url(prefix), &error))?;
        let meta = |object: object_store::ObjectMeta| {
            let key = self.key(&object.location)?;
            Some(ObjectMeta { key, size: object.size })
        };
        Ok(found.into_iter().filter_map(meta).collect())
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        let path = |key: &String| check_listed_key(key).and_then(|()| self.path_of_checked(key));
        let paths = keys.iter().map(path).collect::<Result<Vec<_>>>()?;
        let paths = futures::stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut answers = self.remote.delete_stream(paths);
        let mut first_error = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Err(error) if !is_missing_object(&error) => {
                    first_error.get_or_insert(error);
                }
                _ => {}
            }
        }
        match first_error {
            None => Ok(()),
            Some(error) => Err(explained(Operation::Delete, &self.url, &error)),
        }
    }

    fn url(&self, key: &str) -> String {
        format!("{}/{key}", self.url)
    }
}
