//! Whose store this is: `{prefix}/floe-cluster.json`, made once with the cluster. A broker starts
//! only where this and the metadata store say the same.
//!
//! The metadata store's incarnation is in it too. A later one, after a restore, is an object of its
//! own, `{cluster}/incarnations/{number}.json`, because a key is written once: the greatest number
//! says which one holds now.

use crate::object::{ObjectStore, PutOutcome};
use bytes::Bytes;
use floe_env::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The key of the identity, below the store's prefix.
pub const IDENTITY_KEY: &str = "floe-cluster.json";

/// The version of the identity's form that is written, and the newest that is read.
pub const IDENTITY_VERSION: u32 = 1;

/// Incarnations that one listing brings.
const INCARNATIONS_PER_PAGE: usize = 1000;

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
    versioned(&bytes, &store.url(IDENTITY_KEY)).map(Some)
}

/// Reads one of this module's forms. The version is looked at first: a newer form need not have the
/// same fields.
fn versioned<T: DeserializeOwned>(bytes: &[u8], url: &str) -> Result<T> {
    let corrupt = |what: &str| Error::corrupt(format!("{url} {what}"));
    let json: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| corrupt("is not JSON").with_source(error))?;
    match json.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version <= u64::from(IDENTITY_VERSION) => serde_json::from_value(json)
            .map_err(|error| corrupt("lacks what its version has").with_source(error)),
        Some(version) => {
            Err(Error::invalid(format!("{url} has version {version}, which a newer Floe wrote")))
        }
        None => Err(corrupt("has no version")),
    }
}

/// An incarnation of the metadata store after the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// Version of this form, counted with the identity's.
    pub version: u32,
    /// How many there were before; the identity's is number 0.
    pub number: u64,
    /// Its id.
    pub incarnation: Uuid,
    /// Why it began.
    pub reason: String,
}

fn incarnations_folder(cluster: Uuid) -> String {
    format!("{cluster}/incarnations")
}

/// The metadata store's newest incarnation that the object store knows of.
///
/// # Errors
/// `Corrupt` where its object is something else, `Invalid` where a newer Floe wrote it, and those
/// of the store.
pub async fn read_incarnation(
    store: &dyn ObjectStore,
    identity: &ClusterIdentity,
) -> Result<Incarnation> {
    let folder = incarnations_folder(identity.cluster);
    let (mut newest, mut after) = (None, None);
    loop {
        let page = store.list(&folder, after.as_deref(), INCARNATIONS_PER_PAGE).await?;
        let Some(last) = page.last() else { break };
        newest = Some(last.key.clone());
        after.clone_from(&newest);
    }
    let Some(key) = newest else {
        let (version, incarnation) = (identity.version, identity.incarnation);
        return Ok(Incarnation { version, number: 0, incarnation, reason: "made".to_owned() });
    };
    let bytes = store.get(&key).await?;
    let bytes = bytes.ok_or_else(|| Error::retry(format!("{} is gone", store.url(&key))))?;
    versioned(&bytes, &store.url(&key))
}

/// Records the incarnation that follows one. `Exists` where another one follows it already.
///
/// # Errors
/// Those of the store's put.
pub async fn record_incarnation(
    store: &dyn ObjectStore,
    cluster: Uuid,
    after: &Incarnation,
    incarnation: Uuid,
    reason: &str,
) -> Result<PutOutcome> {
    let number = after.number + 1;
    let reason = reason.to_owned();
    let next = Incarnation { version: IDENTITY_VERSION, number, incarnation, reason };
    let json = serde_json::to_vec_pretty(&next)
        .map_err(|error| Error::bug("an incarnation is always JSON").with_source(error))?;
    let key = format!("{}/{number:020}.json", incarnations_folder(cluster));
    store.put(&key, vec![Bytes::from(json)]).await
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
    async fn the_newest_incarnation_is_the_one_that_holds() {
        let store = MemoryStore::new();
        let identity = ClusterIdentity::new(Uuid::from_u128(1), Uuid::from_u128(2));
        let mut newest = read_incarnation(&store, &identity).await.expect("the identity's");
        assert_eq!((newest.number, newest.incarnation), (0, identity.incarnation));
        for number in 1..4u64 {
            let next = Uuid::from_u128(100 + u128::from(number));
            let cluster = identity.cluster;
            let recorded = record_incarnation(&store, cluster, &newest, next, "put back").await;
            assert_eq!(recorded.expect("record"), PutOutcome::Created);
            let late = record_incarnation(&store, cluster, &newest, cluster, "late").await;
            assert_eq!(late.expect("record"), PutOutcome::Exists);
            newest = read_incarnation(&store, &identity).await.expect("read");
            let found = (newest.number, newest.incarnation, newest.reason.as_str());
            assert_eq!(found, (number, next, "put back"));
        }
        let others =
            [(9, "{}", ErrorKind::Corrupt), (10, "{\"version\":99,\"x\":0}", ErrorKind::Invalid)];
        for (number, content, kind) in others {
            let key = format!("{}/{number:020}.json", incarnations_folder(identity.cluster));
            store.put(&key, vec![Bytes::from(content)]).await.expect("put");
            let error = read_incarnation(&store, &identity).await.expect_err(content);
            assert_eq!(error.kind(), kind, "{content}: {error}");
        }
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
