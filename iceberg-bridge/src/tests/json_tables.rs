//! JSON topics as tables through the whole bridge: the same log gives the same table, wherever
//! looks, commits, crashes and restarts fall.

use super::json_rows::json_rows;
use super::support::{Fault, World};
use crate::commit::LoadedTable;
use crate::commit::tests_support::table_files;
use crate::mapping::MAPPING_STATE_PROPERTY;
use crate::{Bridge, TableState};
use bytes::Bytes;
use floe_env::simulated::Node;
use floe_env::{Env, Lane};
use floe_store::ObjectStore;
use kfs::{BatchBuilder, NewRecord, PartitionIndex, TopicId, TopicPartition};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

fn append(world: &World, topic: TopicId, values: &[String]) {
    let mut builder = BatchBuilder::new();
    for value in values {
        let value = Some(value.as_bytes());
        builder.push(&NewRecord { timestamp_ms: 0, key: None, value, headers: &[] }).unwrap();
    }
    let place = TopicPartition { topic, partition: PartitionIndex(0) };
    world.log.append(place, &builder.build().unwrap()).unwrap();
}

async fn look(bridge: &Bridge) -> std::sync::Arc<LoadedTable> {
    bridge.look("t").await.unwrap().expect("the table exists").table
}

async fn rows(world: &World, table: &LoadedTable) -> Vec<(i64, Value)> {
    let mut rows = Vec::new();
    for file in table_files(&world.store, table).await {
        let key = table.place.key_of(file.file_path()).unwrap();
        rows.extend(json_rows(world.store.get(&key).await.unwrap().unwrap()));
    }
    rows.sort_by_key(|(offset, _)| *offset);
    rows
}

