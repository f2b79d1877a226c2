//! Which catalog tables are committed to, where it is not the embedded one, and as whom.

use floe_store::Secret;
use std::time::Duration;

/// An Iceberg REST catalog that is not ours.
#[derive(Clone, Debug)]
pub struct RestConfig {
    /// Its address; `/v1/...` goes behind it (`iceberg.catalog.uri`).
    pub uri: String,
    /// Which of its warehouses, where it has several (`iceberg.catalog.warehouse`).
    pub warehouse: Option<String>,
    /// As whom it is asked.
    pub auth: RestAuth,
    /// Whether a new table asks for a folder of Floe's store as its location; else the catalog says
    /// where its own files go (`iceberg.catalog.set_location`).
    pub sets_location: bool,
    /// Whether each commit moves the tag `floe`; else a table property says the same
    /// (`iceberg.catalog.tags`).
    pub has_tags: bool,
    /// How long one request may take (`iceberg.catalog.timeout_ms`).
    pub timeout: Duration,
}

/// As whom a catalog is asked.
#[derive(Clone, Debug)]
pub enum RestAuth {
    /// It asks for nothing.
    None,
    /// A token that never changes.
    Bearer(Secret),
    /// OAuth2 client credentials: tokens that are renewed.
    OAuth2(OAuth2Client),
    /// Requests signed with AWS' Signature Version 4.
    SigV4(SigV4Keys),
}

/// A client of an OAuth2 token endpoint.
#[derive(Clone, Debug)]
pub struct OAuth2Client {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: Secret,
    /// What it asks for.
    pub scope: String,
    /// The token endpoint; the catalog's own where there is none.
    pub uri: Option<String>,
}

/// Keys that sign requests.
#[derive(Clone, Debug)]
pub struct SigV4Keys {
    /// The service's name in the signature, such as `glue` or `s3tables`.
    pub service: String,
    /// Its region.
    pub region: String,
    /// Access key id.
    pub access_key: Secret,
    /// Its secret.
    pub secret_key: Secret,
    /// Its session token, if it is a temporary one.
    pub session_token: Option<Secret>,
}
