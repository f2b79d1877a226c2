//! Tables registered anew after the metadata store was lost.

use super::support::{Fault, World};
use crate::commit::LoadedTable;
use crate::external::TableName;
use crate::{Bridge, RecoveredTable, TableState, recover};
use floe_env::Env;
use floe_env::simulated::Node;
use floe_store::ObjectStore;
use kfs::{PartitionIndex, TopicId, TopicPartition};
use std::sync::Arc;

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

async fn look(bridge: &Bridge, name: &str) -> Arc<LoadedTable> {
    let answer = bridge.look(name).await.unwrap().expect("the table exists");
    assert_eq!(answer.behind, None);
    answer.table
}

/// The offsets of a table's rows by partition.
async fn places(world: &World, table: &LoadedTable) -> Vec<(i32, i64)> {
    world.rows(table).await.into_iter().map(|row| (row.0, row.1)).collect()
}

/// The world with its object store alone.
fn without_metadata(world: &World) -> World {
    World { store: world.store.clone(), ..World::new() }
}

async fn recovered(world: &World) -> Vec<RecoveredTable> {
    let env = Env::simulated(Node::new(9));
    let named = (world.cluster, "kafka");
    recover(&env, &world.store, &world.metadata, named, &|_| ()).await.unwrap()
}

fn problem(tables: &[RecoveredTable], topic: TopicId) -> &str {
    let folder = topic.to_string();
    let table = tables.iter().find(|table| table.folder.starts_with(&folder)).expect("its folder");
    table.problem.as_deref().unwrap_or_default()
}

