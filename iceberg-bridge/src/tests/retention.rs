//! Rows that are too old leave their table.

use super::support::{Fault, World};
use crate::commit::{LoadedTable, TRIMMED_KEY};
use crate::progress::PROGRESS_KEY;
use crate::{Bridge, RETENTION_CONFIG, TableState};
use floe_env::simulated::{Node, SIMULATION_START_MS};
use floe_env::{Env, Result};
use floe_metadata::topics::TopicCreation;
use iceberg::spec::Operation;
use kfs::TopicId;
use std::sync::Arc;

const HOUR_MS: i64 = 3_600_000;
const NOW: i64 = SIMULATION_START_MS / HOUR_MS;

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

async fn topic(world: &World, name: &str, retention_hours: i64) -> TopicId {
    let retention_ms = retention_hours * HOUR_MS;
    let configs = [(RETENTION_CONFIG.to_owned(), retention_ms.to_string())].into();
    let made = world.metadata.create_topic(name, 1, 1, configs).await.unwrap();
    let TopicCreation::Created(topic) = made else { panic!("topic {name} exists") };
    world.log.add_topic(topic.id, 1);
    topic.id
}

async fn look(bridge: &Bridge, name: &str) -> Arc<LoadedTable> {
    let answer = bridge.look(name).await.unwrap().expect("the table exists");
    assert_eq!(answer.behind, None);
    answer.table
}

/// The offsets of a table's rows.
async fn offsets(world: &World, table: &LoadedTable) -> Vec<i64> {
    world.rows(table).await.into_iter().map(|row| row.1).collect()
}

/// A table that keeps 60 hours: two files that are older, one that begins before and ends behind
/// that, and one of now.
async fn aged(world: &World, bridge: &Bridge) -> TopicId {
    let topic = topic(world, "t", 60).await;
    for hours_ago in [240, 100, 71, 50, 0] {
        world.append_at(topic, 0, NOW - hours_ago, 5);
        // Those of 71 and 50 hours ago are of one day, and come with one commit.
        if hours_ago != 71 {
            look(bridge, "t").await;
        }
    }
    topic
}

#[tokio::test(start_paused = true)]
async fn whole_files_of_old_rows_go_and_the_table_goes_on() {
    let world = World::new();
    let bridge = world.bridge(env(2));
    let topic = aged(&world, &bridge).await;
    let before = look(&bridge, "t").await;
    bridge.keep_up().await.unwrap();
    let after = look(&bridge, "t").await;
    let snapshot = after.metadata.current_snapshot().unwrap();
    assert_eq!(snapshot.summary().operation, Operation::Delete);
    assert_eq!(after.summary(TRIMMED_KEY), Some(RETENTION_CONFIG));
    assert_eq!(after.summary(PROGRESS_KEY), before.summary(PROGRESS_KEY));
    assert_eq!(offsets(&world, &after).await, (10..25).collect::<Vec<_>>());
    assert_eq!(offsets(&world, &before).await, (0..25).collect::<Vec<_>>(), "readers go on");
    let rows = bridge.trim_counts().rows.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(rows, 10);
    let puts = world.store.puts();
    bridge.keep_up().await.unwrap();
    assert_eq!(world.store.puts(), puts, "nothing more is old");
    // Another broker knows where the table is, and brings nothing back.
    let other = world.bridge(env(3));
    world.append_at(topic, 0, NOW, 1);
    let table = look(&other, "t").await;
    assert_eq!(offsets(&world, &table).await, (10..26).collect::<Vec<_>>());
    let status = &other.statuses()[0];
    assert_eq!((status.state, status.files), (TableState::Running, 3));
    assert_eq!(status.retention_ms, Some(60 * HOUR_MS));
}

#[tokio::test(start_paused = true)]
async fn rows_without_a_time_and_tables_without_retention_stay() {
    let world = World::new();
    let bridge = world.bridge(env(2));
    let kept = world.topic("kept", 1).await;
    world.append_at(kept, 0, NOW - 10_000, 5);
    look(&bridge, "kept").await;
    let topic = topic(&world, "t", 1).await;
    // Before the year 1: shown as null, in a file of its own.
    world.append_at(topic, 0, -20_000_000, 5);
    world.append_at(topic, 0, NOW - 48, 5);
    look(&bridge, "t").await;
    for _ in 0..3 {
        bridge.keep_up().await.unwrap();
    }
    let (kept, trimmed) = (look(&bridge, "kept").await, look(&bridge, "t").await);
    assert_eq!(offsets(&world, &kept).await.len(), 5);
    assert_eq!(offsets(&world, &trimmed).await, (0..5).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn rows_that_came_meanwhile_stay() {
    let world = World::new();
    let (one, other) = (world.bridge(env(2)), world.bridge(env(3)));
    let topic = aged(&world, &one).await;
    world.append_at(topic, 0, NOW, 2);
    look(&other, "t").await;
    // The first one does not know of the second's commit until its own is refused.
    assert!(one.trim_next().await.unwrap());
    assert_eq!(one.statuses()[0].conflicts, 1);
    let table = look(&one, "t").await;
    assert_eq!(offsets(&world, &table).await, (10..27).collect::<Vec<_>>());
    assert_eq!(table.progress.next_offsets, [27]);
    assert_eq!(table.summary(TRIMMED_KEY), Some(RETENTION_CONFIG));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_trims_once_and_a_loser_changes_nothing() {
    for fault in [Fault::AnswerLost, Fault::NeverArrived, Fault::Refused] {
        let world = World::new();
        let bridge = world.bridge(env(2));
        aged(&world, &bridge).await;
        let before = look(&bridge, "t").await.pointer.metadata_version;
        world.pointers.faults.plan([fault]);
        let trimmed: Result<()> = bridge.keep_up().await;
        assert_eq!(trimmed.is_err(), fault == Fault::Refused);
        let table = look(&bridge, "t").await;
        let is_trimmed = fault != Fault::Refused;
        assert_eq!(table.pointer.metadata_version - before, u64::from(is_trimmed));
        let first = if is_trimmed { 10 } else { 0 };
        assert_eq!(offsets(&world, &table).await, (first..25).collect::<Vec<_>>());
    }
}
