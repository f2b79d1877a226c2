//! The catalog over real HTTP, as engines ask.

use super::router;
use crate::tests::support::World;
use floe_env::Env;
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

struct Served {
    address: SocketAddr,
    world: World,
    topic: kfs::TopicId,
}

struct Answer {
    status: u16,
    body: Value,
}

impl Answer {
    fn error(&self) -> (u16, &str) {
        assert_eq!(self.body["error"]["code"], u64::from(self.status));
        assert!(self.body["error"]["message"].is_string());
        (self.status, self.body["error"]["type"].as_str().unwrap())
    }
}

impl Served {
    async fn start() -> Self {
        let env = Env::current();
        let world = World::new();
        let topic = world.topic("Orders", 1).await;
        let bridge = world.bridge_with(env.clone(), |config| {
            config.client_config.insert("s3.region".to_owned(), "nowhere".to_owned());
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async move { axum::serve(listener, router(bridge)).await.unwrap() };
        drop(env.spawn("serve", floe_env::Lane::Foreground, serving));
        Self { address, world, topic }
    }

    async fn ask(&self, method: &str, path: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{method} /iceberg/v1/{path} HTTP/1.1\r\nHost: floe\r\nConnection: close\r\n\
             Content-Length: 2\r\nContent-Type: application/json\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
        Answer { status, body }
    }
}

#[tokio::test]
async fn a_client_finds_its_way() {
    let served = Served::start().await;
    served.world.append(served.topic, 0, 0..3);
    let config = served.ask("GET", "config?warehouse=").await;
    assert_eq!((config.status, &config.body["overrides"]["prefix"]), (200, &"floe".into()));
    for endpoint in config.body["endpoints"].as_array().unwrap() {
        let (method, path) = endpoint.as_str().unwrap().split_once(" /v1/").unwrap();
        let path = path.replace("{prefix}", "floe").replace("{namespace}", "kafka");
        let answer = served.ask(method, &path.replace("{table}", "orders")).await;
        assert!(answer.status < 300, "{endpoint}: {}", answer.status);
    }
    let namespaces = served.ask("GET", "floe/namespaces").await;
    assert_eq!(namespaces.body["namespaces"], serde_json::json!([["kafka"]]));
    let below = served.ask("GET", "floe/namespaces?parent=kafka").await;
    assert_eq!(below.body["namespaces"], serde_json::json!([]));
    let tables = served.ask("GET", "floe/namespaces/kafka/tables").await;
    assert_eq!(tables.body["identifiers"][0]["name"], "orders");
    let table = served.ask("GET", "floe/namespaces/kafka/tables/orders?snapshots=all").await;
    assert_eq!(table.status, 200);
    let metadata = &table.body["metadata"];
    assert_eq!(metadata["format-version"], 2);
    let current = metadata["current-snapshot-id"].as_i64().unwrap();
    assert_eq!(metadata["refs"]["floe"]["snapshot-id"], current);
    let location = table.body["metadata-location"].as_str().unwrap();
    assert!(location.starts_with(metadata["location"].as_str().unwrap()));
    assert_eq!(table.body["config"], serde_json::json!({ "s3.region": "nowhere" }));
    let token = served.ask("POST", "oauth/tokens").await;
    assert_eq!(token.body["token_type"], "bearer");
}

#[tokio::test]
async fn relaxed_loads_commit_nothing() {
    let served = Served::start().await;
    served.world.append(served.topic, 0, 0..3);
    let path = |prefix: &str| format!("{prefix}/namespaces/kafka/tables/orders");
    assert_eq!(served.ask("GET", &path("relaxed")).await.status, 404, "no look, no table");
    let listed = served.ask("GET", "relaxed/namespaces/kafka/tables").await;
    assert_eq!(listed.body["identifiers"], serde_json::json!([]), "nor does a list make one");
    let total = |answer: &Answer| {
        let metadata = &answer.body["metadata"];
        let current = &metadata["current-snapshot-id"];
        // The list has no order that anybody may rely on.
        let mut snapshots = metadata["snapshots"].as_array().unwrap().iter();
        let newest = snapshots.find(|snapshot| snapshot["snapshot-id"] == *current).unwrap();
        newest["summary"]["total-records"].clone()
    };
    assert_eq!(total(&served.ask("GET", &path("floe")).await), "3");
    served.world.append(served.topic, 0, 3..5);
    assert_eq!(total(&served.ask("GET", &path("relaxed")).await), "3");
    assert_eq!(total(&served.ask("GET", &path("floe")).await), "5");
    let config = served.ask("GET", "config?warehouse=relaxed").await;
    assert_eq!(config.body["overrides"]["prefix"], "relaxed");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let served = Served::start().await;
    let cases = [
        ("GET", "config?warehouse=other", (404, "NoSuchWarehouseException")),
        ("GET", "other/namespaces", (404, "NoSuchWarehouseException")),
        ("GET", "floe/namespaces/nope", (404, "NoSuchNamespaceException")),
        ("GET", "floe/namespaces/kafka%1Fdeep", (404, "NoSuchNamespaceException")),
        ("GET", "floe/namespaces?parent=nope", (404, "NoSuchNamespaceException")),
        ("GET", "floe/namespaces/nope/tables", (404, "NoSuchNamespaceException")),
        ("GET", "floe/namespaces/kafka/tables/nope", (404, "NoSuchTableException")),
        ("GET", "floe/namespaces/kafka/tables/orders$files", (404, "NoSuchTableException")),
        ("GET", "floe/namespaces/nope/tables/orders", (404, "NoSuchTableException")),
        ("GET", "floe/namespaces/kafka%1Forders/tables/snapshots", (404, "NoSuchTableException")),
        ("GET", "floe/namespaces/kafka/views/orders", (404, "NoSuchViewException")),
        ("GET", "floe/namespaces/kafka/views/orders$files", (404, "NoSuchViewException")),
        ("GET", "floe/namespaces/kafka/tables?pageSize=0", (400, "BadRequestException")),
        ("GET", "floe/nowhere/to/go", (404, "NotFoundException")),
        ("PUT", "floe/namespaces", (406, "UnsupportedOperationException")),
    ];
    for (method, path, expected) in cases {
        assert_eq!(served.ask(method, path).await.error(), expected, "{method} {path}");
    }
    assert_eq!(served.ask("HEAD", "floe/namespaces/kafka/tables/nope").await.status, 404);
}

#[tokio::test]
async fn writes_are_refused() {
    let served = Served::start().await;
    let writes = [
        ("POST", "floe/namespaces"),
        ("DELETE", "floe/namespaces/kafka"),
        ("POST", "floe/namespaces/kafka/properties"),
        ("POST", "floe/namespaces/kafka/tables"),
        ("POST", "floe/namespaces/kafka/register"),
        ("POST", "floe/namespaces/kafka/tables/orders"),
        ("DELETE", "floe/namespaces/kafka/tables/orders?purgeRequested=true"),
        ("POST", "floe/tables/rename"),
        ("POST", "floe/transactions/commit"),
        ("POST", "floe/namespaces/kafka/views"),
    ];
    for (method, path) in writes {
        assert_eq!(served.ask(method, path).await.error(), (403, "ForbiddenException"), "{path}");
    }
}

#[tokio::test]
async fn tables_come_in_pages() {
    let served = Served::start().await;
    for name in ["a", "b-c", "d"] {
        let topic = served.world.topic(name, 1).await;
        served.world.append(topic, 0, 0..1);
    }
    for table in ["a", "b_c", "d"] {
        let path = format!("floe/namespaces/kafka/tables/{table}");
        assert_eq!(served.ask("GET", &path).await.status, 200);
    }
    let (mut token, mut names) = (String::new(), Vec::new());
    for _ in 0..3 {
        let path = format!("floe/namespaces/kafka/tables?pageSize=1&pageToken={token}");
        let page = served.ask("GET", &path).await;
        let identifiers = page.body["identifiers"].as_array().unwrap();
        assert_eq!(identifiers.len(), 1);
        names.push(identifiers[0]["name"].as_str().unwrap().to_owned());
        token = page.body["next-page-token"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!((names, token.as_str()), (vec!["a".into(), "b_c".into(), "d".into()], ""));
}
