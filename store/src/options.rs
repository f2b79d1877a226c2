//! The settings of a store. What is not set comes from the environment and the machine's identity,
//! as the cloud's own tools find it.

use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// How long one request to a remote store may take if nothing else is set.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// How long a connection to a remote store may take if nothing else is set.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// A text that never shows in logs.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for those who must send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// All settings of a store; those of other kinds of store than the opened one are not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreOptions {
    /// Directory: write past the kernel's cache where the file system allows it.
    pub direct_io: bool,
    /// Remote: milliseconds for one request.
    pub request_timeout_ms: u64,
    /// Remote: milliseconds for a new connection.
    pub connect_timeout_ms: u64,
    /// S3 and everything that speaks its protocol.
    pub s3: S3Options,
    /// Google Cloud Storage.
    pub gcs: GcsOptions,
    /// Azure Blob Storage.
    pub azure: AzureOptions,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            direct_io: true,
            request_timeout_ms: REQUEST_TIMEOUT_DEFAULT.as_millis() as u64,
            connect_timeout_ms: CONNECT_TIMEOUT_DEFAULT.as_millis() as u64,
            s3: S3Options::default(),
            gcs: GcsOptions::default(),
            azure: AzureOptions::default(),
        }
    }
}

/// Settings of S3.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3Options {
    /// Address of a store other than Amazon's, such as `http://minio:9000`.
    pub endpoint: Option<String>,
    /// Region; `us-east-1` where neither this nor the environment names one.
    pub region: Option<String>,
    /// Key id; without it, the environment's, the web identity's, the container's or the instance's
    /// credentials are used.
    pub access_key_id: Option<String>,
    /// The key itself.
    pub secret_access_key: Option<Secret>,
    /// Token that belongs to temporary keys.
    pub session_token: Option<Secret>,
    /// Put the bucket into the host name rather than the path. Not set: only with Amazon's own
    /// endpoint.
    pub virtual_hosted: Option<bool>,
    /// Allow requests without TLS. Not set: only where the endpoint begins with `http:`.
    pub allow_http: Option<bool>,
    /// Leave the payload out of the signature, which saves a SHA-256 of every byte. Not set: only
    /// with TLS.
    pub unsigned_payload: Option<bool>,
}

/// Settings of Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GcsOptions {
    /// File with a service account's key; without it, the environment's or the instance's
    /// credentials are used.
    pub service_account_path: Option<String>,
    /// Address of a stand-in.
    pub endpoint: Option<String>,
}

/// Settings of Azure Blob Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AzureOptions {
    /// Storage account; without it, the environment's.
    pub account: Option<String>,
    /// The account's key; without it, the environment's or the instance's credentials are used.
    pub access_key: Option<Secret>,
    /// Address of a stand-in.
    pub endpoint: Option<String>,
}
