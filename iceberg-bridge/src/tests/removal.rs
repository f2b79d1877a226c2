//! Tables of deleted topics.

use super::support::{Fault, World};
use crate::pointer::TablePointers;
use floe_env::Env;
use floe_env::simulated::{Node, SIMULATION_START_MS};
use floe_metadata::facts::ChangeOutcome;
use kfs::TopicId;

const SEVEN_DAYS_MS: i64 = 7 * 24 * 3_600_000;

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

async fn delete(world: &World, topic: TopicId) {
    assert!(world.metadata.delete_topic(topic).await.unwrap());
    world.log.remove_topic(topic);
}

async fn files_of(world: &World, topic: TopicId) -> usize {
    let folder = format!("{}/tables/{topic}-", world.cluster);
    world.store.keys().await.iter().filter(|key| key.starts_with(&folder)).count()
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topics_table_gets_the_rest_and_leaves_the_catalog_and_its_files_stay_a_week() {
    let world = World::new();
    let (topic, other) = (world.topic("t", 1).await, world.topic("u", 1).await);
    let bridge = world.bridge(env(2));
    world.append(topic, 0, 0..5);
    world.append(other, 0, 0..5);
    bridge.look("t").await.unwrap().expect("a table");
    bridge.look("u").await.unwrap().expect("a table");
    bridge.round().await.unwrap();
    world.append(topic, 0, 5..8);
    bridge.finish(topic).await.unwrap();
    let last = bridge.newest("t").await.unwrap().expect("still there");
    assert_eq!(last.progress.next_offsets, [8]);
    delete(&world, topic).await;
    bridge.remove_table_of(topic).await.unwrap();
    assert!(bridge.look("t").await.unwrap().is_none());
    assert_eq!(bridge.table_names(None, 10).await.unwrap(), ["u"]);
    assert_eq!(world.metadata.table_progress(topic).await.unwrap(), None);
    assert_eq!(bridge.statuses().len(), 1);
    assert_eq!(world.rows(&last).await.len(), 8, "an engine that reads it goes on");

    world.node.set_clock_ms(SIMULATION_START_MS + SEVEN_DAYS_MS - 1000);
    world.bridge(env(3)).round().await.unwrap();
    assert!(files_of(&world, topic).await > 0);
    world.node.set_clock_ms(SIMULATION_START_MS + SEVEN_DAYS_MS + 1000);
    world.bridge(env(4)).round().await.unwrap();
    assert_eq!(files_of(&world, topic).await, 0);
    assert!(files_of(&world, other).await > 0);
    assert!(world.pointers.removed(10).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_crash_leaves_of_a_deleted_topics_table_the_next_round_removes() {
    let world = World::new();
    let first = world.topic("t", 1).await;
    world.append(first, 0, 0..5);
    let bridge = world.bridge(env(2));
    bridge.look("t").await.unwrap().expect("a table");
    delete(&world, first).await;
    let second = world.topic("t", 1).await;
    world.append(second, 0, 5..6);
    // The first try fails; nothing else of the round does.
    world.pointers.faults.plan([Fault::NeverArrived]);
    bridge.round().await.unwrap_err();
    bridge.round().await.unwrap();
    let names = bridge.table_names(None, 10).await.unwrap();
    assert_eq!(names.len(), 1, "the first topic's table is gone: {names:?}");
    let answer = bridge.look(&names[0]).await.unwrap().expect("the second topic's table");
    assert_eq!(answer.table.pointer.topic(), Some(second));
    assert_eq!(world.rows(&answer.table).await, [(0, 0, "5".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_the_same_name_gets_the_name_of_a_removed_table() {
    let world = World::new();
    let first = world.topic("t", 1).await;
    world.append(first, 0, 0..5);
    let bridge = world.bridge(env(2));
    bridge.look("t").await.unwrap().expect("a table");
    delete(&world, first).await;
    bridge.remove_table_of(first).await.unwrap();
    let second = world.topic("t", 1).await;
    world.append(second, 0, 5..6);
    let answer = bridge.look("t").await.unwrap().expect("a table");
    assert_eq!(answer.table.pointer.topic(), Some(second));
    assert_eq!(world.rows(&answer.table).await, [(0, 0, "5".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_under_way_loses_against_the_removal() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..5);
    let bridge = world.bridge(env(2));
    let old = bridge.look("t").await.unwrap().expect("a table").table.pointer.clone();
    bridge.remove_table_of(topic).await.unwrap();
    assert!(bridge.newest("t").await.unwrap().is_some(), "its topic is still there");
    delete(&world, topic).await;
    bridge.remove_table_of(topic).await.unwrap();
    let late = world.pointers.swap(&old, &old.moved("elsewhere".to_owned())).await.unwrap();
    assert_eq!(late, ChangeOutcome::Rejected);
    let again = world.pointers.remove(&old).await.unwrap();
    assert_eq!(again, ChangeOutcome::Rejected);
    assert_eq!(world.pointers.removed(10).await.unwrap().len(), 1);
    // Found by seed 35 of the simulation: a broker that woke up late brought the table back.
    let back = world.pointers.create(&old).await.unwrap_err();
    assert_eq!(back.kind(), floe_env::ErrorKind::Invalid);
}
