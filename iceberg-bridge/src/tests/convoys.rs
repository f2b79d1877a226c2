//! Tables that are due go together, as many as the log can get ready at once.

use super::support::{Fault, LogLayer, World};
use crate::log_reader::LogRange;
use crate::memory_log::MemoryLog;
use crate::{Bridge, BridgeConfig};
use async_trait::async_trait;
use floe_env::simulated::Node;
use floe_env::{Env, Result};
use kfs::{TopicId, TopicPartition};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TOPICS: usize = 12;
const RECORDS: i64 = 3;
/// What the bridge takes a record for until it has seen some.
const RECORD_BYTES: usize = 1024;
/// Five tables fit, six do not.
const FIVE_TABLES_BYTES: usize = 5 * RECORDS as usize * RECORD_BYTES + 1;
const ROUND: Duration = Duration::from_secs(1);

/// A log that notes what it was to get ready.
struct NotingLog {
    inner: Arc<MemoryLog>,
    loads: Mutex<Vec<Vec<LogRange>>>,
    /// No read ends any more.
    hangs: AtomicBool,
    bytes_max: usize,
}

#[async_trait]
impl LogLayer for NotingLog {
    fn inner(&self) -> &MemoryLog {
        &self.inner
    }

    async fn before_read(&self, _partition: TopicPartition) -> Result<()> {
        match self.hangs.load(Ordering::Relaxed) {
            true => futures::future::pending().await,
            false => Ok(()),
        }
    }

    async fn load_together(&self, ranges: &[LogRange]) -> Result<()> {
        self.loads.lock().push(ranges.to_vec());
        Ok(())
    }

    fn together_bytes_max(&self) -> Option<usize> {
        Some(self.bytes_max)
    }
}

struct Convoy {
    world: World,
    log: Arc<NotingLog>,
    bridge: Bridge,
    clock: Env,
}

impl Convoy {
    /// Topics with records, and a bridge that has no table yet.
    async fn new(bytes_max: usize) -> Self {
        let world = World::new();
        for number in 0..TOPICS {
            let topic = world.topic(&format!("t{number}"), 1).await;
            world.append(topic, 0, 0..RECORDS);
        }
        let (inner, loads, hangs) = (world.log.clone(), Mutex::default(), AtomicBool::new(false));
        let log = Arc::new(NotingLog { inner, loads, hangs, bytes_max });
        let (env, config) = (Env::simulated(Node::new(2)), BridgeConfig::new(world.cluster));
        let store = Arc::new(world.store.clone());
        let bridge = world.bridge_over((env, config), store, log.clone());
        Self { world, log, bridge, clock: Env::simulated(Node::new(3)) }
    }

    async fn round(&self) {
        self.bridge.round().await.unwrap();
        self.clock.sleep(ROUND).await;
    }

    fn tables(&self) -> usize {
        self.bridge.statuses().iter().filter(|status| status.table.is_some()).count()
    }

    fn loads(&self) -> Vec<Vec<LogRange>> {
        self.log.loads.lock().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_takes_as_many_tables_as_fit_and_the_next_goes_on_behind_them() {
    let convoy = Convoy::new(FIVE_TABLES_BYTES).await;
    for expected in [5, 10, 12] {
        convoy.round().await;
        assert_eq!(convoy.tables(), expected);
    }
    let loads = convoy.loads();
    assert_eq!(loads.iter().map(Vec::len).collect::<Vec<_>>(), [5, 5, 2]);
    let all: Vec<LogRange> = loads.concat();
    assert!(all.iter().all(|range| (range.from, range.until) == (0, RECORDS)));
    let topics: Vec<TopicId> = all.iter().map(|range| range.partition.topic).collect();
    assert!(topics.is_sorted(), "in the order in which they lie in segments");
    assert_eq!(topics.iter().collect::<BTreeSet<_>>().len(), TOPICS);
    // A table that is due alone is read by itself.
    convoy.world.append(topics[3], 0, 0..RECORDS);
    convoy.clock.sleep(Duration::from_secs(100)).await;
    convoy.round().await;
    convoy.clock.sleep(Duration::from_secs(100)).await;
    convoy.round().await;
    assert_eq!(convoy.loads().len(), 3);
    assert_eq!(convoy.bridge.statuses().iter().map(|status| status.commits).sum::<u64>(), 13);
}

#[tokio::test(start_paused = true)]
async fn tables_that_do_not_fit_go_four_at_a_time() {
    let convoy = Convoy::new(1).await;
    for expected in [4, 8, 12] {
        convoy.round().await;
        assert_eq!(convoy.tables(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_convoy_that_fails_keeps_no_other_from_its_turn() {
    let convoy = Convoy::new(FIVE_TABLES_BYTES).await;
    convoy.world.store.put_faults.plan([Fault::Refused; 1000]);
    for failed in 1..=3 {
        convoy.round().await;
        assert_eq!((convoy.loads().len(), convoy.tables()), (failed, 0));
    }
    // Five, five, and the last two with the first again.
    let topics: BTreeSet<TopicId> =
        convoy.loads().concat().iter().map(|range| range.partition.topic).collect();
    assert_eq!(topics.len(), TOPICS);
    convoy.world.store.put_faults.plan([]);
    for _ in 0..TOPICS {
        convoy.round().await;
    }
    assert_eq!(convoy.tables(), TOPICS);
}

#[tokio::test(start_paused = true)]
async fn a_convoy_that_hangs_keeps_the_next_one_waiting_for_ten_seconds() {
    let convoy = Convoy::new(FIVE_TABLES_BYTES).await;
    convoy.log.hangs.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        convoy.round().await;
        assert_eq!(convoy.loads().len(), 1);
    }
    convoy.round().await;
    assert_eq!(convoy.loads().len(), 2);
}
