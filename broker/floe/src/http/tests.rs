use super::*;
use crate::metrics::Metrics;
use async_trait::async_trait;
use axum::Router;
use axum::routing::{get, post};
use floe_env::{Env, Error, ErrorKind, Lane, Result, ShutdownTrigger, Task, shutdown_signal};
use floe_iceberg_bridge::FlushedTable;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

struct OneTopic;

fn orders() -> TopicView {
    TopicView {
        name: "orders".to_owned(),
        id: "0000".to_owned(),
        partition_count: 1,
        records: 7,
        bytes: 700,
        table: None,
        kept_partitions: 0,
        partitions: Vec::new(),
    }
}

#[async_trait]
impl Inspect for OneTopic {
    async fn status(&self) -> Result<StatusView> {
        Err(Error::bug("no status"))
    }

    async fn topics(&self, after: Option<&str>, limit: usize) -> Result<TopicsPage> {
        let next = after.is_none().then(|| format!("limit {limit}"));
        Ok(TopicsPage { topics: vec![orders()], next })
    }

    async fn topic(&self, name: &str) -> Result<Option<TopicView>> {
        Ok((name == "orders").then(orders))
    }

    async fn tables(&self) -> Result<Vec<TableView>> {
        Err(Error::retry("the metadata store is busy"))
    }

    async fn resume_table(&self, name: &str, request: &ResumeRequest) -> Result<Option<TableView>> {
        match (name, request.from.as_str()) {
            ("kafka.orders", "rewind") => Err(Error::invalid("the table is not stopped")),
            ("kafka.orders", from) => Err(Error::bug(format!("asked for {from}"))),
            _ => Ok(None),
        }
    }

    async fn flush_tables(&self, request: &FlushRequest) -> Result<Vec<FlushedTable>> {
        let flushed = |name: &String| match name.as_str() {
            "kafka.orders" => Ok(FlushedTable {
                name: name.clone(),
                topic: "orders".to_owned(),
                snapshot_id: Some(7),
                rows: 3,
                cut: vec![1, 2],
                error: None,
            }),
            _ => Err(Error::invalid(format!("there is no table {name}"))),
        };
        request.tables.iter().map(flushed).collect()
    }

    async fn extents(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
        limit: usize,
    ) -> Result<Option<ExtentsPage>> {
        if (topic, partition) != ("orders", 0) {
            return Ok(None);
        }
        Ok(Some(ExtentsPage {
            topic: topic.to_owned(),
            topic_id: "0000".to_owned(),
            partition,
            log_start: 0,
            high_watermark: offset,
            last_stable: limit as i64,
            extents: Vec::new(),
            next: None,
        }))
    }
}

struct Running {
    address: SocketAddr,
    readiness: watch::Sender<Readiness>,
    trigger: ShutdownTrigger,
    served: Task<()>,
}

async fn start(iceberg: Option<Router>) -> Running {
    let env = Env::current();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (readiness, receiver) = watch::channel(Readiness::Ready);
    let routes =
        Routes { readiness: receiver, metrics: Metrics::new(), inspect: Arc::new(OneTopic) };
    let (trigger, shutdown) = shutdown_signal();
    let serving = serve(env.clone(), listener, router(routes, iceberg), shutdown);
    let served = env.spawn("http", Lane::Foreground, serving);
    Running { address, readiness, trigger, served }
}

impl Running {
    async fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = self.send(&request).await;
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }
}

#[tokio::test]
async fn answers_health_and_readiness() {
    let running = start(None).await;
    assert_eq!(running.get("/healthz").await.0, 200);
    assert_eq!(running.get("/readyz").await.0, 200);
    running.readiness.send_replace(Readiness::NotReady("opening the log".to_owned()));
    assert_eq!(running.get("/healthz").await.0, 200, "alive all the same");
    let (status, answer) = running.get("/readyz").await;
    assert!(status == 503 && answer.contains("not ready: opening the log"), "{answer}");
    let (status, answer) = running.get("/v1/topics").await;
    assert!(status == 503 && answer.contains("opening the log"), "{answer}");
    let (status, metrics) = running.get("/metrics").await;
    assert!(status == 200 && metrics.contains("floe_ready 0"), "{metrics}");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
}

