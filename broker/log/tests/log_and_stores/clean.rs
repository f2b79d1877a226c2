//! Cleaning: what nobody names goes, after the grace or with its registration, and nothing else.

use crate::rig::{PAST_THE_GRACE_MS, Rig, fetch, young_ms};
use bytes::Bytes;
use floe_log::clean::CleanRound;
use floe_log::{CleanRules, Cleaner, SnapshotMoment, segment_key};
use floe_metadata::rows::SegmentOutcome;
use floe_store::ObjectStore;
use kfs::{BrokerEpoch, BrokerId, ClusterId, SegmentId};

async fn put(rig: &Rig, key: &str) {
    rig.store.put(key, vec![Bytes::from_static(b"x")]).await.expect("put");
}

async fn exists(rig: &Rig, key: &str) -> bool {
    rig.store.head(key).await.expect("head").is_some()
}

fn id(broker: i32, epoch: i64, counter: u64) -> SegmentId {
    SegmentId { broker: BrokerId(broker), epoch: BrokerEpoch(epoch), counter }
}

#[tokio::test(start_paused = true)]
async fn what_the_newest_snapshot_may_name_stays() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    for _ in 0..2 {
        rig.append(partition, young_ms(), &["v"]).await;
    }
    let moment = SnapshotMoment::default();
    let (metadata, rules) = (rig.metadata.clone(), CleanRules::default());
    let snapshot = Some(moment.clone());
    let cleaner = Cleaner::beside_snapshots(&rig.env, &rig.broker.log, metadata, rules, snapshot);
    let named_ms = rig.env.now_ms();
    rig.metadata.advance_log_start(partition, 1).await.unwrap();
    rig.pass(2 * PAST_THE_GRACE_MS).await;
    assert_eq!(cleaner.round().await.unwrap().dead, 0, "there is no snapshot yet");
    moment.set(named_ms);
    assert_eq!(cleaner.round().await.unwrap().dead, 0, "it was named when that was taken");
    moment.set(rig.env.now_ms());
    assert_eq!(cleaner.round().await.unwrap().dead, 1);
    assert_eq!(rig.stored().await, 1);
}

