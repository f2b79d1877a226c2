//! A store that was moved: the folder is another, and all that is in it is the same.

use super::*;
use crate::commit::tests_support::table_files;
use crate::tests::support::World;
use async_trait::async_trait;
use floe_env::ErrorKind;
use floe_env::simulated::Node;
use floe_store::{MemoryStore, ObjectMeta, PutOutcome};
use std::ops::Range;

/// A store whose objects are addressed elsewhere.
struct Moved(MemoryStore);

#[async_trait]
impl ObjectStore for Moved {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        self.0.put(key, parts).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.0.get_range(key, range).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        self.0.get(key).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.0.head(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        self.0.list(prefix, after, limit).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        self.0.delete(keys).await
    }

    fn url(&self, key: &str) -> String {
        format!("file:///new/folder/{key}")
    }
}

fn tables(world: &World, is_moved: bool) -> Tables {
    let store: Arc<dyn ObjectStore> = match is_moved {
        true => Arc::new(Moved(world.store.objects.clone())),
        false => Arc::new(world.store.clone()),
    };
    let env = Env::simulated(Node::new(9));
    Tables { env, store, metadata: world.metadata.clone(), cluster: world.cluster }
}

#[tokio::test(start_paused = true)]
async fn a_moved_store_is_refused_until_its_tables_are_relocated() {
    let world = World::new();
    let (old, new) = (tables(&world, false), tables(&world, true));
    new.check_address().await.unwrap();
    old.check_address().await.unwrap();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(Env::simulated(Node::new(2)));
    for end in [5, 9, 12] {
        world.append(topic, 0, end - 3..end);
        bridge.look("t").await.unwrap().unwrap();
    }
    let before = bridge.newest("t").await.unwrap().unwrap();
    let refused = new.check_address().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("floe tables relocate"), "{refused}");
    assert!(refused.to_string().contains(before.place.url()), "{refused}");
    old.check_address().await.unwrap();
    let done = new.relocate(&|_| ()).await.unwrap();
    // Three manifests, three lists, one metadata file.
    assert_eq!(done, Relocated { tables: 1, files: 7 });
    assert_eq!(new.relocate(&|_| ()).await.unwrap(), Relocated::default());
    new.check_address().await.unwrap();
    assert!(old.check_address().await.is_err());
    let pointers = FactPointers::new(world.metadata.clone());
    let pointer = pointers.by_name("kafka", "t").await.unwrap().unwrap();
    let store = new.store.as_ref();
    let moved = crate::commit::LoadedTable::load(&new.env, store, world.cluster, pointer);
    let moved = moved.await.unwrap();
    assert_eq!((&moved.stopped, &moved.progress), (&None, &before.progress));
    assert_eq!(moved.metadata.location(), moved.place.url());
    let text = String::from_utf8_lossy(&moved.metadata_json()).into_owned();
    assert!(!text.contains("memory://"), "{text}");
    for snapshot in moved.metadata.snapshots() {
        for manifest in moved.manifests_of(new.store.as_ref(), snapshot).await.unwrap() {
            for file in moved.files_of(new.store.as_ref(), &manifest).await.unwrap() {
                assert!(file.data_file.file_path().starts_with(moved.place.url()));
            }
        }
    }
    let names = |files: Vec<iceberg::spec::DataFile>| -> Vec<(String, u64)> {
        let name = |file: &iceberg::spec::DataFile| {
            let (_, name) = file.file_path().rsplit_once('/').unwrap();
            (name.to_owned(), file.record_count())
        };
        files.iter().map(name).collect()
    };
    let (was, is) =
        (table_files(&world.store, &before).await, table_files(new.store.as_ref(), &moved).await);
    assert_eq!(names(was), names(is));
}
