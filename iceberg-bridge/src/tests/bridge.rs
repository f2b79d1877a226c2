use super::support::{Fault, TableRow, World};
use crate::pointer::TablePointers;
use crate::{Behind, Bridge, BridgeConfig, LookAnswer, TableState};
use floe_env::simulated::Node;
use floe_env::{Env, Lane, shutdown_signal};
use kfs::{PartitionIndex, TopicId, TopicPartition};
use std::time::Duration;

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

async fn look(bridge: &Bridge, name: &str) -> LookAnswer {
    bridge.look(name).await.unwrap().expect("the table exists")
}

fn rows(partition: i32, first_offset: i64, numbers: std::ops::Range<i64>) -> Vec<TableRow> {
    let offsets = first_offset..;
    offsets.zip(numbers).map(|(offset, number)| (partition, offset, number.to_string())).collect()
}

fn at(topic: TopicId, partition: i32) -> TopicPartition {
    TopicPartition { topic, partition: PartitionIndex(partition) }
}

#[tokio::test(start_paused = true)]
async fn a_look_sees_every_record() {
    let world = World::new();
    let topic = world.topic("Shop.Orders", 2).await;
    let bridge = world.bridge(env(2));
    assert!(bridge.look("shop_orders").await.unwrap().is_none(), "no table without a record");
    world.append(topic, 1, 0..5);
    let answer = look(&bridge, "shop_orders").await;
    assert_eq!(answer.behind, None);
    assert_eq!(world.rows(&answer.table).await, rows(1, 0, 0..5));
    let puts = world.store.puts();
    look(&bridge, "shop_orders").await;
    assert_eq!(world.store.puts(), puts, "covered already: nothing is put");
    world.append(topic, 0, 5..7);
    let answer = look(&bridge, "shop_orders").await;
    assert_eq!(world.store.puts() - puts, 4, "file, manifest, list and metadata");
    let expected = [rows(0, 0, 5..7), rows(1, 0, 0..5)].concat();
    assert_eq!(world.rows(&answer.table).await, expected);
    assert_eq!(bridge.table_names(None, 10).await.unwrap(), ["shop_orders"]);
    let pointer = world.pointers.by_topic(topic).await.unwrap();
    assert_eq!(pointer.as_ref(), Some(&answer.table.pointer));
}

