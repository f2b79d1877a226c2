//! Orphans go, and nothing else does.

use super::bridge::roll_back;
use super::support::{Fault, World};
use crate::Bridge;
use crate::commit::{CommitEnd, Committer, LoadedTable, Staged, StagedFile};
use crate::external::TableName;
use crate::pointer::TablePointers;
use crate::progress::Progress;
use crate::sweep::{LostFiles, SweepRules, lost_files};
use bytes::Bytes;
use floe_env::Env;
use floe_env::simulated::Node;
use floe_store::ObjectStore;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn env(seed: u64) -> Env {
    Env::simulated(Node::new(seed))
}

fn swept_bridge(world: &World, seed: u64) -> Bridge {
    world.bridge_with(env(seed), |config| {
        config.sweep = SweepRules { pause: HOUR, age: HOUR * 2 };
    })
}

/// A whole pass over all folders, once its time has come.
async fn pass(bridge: &Bridge) {
    bridge.env().sleep(HOUR).await;
    while bridge.sweep_orphans().await.unwrap() {}
}

/// The names in the table's folder that its newest version does not reach.
async fn orphans(world: &World, bridge: &Bridge, table: &LoadedTable) -> BTreeSet<String> {
    let folder = format!("{}/", table.place.key());
    let keys = world.store.keys().await;
    let mut names: BTreeSet<String> =
        keys.iter().filter_map(|key| key.strip_prefix(&folder).map(str::to_owned)).collect();
    bridge.strike_reachable(table, &mut names).await.unwrap();
    names
}