#[tokio::test(start_paused = true)]
async fn columns_come_with_the_first_rows_that_need_them() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    append(&world, topic, &["text".to_owned()]);
    let first = look(&bridge).await;
    assert_eq!(first.metadata.schemas_iter().len(), 1);
    assert!(!first.metadata.properties().contains_key(MAPPING_STATE_PROPERTY));
    append(&world, topic, &[r#"{"a":1}"#.to_owned()]);
    let second = look(&bridge).await;
    let snapshot = second.metadata.current_snapshot().unwrap();
    assert_eq!(snapshot.schema_id(), Some(second.metadata.current_schema_id()));
    assert_eq!(second.metadata.current_schema().field_by_name("a").unwrap().id, 17);
    assert_eq!(second.metadata.last_column_id(), 17);
    assert_eq!(second.metadata.properties()[MAPPING_STATE_PROPERTY], second.mapping.pack());
    append(&world, topic, &[r#"{"a":2}"#.to_owned()]);
    let third = look(&bridge).await;
    assert_eq!(third.metadata.current_schema_id(), second.metadata.current_schema_id());
    let expected =
        [(0, json!({"_kafka_value": "text"})), (1, json!({"a": 1})), (2, json!({"a": 2}))];
    assert_eq!(rows(&world, &third).await, expected);
}

#[tokio::test(start_paused = true)]
async fn schemas_that_no_snapshot_was_made_with_are_left_out() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let clock = env(2);
    let bridge = world.bridge(clock.clone());
    for number in 0..160 {
        append(&world, topic, &[format!("{{\"k{}\":1}}", number % 90)]);
        clock.sleep(Duration::from_secs(120)).await;
        look(&bridge).await;
    }
    let table = look(&bridge).await;
    assert_eq!(table.mapping.leaves(), 90);
    assert!(table.metadata.snapshots().len() < 150);
    let schemas = table.metadata.schemas_iter().len();
    assert!(schemas < 60, "{schemas} schemas, of which snapshots that are gone had 90");
}

#[tokio::test(start_paused = true)]
async fn a_mapping_of_another_version_stops_the_table() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    append(&world, topic, &[r#"{"a":1}"#.to_owned()]);
    let table = look(&bridge).await;
    let packed = table.mapping.pack();
    let foreign = [
        packed.replace("{\"v\":1", "{\"v\":2"),
        packed.replace("[17,", "[7,"),
        packed.replace("\"a\"", "7"),
    ];
    for text in foreign {
        let mut metadata: Value = serde_json::from_slice(&table.metadata_json()).unwrap();
        metadata["properties"][MAPPING_STATE_PROPERTY] = text.clone().into();
        let key = table.place.metadata_key(&env(9), table.pointer.metadata_version + 1, false);
        let bytes = Bytes::from(metadata.to_string());
        world.store.put(&key, vec![bytes]).await.unwrap();
        let moved = table.pointer.moved(table.place.url_of(&key).unwrap());
        let loaded = LoadedTable::load(&env(9), &world.store, world.cluster, moved)
            .await
            .unwrap()
            .stopped
            .clone()
            .unwrap();
        assert!(loaded.contains("mapping"), "{text}: {loaded}");
    }
    assert_eq!(bridge.statuses()[0].state, TableState::Running);
    assert_eq!(bridge.statuses()[0].columns, 1);
}

/// What may happen between two appends.
#[derive(Clone, Copy, Debug)]
enum Step {
    Look,
    Restart,
    /// A commit whose files are there and whose pointer does not move, or nobody knows.
    FailedCommit(Fault),
    /// The node dies while a look is on its way.
    Crash(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Look),
        1 => Just(Step::Restart),
        1 => Just(Step::FailedCommit(Fault::Refused)),
        1 => Just(Step::FailedCommit(Fault::AnswerLost)),
        2 => (0..60_u32).prop_map(Step::Crash),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        (-3..3_i64).prop_map(|number| number.to_string()),
        Just("1.5".to_owned()),
        Just("1e999".to_owned()),
        Just("9007199254740993".to_owned()),
        Just("\"text\"".to_owned()),
    ];
    scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(("[a-bA]", inner), 0..3).prop_map(|members| {
                let members = members.iter().map(|(key, value)| format!("\"{key}\":{value}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

fn record() -> impl Strategy<Value = String> {
    let object = prop::collection::vec(("[a-cA-C]", value()), 0..4).prop_map(|members| {
        let members = members.iter().map(|(key, value)| format!("\"{key}\":{value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    });
    prop_oneof![8 => object, 1 => Just("{\"a\":".to_owned()), 1 => Just("plain".to_owned())]
}

/// Replays a log with these steps in between; answers schema, mapping and rows.
async fn replay(log: &[(Vec<String>, Step)]) -> (Value, String, Vec<(i64, Value)>) {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let mut seed = 10;
    let mut node = Node::new(seed);
    let mut bridge = world.bridge(Env::simulated(node.clone()));
    for (values, step) in log {
        append(&world, topic, values);
        let mut restart = false;
        match step {
            Step::Look => drop(look(&bridge).await),
            Step::Restart => restart = true,
            Step::FailedCommit(fault) => {
                world.pointers.faults.plan([*fault]);
                let _ = bridge.look("t").await;
                world.pointers.faults.plan([]);
            }
            Step::Crash(polls) => {
                let looking = bridge.clone();
                let look = async move { looking.look("t").await.map(drop) };
                node.set_kill_once_in(u64::from(*polls));
                let looked = Env::simulated(node.clone()).spawn("look", Lane::Background, look);
                drop(looked.await);
                node.kill();
                restart = true;
            }
        }
        if restart {
            seed += 1;
            node = Node::new(seed);
            bridge = world.bridge(Env::simulated(node.clone()));
        }
    }
    let table = look(&bridge).await;
    let schema = serde_json::to_value(table.metadata.current_schema().as_struct()).unwrap();
    (schema, table.mapping.pack(), rows(&world, &table).await)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn the_same_log_gives_the_same_table(
        log in prop::collection::vec((prop::collection::vec(record(), 1..6), step()), 1..8),
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.unwrap();
        let whole: Vec<String> = log.iter().flat_map(|(values, _)| values.clone()).collect();
        let one_by_one: Vec<_> =
            whole.iter().map(|value| (vec![value.clone()], Step::Look)).collect();
        let expected = runtime.block_on(replay(&[(whole, Step::Look)]));
        prop_assert_eq!(runtime.block_on(replay(&log)), expected.clone());
        prop_assert_eq!(runtime.block_on(replay(&one_by_one)), expected);
    }
}
