//! Keys that engines get. The broker's own are never among them: what is given is a second pair
//! from the configuration, which may only read tables, to those who ask for keys
//! (`X-Iceberg-Access-Delegation: vended-credentials`), or nothing.

use axum::http::HeaderMap;
use floe_store::Secret;
use serde::Serialize;
use std::collections::BTreeMap;

const DELEGATION_HEADER: &str = "x-iceberg-access-delegation";
const VENDED: &str = "vended-credentials";

/// A pair of S3 keys that may read the files of tables and nothing else.
#[derive(Clone, Debug)]
pub struct ReadKeys {
    /// The key's id.
    pub access_key: Secret,
    /// The key.
    pub secret_key: Secret,
    /// The token that belongs to temporary keys.
    pub session_token: Option<Secret>,
    /// Address of the store as engines reach it; `None` for Amazon's.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// Whether the bucket stands in the path.
    pub path_style: bool,
}

/// Keys for all below a prefix.
#[derive(Debug, Serialize)]
pub(super) struct StorageCredential {
    prefix: String,
    config: BTreeMap<String, String>,
}

impl ReadKeys {
    /// As engines take them.
    pub(super) fn config(&self) -> BTreeMap<String, String> {
        let mut config = self.public_config();
        config.extend([set("s3.secret-access-key", self.secret_key.expose())]);
        // Trino fails without the key, even where the token is empty; Amazon refuses an empty one.
        let token = self.session_token.as_ref().map(Secret::expose);
        let token = token.or_else(|| self.endpoint.as_ref().map(|_| ""));
        config.extend(token.map(|token| set("s3.session-token", token)));
        config
    }

    /// What is no secret of it.
    pub(super) fn public_config(&self) -> BTreeMap<String, String> {
        let mut config = BTreeMap::from([
            set("s3.access-key-id", self.access_key.expose()),
            set("s3.path-style-access", if self.path_style { "true" } else { "false" }),
        ]);
        config.extend(self.endpoint.as_ref().map(|endpoint| set("s3.endpoint", endpoint)));
        if let Some(region) = &self.region {
            config.extend([set("s3.region", region), set("client.region", region)]);
        }
        config
    }

    /// For a table in the folder `location`.
    pub(super) fn for_location(&self, location: &str) -> StorageCredential {
        StorageCredential { prefix: location.to_owned(), config: self.config() }
    }
}

fn set(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// Whether a client asks for keys.
pub(super) fn are_asked_for(headers: &HeaderMap) -> bool {
    let values = headers.get_all(DELEGATION_HEADER).iter();
    let mut names = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    names.any(|name| name.trim().eq_ignore_ascii_case(VENDED))
}