#[tokio::test(start_paused = true)]
async fn what_failed_commits_leave_goes_and_what_a_version_names_stays() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = swept_bridge(&world, 2);
    world.append(topic, 0, 0..5);
    bridge.look("t").await.unwrap().unwrap();
    for round in 1..5 {
        world.append(topic, 0, round * 5..round * 5 + 5);
        // Files are put, and the move's outcome stays unknown.
        world.pointers.faults.plan([Fault::NeverArrived; 6]);
        bridge.look("t").await.unwrap().unwrap();
        bridge.env().sleep(Duration::from_secs(60)).await;
        world.pointers.faults.plan([]);
        bridge.look("t").await.unwrap().unwrap();
    }
    let newest = bridge.newest("t").await.unwrap().unwrap();
    let left = orphans(&world, &bridge, &newest).await;
    assert!(left.len() >= 16, "four files of each of four attempts: {left:?}");
    pass(&bridge).await;
    assert_eq!(orphans(&world, &bridge, &newest).await, left, "the first look only marks");
    pass(&bridge).await;
    assert_eq!(orphans(&world, &bridge, &newest).await, left, "they are not old enough");
    // Marks outlive the broker that made them.
    let bridge = swept_bridge(&world, 3);
    pass(&bridge).await;
    let newest = bridge.newest("t").await.unwrap().unwrap();
    assert!(orphans(&world, &bridge, &newest).await.is_empty());
    assert_eq!(bridge.sweep_counts().deleted.load(Ordering::Relaxed), left.len() as u64);
    let offsets: Vec<i64> = world.rows(&newest).await.into_iter().map(|row| row.1).collect();
    assert_eq!(offsets, (0..25).collect::<Vec<i64>>());
    world.append(topic, 0, 25..26);
    assert_eq!(bridge.look("t").await.unwrap().unwrap().behind, None, "commits go on");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_slept_through_a_sweep_loses() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = swept_bridge(&world, 2);
    world.append(topic, 0, 0..5);
    let base = bridge.look("t").await.unwrap().unwrap().table;
    let (store, pointers) = (Arc::new(world.store.clone()), Arc::new(world.pointers.clone()));
    let sleeper = Committer::new(env(9), store, pointers, world.cluster);
    // It has put a data file, and goes to sleep before it commits.
    let known = base.files_of(&world.store, &base.manifests[0]).await.unwrap();
    let key = base.place.data_key(bridge.env());
    world.store.objects.put(&key, vec![Bytes::from_static(b"rows")]).await.unwrap();
    let data_file = known[0].data_file.clone();
    let staged = Staged {
        from: base.progress.clone(),
        to: Progress { topic, next_offsets: vec![9] },
        from_mapping: base.mapping.clone(),
        mapping: base.mapping.clone(),
        files: vec![StagedFile { data_file, key: key.clone(), bytes: None }],
        gaps: Vec::new(),
        counts: Default::default(),
        may_be_named: false,
    };
    for _ in 0..3 {
        pass(&bridge).await;
    }
    assert!(world.store.get(&key).await.unwrap().is_none(), "its file was taken for an orphan");
    let ended = sleeper.append(base.clone(), staged).await.unwrap();
    assert!(matches!(ended, CommitEnd::Overtaken));
    let newest = bridge.newest("t").await.unwrap().unwrap();
    assert_eq!(newest.progress, base.progress);
    assert_eq!(world.rows(&newest).await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn folders_of_lost_creations_go_and_those_of_coming_ones_stay() {
    let world = World::new();
    let (topic, empty) = (world.topic("t", 1).await, world.topic("empty", 1).await);
    let bridge = swept_bridge(&world, 2);
    world.append(topic, 0, 0..5);
    bridge.look("t").await.unwrap().unwrap();
    let gone = kfs::TopicId(bridge.env().uuid());
    let mut keys = Vec::new();
    for owner in [topic, empty, gone] {
        let table = bridge.env().uuid();
        let key = format!("{}/tables/{owner}-{table}/data/1.parquet", world.cluster);
        world.store.objects.put(&key, vec![Bytes::from_static(b"rows")]).await.unwrap();
        keys.push(key);
    }
    pass(&bridge).await;
    let left = world.store.keys().await;
    assert_eq!(keys.map_left(&left), [false, true, false]);
    // A removed table's files are the removal's, not the sweep's.
    assert!(world.metadata.delete_topic(topic).await.unwrap());
    world.log.remove_topic(topic);
    bridge.remove_table_of(topic).await.unwrap();
    let before = world.store.keys().await;
    pass(&bridge).await;
    assert_eq!(world.store.keys().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_tables_files_stay_also_when_its_topic_has_another() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = swept_bridge(&world, 2);
    world.append(topic, 0, 0..5);
    let dropped = bridge.look("t").await.unwrap().unwrap().table;
    bridge.drop_external(&TableName::new("kafka", "t")).await.unwrap();
    let known = world.metadata.topic_by_id(topic).await.unwrap().unwrap();
    let back = world.metadata.set_topic_configs(topic, &known.configs, Default::default());
    back.await.unwrap();
    let again = bridge.look("t").await.unwrap().unwrap().table;
    assert_ne!(again.pointer.table_id, dropped.pointer.table_id);
    let before = world.store.keys().await;
    pass(&bridge).await;
    assert_eq!(world.store.keys().await, before);
    assert_eq!(world.rows(&dropped).await.len(), 5, "who has it open goes on");
    let lost = lost_files(&world.store, &world.metadata, world.cluster).await.unwrap();
    assert_eq!(lost, LostFiles::default());
}

#[tokio::test(start_paused = true)]
async fn a_pass_goes_on_behind_whatever_others_put_into_a_folder() {
    let world = World::new();
    let bridge = swept_bridge(&world, 2);
    for name in ["t", "u"] {
        let topic = world.topic(name, 1).await;
        world.append(topic, 0, 0..5);
        let table = bridge.look(name).await.unwrap().unwrap().table;
        let key = format!("{}/zz/their.file", table.place.key());
        world.store.objects.put(&key, vec![Bytes::from_static(b"rows")]).await.unwrap();
    }
    for _ in 0..3 {
        bridge.env().sleep(HOUR).await;
        let mut folders = 0;
        while bridge.sweep_orphans().await.unwrap() {
            folders += 1;
            assert!(folders <= 2, "each folder is swept once");
        }
        assert_eq!(folders, 2);
    }
    let left = world.store.keys().await;
    assert!(!left.iter().any(|key| key.ends_with("their.file")), "no version names it");
}

#[tokio::test(start_paused = true)]
async fn a_table_made_while_its_owner_is_asked_for_is_not_lost() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = swept_bridge(&world, 2);
    world.append(topic, 0, 0..5);
    bridge.look("t").await.unwrap().unwrap();
    // Its topic goes right after, and its removal is still to come.
    assert!(world.metadata.delete_topic(topic).await.unwrap());
    world.log.remove_topic(topic);
    let before = world.store.keys().await;
    world.pointers.unseen.store(1, Ordering::Relaxed);
    pass(&bridge).await;
    assert_eq!(world.pointers.unseen.load(Ordering::Relaxed), 0);
    assert_eq!(world.store.keys().await, before);
}

#[tokio::test(start_paused = true)]
async fn the_pointer_of_a_stopped_table_is_not_moved() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = swept_bridge(&world, 2);
    world.append(topic, 0, 0..5);
    let old = bridge.look("t").await.unwrap().unwrap();
    world.append(topic, 0, 5..8);
    bridge.look("t").await.unwrap().unwrap();
    let orphan = old.table.place.data_key(bridge.env());
    world.store.objects.put(&orphan, vec![Bytes::from_static(b"rows")]).await.unwrap();
    pass(&bridge).await;
    assert_eq!(bridge.sweep_counts().marked.load(Ordering::Relaxed), 1);
    roll_back(&world, &bridge, &old).await;
    let before = world.pointers.by_topic(topic).await.unwrap();
    for _ in 0..4 {
        pass(&bridge).await;
    }
    assert_eq!(world.pointers.by_topic(topic).await.unwrap(), before);
    assert!(world.store.get(&orphan).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_while_deletion_is_stopped() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let bridge = swept_bridge(&world, 2);
    world.append(topic, 0, 0..5);
    let table = bridge.look("t").await.unwrap().unwrap().table;
    // What a backup does not know: a table, and a file of a table that it has.
    let (gone, orphan) = (kfs::TopicId(bridge.env().uuid()), table.place.data_key(bridge.env()));
    let lost = format!("{}/tables/{gone}-{}/data/1.parquet", world.cluster, bridge.env().uuid());
    for key in [&lost, &orphan] {
        world.store.objects.put(key, vec![Bytes::from_static(b"rows")]).await.unwrap();
    }
    let found = lost_files(&world.store, &world.metadata, world.cluster).await.unwrap();
    assert_eq!(found, LostFiles { tables: 1, files: 1, bytes: 4 });
    // Marked before the stop, so that only the stop spares it.
    pass_marking_only(&world, &bridge, &lost).await;
    let first = bridge.env().uuid();
    let metadata = &world.metadata;
    metadata.initialise_cluster(world.cluster).await.unwrap();
    let previous = metadata.incarnation().await.unwrap().unwrap();
    metadata.begin_incarnation(previous, (first, 1), "a backup was put back").await.unwrap();
    let before = world.store.keys().await;
    for _ in 0..4 {
        pass(&bridge).await;
    }
    assert_eq!(world.store.keys().await, before);
    let stop = metadata.deletion_stop().await.unwrap().unwrap();
    metadata.allow_deletion(&stop).await.unwrap();
    for _ in 0..4 {
        pass(&bridge).await;
    }
    let left = world.store.keys().await;
    assert_eq!(vec![lost, orphan].map_left(&left), [false, false]);
}

/// One pass, after which a lost folder is put back as it was.
async fn pass_marking_only(world: &World, bridge: &Bridge, lost: &str) {
    pass(bridge).await;
    world.store.objects.put(lost, vec![Bytes::from_static(b"rows")]).await.unwrap();
}

trait Left {
    fn map_left(&self, left: &[String]) -> Vec<bool>;
}

impl Left for Vec<String> {
    fn map_left(&self, left: &[String]) -> Vec<bool> {
        self.iter().map(|key| left.contains(key)).collect()
    }
}
