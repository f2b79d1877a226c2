//! Looks under load, and while the store, the metadata store, the log or the bridge itself fails:
//! every answer is fresh, or says how far it is behind, or is an error. None is silently old.

use super::support::{Fault, FaultStore, LogLayer, TableRow, World};
use crate::commit::tests_support::table_files;
use crate::memory_log::MemoryLog;
use crate::{Bridge, BridgeConfig, LookAnswer, TableState};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::simulated::Node;
use floe_env::{Env, Error, ErrorKind, Result};
use floe_store::{Counted, ObjectStore, PutOutcome, StoreLayer};
use kfs::{BatchBuilder, NewRecord, PartitionIndex, TopicPartition};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const DAY_MS: i64 = 86_400_000;
/// Longer than a table waits between two of its commits.
const TURN_PAUSE: Duration = Duration::from_secs(2);

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

async fn look(bridge: &Bridge) -> LookAnswer {
    bridge.look("t").await.unwrap().expect("the table exists")
}

fn rows(numbers: std::ops::Range<i64>) -> Vec<TableRow> {
    numbers.map(|number| (0, number, number.to_string())).collect()
}

/// A store whose puts take their time.
struct SlowStore {
    inner: FaultStore,
    env: Env,
    put_takes: Duration,
}

#[async_trait]
impl StoreLayer for SlowStore {
    fn inner(&self) -> &dyn ObjectStore {
        &self.inner
    }

    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        self.env.sleep(self.put_takes).await;
        StoreLayer::put(&self.inner, key, parts).await
    }
}

/// What a call of the log comes to.
#[derive(Clone, Copy, Default, PartialEq)]
enum LogFault {
    #[default]
    None,
    /// The metadata store has no cut to give.
    NoCut,
    /// Reading makes the task panic.
    Panic,
}

#[derive(Clone)]
struct FaultLog {
    inner: Arc<MemoryLog>,
    fault: Arc<Mutex<LogFault>>,
}

impl FaultLog {
    fn of(world: &World) -> Self {
        Self { inner: world.log.clone(), fault: Arc::default() }
    }

    fn set(&self, fault: LogFault) {
        *self.fault.lock() = fault;
    }
}

#[async_trait]
impl LogLayer for FaultLog {
    fn inner(&self) -> &MemoryLog {
        &self.inner
    }

    async fn before_cut(&self) -> Result<()> {
        match *self.fault.lock() == LogFault::NoCut {
            true => Err(Error::unavailable("planned")),
            false => Ok(()),
        }
    }

    async fn before_read(&self, _partition: TopicPartition) -> Result<()> {
        assert!(*self.fault.lock() != LogFault::Panic, "planned");
        Ok(())
    }
}

fn config(world: &World) -> BridgeConfig {
    BridgeConfig::new(world.cluster)
}

#[tokio::test(start_paused = true)]
async fn fifty_looks_under_load_share_two_commits() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let clock = env(2);
    let put_takes = Duration::from_millis(20);
    let store = SlowStore { inner: world.store.clone(), env: clock.clone(), put_takes };
    let bridge = world.bridge_over((env(3), config(&world)), Arc::new(store), world.log.clone());
    world.append(topic, 0, 0..1);
    look(&bridge).await;
    clock.sleep(TURN_PAUSE).await;
    let before = bridge.statuses()[0].commits;
    // A record and a look at it each millisecond, most of them while a commit is under way.
    let looks = (1..=50).map(|number| {
        let (world, bridge, clock) = (&world, &bridge, clock.clone());
        async move {
            clock.sleep(Duration::from_millis(number)).await;
            let number = i64::try_from(number).unwrap();
            world.append(topic, 0, number..number + 1);
            let answer = look(bridge).await;
            assert_eq!(answer.behind, None);
            assert!(answer.table.progress.next_offset(0) > number, "a look shows what it follows");
        }
    });
    futures::future::join_all(looks).await;
    let commits = bridge.statuses()[0].commits - before;
    assert!(commits <= 2, "{commits} commits");
    assert_eq!(world.rows(&look(&bridge).await.table).await, rows(0..51));
}

#[tokio::test(start_paused = true)]
async fn a_look_with_nothing_new_asks_the_store_for_nothing() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let counted = Counted::new(env(2), Arc::new(world.store.clone()));
    let counters = counted.counters();
    let bridge = world.bridge_over((env(3), config(&world)), Arc::new(counted), world.log.clone());
    for number in 0..3 {
        world.append(topic, 0, number..number + 1);
        look(&bridge).await;
        let counts = || {
            let all = counters.snapshot();
            [all.put, all.get, all.head, all.list, all.delete].map(|calls| calls.requests)
        };
        let before = counts();
        assert!(before[0] > 0);
        for _ in 0..3 {
            assert_eq!(look(&bridge).await.behind, None);
        }
        assert_eq!(counts(), before);
        // A warm table is not read again to be appended to.
        assert_eq!(before[1], 0, "reads");
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_not_used_lets_its_metadata_go_and_is_opened_without_the_store() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let counted = Counted::new(env(2), Arc::new(world.store.clone()));
    let counters = counted.counters();
    let (clock, log) = (env(3), world.log.clone());
    let bridge = world.bridge_over((env(4), config(&world)), Arc::new(counted), log);
    world.append(topic, 0, 0..5);
    let answer = look(&bridge).await;
    let (whole, version) = (Arc::downgrade(&answer.table), answer.table.pointer.clone());
    drop(answer);
    bridge.round().await.unwrap();
    assert!(whole.upgrade().is_some(), "it was used just now");
    clock.sleep(Duration::from_secs(6)).await;
    bridge.round().await.unwrap();
    assert!(whole.upgrade().is_none(), "it is at rest");
    let reads = counters.snapshot().get.requests;
    let answer = look(&bridge).await;
    assert_eq!(answer.table.pointer, version);
    assert_eq!(world.rows(&answer.table).await, rows(0..5));
    drop(answer);
    clock.sleep(Duration::from_secs(6)).await;
    bridge.round().await.unwrap();
    world.append(topic, 0, 5..9);
    assert_eq!(world.rows(&look(&bridge).await.table).await, rows(0..9));
    assert_eq!(bridge.statuses()[0].files, 2);
    assert_eq!(counters.snapshot().get.requests, reads);
}