#[tokio::test(start_paused = true)]
async fn dead_objects_go_after_the_grace_and_not_before() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    for _ in 0..3 {
        rig.append(partition, young_ms(), &["v"]).await;
    }
    let objects = rig.objects(partition).await;
    rig.metadata.advance_log_start(partition, 2).await.unwrap();
    let cleaner = rig.cleaner();
    rig.pass(PAST_THE_GRACE_MS - 2_000).await;
    assert_eq!(cleaner.round().await.unwrap().dead, 0);
    assert_eq!(rig.stored().await, 3);
    rig.pass(4_000).await;
    assert_eq!(cleaner.round().await.unwrap().dead, 2);
    assert!(exists(&rig, &rig.object(&objects[2])).await);
    assert_eq!(rig.stored().await, 1);
    assert_eq!(cleaner.round().await.unwrap().dead, 0, "they are forgotten");
    let known = rig.metadata.known_objects(&objects).await.unwrap();
    assert_eq!(known, vec![false, false, true]);
    assert_eq!(fetch(&rig.broker.log, partition, 2, 1 << 20).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_while_deletion_is_stopped() {
    let mut rig = Rig::new().await;
    let partition = rig.partition(0);
    for _ in 0..2 {
        rig.append(partition, young_ms(), &["v"]).await;
    }
    rig.metadata.advance_log_start(partition, 1).await.unwrap();
    let lost = rig.object(&segment_key(id(1, 0, 7)));
    put(&rig, &lost).await;
    rig.pass(PAST_THE_GRACE_MS).await;
    let cluster = ClusterId(uuid::Uuid::from_u128(77));
    rig.metadata.initialise_cluster(cluster).await.unwrap();
    let previous = rig.metadata.incarnation().await.unwrap().expect("it has been set");
    let next = uuid::Uuid::from_u128(78);
    rig.metadata.begin_incarnation(previous, (next, 1), "put back").await.unwrap();
    rig.restart().await;
    let cleaner = rig.cleaner();
    assert_eq!(cleaner.round().await.unwrap(), CleanRound::default());
    assert!(cleaner.is_stopped() && exists(&rig, &lost).await);
    assert_eq!(rig.stored().await, 3);
    let stop = rig.metadata.deletion_stop().await.unwrap().expect("it is stopped");
    rig.metadata.allow_deletion(&stop).await.unwrap();
    let round = cleaner.round().await.unwrap();
    assert_eq!((round.dead, round.orphans), (1, 1));
    assert!(!cleaner.is_stopped() && !exists(&rig, &lost).await);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_cut_short_is_made_again() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    rig.append(partition, young_ms(), &["v"]).await;
    let objects = rig.objects(partition).await;
    rig.metadata.advance_log_start(partition, 1).await.unwrap();
    rig.pass(PAST_THE_GRACE_MS).await;
    rig.store.delete(&[rig.object(&objects[0])]).await.unwrap();
    assert_eq!(rig.cleaner().round().await.unwrap().dead, 1);
    assert_eq!(rig.metadata.known_objects(&objects).await.unwrap(), vec![false]);
}

#[tokio::test(start_paused = true)]
async fn orphans_go_with_their_registration_and_never_before() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    rig.append(partition, young_ms(), &["committed"]).await;
    let epoch = rig.broker.epoch;
    let orphan = rig.object(&segment_key(id(1, epoch, 77)));
    let merged = {
        // A merge whose swap was never made: its key is like that of one that was.
        for _ in 0..8 {
            rig.append(rig.partition(1), young_ms(), &["v"]).await;
        }
        rig.merge_all(&rig.merger(floe_log::MergeRules::default())).await;
        let objects = rig.objects(rig.partition(1)).await;
        rig.metadata.advance_log_start(rig.partition(1), 8).await.unwrap();
        rig.pass(PAST_THE_GRACE_MS).await;
        rig.cleaner().round().await.unwrap();
        rig.object(&objects[0])
    };
    assert!(!exists(&rig, &merged).await);
    put(&rig, &orphan).await;
    put(&rig, &merged).await;
    let strangers = [
        rig.object(&segment_key(id(9, 1, 0))),
        rig.object(&segment_key(id(1, epoch, 78))).replace(".kfs", ".tmp"),
        rig.object("wal/zz/not-ours.kfs"),
        rig.object("tables/data.parquet"),
        format!("{}/{}", uuid::Uuid::from_u128(2), segment_key(id(1, epoch, 77))),
        segment_key(id(1, epoch, 77)),
    ];
    for key in &strangers {
        put(&rig, key).await;
    }
    rig.pass(1_000 * PAST_THE_GRACE_MS).await;
    assert_eq!(rig.cleaner().round().await.unwrap().orphans, 0, "age says nothing");
    assert!(exists(&rig, &orphan).await && exists(&rig, &merged).await);

    // Its successor closes the registration.
    let mut rig = rig;
    rig.broker = rig.start(1).await;
    let own = rig.object(&segment_key(id(1, rig.broker.epoch, 5)));
    put(&rig, &own).await;
    let cleaner = rig.cleaner();
    assert_eq!(cleaner.round().await.unwrap().orphans, 2);
    assert!(!exists(&rig, &orphan).await && !exists(&rig, &merged).await);
    for key in strangers.iter().chain([&own]) {
        assert!(exists(&rig, key).await, "{key}");
    }
    assert_eq!(fetch(&rig.broker.log, partition, 0, 1 << 20).await.len(), 1);

    // One that arrives later still goes with a later sweep.
    put(&rig, &orphan).await;
    assert_eq!(cleaner.round().await.unwrap().orphans, 0);
    rig.env.sleep(std::time::Duration::from_secs(6 * 3600)).await;
    assert_eq!(cleaner.round().await.unwrap().orphans, 1);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_goes_on_where_the_last_round_ended() {
    let rig = Rig::new().await;
    let epoch = rig.broker.epoch;
    for counter in 0..9_500 {
        put(&rig, &rig.object(&segment_key(id(1, epoch, counter)))).await;
    }
    let mut rig = rig;
    rig.broker = rig.start(1).await;
    let cleaner = rig.cleaner();
    assert_eq!(cleaner.round().await.unwrap().orphans, 8_000);
    assert_eq!(cleaner.round().await.unwrap().orphans, 1_500);
    assert_eq!(cleaner.round().await.unwrap().orphans, 0);
    assert_eq!(rig.stored().await, 0);
}

#[tokio::test(start_paused = true)]
async fn answered_outcomes_are_forgotten_and_no_others() {
    let rig = Rig::new().await;
    let epoch = rig.broker.epoch;
    let cleaner = rig.cleaner();
    cleaner.round().await.unwrap();
    for _ in 0..3 {
        rig.append(rig.partition(0), young_ms(), &["v"]).await;
    }
    let outcome = async |counter| rig.metadata.segment_outcome(id(1, epoch, counter)).await;
    assert!(matches!(outcome(2).await, Ok(Some(SegmentOutcome::Committed(_)))));
    cleaner.round().await.unwrap();
    for counter in 0..3 {
        let error = outcome(counter).await.unwrap_err();
        assert_eq!(error.kind(), floe_env::ErrorKind::Invalid);
    }
    assert_eq!(outcome(3).await.unwrap(), None);
    rig.append(rig.partition(0), young_ms(), &["v"]).await;
    assert!(matches!(outcome(3).await, Ok(Some(SegmentOutcome::Committed(_)))));
    assert_eq!(fetch(&rig.broker.log, rig.partition(0), 0, 1 << 20).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn outcomes_go_with_their_registration() {
    let mut rig = Rig::new().await;
    let epoch = rig.broker.epoch;
    for _ in 0..2 {
        rig.append(rig.partition(0), young_ms(), &["v"]).await;
    }
    rig.cleaner().round().await.unwrap();
    rig.append(rig.partition(0), young_ms(), &["v"]).await;
    let outcome =
        async |rig: &Rig, counter| rig.metadata.segment_outcome(id(1, epoch, counter)).await;
    assert!(matches!(outcome(&rig, 2).await, Ok(Some(SegmentOutcome::Committed(_)))));
    rig.broker = rig.start(1).await;
    rig.append(rig.partition(0), young_ms(), &["v"]).await;
    rig.cleaner().round().await.unwrap();
    for counter in 0..3 {
        assert_eq!(outcome(&rig, counter).await.unwrap(), None);
    }
    assert_eq!(fetch(&rig.broker.log, rig.partition(0), 0, 1 << 20).await.len(), 4);
}
