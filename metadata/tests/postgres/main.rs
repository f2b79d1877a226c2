//! The suite on PostgreSQL, with connections cut around COMMIT, and what only a server has. Needs
//! an address in `FLOE_TEST_POSTGRES`; `scripts/with-servers` starts a server and sets it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod tls;

use floe_env::{Env, ErrorKind, Lane};
use floe_metadata::brokers::{BrokerAddress, Registration};
use floe_metadata::postgres::PostgresOptions;
use floe_metadata::rows::{BatchOutcome, SegmentOutcome};
use floe_metadata::suite::{self, histories};
use floe_metadata::topics::TopicCreation;
use floe_metadata::{Backend, MetadataStore, PostgresBackend};
use kfs::{BrokerId, PartitionIndex, ProducerId, TopicPartition};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn address() -> String {
    std::env::var("FLOE_TEST_POSTGRES").expect(
        "FLOE_TEST_POSTGRES is not set: run this through scripts/with-servers, which starts a \
         PostgreSQL and sets it",
    )
}

/// Options of a schema that nobody else uses.
fn fresh_options(env: &Env) -> PostgresOptions {
    let schema = format!("test_{}", env.uuid().simple());
    PostgresOptions::parse(&with_parameter(&address(), &format!("schema={schema}"))).unwrap()
}

fn with_parameter(url: &str, parameter: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{parameter}")
}

async fn fresh(env: &Env) -> Arc<dyn Backend> {
    Arc::new(PostgresBackend::open(env, fresh_options(env)).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases() {
    let env = Env::current();
    suite::run_all(fresh(&env).await, &env).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequential_histories() {
    let env = Env::current();
    let backend = fresh(&env).await;
    for seed in 0..4 {
        Box::pin(histories::sequential(Arc::clone(&backend), &env, seed, 150)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories() {
    let env = Env::current();
    let backend = fresh(&env).await;
    for seed in 0..8 {
        let plan = histories::Plan { seed, tasks: 6, calls: 30 };
        let same = Arc::clone(&backend);
        let history = histories::concurrent(Arc::clone(&backend), same, &env, plan);
        assert_eq!(Box::pin(history).await, 0);
    }
}

/// Forwards connections to the server, and cuts them after a random number of bytes of answers.
struct CuttingProxy {
    port: u16,
    cuts: Arc<AtomicU64>,
    /// How often a client spoke after an answer: round trips.
    turns: Arc<AtomicU64>,
}

/// Answers of a session's start and of some calls.
const BYTES_BEFORE_CUT_MIN: u64 = 3_000;
const BYTES_BEFORE_CUT_SPREAD: u64 = 40_000;

impl CuttingProxy {
    async fn start(env: &Env, server: (String, u16), cut_after_bytes_min: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cuts = Arc::new(AtomicU64::new(0));
        let turns = Arc::new(AtomicU64::new(0));
        let counters = (Arc::clone(&cuts), Arc::clone(&turns));
        let inner = env.clone();
        env.spawn("proxy", Lane::Foreground, async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect((server.0.as_str(), server.1)).await else {
                    continue;
                };
                let spread = inner.random_u64() % BYTES_BEFORE_CUT_SPREAD;
                let limit = cut_after_bytes_min.saturating_add(spread);
                let (cuts, turns) = (Arc::clone(&counters.0), Arc::clone(&counters.1));
                inner.spawn("proxied", Lane::Foreground, async move {
                    forward(client, server, limit, (&cuts, &turns)).await;
                });
            }
        });
        Self { port, cuts, turns }
    }
}

/// Requests always reach the server; after `limit` bytes of answers both ends are closed, and what
/// the server said last is lost.
async fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    limit: u64,
    (cuts, turns): (&AtomicU64, &AtomicU64),
) {
    let (mut from_client, mut from_server) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut answered = 0;
    let mut answered_last = true;
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    turns.fetch_add(u64::from(answered_last), Ordering::Relaxed);
                    answered_last = false;
                    if server.write_all(&from_client[..count]).await.is_err() {
                        return;
                    }
                }
            },
            read = server.read(&mut from_server) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    answered_last = true;
                    answered += count as u64;
                    if answered > limit {
                        cuts.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    if client.write_all(&from_server[..count]).await.is_err() {
                        return;
                    }
                }
            },
        }
    }
}

