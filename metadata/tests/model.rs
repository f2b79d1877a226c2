//! The suite on the in-memory model.

use floe_env::Env;
use floe_metadata::suite::{self, histories};
use floe_metadata::{Backend, ModelBackend};
use std::sync::Arc;

fn backend(env: &Env) -> Arc<dyn Backend> {
    Arc::new(ModelBackend::new(env.clone()))
}

#[tokio::test]
async fn cases() {
    let env = Env::current();
    suite::run_all(backend(&env), &env).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories() {
    let env = Env::current();
    for seed in 0..5 {
        let plan = histories::Plan { seed, tasks: 4, calls: 30 };
        let backend = backend(&env);
        let history = histories::concurrent(Arc::clone(&backend), backend, &env, plan);
        assert_eq!(Box::pin(history).await, 0);
    }
}
