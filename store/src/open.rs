//! Opens a store by its address.
//!
//! | address | store |
//! |---|---|
//! | `/a/folder`, `a/folder`, `file:///a/folder` | a directory of this machine |
//! | `s3://bucket/prefix` | S3 and what speaks its protocol |
//! | `gs://bucket/prefix` | Google Cloud Storage |
//! | `az://container/prefix` | Azure Blob Storage |
//! | `memory:` | memory, gone with the process |
//!
//! The store is bare: put [`Counted`](crate::Counted) and then [`Retrying`](crate::Retrying) around
//! it.

use crate::directory::DirectoryStore;
use crate::key::check_key;
use crate::memory::MemoryStore;
use crate::object::ObjectStore;
use crate::options::StoreOptions;
use crate::remote::{Provider, RemoteStore};
use floe_env::{Env, Error, Result};
use std::path::Path;
use std::sync::Arc;

/// Opens the store at `url`. Remote stores are not asked anything yet: that is the probe's part.
///
/// # Errors
/// `Invalid` for an address or setting that cannot be, and what opening a directory may give.
pub async fn open(env: Env, url: &str, options: &StoreOptions) -> Result<Arc<dyn ObjectStore>> {
    let Some((scheme, rest)) = split_scheme(url) else {
        return open_directory(env, url, options).await;
    };
    let provider = match scheme {
        "memory" => return Ok(Arc::new(MemoryStore::new())),
        "file" => {
            return open_directory(env, rest.strip_prefix("//").unwrap_or(rest), options).await;
        }
        "s3" | "s3a" => Provider::S3,
        "gs" => Provider::Gcs,
        "az" | "azure" => Provider::Azure,
        other => {
            let known = "a directory, file://, s3://, gs://, az:// or memory:";
            let message =
                format!("object store {url}: unknown scheme {other:?}; it must be {known}");
            return Err(Error::invalid(message));
        }
    };
    let place = rest.strip_prefix("//").unwrap_or(rest);
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let prefix = prefix.trim_matches('/');
    if bucket.is_empty() {
        return Err(Error::invalid(format!("object store {url}: there is no bucket in it")));
    }
    if !prefix.is_empty() {
        check_key(prefix).map_err(|error| error.context(&format!("object store {url}: prefix")))?;
    }
    Ok(Arc::new(RemoteStore::open(provider, bucket, prefix, options)?))
}

async fn open_directory(
    env: Env,
    path: &str,
    options: &StoreOptions,
) -> Result<Arc<dyn ObjectStore>> {
    if path.is_empty() {
        return Err(Error::invalid("object store: the directory's path is empty"));
    }
    Ok(Arc::new(DirectoryStore::open(env, Path::new(path), options.direct_io).await?))
}

/// Splits `scheme:rest`; `None` for a path.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_scheme.then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_env::ErrorKind;

    async fn refused(url: &str) -> String {
        let opened = open(Env::current(), url, &StoreOptions::default()).await;
        let error = opened.err().unwrap_or_else(|| panic!("{url} must be refused"));
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }

    #[tokio::test]
    async fn addresses_that_cannot_be_are_refused_with_the_reason() {
        assert!(refused("ftp://host/x").await.contains("unknown scheme \"ftp\""));
        assert!(refused("s3://").await.contains("no bucket"));
        assert!(refused("s3://bucket/a/../b").await.contains("leaves its folder"));
        assert!(refused("").await.contains("empty"));
        assert!(refused("file://").await.contains("empty"));
    }

    #[tokio::test]
    async fn each_scheme_opens_its_store() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().to_str().expect("UTF-8").to_owned();
        let mut options = StoreOptions::default();
        options.s3.access_key_id = Some("key".into());
        options.s3.secret_access_key = Some(crate::options::Secret::new("secret"));
        options.azure.account = Some("account".into());
        for (url, expected) in [
            (path.clone(), format!("file://{path}/a/b")),
            (format!("file://{path}"), format!("file://{path}/a/b")),
            ("memory:".into(), "memory:///a/b".into()),
            ("s3://bucket".into(), "s3://bucket/a/b".into()),
            ("s3://bucket/some/prefix/".into(), "s3://bucket/some/prefix/a/b".into()),
            ("gs://bucket/p".into(), "gs://bucket/p/a/b".into()),
            ("az://container/p".into(), "az://container/p/a/b".into()),
        ] {
            let store = open(Env::current(), &url, &options).await.expect(&url);
            assert_eq!(store.url("a/b"), expected);
        }
    }

    #[test]
    fn secrets_do_not_show() {
        let mut options = StoreOptions::default();
        options.s3.secret_access_key = Some(crate::options::Secret::new("hunter2"));
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
