use super::manifest::read;
use super::*;
use async_trait::async_trait;
use floe_env::ErrorKind;
use floe_store::{ClusterIdentity, MemoryStore, ObjectStore, StoreLayer, create_identity};
use kfs::ClusterId;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use uuid::Uuid;

/// A store of which the puts after some fail.
struct Failing {
    inner: MemoryStore,
    puts_left: AtomicUsize,
}

#[async_trait]
impl StoreLayer for Failing {
    fn inner(&self) -> &dyn ObjectStore {
        &self.inner
    }

    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        let take = |left: usize| left.checked_sub(1);
        match self.puts_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => self.inner.put(key, parts).await,
            Err(_) => Err(Error::unavailable("the store is away")),
        }
    }
}

struct Rig {
    env: Env,
    folder: tempfile::TempDir,
    store: Arc<Failing>,
    metadata: MetadataStore,
    snapshots: Snapshots,
    cluster: Uuid,
}

impl Rig {
    async fn start() -> Self {
        let env = Env::current();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metadata.sqlite");
        let store = Arc::new(Failing {
            inner: MemoryStore::default(),
            puts_left: AtomicUsize::new(usize::MAX),
        });
        let metadata = open(&env, &file).await;
        let cluster = env.uuid();
        metadata.initialise_cluster(ClusterId(cluster)).await.unwrap();
        let incarnation = metadata.incarnation().await.unwrap().unwrap();
        let identity = ClusterIdentity::new(cluster, incarnation);
        create_identity(store.as_ref(), &identity).await.unwrap();
        let snapshots = Snapshots::new(&env, store.clone(), metadata.clone(), file);
        Self { env, folder, store, metadata, snapshots, cluster }
    }

    async fn make_topic(&self, name: &str) {
        self.metadata.create_topic(name, 1, 1, BTreeMap::new()).await.unwrap();
    }

    async fn topics(&self) -> Vec<String> {
        names(&self.metadata).await
    }

    /// The keys of all objects of snapshots.
    async fn keys(&self) -> Vec<String> {
        let folder = format!("{}/snapshots", self.cluster);
        let page = self.store.list(&folder, None, 1000).await.unwrap();
        page.into_iter().map(|object| object.key).collect()
    }

    /// Puts one back elsewhere; answers the topics that it has.
    async fn put_back(&self, named: Option<&str>) -> Result<Vec<String>> {
        let file = self.folder.path().join(format!("{}.sqlite", self.env.uuid()));
        put_back(&self.env, self.store.as_ref(), &file, named, &|_| {}).await.inspect_err(
            |_| {
                assert!(!file.exists(), "a part of a file must not be taken for all of it");
            },
        )?;
        Ok(names(&open(&self.env, &file).await).await)
    }
}

async fn open(env: &Env, file: &Path) -> MetadataStore {
    MetadataStore::new(Arc::new(SqliteBackend::open(env, file).await.unwrap()), env.clone())
}

async fn names(metadata: &MetadataStore) -> Vec<String> {
    let topics = metadata.topics().await.unwrap();
    topics.into_iter().map(|topic| topic.name).collect()
}

#[tokio::test]
async fn a_snapshot_brings_back_all_that_was_committed_before_it() {
    let rig = Rig::start().await;
    rig.make_topic("before").await;
    rig.snapshots.round().await.unwrap();
    rig.make_topic("after").await;
    assert_eq!(rig.put_back(None).await.unwrap(), ["before"]);
    rig.snapshots.round().await.unwrap();
    assert_eq!(rig.put_back(None).await.unwrap(), rig.topics().await);
    let views = views(rig.store.as_ref()).await.unwrap();
    assert_eq!(views.len(), 2);
    assert_eq!(rig.put_back(Some(&views[0].name)).await.unwrap(), ["before"]);
    assert!(views[0].bytes > 0 && views[0].taken_ms <= views[1].taken_ms);
    assert!(!rig.folder.path().join("metadata.sqlite.snapshot").exists(), "the copy is removed");
}

#[tokio::test]
async fn nothing_is_put_where_nothing_has_changed() {
    let rig = Rig::start().await;
    rig.make_topic("made").await;
    rig.snapshots.round().await.unwrap();
    // A change that was asked for just before the first may have missed it.
    rig.snapshots.round().await.unwrap();
    let keys = rig.keys().await;
    let moment = rig.snapshots.moment();
    moment.set(1);
    rig.snapshots.round().await.unwrap();
    assert_eq!(rig.keys().await, keys);
    assert!(moment.get() > Some(1), "the newest still has all there is");
    rig.make_topic("another").await;
    rig.snapshots.round().await.unwrap();
    assert!(rig.keys().await.len() > keys.len());
    assert_eq!(rig.put_back(None).await.unwrap(), rig.topics().await);
}

#[tokio::test]
async fn a_snapshot_that_was_cut_short_does_not_count() {
    let rig = Rig::start().await;
    rig.make_topic("whole").await;
    rig.snapshots.round().await.unwrap();
    let moment = rig.snapshots.moment().get();
    rig.make_topic("cut").await;
    rig.store.puts_left.store(1, Ordering::SeqCst);
    rig.snapshots.round().await.unwrap_err();
    assert_eq!(rig.snapshots.moment().get(), moment, "nothing may be deleted for it");
    assert_eq!(rig.put_back(None).await.unwrap(), ["whole"]);
    rig.store.puts_left.store(usize::MAX, Ordering::SeqCst);
    rig.snapshots.round().await.unwrap();
    assert_eq!(rig.put_back(None).await.unwrap(), rig.topics().await);
    let left = list(rig.store.as_ref(), rig.cluster).await.unwrap();
    assert!(left.iter().all(|found| found.is_whole), "what was left goes: {left:?}");
}

#[tokio::test]
async fn the_oldest_go_and_a_new_process_goes_on_counting() {
    let rig = Rig::start().await;
    for number in 0..KEPT + 3 {
        rig.make_topic(&format!("topic{number}")).await;
        let file = rig.folder.path().join("metadata.sqlite");
        // As after a start each time.
        Snapshots::new(&rig.env, rig.store.clone(), rig.metadata.clone(), file)
            .round()
            .await
            .unwrap();
    }
    let found = list(rig.store.as_ref(), rig.cluster).await.unwrap();
    let numbers: Vec<u64> = found.iter().map(|found| found.name.number).collect();
    assert_eq!(numbers, (3..KEPT as u64 + 3).collect::<Vec<_>>());
    assert_eq!(rig.put_back(None).await.unwrap().len(), KEPT + 3);
}

#[tokio::test]
async fn what_is_damaged_missing_or_in_the_way_is_said_and_changes_nothing() {
    let rig = Rig::start().await;
    let error = rig.put_back(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    rig.make_topic("made").await;
    rig.snapshots.round().await.unwrap();
    for wrong in ["newest", "00000000-000000000007", "0-0"] {
        let error = rig.put_back(Some(wrong)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let file = rig.folder.path().join("metadata.sqlite");
    let error = put_back(&rig.env, rig.store.as_ref(), &file, None, &|_| {}).await.unwrap_err();
    assert!(error.to_string().contains("move it away"), "{error}");
    let name = Name { incarnation: 0, number: 0 };
    assert!(read(rig.store.as_ref(), Uuid::nil(), name).await.is_err(), "it is another cluster's");
    let key = part_key(rig.cluster, name, 0);
    rig.store.delete(std::slice::from_ref(&key)).await.unwrap();
    let error = rig.put_back(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    rig.store.inner.put(&key, vec![Bytes::from_static(b"something else")]).await.unwrap();
    let error = rig.put_back(None).await.unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error}");
}
