//! A lagging reader's extents are loaded side by side and ahead, each once.

use crate::rig::{Rig, fetch, young_ms};
use floe_env::Env;
use floe_log::{FetchFrom, LogRange};
use std::time::Duration;

const SEGMENTS: usize = 20;
const READ: Duration = Duration::from_millis(100);

/// Twenty segments of both partitions, and a broker that has not seen them.
async fn cold() -> (Rig, crate::rig::Broker) {
    let rig = Rig::new().await;
    for at in 0..SEGMENTS {
        let value = format!("value {at}");
        let batch = |index| crate::rig::batch(rig.partition(index), young_ms(), &[value.as_str()]);
        rig.append_all(vec![batch(0), batch(1)]).await;
    }
    let reader = rig.start(3).await;
    rig.store.reads_take(READ);
    (rig, reader)
}

#[tokio::test(start_paused = true)]
async fn a_fetch_of_many_cold_extents_takes_the_time_of_one_read_and_reads_each_once() {
    let (rig, reader) = cold().await;
    let began = Env::current().monotonic();
    let records = fetch(&reader.log, rig.partition(0), 0, 1 << 20).await;
    assert_eq!(records.len(), SEGMENTS);
    assert!(Env::current().monotonic() - began < READ * 2, "one after the other");
    assert_eq!(rig.store.reads(), SEGMENTS);
}

#[tokio::test(start_paused = true)]
async fn what_comes_behind_a_fetch_is_loaded_while_its_client_is_busy() {
    let (rig, reader) = cold().await;
    let extent_bytes = rig.extents(rig.partition(0)).await[0].bytes() as usize;
    let first = fetch(&reader.log, rig.partition(0), 0, extent_bytes).await;
    assert_eq!(first.len(), 1);
    Env::current().sleep(READ * 2).await;
    let began = Env::current().monotonic();
    let second = fetch(&reader.log, rig.partition(0), 1, extent_bytes).await;
    assert_eq!(second[0].0, 1);
    assert!(Env::current().monotonic() - began < READ, "it was there already");
    assert!(rig.store.reads() < SEGMENTS, "and not everything behind it");
}

#[tokio::test(start_paused = true)]
async fn partitions_that_are_announced_together_come_with_one_read_a_segment() {
    let (rig, reader) = cold().await;
    for index in [0, 1] {
        // Extents are remembered from here on.
        fetch(&reader.log, rig.partition(index), 0, 1).await;
    }
    let before = rig.store.reads();
    let from = |index| FetchFrom {
        partition: rig.partition(index),
        offset: 4,
        bytes_max: 1 << 20,
        committed_only: false,
    };
    let began = Env::current().monotonic();
    reader.log.read_ahead([from(0), from(1)]);
    for index in [0, 1] {
        let records = fetch(&reader.log, rig.partition(index), 4, 1 << 20).await;
        assert_eq!(records.len(), SEGMENTS - 4);
    }
    assert!(Env::current().monotonic() - began < READ * 2, "one after the other");
    assert_eq!(rig.store.reads() - before, SEGMENTS - 4);
}

#[tokio::test(start_paused = true)]
async fn partitions_that_are_loaded_together_cost_one_read_a_segment() {
    let (rig, reader) = cold().await;
    let until = i64::try_from(SEGMENTS).expect("few") - 2;
    let range = |index| LogRange { partition: rig.partition(index), from: 3, until };
    for _ in 0..2 {
        // The second time all of it is there.
        reader.log.load_together(&[range(0), range(1)]).await.expect("load");
        assert_eq!(rig.store.reads(), SEGMENTS - 5);
    }
    let began = Env::current().monotonic();
    for index in [0, 1] {
        let extent_bytes = rig.extents(rig.partition(index)).await[3].bytes() as usize;
        let records = fetch(&reader.log, rig.partition(index), 3, extent_bytes).await;
        assert_eq!(records[0].0, 3);
    }
    assert!(Env::current().monotonic() - began < READ, "all was there");
}

#[tokio::test(start_paused = true)]
async fn what_is_loaded_together_does_not_push_itself_out() {
    let (rig, _) = cold().await;
    let without_cache = rig.start(crate::rig::NO_CACHE_ID).await;
    assert_eq!(without_cache.log.together_bytes_max(), 0);
    let range = LogRange { partition: rig.partition(0), from: 0, until: 10 };
    without_cache.log.load_together(&[range]).await.expect("nothing to do");
    assert_eq!(rig.store.reads(), 0);
}
