//! What fails leaves nothing behind, is not repeated every second, and holds up nobody else.

use super::support::{Fault, LogLayer, TableRow, World};
use crate::memory_log::MemoryLog;
use crate::{Bridge, TableState};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::simulated::Node;
use floe_env::{Env, Error, Result, shutdown_signal};
use kfs::{BatchBuilder, NewRecord, PartitionIndex, TopicId, TopicPartition};
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;
const DAY_MS: i64 = 86_400_000;

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

fn at(topic: TopicId, partition: i32) -> TopicPartition {
    TopicPartition { topic, partition: PartitionIndex(partition) }
}

fn rows(partition: i32, numbers: std::ops::Range<i64>) -> Vec<TableRow> {
    numbers.map(|number| (partition, number, number.to_string())).collect()
}

/// A record that no compression makes smaller.
fn noise(seed: usize, timestamp_ms: i64) -> Bytes {
    let mut state = seed as u64 + 1;
    let value: Vec<u8> = (0..MIB)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect();
    let mut builder = BatchBuilder::new();
    let value = Some(value.as_slice());
    builder.push(&NewRecord { timestamp_ms, key: None, value, headers: &[] }).unwrap();
    builder.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_failing_staging_or_commit_has_put_goes() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    // More than staging holds in memory, of two days.
    for record in 0..36 {
        let batch = noise(record, (record as i64 % 2) * DAY_MS);
        world.log.append(at(topic, 0), &batch).unwrap();
    }
    let bridge = world.bridge(env(2));
    for works in 1..4 {
        let faults = [vec![Fault::None; works], vec![Fault::Refused; 100]].concat();
        world.store.put_faults.plan(faults);
        bridge.look("t").await.unwrap_err();
        assert!(world.store.puts() > works as u64);
        assert_eq!(world.store.keys().await, Vec::<String>::new(), "{works} puts had worked");
        bridge.env().sleep(Duration::from_secs(1)).await;
    }
    world.store.put_faults.plan([]);
    let answer = bridge.look("t").await.unwrap().unwrap();
    assert_eq!((answer.behind, answer.table.progress.next_offsets.as_slice()), (None, &[36][..]));
}

/// A log of which one partition cannot be read.
struct BrokenLog {
    inner: Arc<MemoryLog>,
    broken: TopicPartition,
}

/// A bridge on it.
fn bridge_of_broken_log(world: &World, broken: TopicPartition) -> Bridge {
    let log = BrokenLog { inner: world.log.clone(), broken };
    world.bridge_on(env(2), Arc::new(log), |_| ())
}

#[async_trait]
impl LogLayer for BrokenLog {
    fn inner(&self) -> &MemoryLog {
        &self.inner
    }

