//! Where the two stores are.

use super::Secret;
use super::secret::hide_password;
use floe_env::{Error, Result};
use std::fmt;
use std::path::PathBuf;

/// A kind of remote object store, by the scheme of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// `s3://`
    S3,
    /// `gs://`
    Gcs,
    /// `az://`
    Azure,
}

impl Cloud {
    /// The scheme, without `://`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }
}

/// Where segments and tables are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// A directory of this machine.
    Directory(PathBuf),
    /// An object store.
    Remote {
        /// Whose.
        cloud: Cloud,
        /// Bucket, or container.
        bucket: String,
        /// Key prefix without slashes at its ends; may be empty.
        prefix: String,
    },
}

impl StoreLocation {
    /// Reads a directory or an address.
    ///
    /// # Errors
    /// `Invalid` for a scheme that is not known and for an address without a bucket.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::Directory(PathBuf::from(text)));
        };
        let cloud = match scheme {
            "file" if rest.starts_with('/') => return Ok(Self::Directory(PathBuf::from(rest))),
            "s3" => Cloud::S3,
            "gs" => Cloud::Gcs,
            "az" => Cloud::Azure,
            _ => {
                let shown = hide_password(text);
                let message = format!("'{shown}' is no directory and no s3://, gs:// or az://");
                return Err(Error::invalid(message));
            }
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() || bucket.contains(['@', '?', '#', ':']) {
            let shown = hide_password(text);
            return Err(Error::invalid(format!("'{shown}' is not {scheme}://BUCKET/PREFIX")));
        }
        let prefix = prefix.trim_matches('/').to_owned();
        Ok(Self::Remote { cloud, bucket: bucket.to_owned(), prefix })
    }

    /// Whether reaching it takes a network.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Remote { .. })
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(formatter),
            Self::Remote { cloud, bucket, prefix } => {
                write!(formatter, "{}://{bucket}", cloud.scheme())?;
                if prefix.is_empty() { Ok(()) } else { write!(formatter, "/{prefix}") }
            }
        }
    }
}

/// Where facts are kept. Shown, it has no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataLocation {
    /// A file of this machine.
    Sqlite(PathBuf),
    /// A `postgres://` address, which may hold a password.
    Postgres(Secret),
}

impl MetadataLocation {
    /// Reads an address.
    ///
    /// # Errors
    /// `Invalid` for anything but `sqlite:FILE`, `postgres://...` and `postgresql://...`.
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("sqlite", file)) => {
                let file = file.strip_prefix("//").unwrap_or(file);
                if !file.is_empty() {
                    return Ok(Self::Sqlite(PathBuf::from(file)));
                }
            }
            Some(("postgres" | "postgresql", rest)) if rest.len() > 2 && rest.starts_with("//") => {
                return Ok(Self::Postgres(Secret::new(text)));
            }
            _ => {}
        }
        let shown = hide_password(text);
        Err(Error::invalid(format!(
            "'{shown}' is not sqlite:FILE and not postgres://HOST/DATABASE"
        )))
    }
}

impl fmt::Display for MetadataLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(formatter, "sqlite:{}", path.display()),
            Self::Postgres(url) => formatter.write_str(&hide_password(url.expose())),
        }
    }
}
