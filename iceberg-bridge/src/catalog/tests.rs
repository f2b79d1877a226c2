//! The catalog over real HTTP, as engines ask.

use super::{CatalogClient, ReadKeys, router};
use crate::config::CatalogConfig;
use crate::tests::support::World;
use floe_env::Env;
use floe_store::Secret;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

struct Served {
    address: SocketAddr,
    world: World,
    topic: kfs::TopicId,
}

struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Answer {
    fn error(&self) -> (u16, &str) {
        assert_eq!(self.body["error"]["code"], u64::from(self.status));
        assert!(self.body["error"]["message"].is_string());
        (self.status, self.body["error"]["type"].as_str().unwrap())
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Served {
    async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    async fn start_with(change: impl FnOnce(&mut CatalogConfig)) -> Self {
        let world = World::new();
        let topic = world.topic("Orders", 1).await;
        let address = Self::serve(&world, change).await;
        Self { address, world, topic }
    }

    /// Another broker, with other settings.
    async fn beside(self, change: impl FnOnce(&mut CatalogConfig)) -> Self {
        let address = Self::serve(&self.world, change).await;
        Self { address, ..self }
    }

    async fn serve(world: &World, change: impl FnOnce(&mut CatalogConfig)) -> SocketAddr {
        let env = Env::current();
        let bridge = world.bridge_with(env.clone(), |config| {
            config.client_config.insert("s3.region".to_owned(), "nowhere".to_owned());
            change(&mut config.catalog);
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async move { axum::serve(listener, router(bridge)).await.unwrap() };
        drop(env.spawn("serve", floe_env::Lane::Foreground, serving));
        address
    }

    async fn ask(&self, method: &str, path: &str) -> Answer {
        self.ask_with(method, path, "", "{}").await
    }

    /// `headers`: lines, each with its end.
    async fn ask_with(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} /iceberg/v1/{path} HTTP/1.1\r\nHost: floe\r\nConnection: close\r\n\
             {headers}Content-Length: {length}\r\nContent-Type: application/json\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
        Answer { status, head: head.to_owned(), body }
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
        ("GET", "floe/namespaces?pageSize=0", (400, "BadRequestException")),
        ("GET", "floe/namespaces?pageSize=many", (400, "BadRequestException")),
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
        ("POST", "floe/namespaces/kafka/register", (406, "UnsupportedOperationException")),
        ("POST", "floe/namespaces/kafka/views", (406, "UnsupportedOperationException")),
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
        ("POST", "floe/namespaces/kafka/tables/orders"),
        ("DELETE", "floe/namespaces/kafka/tables/orders?purgeRequested=true"),
        ("POST", "floe/tables/rename"),
        ("POST", "floe/transactions/commit"),
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

const CLIENT: &str = "grant_type=client_credentials&scope=catalog";
const EXCHANGE: &str = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange";

async fn with_client(lifetime: Duration) -> Served {
    Served::start_with(|catalog| {
        let secret = Secret::new("s3cret+&");
        catalog.client = Some(CatalogClient { id: "engine".to_owned(), secret });
        catalog.token_lifetime = lifetime;
    })
    .await
}

impl Served {
    async fn token(&self, headers: &str, form: &str) -> Answer {
        self.ask_with("POST", "oauth/tokens", headers, form).await
    }
}

fn bearer(answer: &Answer) -> String {
    let token = answer.body["access_token"].as_str().unwrap();
    format!("Authorization: Bearer {token}\r\n")
}

#[tokio::test]
async fn who_brings_no_good_token_is_told_so() {
    let served = with_client(Duration::from_secs(60)).await;
    for headers in ["", "Authorization: Bearer anonymous\r\n", "Authorization: Basic eDp5\r\n"] {
        for path in ["config", "floe/namespaces", "floe/namespaces/kafka/tables/orders", "nowhere"]
        {
            let answer = served.ask_with("GET", path, headers, "{}").await;
            assert_eq!(answer.error(), (401, "NotAuthorizedException"), "{path} {headers}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    let forms = [
        ("", CLIENT.to_owned(), (401, "invalid_client")),
        ("", format!("{CLIENT}&client_id=engine&client_secret=wrong"), (401, "invalid_client")),
        (
            "",
            format!("{CLIENT}&client_id=other&client_secret=s3cret%2B%26"),
            (401, "invalid_client"),
        ),
        ("Authorization: Basic !\r\n", CLIENT.to_owned(), (401, "invalid_client")),
        ("", format!("{EXCHANGE}&subject_token=x"), (401, "invalid_client")),
        ("", "grant_type=password".to_owned(), (400, "unsupported_grant_type")),
    ];
    for (headers, form, (status, error)) in forms {
        let answer = served.token(headers, &form).await;
        assert_eq!((answer.status, &answer.body["error"]), (status, &error.into()), "{form}");
    }
}

#[tokio::test]
async fn a_token_comes_by_form_and_by_basic_and_is_renewed() {
    let served = with_client(Duration::from_secs(60)).await;
    let form = format!("{CLIENT}&client_id=engine&client_secret=s3cret%2B%26");
    let by_form = served.token("", &form).await;
    assert_eq!((by_form.status, &by_form.body["expires_in"]), (200, &60.into()));
    // engine:s3cret+&
    let basic = "Authorization: Basic ZW5naW5lOnMzY3JldCsm\r\n";
    let by_basic = served.token(basic, CLIENT).await;
    let old = by_form.body["access_token"].as_str().unwrap();
    let renewed = served.token("", &format!("{EXCHANGE}&subject_token={old}")).await;
    for answer in [&by_form, &by_basic, &renewed] {
        assert_eq!((answer.status, &answer.body["token_type"]), (200, &"bearer".into()));
        let asked = served.ask_with("GET", "floe/namespaces", &bearer(answer), "{}").await;
        assert_eq!(asked.status, 200);
    }
    assert_ne!(old, renewed.body["access_token"].as_str().unwrap());
}

#[tokio::test]
async fn a_token_that_has_expired_is_refused_and_forgotten() {
    let served = with_client(Duration::from_millis(300)).await;
    let basic = "Authorization: Basic ZW5naW5lOnMzY3JldCsm\r\n";
    let token = served.token(basic, CLIENT).await;
    let headers = bearer(&token);
    assert_eq!(served.ask_with("GET", "config", &headers, "{}").await.status, 200);
    Env::current().sleep(Duration::from_millis(400)).await;
    let late = served.ask_with("GET", "config", &headers, "{}").await;
    assert_eq!(late.error(), (401, "NotAuthorizedException"));
    let old = token.body["access_token"].as_str().unwrap();
    let exchanged = served.token("", &format!("{EXCHANGE}&subject_token={old}")).await;
    assert_eq!(exchanged.status, 401);
    // Who still knows the secret renews it all the same, as Java does.
    let renewed = served.token(basic, &format!("{EXCHANGE}&subject_token={old}")).await;
    assert_eq!(renewed.status, 200);
    let folder = floe_metadata::facts::FactKey::new(&["catalog-tokens"]).folder();
    let kept = served.world.metadata.backend().scan(&folder, 10).await.unwrap();
    assert_eq!(kept.len(), 1, "the old one is forgotten");
}

#[tokio::test]
async fn what_a_client_has_is_not_sent_again() {
    let served = Served::start_with(|catalog| catalog.read_keys = Some(read_keys("reader"))).await;
    let path = "floe/namespaces/kafka/tables/orders";
    served.world.append(served.topic, 0, 0..3);
    let first = served.ask("GET", path).await;
    let tag = first.header("etag").unwrap().to_owned();
    let known = format!("If-None-Match: W/\"x\", {tag}\r\n");
    let same = served.ask_with("GET", path, &known, "{}").await;
    assert_eq!((same.status, same.header("etag")), (304, Some(tag.as_str())));
    assert!(same.body.is_null());
    let keys = "X-Iceberg-Access-Delegation: vended-credentials\r\n";
    let other = served.ask_with("GET", path, &format!("{known}{keys}"), "{}").await;
    assert_eq!(other.status, 200, "an answer with keys is another");
    // A look comes first: what is new is committed, and sent.
    served.world.append(served.topic, 0, 3..5);
    let newer = served.ask_with("GET", path, &known, "{}").await;
    assert_eq!(newer.status, 200);
    assert_ne!(newer.header("etag"), Some(tag.as_str()));
}

#[tokio::test]
async fn only_snapshots_that_are_named_come_if_asked_so() {
    let served = Served::start().await;
    let count = |answer: &Answer| answer.body["metadata"]["snapshots"].as_array().unwrap().len();
    let path = "floe/namespaces/kafka/tables/orders?snapshots=";
    for end in 1..4 {
        served.world.append(served.topic, 0, end - 1..end);
        served.ask("GET", &format!("{path}all")).await;
    }
    assert_eq!(count(&served.ask("GET", &format!("{path}all")).await), 3);
    assert_eq!(count(&served.ask("GET", &format!("{path}refs")).await), 1);
}

fn read_keys(access_key: &str) -> ReadKeys {
    ReadKeys {
        access_key: Secret::new(access_key),
        secret_key: Secret::new("shown"),
        session_token: None,
        endpoint: Some("http://store:1".to_owned()),
        region: Some("here".to_owned()),
        path_style: true,
    }
}

#[tokio::test]
async fn who_has_old_keys_gets_the_new_ones() {
    let with = |id: &'static str| {
        move |catalog: &mut CatalogConfig| catalog.read_keys = Some(read_keys(id))
    };
    let served = Served::start_with(with("old")).await;
    served.world.append(served.topic, 0, 0..3);
    let path = "floe/namespaces/kafka/tables/orders";
    let asking = "X-Iceberg-Access-Delegation: vended-credentials\r\n";
    let first = served.ask_with("GET", path, asking, "{}").await;
    let tag = first.header("etag").unwrap();
    let known = format!("{asking}If-None-Match: {tag}\r\n");
    assert_eq!(served.ask_with("GET", path, &known, "{}").await.status, 304);
    let served = served.beside(with("new")).await;
    let second = served.ask_with("GET", path, &known, "{}").await;
    assert_eq!((second.status, &second.body["config"]["s3.access-key-id"]), (200, &"new".into()));
}

#[tokio::test]
async fn keys_are_given_to_those_who_ask_and_never_others() {
    let served = Served::start_with(|catalog| catalog.read_keys = Some(read_keys("reader"))).await;
    served.world.append(served.topic, 0, 0..3);
    let path = "floe/namespaces/kafka/tables/orders";
    let plain = served.ask("GET", path).await;
    assert!(plain.body["config"].get("s3.access-key-id").is_none());
    assert!(plain.body.get("storage-credentials").is_none());
    let keys = "X-Iceberg-Access-Delegation: remote-signing, vended-credentials\r\n";
    let asked = served.ask_with("GET", path, keys, "{}").await;
    let expected = serde_json::json!({
        "s3.access-key-id": "reader", "s3.secret-access-key": "shown", "s3.session-token": "",
        "s3.endpoint": "http://store:1", "s3.region": "here", "client.region": "here",
        "s3.path-style-access": "true",
    });
    assert_eq!(asked.body["config"], expected);
    let credential = &asked.body["storage-credentials"][0];
    assert_eq!(credential["config"], expected);
    assert_eq!(credential["prefix"], asked.body["metadata"]["location"]);
    let alone = served.ask("GET", &format!("{path}/credentials")).await;
    assert_eq!(&alone.body["storage-credentials"][0], credential);
}

#[tokio::test]
async fn engines_write_where_they_may() {
    let served = Served::start_with(|catalog| catalog.external_write = true).await;
    let config = served.ask("GET", "config").await;
    let endpoints = config.body["endpoints"].as_array().unwrap();
    assert!(endpoints.contains(&"POST /v1/{prefix}/transactions/commit".into()));
    let post =
        async |path: &str, body: Value| served.ask_with("POST", path, "", &body.to_string()).await;
    let made = post("floe/namespaces", json!({"namespace": ["lake"], "properties": {"a": "1"}}));
    assert_eq!(made.await.status, 200);
    let twice = post("floe/namespaces", json!({"namespace": ["lake"]})).await;
    assert_eq!(twice.error(), (409, "AlreadyExistsException"));
    let deep = post("floe/namespaces", json!({"namespace": ["lake", "deep"]})).await;
    assert_eq!(deep.error(), (400, "BadRequestException"));
    let changes = json!({"removals": ["a", "b"], "updates": {"c": "2"}});
    let changed = post("floe/namespaces/lake/properties", changes).await;
    let expected = json!({"updated": ["c"], "removed": ["a"], "missing": ["b"]});
    assert_eq!(changed.body, expected);
    let namespace = served.ask("GET", "floe/namespaces/lake").await;
    assert_eq!(namespace.body["properties"], json!({"c": "2"}));
    let schema = json!({"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "id", "type": "long", "required": false}]});
    let table = json!({"name": "one", "schema": schema, "stage-create": false});
    let made = post("floe/namespaces/lake/tables", table.clone()).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let there = post("floe/namespaces/lake/tables", table).await;
    assert_eq!(there.error(), (409, "AlreadyExistsException"));
    let uuid = &made.body["metadata"]["table-uuid"];
    let change = json!({
        "identifier": {"namespace": ["lake"], "name": "one"},
        "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
        "updates": [{"action": "set-properties", "updates": {"by": "us"}}],
    });
    let committed = post("floe/namespaces/lake/tables/one", change.clone()).await;
    assert_eq!(committed.body["metadata"]["properties"]["by"], "us", "{}", committed.body);
    let both = post("floe/transactions/commit", json!({"table-changes": [change]})).await;
    assert_eq!(both.status, 204);
    let to = json!({"source": {"namespace": ["lake"], "name": "one"},
        "destination": {"namespace": ["lake"], "name": "two"}});
    assert_eq!(post("floe/tables/rename", to).await.status, 204);
    let loaded = served.ask("GET", "relaxed/namespaces/lake/tables/two").await;
    assert_eq!(loaded.body["metadata"]["properties"]["by"], "us");
    assert_eq!(served.ask("DELETE", "floe/namespaces/lake").await.error().0, 409);
    let path = "floe/namespaces/lake/tables/two?purgeRequested=True";
    assert_eq!(served.ask("DELETE", path).await.status, 204);
    assert_eq!(served.ask("DELETE", path).await.error(), (404, "NoSuchTableException"));
    assert_eq!(served.ask("DELETE", "floe/namespaces/lake").await.status, 204);
}

#[tokio::test]
async fn namespaces_come_in_pages() {
    let served = Served::start_with(|catalog| catalog.external_write = true).await;
    for name in ["a", "x"] {
        let body = json!({"namespace": [name]}).to_string();
        assert_eq!(served.ask_with("POST", "floe/namespaces", "", &body).await.status, 200);
    }
    let (mut token, mut names) = (String::new(), Vec::new());
    for _ in 0..3 {
        let path = format!("floe/namespaces?pageSize=1&pageToken={token}");
        let page = served.ask("GET", &path).await;
        names.push(page.body["namespaces"][0][0].as_str().unwrap().to_owned());
        token = page.body["next-page-token"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!((names, token.as_str()), (vec!["a".into(), "kafka".into(), "x".into()], ""));
}