#[tokio::test(start_paused = true)]
async fn a_move_of_the_pointer_that_goes_wrong_is_made_good_by_the_next_look() {
    for fault in [Fault::Refused, Fault::AnswerLost, Fault::NeverArrived] {
        let world = World::new();
        let topic = world.topic("t", 1).await;
        let bridge = world.bridge(env(2));
        world.append(topic, 0, 0..5);
        look(&bridge).await;
        world.append(topic, 0, 5..8);
        world.pointers.faults.plan([fault]);
        let answer = look(&bridge).await;
        let shown = if answer.behind.is_some() { rows(0..5) } else { rows(0..8) };
        assert_eq!(answer.behind.is_some(), fault == Fault::Refused, "{fault:?}");
        assert_eq!(world.rows(&answer.table).await, shown, "{fault:?}");
        let answer = look(&bridge).await;
        assert_eq!((answer.behind, world.rows(&answer.table).await), (None, rows(0..8)));
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_metadata_store_a_look_is_an_error_and_never_old() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let log = FaultLog::of(&world);
    let store = Arc::new(world.store.clone());
    let bridge = world.bridge_over((env(2), config(&world)), store, Arc::new(log.clone()));
    world.append(topic, 0, 0..5);
    look(&bridge).await;
    log.set(LogFault::NoCut);
    // Nobody can say whether there is more: the catalog makes this 503 with Retry-After.
    let error = bridge.look("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    log.set(LogFault::None);
    world.append(topic, 0, 5..6);
    assert_eq!(world.rows(&look(&bridge).await.table).await, rows(0..6));
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_panics_answers_with_what_it_has_and_goes_on() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let log = FaultLog::of(&world);
    let store = Arc::new(world.store.clone());
    let bridge = world.bridge_over((env(2), config(&world)), store, Arc::new(log.clone()));
    world.append(topic, 0, 0..5);
    look(&bridge).await;
    world.append(topic, 0, 5..9);
    log.set(LogFault::Panic);
    // More often than there are places for looks and for stagings: none of them may be lost.
    for _ in 0..10 {
        let answer = look(&bridge).await;
        assert_eq!(answer.behind.expect("it is behind").records, 4);
        assert_eq!(world.rows(&answer.table).await, rows(0..5));
    }
    let status = &bridge.statuses()[0];
    assert_eq!(status.state, TableState::Degraded);
    assert!(status.last_error.as_ref().unwrap().contains("panicked"), "{:?}", status.last_error);
    log.set(LogFault::None);
    let answer = look(&bridge).await;
    assert_eq!((answer.behind, world.rows(&answer.table).await), (None, rows(0..9)));
    assert_eq!(bridge.statuses()[0].state, TableState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_keeps_nobody_longer_than_the_time_out() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..5);
    look(&world.bridge(env(2))).await;
    world.append(topic, 0, 5..8);
    let (clock, put_takes) = (env(3), Duration::from_secs(3600));
    let store = SlowStore { inner: world.store.clone(), env: clock.clone(), put_takes };
    let config = config(&world);
    let timeout = config.look_timeout;
    let bridge = world.bridge_over((env(4), config), Arc::new(store), world.log.clone());
    for _ in 0..3 {
        let began = clock.monotonic();
        let answer = look(&bridge).await;
        assert!(clock.monotonic() - began <= timeout + Duration::from_millis(10));
        assert_eq!(answer.behind.expect("it is behind").records, 3);
        assert_eq!(world.rows(&answer.table).await, rows(0..5));
    }
}

/// Timestamps over 20 years, some late, some of the future, some that no engine can show.
fn timestamp_ms(number: i64) -> i64 {
    const YEARS_DAYS: i64 = 20 * 365;
    match number % 1000 {
        0 => -1,
        1 => i64::MIN,
        2 => i64::MAX,
        3 => 253_402_300_800_000,
        // Neighbours are years apart.
        _ => (number * 7919 % YEARS_DAYS) * DAY_MS + 1_104_537_600_000,
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_years_of_timestamps_cost_nine_files_a_look() {
    const RECORDS: i64 = 100_000;
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let place = TopicPartition { topic, partition: PartitionIndex(0) };
    for number in 0..RECORDS {
        // In a batch of its own: its distance to the next does not fit into a delta.
        let timestamp_ms = timestamp_ms(number);
        let mut builder = BatchBuilder::new();
        let value = Some(&b"value"[..]);
        builder.push(&NewRecord { timestamp_ms, key: None, value, headers: &[] }).unwrap();
        world.log.append(place, &builder.build().unwrap()).unwrap();
    }
    let bridge = world.bridge(env(2));
    let mut answer = look(&bridge).await;
    while answer.behind.is_some() {
        answer = look(&bridge).await;
    }
    assert_eq!(answer.table.total("total-records"), RECORDS.unsigned_abs());
    let commits = answer.table.metadata.snapshots().len();
    let files = table_files(&world.store, &answer.table).await;
    assert!(files.len() <= 9 * commits, "{} files in {commits} commits", files.len());
    assert_eq!(commits, 1);
}