/// The server's host and port, and the address with others in their place.
fn through_proxy(url: &str, port: Option<u16>) -> ((String, u16), String) {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, path) = rest.split_once('/').unwrap();
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(u, h)| (u, h));
    let (host, server_port) = host.rsplit_once(':').unwrap_or((host, "5432"));
    let server = (host.to_owned(), server_port.parse().unwrap());
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    let port = port.unwrap_or_default();
    (server, format!("{scheme}://{user}127.0.0.1:{port}/{path}"))
}

/// Random histories with cut connections: so many at least, and at most.
const HISTORIES_MIN: u64 = 6;
const HISTORIES_MAX: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_around_commit() {
    let env = Env::current();
    let (server, _) = through_proxy(&address(), None);
    let proxy = CuttingProxy::start(&env, server, BYTES_BEFORE_CUT_MIN).await;
    let (_, url) = through_proxy(&address(), Some(proxy.port));
    let schema = format!("test_{}", env.uuid().simple());
    let schema = format!("schema={schema}");
    let direct = PostgresOptions::parse(&with_parameter(&address(), &schema)).unwrap();
    let calm = Arc::new(PostgresBackend::open(&env, direct.shared()).await.unwrap());
    let options = PostgresOptions::parse(&with_parameter(&url, &schema)).unwrap().shared();
    let (mut unknown, mut cuts) = (0, 0);
    // Where a cut falls depends on the machine: go on until some fell around a COMMIT.
    for seed in 0..HISTORIES_MAX {
        if seed >= HISTORIES_MIN && cuts > 10 && unknown > 0 {
            break;
        }
        let stormy = loop {
            match PostgresBackend::open(&env, options.clone()).await {
                Ok(backend) => break Arc::new(backend),
                Err(error) => assert_ne!(error.kind(), ErrorKind::Bug, "{error}"),
            }
        };
        let plan = histories::Plan { seed, tasks: 4, calls: 30 };
        let history = histories::concurrent(Arc::clone(&calm) as _, stormy, &env, plan);
        unknown += Box::pin(history).await;
        cuts = proxy.cuts.load(Ordering::Relaxed);
    }
    eprintln!("{cuts} cuts, {unknown} unknown outcomes");
    assert!(cuts > 10 && unknown > 0, "{cuts} cuts, {unknown} unknown outcomes");
}

/// What a commit of one batch to each partition answers, and how many round trips it took.
async fn commit_and_count(
    (store, turns): (&MetadataStore, &AtomicU64),
    broker: &Registration,
    partitions: &[TopicPartition],
    number: u64,
) -> (u64, Vec<BatchOutcome>) {
    let batch = suite::idempotent(ProducerId(1), 0, number as i32, 1);
    let sections = partitions.iter().map(|partition| (*partition, vec![batch.clone()]));
    let segment = suite::segment(broker, number, sections.collect());
    let before = turns.load(Ordering::Relaxed);
    let mut outcomes = store.commit_segments(&broker.fence, &[segment]).await.unwrap();
    let taken = turns.load(Ordering::Relaxed) - before;
    let SegmentOutcome::Committed(sections) = outcomes.remove(0) else { panic!("abandoned") };
    (taken, sections.into_iter().flat_map(|section| section.batches).collect())
}

