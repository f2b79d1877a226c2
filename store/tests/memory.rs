//! The store suite on memory, bare and below every layer.

use floe_env::Env;
use floe_store::{Counted, MemoryStore, RetryPolicy, Retrying, probe, suite};
use std::sync::Arc;

#[tokio::test]
async fn memory_passes_the_suite() {
    let env = Env::current();
    suite::run(&env, Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn the_layers_pass_the_suite() {
    let env = Env::current();
    let counted = Counted::new(env.clone(), Arc::new(MemoryStore::new()));
    let counters = counted.counters();
    let policy = RetryPolicy::default();
    suite::run(&env, Arc::new(Retrying::new(env.clone(), Arc::new(counted), policy))).await;
    let counts = counters.snapshot();
    assert!(counts.put.requests > 100 && counts.put.volume > 12 << 20);
    assert!(counts.get.errors > 0 && counts.head.requests > 0);
    assert!(counts.list.volume > 0 && counts.delete.volume > 1_000);
}

#[tokio::test]
async fn the_probe_leaves_nothing() {
    let store = MemoryStore::new();
    probe(&Env::current(), &store).await.expect("probe");
    let left = floe_store::ObjectStore::list(&store, "", None, 10).await.expect("list");
    assert!(left.is_empty());
}