#[tokio::test]
async fn answers_questions_in_json() {
    let running = start(None).await;
    let (status, answer) = running.get("/v1/topics").await;
    assert!(status == 200 && answer.contains("\"next\":\"limit 1000\""), "{answer}");
    let (_, answer) = running.get("/v1/topics?after=a&limit=999999").await;
    assert!(answer.contains("\"next\":null"), "{answer}");
    let (status, answer) = running.get("/v1/topics/orders").await;
    assert!(status == 200 && answer.contains("\"records\":7"), "{answer}");
    let (status, answer) = running.get("/v1/topics/other").await;
    assert!(status == 404 && answer.contains("{\"error\":\"no topic other\"}"), "{answer}");
    let (status, answer) = running.get("/v1/extents?topic=orders&offset=5&limit=2").await;
    assert!(status == 200 && answer.contains("\"high_watermark\":5"), "{answer}");
    assert!(answer.contains("\"last_stable\":2"), "{answer}");
    assert_eq!(running.get("/v1/extents?topic=orders&partition=9").await.0, 404);
    let (status, answer) = running.get("/v1/extents?offset=5").await;
    assert!(status == 400 && answer.contains("missing field"), "{answer}");
    assert_eq!(running.get("/v1/extents?topic=orders&offset=x").await.0, 400);
    assert_eq!(running.get("/v1/tables").await.0, 503, "a retry is a 503");
    assert_eq!(running.get("/v1/status").await.0, 500);
}

#[tokio::test]
async fn a_table_is_resumed_by_json_only() {
    let running = start(None).await;
    let post = async |name: &str, kind: &str, body: &str| {
        let (length, path) = (body.len(), format!("/v1/tables/{name}/resume"));
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        let head = format!("{head}content-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
        running.send(&format!("{head}{body}")).await
    };
    let json = "application/json";
    let answer = post("kafka.orders", json, r#"{"from":"rewind"}"#).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("not stopped"), "{answer}");
    let answer = post("other", json, r#"{"from":"rewind"}"#).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let answer = post("kafka.orders", "text/plain", r#"{"from":"rewind"}"#).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("Content-Type"), "{answer}");
    let answer = post("kafka.orders", json, r#"{"from":"rewind","and":1}"#).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("unknown field"), "{answer}");
}

#[tokio::test]
async fn tables_are_flushed_by_json_only() {
    let running = start(None).await;
    let post = |body: &str| {
        format!(
            "POST /v1/tables/flush HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = running.send(&post(r#"{"tables":["kafka.orders"]}"#)).await;
    assert!(answer.contains("200 OK") && answer.contains(r#""cut":[1,2]"#), "{answer}");
    let answer = running.send(&post(r#"{"tables":["nobody"]}"#)).await;
    assert!(answer.contains(" 400 ") && answer.contains("there is no table nobody"), "{answer}");
    let form = post("tables=kafka.orders").replace("application/json", "text/plain");
    assert!(running.send(&form).await.contains(" 400 "));
}

#[tokio::test]
async fn says_what_is_where() {
    let catalog = Router::new().route("/iceberg/v1/config", get(|| async { "catalog" }));
    let running = start(Some(catalog)).await;
    let (status, page) = running.get("/").await;
    assert!(status == 200 && page.contains("/metrics"), "{page}");
    assert_eq!(running.get("/favicon.ico").await.0, 204);
    assert!(running.get("/iceberg/v1/config").await.1.ends_with("catalog"));
    assert_eq!(running.get("/nothing").await.0, 404);
}

#[tokio::test]
async fn large_requests_are_refused() {
    let echo = Router::new().route("/iceberg/echo", post(|body: String| async move { body }));
    let running = start(Some(echo)).await;
    let length = BODY_BYTES_MAX + 1;
    let head =
        format!("POST /iceberg/echo HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may close before all of it is sent.
    let _ = stream.write_all(&vec![b'a'; length]).await;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    let long_head = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(200_000));
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    // The server may close before all of it is sent.
    let _ = stream.write_all(long_head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "a head of 200 kB is refused");
}

#[tokio::test]
async fn a_shutdown_lets_running_requests_end() {
    let (arrived, mut arrivals) = tokio::sync::mpsc::channel(1);
    let env = Env::current();
    let slow = Router::new().route(
        "/iceberg/slow",
        get(move || {
            let (arrived, env) = (arrived.clone(), env.clone());
            async move {
                arrived.send(()).await.unwrap();
                env.sleep(Duration::from_millis(200)).await;
                "done"
            }
        }),
    );
    let running = start(Some(slow)).await;
    let idle = TcpStream::connect(running.address).await.unwrap();
    let request = running.get("/iceberg/slow");
    let stop = async {
        arrivals.recv().await.unwrap();
        running.trigger.trigger();
    };
    let ((status, answer), ()) = tokio::join!(request, stop);
    assert!(status == 200 && answer.ends_with("done"), "{answer}");
    running.served.await.unwrap();
    assert!(TcpStream::connect(running.address).await.is_err(), "the address is free again");
    drop(idle);
}

#[test]
fn every_kind_has_its_status() {
    for (kind, status) in [
        (ErrorKind::Invalid, 400),
        (ErrorKind::Fenced, 409),
        (ErrorKind::Limit, 429),
        (ErrorKind::Retry, 503),
        (ErrorKind::Unavailable, 503),
        (ErrorKind::UnknownOutcome, 504),
        (ErrorKind::Corrupt, 500),
        (ErrorKind::Bug, 500),
    ] {
        assert_eq!(status_of(kind).as_u16(), status, "{kind:?}");
    }
}