    async fn before_read(&self, partition: TopicPartition) -> Result<()> {
        match partition == self.broken {
            true => Err(Error::unavailable("planned")),
            false => Ok(()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_cannot_be_read_keeps_no_other_waiting() {
    for broken in 0..3 {
        let world = World::new();
        let topic = world.topic("t", 3).await;
        for partition in 0..3 {
            world.append(topic, partition, 0..5);
        }
        let bridge = bridge_of_broken_log(&world, at(topic, broken));
        let answer = bridge.look("t").await.unwrap().expect("the others were read");
        let others = (0..3).filter(|partition| *partition != broken);
        let readable: Vec<TableRow> = others.flat_map(|partition| rows(partition, 0..5)).collect();
        assert_eq!(world.rows(&answer.table).await, readable);
        assert_eq!(answer.behind.unwrap().records, 5);
        let status = &bridge.statuses()[0];
        assert_eq!(status.state, TableState::Degraded);
        assert!(status.last_error.as_ref().unwrap().contains("planned"));
        // Nor does it when all others are there already, and more comes.
        for partition in 0..3 {
            world.append(topic, partition, 5..7);
        }
        let answer = bridge.look("t").await.unwrap().unwrap();
        assert_eq!(world.rows(&answer.table).await.len(), 14);
        let answer = world.bridge(env(3)).look("t").await.unwrap().unwrap();
        let all: Vec<TableRow> = (0..3).flat_map(|partition| rows(partition, 0..7)).collect();
        assert_eq!(world.rows(&answer.table).await, all);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_asked_seldom_and_a_look_does_not_wait_for_that() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..5);
    let bridge = world.bridge(env(2));
    world.store.put_faults.plan(vec![Fault::Refused; 10_000]);
    let (trigger, shutdown) = shutdown_signal();
    let job = bridge.start(shutdown);
    bridge.env().sleep(Duration::from_secs(120)).await;
    let failures = bridge.statuses()[0].failures;
    assert!((5..=8).contains(&failures), "{failures} tries in two minutes");
    world.store.put_faults.plan([]);
    let began = bridge.env().monotonic();
    let answer = bridge.look("t").await.unwrap().expect("a table");
    assert_eq!(world.rows(&answer.table).await, rows(0, 0..5));
    assert!(bridge.env().monotonic() - began <= Duration::from_secs(1));
    trigger.trigger();
    job.join().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_is_degraded_until_a_visit_finds_it_well() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..5);
    let bridge = world.bridge(env(2));
    bridge.look("t").await.unwrap().expect("a table");
    world.append(topic, 0, 5..6);
    world.pointers.read_faults.plan([Fault::Refused]);
    bridge.round().await.unwrap_err();
    let status = &bridge.statuses()[0];
    assert_eq!(status.state, TableState::Degraded);
    assert!(status.reason.as_ref().unwrap().contains("planned"));
    bridge.round().await.unwrap();
    let status = &bridge.statuses()[0];
    assert_eq!((status.state, &status.last_error), (TableState::Running, &None));
    // A commit that fails here, and that another broker makes.
    world.append(topic, 0, 6..7);
    world.store.put_faults.plan(vec![Fault::Refused; 100]);
    bridge.look("t").await.unwrap().expect("a table");
    world.store.put_faults.plan([]);
    assert_eq!(bridge.statuses()[0].state, TableState::Degraded);
    world.bridge(env(3)).look("t").await.unwrap().expect("a table");
    bridge.round().await.unwrap();
    assert_eq!(bridge.statuses()[0].state, TableState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_cannot_be_made_keeps_no_other_from_being_listed() {
    let world = World::new();
    let (broken, well) = (world.topic("broken", 1).await, world.topic("well", 1).await);
    for topic in [broken, well] {
        world.append(topic, 0, 0..5);
    }
    let bridge = bridge_of_broken_log(&world, at(broken, 0));
    assert_eq!(bridge.table_names(None, 10).await.unwrap(), ["well"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_tables_takes_no_longer_than_a_look() {
    let world = World::new();
    for table in 0..30 {
        let topic = world.topic(&format!("t{table}"), 60).await;
        for partition in 0..60 {
            world.append(topic, partition, 0..1);
        }
    }
    let bridge = world.slow_bridge(env(2));
    let began = bridge.env().monotonic();
    let names = bridge.table_names(None, 100).await.unwrap();
    assert!((1..30).contains(&names.len()), "{} were made", names.len());
    assert!(bridge.env().monotonic() - began <= Duration::from_secs(6));
}

/// Two tables that take a minute to read, and one that takes a second.
async fn two_far_behind(world: &World) -> Bridge {
    for name in ["a", "b"] {
        let topic = world.topic(name, 60).await;
        for partition in 0..60 {
            world.append(topic, partition, 0..1);
        }
    }
    let topic = world.topic("c", 1).await;
    world.append(topic, 0, 0..5);
    let bridge = world.slow_bridge(env(2));
    bridge.round().await.unwrap();
    bridge.env().sleep(Duration::from_millis(500)).await;
    bridge
}

#[tokio::test(start_paused = true)]
async fn a_look_does_not_wait_for_the_backfills_of_other_tables() {
    let world = World::new();
    let bridge = two_far_behind(&world).await;
    let began = bridge.env().monotonic();
    let answer = bridge.look("c").await.unwrap().expect("a table");
    assert_eq!((answer.behind, world.rows(&answer.table).await), (None, rows(0, 0..5)));
    assert!(bridge.env().monotonic() - began <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_backfill_lets_others_commit_between_its_commits() {
    let world = World::new();
    let bridge = two_far_behind(&world).await;
    bridge.env().sleep(Duration::from_secs(5)).await;
    let newest = bridge.newest("c").await.unwrap().expect("a table that nobody looked at");
    assert_eq!(world.rows(&newest).await, rows(0, 0..5));
    bridge.env().sleep(Duration::from_secs(120)).await;
    for name in ["a", "b"] {
        let newest = bridge.newest(name).await.unwrap().unwrap();
        assert_eq!(newest.progress.next_offsets, [1; 60], "it goes on by itself");
    }
}
