//! The suite on SQLite, and what only a file has: the lock, restarts, durability, versions.

use floe_env::simulated::Node;
use floe_env::{Env, ErrorKind};
use floe_metadata::suite::{self, histories};
use floe_metadata::{Backend, MetadataStore, SqliteBackend};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

async fn open(env: &Env, path: &Path) -> Arc<dyn Backend> {
    // The workers of a dropped backend take a moment to end.
    for _ in 0..500 {
        match SqliteBackend::open(env, path).await {
            Ok(backend) => return Arc::new(backend),
            Err(error) if error.message().contains("in use") => {
                env.sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the file stayed locked");
}

#[tokio::test]
async fn cases() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::current();
    let backend = open(&env, &directory.path().join("meta.db")).await;
    suite::run_all(backend, &env).await;
}

#[tokio::test]
async fn sequential_histories() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::current();
    let backend = open(&env, &directory.path().join("meta.db")).await;
    for seed in 0..8 {
        Box::pin(histories::sequential(Arc::clone(&backend), &env, seed, 150)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::current();
    let backend = open(&env, &directory.path().join("meta.db")).await;
    for seed in 0..5 {
        let plan = histories::Plan { seed, tasks: 4, calls: 30 };
        let same = Arc::clone(&backend);
        let history = histories::concurrent(Arc::clone(&backend), same, &env, plan);
        assert_eq!(Box::pin(history).await, 0);
    }
}

#[test]
fn cases_in_the_simulation() {
    let directory = tempfile::tempdir().unwrap();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let env = Env::simulated(Node::new(1));
        let backend = open(&env, &directory.path().join("meta.db")).await;
        suite::run_all(backend, &env).await;
    });
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta.db");
    let env = Env::current();
    let first = open(&env, &path).await;
    let error = SqliteBackend::open(&env, &path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let pid = std::process::id();
    assert_eq!(error.message(), format!("metadata is in use by another floe (pid {pid})"));
    drop(first);
    open(&env, &path).await;
}

#[tokio::test]
async fn facts_and_locks_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta.db");
    let env = Env::current();
    let store = MetadataStore::new(open(&env, &path).await, env.clone());
    let ids = store.allocate_producer_ids(10).await.unwrap();
    store.create_topic("kept", 3, 1, Default::default()).await.unwrap();
    drop(store);
    let store = MetadataStore::new(open(&env, &path).await, env.clone());
    assert_eq!(store.topic_by_name("kept").await.unwrap().unwrap().partition_count, 3);
    assert_eq!(store.allocate_producer_ids(1).await.unwrap().start, ids.end);
}

#[tokio::test]
async fn other_and_newer_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::current();
    let text = directory.path().join("text.db");
    std::fs::write(&text, vec![b'x'; 5000]).unwrap();
    let error = SqliteBackend::open(&env, &text).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let other = directory.path().join("other.db");
    let sql = rusqlite::Connection::open(&other).unwrap();
    sql.execute_batch("CREATE TABLE mine (id INTEGER)").unwrap();
    drop(sql);
    let error = SqliteBackend::open(&env, &other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let newer = directory.path().join("newer.db");
    drop(open(&env, &newer).await);
    let set = |version: i64, min_broker: i64| {
        let sql = rusqlite::Connection::open(&newer).unwrap();
        sql.busy_timeout(Duration::from_secs(10)).unwrap();
        let update = "UPDATE schema SET version = ?1, min_broker = ?2";
        sql.execute(update, (version, min_broker)).unwrap();
    };
    // Newer, but still fit for this release.
    set(7, 1);
    drop(open(&env, &newer).await);
    set(7, 7);
    let error = loop {
        let error = SqliteBackend::open(&env, &newer).await.unwrap_err();
        if !error.message().contains("in use") {
            break error;
        }
        env.sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("schema version 7"), "{error}");
    let missing = directory.path().join("no/such/meta.db");
    let error = SqliteBackend::open(&env, &missing).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
