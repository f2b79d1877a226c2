//! Whose store this is: `{prefix}/floe-cluster.json`, made once with the cluster. A broker starts
//! only where this and the metadata store say the same.

use crate::object::{ObjectStore, PutOutcome};
use bytes::Bytes;
use floe_env::{Error, Result};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The key of the identity, below the store's prefix.
pub const IDENTITY_KEY: &str = "floe-cluster.json";

/// The version of the identity's form that is written, and the newest that is read.
pub const IDENTITY_VERSION: u32 = 1;

/// The identity of a cluster, as its object store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterIdentity {
    /// Version of this form.
    pub version: u32,
    /// The cluster's id, made once; it begins every key.
    pub cluster: Uuid,
    /// The id of the metadata store's incarnation.
    pub incarnation: Uuid,
}

impl ClusterIdentity {
    /// An identity in the present form.
    pub fn new(cluster: Uuid, incarnation: Uuid) -> Self {
        Self { version: IDENTITY_VERSION, cluster, incarnation }
    }
}

/// The identity in a store; `None` if it has none.
///
/// # Errors
/// `Corrupt` where the object is something else, `Invalid` where a newer Floe wrote it, and those
/// of the store.
pub async fn read_identity(store: &dyn ObjectStore) -> Result<Option<ClusterIdentity>> {
    let Some(bytes) = store.get(IDENTITY_KEY).await? else { return Ok(None) };
    let url = || store.url(IDENTITY_KEY);
    let json: serde_json::Value = serde_json::from_slice(&bytes)
        .map_err(|error| Error::corrupt(format!("{} is not JSON", url())).with_source(error))?;
    // The version is looked at first: a newer form need not have the same fields.
    match json.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version <= u64::from(IDENTITY_VERSION) => {}
        Some(version) => {
            let message = format!("{} has version {version}, which a newer Floe wrote", url());
            return Err(Error::invalid(message));
        }
        None => return Err(Error::corrupt(format!("{} has no version", url()))),
    }
    let identity = serde_json::from_value(json).map_err(|error| {
        Error::corrupt(format!("{} is not a cluster's identity", url())).with_source(error)
    })?;
    Ok(Some(identity))
}

/// Makes a store a cluster's. Of several that try, one succeeds.
///
/// # Errors
/// Those of the store's put.
pub async fn create_identity(
    store: &dyn ObjectStore,
    identity: &ClusterIdentity,
) -> Result<PutOutcome> {
    let json = serde_json::to_vec_pretty(identity)
        .map_err(|error| Error::bug("an identity is always JSON").with_source(error))?;
    store.put(IDENTITY_KEY, vec![Bytes::from(json)]).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use floe_env::ErrorKind;

    #[tokio::test]
    async fn the_first_identity_stays() {
        let store = MemoryStore::new();
        assert_eq!(read_identity(&store).await.expect("read"), None);
        let first = ClusterIdentity::new(Uuid::from_u128(1), Uuid::from_u128(2));
        let second = ClusterIdentity::new(Uuid::from_u128(3), Uuid::from_u128(4));
        let created = create_identity(&store, &first).await.expect("create");
        assert_eq!(created, PutOutcome::Created);
        let refused = create_identity(&store, &second).await.expect("create");
        assert_eq!(refused, PutOutcome::Exists);
        assert_eq!(read_identity(&store).await.expect("read"), Some(first));
    }

    #[tokio::test]
    async fn other_content_is_refused_by_name() {
        for (content, kind) in [
            ("{", ErrorKind::Corrupt),
            ("{}", ErrorKind::Corrupt),
            ("{\"version\":1,\"cluster\":\"x\"}", ErrorKind::Corrupt),
            ("{\"version\":2,\"anything\":0}", ErrorKind::Invalid),
        ] {
            let store = MemoryStore::new();
            store.put(IDENTITY_KEY, vec![Bytes::from(content)]).await.expect("put");
            let error = read_identity(&store).await.expect_err(content);
            assert_eq!(error.kind(), kind, "{content}: {error}");
        }
    }
}
