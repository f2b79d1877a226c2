//! A lagging reader's extents are loaded side by side and ahead, each once.

use crate::rig::{Rig, fetch, young_ms};
use floe_env::Env;
use floe_log::{FetchError, FetchFrom, LogRange, MergeRules};
use floe_metadata::rows::Place;
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

/// A merged object whose end is gone is read up to there, also where one read would bring it all.
#[tokio::test(start_paused = true)]
async fn an_extent_that_cannot_be_read_does_not_take_its_neighbours_along() {
    let (rig, _) = cold().await;
    let rules = MergeRules { extent_bytes_max: 300, ..MergeRules::default() };
    rig.merge_all(&rig.merger(rules)).await;
    let extents = rig.extents(rig.partition(0)).await;
    let [.., last] = &extents[..] else { panic!("some extents") };
    let Place::Range { key, position, .. } = &last.place else { panic!("not a range") };
    assert!(extents.len() > 2 && extents.iter().all(|extent| crate::rig::key(extent) == *key));
    rig.store.cut_off(rig.object(key), position + 1);
    let reader = rig.start(4).await;
    let start = || {
        let (partition, bytes_max) = (rig.partition(0), 1 << 20);
        FetchFrom { partition, offset: 0, bytes_max, committed_only: false }
    };
    // The extents are remembered from the first read on, and come with one read after that.
    fetch(&reader.log, rig.partition(0), 0, 1).await;
    reader.log.read_ahead([start()]);
    let records = fetch(&reader.log, rig.partition(0), 0, 1 << 20).await;
    assert_eq!(records.len() as i64, last.base_offset);
    let failed = reader.log.fetch(FetchFrom { offset: last.base_offset, ..start() }).await;
    assert!(matches!(failed, Err(FetchError::Failed(_))), "{failed:?}");
}

/// A reader of little keeps little in memory, whatever the size of what that lies in.
#[tokio::test(start_paused = true)]
async fn an_answer_holds_not_much_more_than_its_own_bytes() {
    let rig = Rig::new().await;
    let partition = rig.partition(0);
    let value = "x".repeat(200_000);
    let batch = || crate::rig::batch(partition, young_ms(), &[value.as_str()]);
    let batch_bytes = batch().bytes.len();
    rig.append_all((0..12).map(|_| batch()).collect()).await;
    assert_eq!(rig.extents(partition).await.len(), 1, "one large extent");
    let reader = rig.start(crate::rig::NO_CACHE_ID).await;
    let read = async |offset, bytes_max| {
        let from = FetchFrom { partition, offset, bytes_max, committed_only: false };
        let fetched = reader.log.fetch(from).await.expect("fetch");
        (fetched.bytes(), fetched)
    };
    for (offset, bytes_max) in [(0, 1), (3, 1), (0, 1_000_000), (2, 2_000_000)] {
        let (bytes, held) = read(offset, bytes_max).await;
        let memory_bytes = reader.log.cache_stats().memory_bytes;
        assert!(bytes >= batch_bytes);
        assert!(memory_bytes <= 2 * bytes, "{memory_bytes} for {bytes} from {offset}");
        drop(held);
        assert_eq!(reader.log.cache_stats().memory_bytes, 0);
    }
}

/// What is cached is all that is in memory: no block keeps what was read with it.
#[tokio::test(start_paused = true)]
async fn memory_is_what_is_cached() {
    let (rig, reader) = cold().await;
    for index in [0, 1] {
        fetch(&reader.log, rig.partition(index), 0, 1 << 20).await;
    }
    let stats = reader.log.cache_stats();
    let extents = [rig.extents(rig.partition(0)).await, rig.extents(rig.partition(1)).await];
    let bytes: u64 = extents.iter().flatten().map(|extent| extent.bytes()).sum();
    assert_eq!((stats.bytes as u64, stats.memory_bytes as u64), (bytes, bytes));
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
