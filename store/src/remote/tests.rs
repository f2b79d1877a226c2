//! What each answer of an S3 server means, from a stub that gives one answer to everything.

use super::*;
use crate::options::{Secret, StoreOptions};
use crate::probe::probe;
use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use floe_env::{Env, ErrorKind, Lane};
use tokio::net::TcpListener;

fn store_at(endpoint: String) -> RemoteStore {
    let mut options = StoreOptions { request_timeout_ms: 300, ..StoreOptions::default() };
    options.s3.endpoint = Some(endpoint);
    options.s3.access_key_id = Some("key".into());
    options.s3.secret_access_key = Some(Secret::new("secret"));
    RemoteStore::open(Provider::S3, "bucket", "prefix", &options).expect("open")
}

async fn serve(router: Router) -> RemoteStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let serving = async move { axum::serve(listener, router).await.expect("serve") };
    drop(Env::current().spawn("stub", Lane::Foreground, serving));
    store_at(format!("http://{address}"))
}

/// A server that gives one answer to everything.
async fn answering(status: u16, code: &str) -> RemoteStore {
    let status = StatusCode::from_u16(status).expect("status");
    let message = format!("<Error><Code>{code}</Code><Message>as it is</Message></Error>");
    let answer = move || async move { (status, message).into_response() };
    serve(Router::new().fallback(answer)).await
}

#[tokio::test]
async fn what_others_have_put_is_listed_and_deleted() {
    let remote: Arc<dyn Remote> = Arc::new(object_store::memory::InMemory::new());
    let (url, prefix) = ("memory://x/prefix".to_owned(), "prefix".to_owned());
    let store = RemoteStore { remote: remote.clone(), url, prefix };
    for key in ["prefix/a/city=New+York/1%2F2", "prefix/a/not a key"] {
        let path = Path::parse(key).expect("a path");
        remote
            .put_opts(&path, PutPayload::from_static(b"x"), PutOptions::default())
            .await
            .expect("put");
    }
    let mut keys: Vec<String> = Vec::new();
    while let [next] = &store.list("a", keys.last().map(String::as_str), 1).await.expect("list")[..]
    {
        keys.push(next.key.clone());
    }
    assert_eq!(keys, ["a/city=New+York/1%2F2", "a/not a key"]);
    store.delete(&keys).await.expect("delete");
    assert_eq!(store.list("", None, 10).await.expect("list"), []);
}

async fn put_error(store: &RemoteStore) -> Error {
    let put = store.put("a/b", vec![Bytes::from_static(b"x")]).await;
    put.expect_err("the put must fail")
}

#[tokio::test]
async fn the_probe_says_what_to_change() {
    for (status, code, expected) in [
        (403, "InvalidAccessKeyId", "the store does not know this access key id"),
        (403, "SignatureDoesNotMatch", "the secret key does not belong to the access key id"),
        (403, "RequestTimeTooSkewed", "this machine's clock differs too much from the store's"),
        (403, "AccessDenied", "these credentials have no permission for this"),
        (404, "NoSuchBucket", "the bucket does not exist"),
        (400, "ExpiredToken", "the session token has expired"),
        (400, "AuthorizationHeaderMalformed", "the bucket is in another region"),
        (403, "SomethingNew", "the store refuses these credentials"),
        (418, "Teapot", "HTTP status 418"),
    ] {
        let store = answering(status, code).await;
        let error = probe(&Env::current(), &store).await.expect_err("the probe must fail");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{code}: {error}");
        assert!(error.message().contains(expected), "{code}: {}", error.message());
        assert!(error.message().starts_with("object store probe, writing: write s3://bucket"));
    }
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    drop(listener);
    let error = put_error(&store_at(format!("http://{address}"))).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("the endpoint cannot be reached"), "{error}");
}

