//! Flushes beside everything else that a bridge does.

use super::support::{LogLayer, World};
use crate::memory_log::MemoryLog;
use async_trait::async_trait;
use floe_env::simulated::Node;
use floe_env::{Env, Lane, Result};
use kfs::{PartitionIndex, TopicPartition};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_no_backfill_and_holds_no_table_longer_than_it_needs() {
    let world = World::new();
    let late = world.topic("late", 60).await;
    for partition in 0..60 {
        world.append(late, partition, 0..1);
    }
    let quick = world.topic("quick", 1).await;
    world.append(quick, 0, 0..5);
    let bridge = world.slow_bridge(env(2));
    bridge.round().await.unwrap();
    bridge.env().sleep(Duration::from_millis(500)).await;
    let began = bridge.env().monotonic();
    let flushing = {
        let bridge = bridge.clone();
        async move { bridge.flush(&["late".to_owned(), "quick".to_owned()]).await }
    };
    let flushing = bridge.env().spawn("flush", Lane::Foreground, flushing);
    bridge.env().sleep(Duration::from_secs(10)).await;
    // The backfill goes on by the flush; the other table is where it was to be, and goes on too.
    world.append(quick, 0, 5..6);
    let answer = bridge.look("quick").await.unwrap().expect("a table");
    assert_eq!((answer.behind, answer.table.progress.next_offsets.as_slice()), (None, &[6][..]));
    let flushed = flushing.await.unwrap().unwrap();
    let rows: Vec<_> = flushed.iter().map(|table| (table.rows, table.error.clone())).collect();
    assert_eq!(flushed.len(), 2);
    for table in [(60, None), (5, None)] {
        assert!(rows.contains(&table), "{rows:?}");
    }
    assert!(bridge.env().monotonic() - began < Duration::from_secs(90), "each partition once");
}

#[tokio::test(start_paused = true)]
async fn two_flushes_of_the_same_tables_end_both() {
    let world = World::new();
    for (name, count) in [("a", 3), ("b", 4)] {
        let topic = world.topic(name, 1).await;
        world.append(topic, 0, 0..count);
    }
    let bridge = world.slow_bridge(env(2));
    let names = |names: [&str; 2]| names.map(str::to_owned);
    let (one, other) = (names(["a", "b"]), names(["b", "a"]));
    let (one, other) = tokio::join!(bridge.flush(&one), bridge.flush(&other));
    for flushed in [one, other] {
        let rows: u64 = flushed.unwrap().iter().map(|table| table.rows).sum();
        assert_eq!(rows, 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_is_named_by_a_flush_when_its_log_is_empty() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..5);
    let names = ["t".to_owned()];
    let before = world.bridge(env(2)).flush(&names).await.unwrap();
    let partition = TopicPartition { topic, partition: PartitionIndex(0) };
    world.log.advance_log_start(partition, 5).unwrap();
    // By a broker that has not looked at it yet.
    let after = world.bridge(env(3)).flush(&names).await.unwrap();
    assert_eq!(after, before);
    assert_eq!(after[0].rows, 5);
    assert!(world.bridge(env(4)).flush(&["none".to_owned()]).await.is_err());
}

/// A log that counts how often it is asked for ends.
struct CountingLog {
    inner: Arc<MemoryLog>,
    cuts: AtomicU32,
}

#[async_trait]
impl LogLayer for CountingLog {
    fn inner(&self) -> &MemoryLog {
        &self.inner
    }

    async fn before_cut(&self) -> Result<()> {
        self.cuts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_takes_the_ends_of_all_topics_in_one_read() {
    let world = World::new();
    let mut names = Vec::new();
    for number in 0..5 {
        let name = format!("t{number}");
        let topic = world.topic(&name, 1).await;
        world.append(topic, 0, 0..2);
        names.push(name);
    }
    let log = Arc::new(CountingLog { inner: world.log.clone(), cuts: AtomicU32::new(0) });
    let bridge = world.bridge_on(env(2), log.clone(), |_| ());
    let flushed = bridge.flush(&names).await.unwrap();
    assert_eq!(flushed.iter().map(|table| table.rows).sum::<u64>(), 10);
    assert_eq!(log.cuts.load(Ordering::Relaxed), 1);
}
