//! The store suite and the probe on a real S3 server, which `scripts/with-servers` starts.
//! `FLOE_TEST_S3` is its address.

use floe_env::{Env, ErrorKind};
use floe_store::{ObjectStore, Secret, StoreOptions, open, probe, suite};
use std::sync::Arc;

fn options() -> StoreOptions {
    let endpoint = std::env::var("FLOE_TEST_S3").expect(
        "FLOE_TEST_S3 is not set: run these tests with scripts/with-servers, which starts S3",
    );
    let mut options = StoreOptions::default();
    options.s3.endpoint = Some(endpoint);
    options.s3.access_key_id = Some("rigkey".into());
    options.s3.secret_access_key = Some(Secret::new("rigsecret123"));
    options
}

async fn open_at(url: &str, options: &StoreOptions) -> Arc<dyn ObjectStore> {
    open(Env::current(), url, options).await.expect("open")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_of_a_bucket_passes_the_suite() {
    let env = Env::current();
    let url = format!("s3://floe/prefix/{}", env.uuid());
    let store = open_at(&url, &options()).await;
    probe(&env, store.as_ref()).await.expect("probe");
    suite::run(&env, store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsigned_payloads_at_the_root_of_a_bucket_pass_the_suite() {
    let mut options = options();
    options.s3.unsigned_payload = Some(true);
    suite::run(&Env::current(), open_at("s3://floe", &options).await).await;
}

async fn probe_error(url: &str, options: &StoreOptions) -> String {
    let store = open_at(url, options).await;
    let error = probe(&Env::current(), store.as_ref()).await.expect_err("the probe must fail");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    error.message().to_owned()
}

// A missing bucket is the stub's part (`remote/tests.rs`): SeaweedFS makes it for an administrator.
#[tokio::test]
async fn wrong_keys_are_explained() {
    let mut wrong = options();
    wrong.s3.secret_access_key = Some(Secret::new("wrong"));
    let message = probe_error("s3://floe", &wrong).await;
    assert!(message.contains("the secret key does not belong to the access key id"), "{message}");

    let mut wrong = options();
    wrong.s3.access_key_id = Some("nobody".into());
    let message = probe_error("s3://floe", &wrong).await;
    assert!(message.contains("does not know this access key id"), "{message}");
}
