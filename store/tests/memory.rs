//! The store suite on memory, bare and below every layer.

use floe_env::{Env, ErrorKind};
use floe_store::{
    CallKind, Counted, EndedCall, MemoryStore, ObjectStore, RetryPolicy, Retrying, probe, suite,
};
use parking_lot::Mutex;
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
async fn each_call_is_told_when_it_has_ended() {
    let counted = Counted::new(Env::current(), Arc::new(MemoryStore::new()));
    let told: Arc<Mutex<Vec<EndedCall>>> = Arc::default();
    let telling = told.clone();
    counted.counters().on_call(move |call| telling.lock().push(call));
    counted.put("a/b", vec![bytes::Bytes::from_static(b"1234")]).await.expect("put");
    counted.get_range("a/b", 1..3).await.expect("read");
    counted.get_range("a/b", 1..9).await.expect_err("outside");
    counted.list("a", None, 9).await.expect("listed");
    counted.delete(&["a/b".to_owned()]).await.expect("deleted");
    let told: Vec<_> = told.lock().iter().map(|call| (call.kind, call.error, call.bytes)).collect();
    let expected = [
        (CallKind::Put, None, 4),
        (CallKind::Get, None, 2),
        (CallKind::Get, Some(ErrorKind::Invalid), 0),
        (CallKind::List, None, 0),
        (CallKind::Delete, None, 0),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn the_probe_leaves_nothing() {
    let store = MemoryStore::new();
    probe(&Env::current(), &store).await.expect("probe");
    let left = floe_store::ObjectStore::list(&store, "", None, 10).await.expect("list");
    assert!(left.is_empty());
}
