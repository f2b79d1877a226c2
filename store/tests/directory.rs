//! The store suite on a directory: of the machine, with and without direct writes, and of the
//! simulated file system.

use floe_env::Env;
use floe_store::directory::SimulatedFileSystem;
use floe_store::{DirectoryStore, ObjectStore, probe, suite};
use std::path::PathBuf;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_writes_pass_the_suite() {
    run_on_disk(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buffered_writes_pass_the_suite() {
    run_on_disk(false).await;
}

async fn run_on_disk(direct: bool) {
    let env = Env::current();
    let folder = tempfile::tempdir().expect("folder");
    let root = folder.path().join("made/on/the/way");
    let store = DirectoryStore::open(env.clone(), &root, direct).await.expect("open");
    let store: Arc<dyn ObjectStore> = Arc::new(store);
    probe(&env, store.as_ref()).await.expect("probe");
    suite::run(&env, store.clone()).await;
    let url = store.url("a/b");
    assert_eq!(url, format!("file://{}/a/b", root.display()));
    let mut left = std::fs::read_dir(root.join(".tmp")).expect("temporary folder");
    let left: Vec<_> = left.by_ref().map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(left, ["lock"]);
}

#[tokio::test]
async fn the_simulated_file_system_passes_the_suite() {
    let env = Env::current();
    let file_system = SimulatedFileSystem::new();
    let store = DirectoryStore::open_on(env.clone(), file_system, PathBuf::from("/a/b")).await;
    suite::run(&env, Arc::new(store.expect("open"))).await;
}