#[tokio::test(start_paused = true)]
async fn an_open_transaction_is_not_shown_and_markers_cost_nothing() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    world.append(topic, 0, 0..5);
    world.log.hold(at(topic, 0), true).unwrap();
    world.append(topic, 0, 5..9);
    assert_eq!(world.rows(&look(&bridge, "t").await.table).await, rows(0, 0, 0..5));
    world.log.skip(at(topic, 0), 1).unwrap();
    world.log.hold(at(topic, 0), false).unwrap();
    let answer = look(&bridge, "t").await;
    assert_eq!(world.rows(&answer.table).await, rows(0, 0, 0..9));
    world.log.skip(at(topic, 0), 3).unwrap();
    let puts = world.store.puts();
    assert_eq!(look(&bridge, "t").await.behind, None);
    assert_eq!(world.store.puts(), puts, "offsets without rows are not committed");
    world.append(topic, 0, 9..10);
    let answer = look(&bridge, "t").await;
    assert_eq!(answer.table.progress.next_offsets, [14]);
    assert_eq!(world.rows(&answer.table).await.last(), Some(&(0, 13, "9".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn many_looks_share_few_commits() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    world.append(topic, 0, 0..1);
    look(&bridge, "t").await;
    for number in 1..50 {
        world.append(topic, 0, number..number + 1);
    }
    let looks = (0..50).map(|_| look(&bridge, "t"));
    let answers = futures::future::join_all(looks).await;
    assert!(answers.iter().all(|answer| answer.behind.is_none()));
    assert!(bridge.statuses()[0].commits <= 3, "{}", bridge.statuses()[0].commits);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_cancels_nothing() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let (one, other) = (world.bridge(env(2)), world.bridge(env(3)));
    world.append(topic, 0, 0..5);
    let hung_up = tokio::select! {
        biased;
        _ = one.look("t") => false,
        () = tokio::task::yield_now() => true,
    };
    assert!(hung_up);
    env(4).sleep(Duration::from_secs(1)).await;
    let newest = other.newest("t").await.unwrap().expect("the commit went on");
    assert_eq!(newest.progress.next_offsets, [5]);
}

#[tokio::test(start_paused = true)]
async fn a_late_look_says_how_far_behind_it_is() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    world.append(topic, 0, 0..5);
    look(&bridge, "t").await;
    world.append(topic, 0, 5..8);
    // Every put fails: the commit cannot be made.
    world.store.put_faults.plan([Fault::Refused; 100]);
    env(4).sleep(Duration::from_secs(10)).await;
    let answer = look(&bridge, "t").await;
    let Some(Behind { records, ms }) = answer.behind else { panic!("it is behind") };
    assert_eq!(records, 3);
    assert!(ms >= 10_000);
    assert_eq!(world.rows(&answer.table).await, rows(0, 0, 0..5));
    let status = &bridge.statuses()[0];
    assert_eq!((status.state, status.lag_records), (TableState::Degraded, 3));
    assert!(status.last_error.as_ref().unwrap().contains("planned"));
    world.store.put_faults.plan([]);
    assert_eq!(look(&bridge, "t").await.behind, None);
    assert_eq!(bridge.statuses()[0].state, TableState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_table_with_much_to_read_is_shown_before_it_has_all() {
    let world = World::new();
    let topic = world.topic("t", 10).await;
    for partition in 0..10 {
        world.append(topic, partition, 0..3);
    }
    // The look gives up after 5 s, and reading takes 10: two commits have come by then.
    let bridge = world.slow_bridge(env(2));
    let answer = look(&bridge, "t").await;
    assert_eq!(answer.table.progress.next_offsets, [3, 3, 3, 3]);
    assert_eq!(answer.behind.expect("it is behind").records, 18);
    assert_eq!(world.rows(&answer.table).await.len(), 12);
    let status = &bridge.statuses()[0];
    assert_eq!(status.state, TableState::Running);
    assert_eq!(status.reason.as_deref(), Some("catching up: 18 records to go"));
    let (clock, begun) = (env(5), env(5).monotonic());
    look(&bridge, "t").await;
    assert_eq!(clock.monotonic() - begun, Duration::ZERO, "nobody waits for a backfill");
    env(4).sleep(Duration::from_secs(10)).await;
    let answer = look(&bridge, "t").await;
    assert_eq!((answer.behind, answer.table.progress.next_offsets.len()), (None, 10));
    let all: Vec<TableRow> = (0..10).flat_map(|partition| rows(partition, 0, 0..3)).collect();
    assert_eq!(world.rows(&answer.table).await, all);
}

#[tokio::test(start_paused = true)]
async fn a_backfill_keeps_what_it_has_when_it_is_killed_and_holds_nobody_up() {
    let world = World::new();
    let late = [world.topic("late", 60).await, world.topic("later", 60).await];
    let others = [world.topic("a", 1).await, world.topic("b", 1).await];
    for (topic, partition) in (0..120).map(|number| (late[number % 2], number / 2)) {
        world.append(topic, i32::try_from(partition).unwrap(), 0..3);
    }
    world.log.hold(at(late[0], 0), true).unwrap();
    let mut made = 0;
    // Killed every ten seconds, a table goes on where it was: at most two seconds are lost.
    for seed in 2..6 {
        let node = Node::new(seed);
        let bridge = world.slow_bridge(Env::simulated(node.clone()));
        // They give up after five seconds; what they have begun goes on.
        tokio::join!(look(&bridge, "late"), look(&bridge, "later"));
        env(9).sleep(Duration::from_secs(5)).await;
        node.kill();
        let table = world.bridge(env(8)).newest("late").await.unwrap().unwrap();
        let has = table.progress.next_offsets.iter().filter(|next| **next == 3).count();
        assert!(has >= made + 7, "{has} partitions after {made}");
        assert_eq!(world.rows(&table).await.len(), has * 3);
        made = has;
    }
    assert!((28..60).contains(&made), "{made}");
    // The tail goes on meanwhile, and tables of others get their turns between its commits.
    let bridge = world.slow_bridge(env(10));
    tokio::join!(look(&bridge, "late"), look(&bridge, "later"));
    for topic in [late[0], others[0], others[1]] {
        world.append(topic, 0, 10..12);
    }
    bridge.round().await.unwrap();
    env(9).sleep(Duration::from_secs(9)).await;
    for name in ["a", "b"] {
        let table = bridge.newest(name).await.unwrap().expect("it had its turn");
        assert_eq!(table.progress.next_offsets, [2]);
    }
    let table = bridge.newest("late").await.unwrap().unwrap();
    assert!(table.progress.next_offsets.len() < 60, "which still catches up");
    env(9).sleep(Duration::from_secs(60)).await;
    let table = look(&bridge, "late").await.table;
    assert_eq!(world.rows(&table).await.len(), 180, "held back is what is still open");
    world.log.hold(at(late[0], 0), false).unwrap();
    let answer = look(&bridge, "late").await;
    assert_eq!((answer.behind, world.rows(&answer.table).await.len()), (None, 182));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_switched_off_is_shown_and_not_written() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    world.append(topic, 0, 0..5);
    look(&bridge, "t").await;
    let known = std::collections::BTreeMap::new();
    world.metadata.set_topic_configs(topic, &known, off()).await.unwrap();
    world.append(topic, 0, 5..8);
    // Also by a broker that has never had it on.
    for bridge in [bridge, world.bridge(env(3))] {
        let puts = world.store.puts();
        bridge.round().await.unwrap();
        env(4).sleep(Duration::from_secs(400)).await;
        bridge.round().await.unwrap();
        let answer = look(&bridge, "t").await;
        assert_eq!(answer.behind.expect("it is behind").records, 3);
        assert_eq!(world.rows(&answer.table).await, rows(0, 0, 0..5));
        assert_eq!(world.store.puts(), puts);
        let status = &bridge.statuses()[0];
        assert_eq!((status.state, status.lag_records), (TableState::Stopped, 3));
        assert!(status.reason.as_ref().unwrap().starts_with("switched off"));
    }
    world.metadata.set_topic_configs(topic, &off(), known).await.unwrap();
    let bridge = world.bridge(env(5));
    bridge.round().await.unwrap();
    assert_eq!(world.rows(&look(&bridge, "t").await.table).await, rows(0, 0, 0..8));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_cannot_be_made_is_shown() {
    let world = World::new();
    let topic = world.topic("Shop.Orders", 1).await;
    let bridge = world.bridge(env(2));
    bridge.round().await.unwrap();
    assert_eq!(bridge.statuses()[0].shown_name(), None, "nothing is wrong");
    world.append(topic, 0, 0..5);
    world.store.put_faults.plan([Fault::Refused; 100]);
    bridge.round().await.unwrap();
    env(4).sleep(Duration::from_secs(2)).await;
    let status = &bridge.statuses()[0];
    assert_eq!(status.shown_name().as_deref(), Some("shop_orders"));
    assert_eq!((status.state, status.lag_records), (TableState::Degraded, 5));
}

#[tokio::test(start_paused = true)]
async fn a_table_says_how_it_is_over_a_restart() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    let append = |values: &[&str]| {
        let mut builder = kfs::BatchBuilder::new();
        for value in values {
            let value = Some(value.as_bytes());
            let record = kfs::NewRecord { timestamp_ms: 0, key: None, value, headers: &[] };
            builder.push(&record).unwrap();
        }
        world.log.append(at(topic, 0), &builder.build().unwrap()).unwrap();
    };
    append(&[r#"{"a":1}"#, r#"{"a":"#, r#"{"a":2,"a":3}"#, r#"{"b":{"c":[]}}"#]);
    look(&bridge, "t").await;
    append(&[r#"{"a":"#]);
    look(&bridge, "t").await;
    let own = bridge.statuses()[0].clone();
    assert_eq!((own.decoded.rescued_rows, own.decoded.undecodable_rows), (2, 2));
    assert_eq!(bridge.decode_counts(), own.decoded);
    assert_eq!((own.puts, own.commits, own.conflicts), (8, 2, 0));
    assert_eq!(own.small_files, None, "nobody has looked yet");
    bridge.keep_up().await.unwrap();
    let restarted = world.bridge(env(3));
    restarted.round().await.unwrap();
    restarted.keep_up().await.unwrap();
    for bridge in [&bridge, &restarted] {
        let status = bridge.statuses()[0].clone();
        assert_eq!((status.rescued_rows, status.undecodable_rows), (2, 2));
        assert_eq!((status.files, status.small_files, status.columns), (2, Some(2), 1));
        let committed_ms = status.last_commit_ms.unwrap();
        assert!((own.last_commit_ms.unwrap() - committed_ms).abs() < 2000);
    }
    // What the broker has counted stays counted when the table goes.
    assert!(world.metadata.delete_topic(topic).await.unwrap());
    world.log.remove_topic(topic);
    bridge.remove_table_of(topic).await.unwrap();
    assert!(bridge.statuses().is_empty());
    assert_eq!(bridge.decode_counts(), own.decoded);
}

#[tokio::test(start_paused = true)]
async fn the_background_makes_tables_and_bounds_the_lag() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let silent = world.metadata.create_topic("off", 1, 1, off()).await.unwrap();
    let floe_metadata::topics::TopicCreation::Created(silent) = silent else { panic!() };
    world.log.add_topic(silent.id, 1);
    world.append(silent.id, 0, 0..5);
    let bridge = world.bridge(env(2));
    let (trigger, shutdown) = shutdown_signal();
    let job = bridge.start(shutdown);
    world.append(topic, 0, 0..5);
    let clock = env(4);
    clock.sleep(Duration::from_secs(3)).await;
    assert_eq!(bridge.table_names(None, 10).await.unwrap(), ["t"]);
    world.append(topic, 0, 5..9);
    clock.sleep(Duration::from_secs(30)).await;
    let newest = || async { bridge.newest("t").await.unwrap().unwrap().progress.next_offset(0) };
    assert_eq!(newest().await, 5, "not worth a file yet");
    clock.sleep(Duration::from_secs(35)).await;
    assert_eq!(newest().await, 9);
    clock.sleep(Duration::from_secs(2)).await;
    let copy = world.metadata.table_progress(topic).await.unwrap().unwrap();
    let copy = crate::progress::Progress::unpack(std::str::from_utf8(&copy).unwrap()).unwrap();
    assert_eq!(copy, bridge.newest("t").await.unwrap().unwrap().progress);
    trigger.trigger();
    job.join().await;
}

#[tokio::test(start_paused = true)]
async fn what_applications_keep_for_themselves_has_a_table_only_where_it_says_so() {
    let world = World::new();
    let on = [(crate::ENABLE_CONFIG.to_owned(), "true".to_owned())].into();
    let named = world.metadata.create_topic("_named", 1, 1, on).await.unwrap();
    let floe_metadata::topics::TopicCreation::Created(named) = named else { panic!() };
    world.log.add_topic(named.id, 1);
    for topic in [named.id, world.topic("_hidden", 1).await, world.topic("t", 1).await] {
        world.append(topic, 0, 0..5);
    }
    let excluding = |config: &mut BridgeConfig| {
        config.exclude_topics = crate::topic_patterns::APPLICATIONS_OWN.parse().unwrap();
    };
    let bridge = world.bridge_with(env(2), excluding);
    bridge.round().await.unwrap();
    env(4).sleep(Duration::from_secs(2)).await;
    assert_eq!(bridge.table_names(None, 10).await.unwrap(), ["_named", "t"]);
}

fn off() -> std::collections::BTreeMap<String, String> {
    [(crate::ENABLE_CONFIG.to_owned(), "false".to_owned())].into()
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_recorded_and_work_goes_on() {
    let world = World::new();
    let topic = world.topic("t", 2).await;
    let bridge = world.bridge(env(2));
    world.append(topic, 0, 0..5);
    look(&bridge, "t").await;
    world.append(topic, 0, 5..10);
    world.append(topic, 0, 10..15);
    world.log.advance_log_start(at(topic, 0), 12).unwrap();
    let answer = look(&bridge, "t").await;
    assert_eq!(answer.behind, None);
    let expected = [rows(0, 0, 0..5), rows(0, 12, 12..15)].concat();
    assert_eq!(world.rows(&answer.table).await, expected);
    let gaps = answer.table.summary("floe.gaps").unwrap();
    assert!(gaps.starts_with(r#"[{"partition":0,"from":5,"until":12,"why":""#), "{gaps}");
    // A later commit and a restart still know of it.
    world.append(topic, 0, 15..16);
    let restarted = world.bridge(env(3));
    look(&restarted, "t").await;
    let status = &restarted.statuses()[0];
    assert_eq!((status.state, status.gap_offsets), (TableState::Degraded, 7));
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_before_the_table_was_made_is_a_gap() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..7);
    world.log.advance_log_start(at(topic, 0), 7).unwrap();
    // Something to pass that is no row, so that the bridge sees the topic before its first record.
    world.log.skip(at(topic, 0), 1).unwrap();
    let bridge = world.bridge(env(2));
    for _ in 0..2 {
        bridge.round().await.unwrap();
        env(4).sleep(Duration::from_secs(2)).await;
        assert!(bridge.newest("t").await.unwrap().is_none(), "no table without a record");
    }
    world.append(topic, 0, 7..9);
    let answer = look(&bridge, "t").await;
    assert_eq!(world.rows(&answer.table).await, rows(0, 8, 7..9));
    let gaps = answer.table.summary("floe.gaps").unwrap();
    assert!(gaps.starts_with(r#"[{"partition":0,"from":0,"until":7,"why":""#), "{gaps}");
    assert_eq!(bridge.statuses()[0].gap_offsets, 7);
    world.append(topic, 0, 9..10);
    let answer = look(&bridge, "t").await;
    assert_eq!(answer.table.summary("floe.gaps"), None, "noted once");
    assert_eq!(bridge.statuses()[0].gap_offsets, 7);
}

/// Somebody lets main name the snapshot that the table had when it was `old`.
pub(super) async fn roll_back(world: &World, bridge: &Bridge, old: &LookAnswer) {
    let newest = bridge.newest("t").await.unwrap().unwrap();
    let snapshot = old.table.metadata.current_snapshot_id().unwrap();
    let retention = iceberg::spec::SnapshotRetention::Branch {
        min_snapshots_to_keep: None,
        max_snapshot_age_ms: None,
        max_ref_age_ms: None,
    };
    let main = iceberg::spec::SnapshotReference::new(snapshot, retention);
    let builder = newest.metadata.clone().into_builder(None);
    let metadata = builder.set_ref("main", main).unwrap().build().unwrap().metadata;
    let key = newest.place.metadata_key(bridge.env(), 99, false);
    let json = bytes::Bytes::from(serde_json::to_vec(&metadata).unwrap());
    floe_store::ObjectStore::put(&world.store, &key, vec![json]).await.unwrap();
    let moved = newest.pointer.moved(newest.place.url_of(&key).unwrap());
    let swapped = crate::pointer::TablePointers::swap(&world.pointers, &newest.pointer, &moved);
    assert_eq!(swapped.await.unwrap(), floe_metadata::facts::ChangeOutcome::Applied);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_table_is_not_written_and_goes_on_when_told() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    world.append(topic, 0, 0..5);
    let old = look(&bridge, "t").await;
    world.append(topic, 0, 5..8);
    look(&bridge, "t").await;
    roll_back(&world, &bridge, &old).await;
    world.append(topic, 0, 8..10);
    let puts = world.store.puts();
    for _ in 0..3 {
        bridge.round().await.unwrap();
        bridge.keep_up().await.unwrap();
        let answer = look(&bridge, "t").await;
        assert_eq!(world.rows(&answer.table).await, rows(0, 0, 0..5), "as it was left");
        assert!(answer.behind.is_some());
    }
    assert_eq!(world.store.puts(), puts);
    let status = &bridge.statuses()[0];
    assert_eq!(status.state, TableState::Stopped);
    assert!(status.reason.as_ref().unwrap().starts_with("rolled back"));
    let status = bridge.resume(("kafka", "t"), crate::ResumeFrom::Rewind).await.unwrap().unwrap();
    assert_eq!((status.state, status.last_error), (TableState::Running, None));
    assert_eq!(bridge.resume(("kafka", "other"), crate::ResumeFrom::Rewind).await.unwrap(), None);
    let answer = look(&bridge, "t").await;
    assert_eq!(answer.behind, None);
    assert_eq!(world.rows(&answer.table).await, rows(0, 0, 0..10), "what was taken out is back");
}

#[tokio::test(start_paused = true)]
async fn retention_is_told_what_a_rolled_back_table_holds() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = world.bridge(env(2));
    world.append(topic, 0, 0..5);
    let old = look(&bridge, "t").await;
    world.append(topic, 0, 5..8);
    look(&bridge, "t").await;
    let told = || async {
        bridge.round().await.unwrap();
        let copy = world.metadata.table_progress(topic).await.unwrap().unwrap();
        let copy = crate::progress::Progress::unpack(std::str::from_utf8(&copy).unwrap());
        copy.unwrap().next_offsets
    };
    assert_eq!(told().await, [8]);
    roll_back(&world, &bridge, &old).await;
    world.append(topic, 0, 8..10);
    assert_eq!(told().await, [5], "a rewind needs the rest of the log");
    bridge.resume(("kafka", "t"), crate::ResumeFrom::Here).await.unwrap().unwrap();
    assert_eq!(told().await, [8]);
}

#[tokio::test(start_paused = true)]
async fn brokers_see_each_others_commits_and_double_nothing() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridges = [world.bridge(env(2)), world.bridge(env(3)), world.bridge(env(4))];
    let mut next = 0;
    for round in 0..20 {
        world.append(topic, 0, next..next + 3);
        next += 3;
        if round % 2 == 0 {
            let looks = bridges.iter().map(|bridge| look(bridge, "t"));
            for answer in futures::future::join_all(looks).await {
                assert_eq!(answer.behind, None);
                assert_eq!(world.rows(&answer.table).await, rows(0, 0, 0..next));
            }
        } else {
            let answer = look(&bridges[round % 3], "t").await;
            assert_eq!(world.rows(&answer.table).await, rows(0, 0, 0..next));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn partitions_may_be_added() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..5);
    let bridge = world.bridge(env(2));
    look(&bridge, "t").await;
    world.log.add_topic(topic, 3);
    world.append(topic, 2, 5..6);
    let answer = look(&bridge, "t").await;
    assert_eq!(answer.table.progress.next_offsets, [5, 0, 1]);
    let expected = [rows(0, 0, 0..5), rows(2, 0, 5..6)].concat();
    assert_eq!(world.rows(&answer.table).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_look_does_not_wait_for_the_task_that_serves_it() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    world.append(topic, 0, 0..5);
    let (node_env, bridge) = (env(2), world.bridge(env(3)));
    let looking = bridge.clone();
    let task = node_env.spawn("serve", Lane::Foreground, async move { looking.look("t").await });
    let answer = task.await.unwrap().unwrap().unwrap();
    assert_eq!(answer.table.progress.next_offsets, [5]);
}