#[tokio::test]
async fn a_put_that_may_have_arrived_is_unknown_and_a_read_is_not() {
    for (status, code, put, read) in [
        (500, "InternalError", ErrorKind::UnknownOutcome, ErrorKind::Retry),
        (502, "", ErrorKind::UnknownOutcome, ErrorKind::Retry),
        (503, "ServiceUnavailable", ErrorKind::UnknownOutcome, ErrorKind::Retry),
        (504, "", ErrorKind::UnknownOutcome, ErrorKind::Retry),
        (408, "RequestTimeout", ErrorKind::UnknownOutcome, ErrorKind::Retry),
        (503, "SlowDown", ErrorKind::Retry, ErrorKind::Retry),
        (429, "", ErrorKind::Retry, ErrorKind::Retry),
        (403, "AccessDenied", ErrorKind::Invalid, ErrorKind::Invalid),
    ] {
        let store = answering(status, code).await;
        assert_eq!(put_error(&store).await.kind(), put, "put {status} {code}");
        let error = store.get("a/b").await.expect_err("get");
        assert_eq!(error.kind(), read, "get {status} {code}: {error}");
        let error = store.get_range("a/b", 0..1).await.expect_err("range");
        assert_eq!(error.kind(), read, "range {status} {code}: {error}");
        let error = store.list("a", None, 1).await.expect_err("list");
        assert_eq!(error.kind(), read, "list {status} {code}: {error}");
        let error = store.head("a/b").await.expect_err("head");
        assert_eq!(error.kind(), if status == 503 { ErrorKind::Retry } else { read });
    }
    let hanging = || async { futures::future::pending::<()>().await };
    let store = serve(Router::new().fallback(hanging)).await;
    let error = put_error(&store).await;
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert!(error.message().contains("did not answer in time"), "{error}");
    let error = store.get("a/b").await.expect_err("get");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_off_leaves_a_put_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let serving = async move {
        while let Ok((connection, _)) = listener.accept().await {
            connection.readable().await.expect("a request");
            drop(connection);
        }
    };
    drop(Env::current().spawn("stub", Lane::Foreground, serving));
    let error = put_error(&store_at(format!("http://{address}"))).await;
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
}

#[tokio::test]
async fn a_taken_key_exists_and_a_conflict_is_looked_at() {
    let put =
        |store: RemoteStore| async move { store.put("a/b", vec![Bytes::from_static(b"x")]).await };
    let store = answering(412, "PreconditionFailed").await;
    assert_eq!(put(store).await.expect("put"), PutOutcome::Exists);
    // A conflict with a put that then failed: the object is not there.
    let conflict = || async { (StatusCode::CONFLICT, "ConditionalRequestConflict") };
    let none = || async { StatusCode::NOT_FOUND };
    let router = Router::new().fallback(axum::routing::put(conflict).head(none));
    assert_eq!(put(serve(router).await).await.expect_err("conflict").kind(), ErrorKind::Retry);
    // A conflict with an object that is there.
    let there =
        || async { [("content-length", "1"), ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")] };
    let router = Router::new().fallback(axum::routing::put(conflict).head(there));
    assert_eq!(put(serve(router).await).await.expect("put"), PutOutcome::Exists);
}

#[tokio::test]
async fn a_missing_bucket_is_not_a_missing_object() {
    let store = answering(404, "NoSuchKey").await;
    assert_eq!(store.get("a/b").await.expect("get"), None);
    let missing = store.get_range("a/b", 0..1).await.expect_err("range");
    assert_eq!(missing.kind(), ErrorKind::Invalid);
    assert!(missing.message().contains("there is no object a/b"), "{missing}");
    let store = answering(404, "NoSuchBucket").await;
    let error = store.get("a/b").await.expect_err("get");
    assert!(error.message().contains("the bucket does not exist"), "{error}");
}

#[tokio::test]
async fn a_store_that_overwrites_is_refused() {
    let ok = || async { [("etag", "\"1\"")] };
    let store = serve(Router::new().fallback(ok)).await;
    let error = probe(&Env::current(), &store).await.expect_err("the probe must fail");
    assert!(error.message().contains("ignores conditional creates"), "{error}");
}