/// On one thread, so that a flight leaves at once and not while it is answered.
#[tokio::test]
async fn a_commit_of_rows_that_were_written_here_last_is_one_round_trip() {
    let env = Env::current();
    let (server, _) = through_proxy(&address(), None);
    let proxy = CuttingProxy::start(&env, server, u64::MAX).await;
    let (_, url) = through_proxy(&address(), Some(proxy.port));
    let schema = format!("schema=test_{}", env.uuid().simple());
    let open = async |url: &str| {
        let options = PostgresOptions::parse(&with_parameter(url, &schema)).unwrap().shared();
        let backend = PostgresBackend::open(&env, options).await.unwrap();
        MetadataStore::new(Arc::new(backend), env.clone())
    };
    let (ours, other) = (open(&url).await, open(&address()).await);
    let TopicCreation::Created(topic) =
        ours.create_topic("t", 3, 1, Default::default()).await.unwrap()
    else {
        panic!("there is a topic");
    };
    let partitions: Vec<TopicPartition> = (0..3)
        .map(|index| TopicPartition { topic: topic.id, partition: PartitionIndex(index) })
        .collect();
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    let broker = ours.register_broker(BrokerId(1), &address, 60_000).await.unwrap();
    let commit =
        |store, number| commit_and_count((store, &proxy.turns), &broker, &partitions, number);
    let accepted = |offset| vec![BatchOutcome::Accepted { base_offset: offset }; 3];
    // The first reads; the second prepares its statements.
    for number in 0..2 {
        assert_eq!(commit(&ours, number).await.1, accepted(number as i64));
    }
    for number in 2..5 {
        assert_eq!(commit(&ours, number).await, (1, accepted(number as i64)));
    }
    // Whatever somebody else changes makes it read again, once.
    assert_eq!(commit(&other, 5).await.1, accepted(5));
    assert!(commit(&ours, 6).await.0 > 1);
    assert_eq!(commit(&ours, 7).await, (1, accepted(7)));
    other.expire_producers(partitions[1], i64::MAX).await.unwrap();
    assert!(commit(&ours, 8).await.0 > 1);
    other.advance_log_start(partitions[2], 4).await.unwrap();
    assert!(commit(&ours, 9).await.0 > 1);
    assert_eq!(ours.partition_states(&partitions).await.unwrap()[2].unwrap().log_start_offset, 4);
    // What this process itself raises is read, too: no try in vain.
    ours.advance_log_start(partitions[2], 5).await.unwrap();
    assert_eq!(commit(&ours, 10).await, (2, accepted(10)));
    // The same segment again answers what was decided, and a closed epoch is told.
    let again = commit(&ours, 9).await;
    assert!(again.0 > 1);
    assert_eq!(again.1, accepted(9));
    assert!(commit(&ours, 11).await.0 > 1);
    assert_eq!(commit(&ours, 12).await, (1, accepted(12)));
    other.register_broker(BrokerId(1), &address, 60_000).await.unwrap();
    let late = suite::segment(&broker, 13, vec![(partitions[0], vec![suite::plain(1)])]);
    let error = ours.commit_segments(&broker.fence, &[late]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_broker_is_told_who_is_there() {
    let env = Env::current();
    let options = fresh_options(&env);
    let first = PostgresBackend::open(&env, options.clone()).await.unwrap();
    let error = PostgresBackend::open(&env, options.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let pid = std::process::id();
    let expected = format!("metadata is in use by another floe (pid {pid})");
    assert!(error.message().starts_with(&expected), "{error}");
    let shared = PostgresBackend::open(&env, options.clone().shared()).await.unwrap();
    shared.now_ms().await.unwrap();
    drop(first);
    PostgresBackend::open(&env, options).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_commits_is_refused() {
    let env = Env::current();
    let url = with_parameter(&address(), "options=-c%20synchronous_commit%3Doff");
    let error = PostgresBackend::open(&env, PostgresOptions::parse(&url).unwrap()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("synchronous_commit=off"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_the_server_ends_are_replaced() {
    let env = Env::current();
    let name = format!("test_{}", env.uuid().simple());
    let parameters = format!("schema={name}&application_name={name}");
    let options = PostgresOptions::parse(&with_parameter(&address(), &parameters)).unwrap();
    let backend = PostgresBackend::open(&env, options).await.unwrap();
    let store = MetadataStore::new(Arc::new(backend), env.clone());
    let before = store.allocate_producer_ids(1).await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&address(), tokio_postgres::NoTls).await.unwrap();
    env.spawn("admin", Lane::Foreground, connection);
    // The guard's session too: it is taken again.
    let ended = client
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
            &[&name],
        )
        .await
        .unwrap();
    assert!(ended > 1);
    env.sleep(Duration::from_millis(100)).await;
    let after = store.allocate_producer_ids(1).await.unwrap();
    assert!(after.start >= before.end);
}