/// Lets the log in memory go on where the metadata store says.
async fn follow(world: &World, topic: TopicId, partitions: i32) {
    world.log.add_topic(topic, usize::try_from(partitions).unwrap());
    for index in 0..partitions {
        let partition = TopicPartition { topic, partition: PartitionIndex(index) };
        let state = world.metadata.partition_states(&[partition]).await.unwrap()[0].unwrap();
        assert_eq!(state.log_start_offset, state.high_watermark);
        world.log.skip(partition, state.high_watermark).unwrap();
        world.log.advance_log_start(partition, state.high_watermark).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn tables_are_back_under_their_names_and_go_on() {
    let world = World::new();
    let bridge = world.bridge(env(2));
    let (one, other) = (world.topic("Shop.Orders", 2).await, world.topic("shop_orders", 1).await);
    for number in 0..20 {
        world.append(one, 1, number..number + 1);
        look(&bridge, "shop_orders").await;
        // So that some files are folded.
        bridge.keep_up().await.unwrap();
    }
    world.append(other, 0, 0..5);
    let names = bridge.table_names(None, 10).await.unwrap();
    assert_eq!(names.len(), 2);
    let (before, second) = (look(&bridge, &names[0]).await, look(&bridge, &names[1]).await);
    let expected = (places(&world, &before).await, places(&world, &second).await);
    // Never looked at: it has no table, and nothing is left of it.
    world.append(world.topic("lost", 1).await, 0, 0..5);

    let world = without_metadata(&world);
    let tables = recovered(&world).await;
    assert_eq!(tables.len(), 2, "{tables:?}");
    assert!(tables.iter().all(|table| table.problem.is_none()), "{tables:?}");
    assert_eq!(recovered(&world).await, tables, "again is the same");
    let topic = world.metadata.topic_by_name("Shop.Orders").await.unwrap().unwrap();
    assert_eq!((topic.id, topic.partition_count), (one, 2));
    follow(&world, one, 2).await;
    follow(&world, other, 1).await;
    let bridge = world.bridge(env(3));
    assert_eq!(bridge.table_names(None, 10).await.unwrap(), names);
    let (after, again) = (look(&bridge, &names[0]).await, look(&bridge, &names[1]).await);
    assert_eq!((places(&world, &after).await, places(&world, &again).await), expected);
    assert_eq!(after.metadata, before.metadata);
    world.append(one, 1, 100..103);
    world.append(one, 0, 100..101);
    let after = look(&bridge, "shop_orders").await;
    let rows = [vec![(0, 0)], (0..23).map(|offset| (1, offset)).collect()].concat();
    assert_eq!(places(&world, &after).await, rows);
    for _ in 0..3 {
        bridge.round().await.unwrap();
        bridge.keep_up().await.unwrap();
    }
    assert!(bridge.statuses().iter().all(|status| status.state == TableState::Running));
}

#[tokio::test(start_paused = true)]
async fn the_newest_whole_version_is_the_table() {
    for is_whole in [true, false] {
        let world = World::new();
        let topic = world.topic("t", 1).await;
        let bridge = world.bridge(env(2));
        world.append(topic, 0, 0..5);
        let known = look(&bridge, "t").await;
        // The pointer never moves, and nobody knows: the version's files stay.
        world.append(topic, 0, 5..8);
        let before = world.store.keys().await;
        world.pointers.faults.plan([Fault::NeverArrived; 6]);
        assert!(bridge.look("t").await.unwrap().unwrap().behind.is_some());
        let mut left = world.store.keys().await;
        left.retain(|key| !before.contains(key));
        assert_eq!(left.len(), 4, "file, manifest, list and metadata");
        if !is_whole {
            let data = left.into_iter().find(|key| key.contains("/data/")).unwrap();
            world.store.objects.delete(&[data]).await.unwrap();
        }
        let world = without_metadata(&world);
        let tables = recovered(&world).await;
        assert_eq!(tables[0].table.as_deref(), Some("t"));
        assert_eq!(tables[0].rows, if is_whole { 8 } else { 5 });
        follow(&world, topic, 1).await;
        let bridge = world.bridge(env(3));
        let next = tables[0].rows;
        world.append(topic, 0, 20..22);
        let table = look(&bridge, "t").await;
        assert_eq!(table.pointer.metadata_version, known.pointer.metadata_version + 1 + next / 8);
        let rows: Vec<_> = (0..next.cast_signed() + 2).map(|offset| (0, offset)).collect();
        assert_eq!(places(&world, &table).await, rows);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_a_table_says_why() {
    let world = World::new();
    let bridge = world.bridge(env(2));
    let (older, torn) = (world.topic("t", 1).await, world.topic("torn", 1).await);
    world.append(older, 0, 0..5);
    world.append(torn, 0, 0..5);
    look(&bridge, "t").await;
    let table = look(&bridge, "torn").await;
    assert!(world.metadata.delete_topic(older).await.unwrap());
    bridge.remove_table_of(older).await.unwrap();
    let newer = world.topic("t", 1).await;
    world.append(newer, 0, 0..3);
    env(9).sleep(std::time::Duration::from_secs(60)).await;
    look(&bridge, "t").await;
    let list = table.metadata.current_snapshot().unwrap().manifest_list();
    world.store.objects.delete(&[table.place.key_of(list).unwrap()]).await.unwrap();
    let stray = format!("{}/tables/no-table/metadata/00000-x.metadata.json", world.cluster);
    world.store.objects.put(&stray, vec![bytes::Bytes::from_static(b"{}")]).await.unwrap();

    let behind = without_metadata(&world);
    behind.metadata.recreate_topic(newer, "t", &[2]).await.unwrap();
    let tables = recovered(&behind).await;
    assert!(problem(&tables, newer).contains("ends at 2"), "{tables:?}");
    let world = without_metadata(&world);
    let tables = recovered(&world).await;
    assert_eq!(tables.len(), 3);
    assert_eq!(problem(&tables, newer), "", "{tables:?}");
    assert!(problem(&tables, older).contains("another topic is named t"), "{tables:?}");
    assert!(problem(&tables, torn).contains("no version of it is whole"), "{tables:?}");
    assert_eq!(world.bridge(env(3)).table_names(None, 10).await.unwrap(), ["t"]);
}

#[tokio::test(start_paused = true)]
async fn a_renamed_table_comes_back_under_its_newest_name() {
    let world = World::new();
    let bridge = world.bridge(env(2));
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..5);
    look(&bridge, "t").await;
    let [old, new] = ["t", "other"].map(|name| TableName::new("kafka", name));
    bridge.rename_external(&old, &new).await.unwrap();
    world.append(topic, 0, 5..6);
    look(&bridge, "other").await;
    let world = without_metadata(&world);
    let tables = recovered(&world).await;
    assert_eq!(tables[0].table.as_deref(), Some("other"));
    assert_eq!(tables[0].topic.as_deref(), Some("t"));
}
