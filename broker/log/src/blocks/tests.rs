use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn key(position: u64) -> BlocksKey {
    BlocksKey { object: "wal/00/1-1-1.kfs".into(), position }
}

fn blocks(len: usize) -> Blocks {
    let bytes = Bytes::from(vec![0; len]);
    Arc::new(vec![Block { base_offset: 0, last_offset: 0, bytes }])
}

#[tokio::test]
async fn readers_of_one_missing_extent_share_one_load() {
    let cache = BlockCache::new(Env::current(), 1000);
    let loads = Arc::new(AtomicUsize::new(0));
    let read = || {
        let loads = loads.clone();
        cache.get(key(0), move || async move {
            loads.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(blocks(10))
        })
    };
    let (first, second) = tokio::join!(read(), read());
    assert_eq!(first.unwrap().len(), 1);
    assert_eq!(second.unwrap().len(), 1);
    read().await.unwrap();
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (1, 1), "who joins a load misses nothing");
}

#[tokio::test]
async fn what_is_loaded_ahead_is_only_what_nobody_loads_yet() {
    let cache = BlockCache::new(Env::current(), 1000);
    let (go, wait) = tokio::sync::oneshot::channel::<()>();
    let load = || async move {
        wait.await.expect("the test lets it go");
        Ok(blocks(10))
    };
    assert!(futures::FutureExt::now_or_never(cache.get(key(0), load)).is_none());
    cache.insert(key(1), blocks(10));
    let wanted = (0..4).map(|position| (key(position), position)).collect();
    cache.load_ahead(wanted, |positions| {
        assert_eq!(positions, [2, 3]);
        Some(async move { positions.iter().map(|at| Ok(blocks(*at as usize))).collect() })
    });
    cache.load_ahead(vec![(key(2), ())], |_| -> Option<std::future::Ready<_>> {
        panic!("it is on its way")
    });
    cache.load_ahead(vec![(key(5), ())], |_| None::<std::future::Ready<_>>);
    assert!(!cache.is_known(&key(5)), "nothing reads it");
    let shared = || async { panic!("it is on its way") };
    for position in [3, 2] {
        let found = cache.get(key(position), shared).await.unwrap();
        assert_eq!(found[0].bytes.len(), position as usize);
    }
    go.send(()).expect("the load is still there");
    assert_eq!(cache.get(key(0), shared).await.unwrap()[0].bytes.len(), 10);
    assert_eq!(cache.stats().misses, 3);
}

#[tokio::test]
async fn a_failed_load_is_told_and_tried_again_by_the_next_reader() {
    let cache = BlockCache::new(Env::current(), 1000);
    let failed = cache.get(key(0), || async { Err(floe_env::Error::unavailable("gone")) }).await;
    assert_eq!(failed.unwrap_err().kind(), floe_env::ErrorKind::Unavailable);
    assert!(cache.get(key(0), || async { Ok(blocks(1)) }).await.is_ok());
}

#[tokio::test]
async fn a_load_goes_on_when_its_reader_leaves() {
    let cache = BlockCache::new(Env::current(), 1000);
    let (go, wait) = tokio::sync::oneshot::channel::<()>();
    {
        let reader = cache.get(key(0), || async move {
            wait.await.expect("the test lets it go");
            Ok(blocks(10))
        });
        assert!(futures::FutureExt::now_or_never(reader).is_none());
    }
    go.send(()).expect("the load is still there");
    let second = cache.get(key(0), || async { panic!("the first load is shared") }).await;
    assert_eq!(second.unwrap().len(), 1);
}

#[tokio::test]
async fn what_was_used_least_recently_goes_first() {
    let cache = BlockCache::new(Env::current(), 30);
    for position in 0..3 {
        cache.insert(key(position), blocks(10));
    }
    cache.get(key(0), || async { panic!("still there") }).await.unwrap();
    cache.insert(key(3), blocks(10));
    assert_eq!((cache.stats().bytes, cache.stats().evictions), (30, 1));
    cache.get(key(0), || async { panic!("used recently") }).await.unwrap();
    let gone =
        cache.get(key(1), || async { Err(floe_env::Error::unavailable("not cached")) }).await;
    assert!(gone.is_err());
}

/// What a reader holds counts although it went out of the cache, so that slow readers cannot make
/// the broker larger.
#[tokio::test]
async fn what_answers_hold_makes_the_cache_smaller() {
    let cache = BlockCache::new(Env::current(), 30);
    let counted = |len: usize| {
        let bytes = cache.memory().count(BytesMut::zeroed(len));
        Arc::new(vec![Block { base_offset: 0, last_offset: 0, bytes }])
    };
    let held = counted(10)[0].bytes.slice(2..3);
    for position in 1..=3 {
        cache.insert(key(position), counted(10));
    }
    let stats = cache.stats();
    assert_eq!((stats.bytes, stats.memory_bytes), (20, 30));
    assert!(cache.peek(&key(1)).is_none() && cache.peek(&key(3)).is_some());
    drop(held);
    assert_eq!(cache.stats().memory_bytes, 20);
    cache.insert(key(4), counted(10));
    assert_eq!(cache.stats().bytes, 30);
}

/// What answers hold of old records takes from the share of those who read such, and not from what
/// everybody else reads.
#[tokio::test]
async fn what_answers_hold_counts_with_what_was_read() {
    let cache = BlockCache::new(Env::current(), 40);
    let counted = || {
        let bytes = cache.memory().count(BytesMut::zeroed(10));
        Arc::new(vec![Block { base_offset: 0, last_offset: 0, bytes }])
    };
    (0..2).for_each(|position| cache.insert(key(position), counted()));
    let read = async |position| {
        let blocks = counted();
        cache.get(key(position), || async move { Ok(blocks) }).await
    };
    let _held = read(100).await.unwrap();
    for position in 101..=102 {
        read(position).await.unwrap();
    }
    assert!(cache.peek(&key(0)).is_some() && cache.peek(&key(1)).is_some(), "what was written");
    assert!(cache.peek(&key(101)).is_none() && cache.peek(&key(102)).is_some());
    assert_eq!((cache.stats().bytes, cache.stats().memory_bytes), (30, 40));
}

/// A reader of old records goes through more than the cache holds, and what was just written stays.
#[tokio::test]
async fn a_backfill_leaves_what_was_written() {
    let cache = BlockCache::new(Env::current(), 40);
    for position in 0..2 {
        cache.insert(key(position), blocks(10));
    }
    for position in 100..110 {
        cache.get(key(position), || async { Ok(blocks(10)) }).await.unwrap();
    }
    assert_eq!(cache.stats().bytes, 40);
    let is_here = |position| cache.peek(&key(position)).is_some();
    assert!(is_here(0) && is_here(1), "what was written");
    assert!(is_here(108) && is_here(109) && !is_here(107), "what was read last");
    // Readers' share is theirs: writing goes on in the other half.
    for position in 2..4 {
        cache.insert(key(position), blocks(10));
    }
    assert!(cache.peek(&key(1)).is_none() && cache.peek(&key(108)).is_some());
}

#[tokio::test]
async fn a_backfill_may_use_what_is_free() {
    let cache = BlockCache::new(Env::current(), 40);
    for position in 0..4 {
        cache.get(key(position), || async { Ok(blocks(10)) }).await.unwrap();
    }
    assert_eq!(cache.stats().bytes, 40);
    cache.insert(key(100), blocks(10));
    assert!(cache.peek(&key(0)).is_none() && cache.peek(&key(100)).is_some());
}

#[tokio::test]
async fn a_merge_renames_what_is_cached_and_brings_in_nothing() {
    let cache = BlockCache::new(Env::current(), 100);
    for position in 0..3 {
        cache.insert(key(position), blocks(10));
    }
    let merged = |position, sources: Range<usize>| MergedBlocks {
        key: key(position),
        blocks: blocks(10 * sources.len()),
        sources,
    };
    // The fourth source was read from the store and is not cached.
    let sources = [key(0), key(1), key(2), key(3)].map(Some);
    cache.replace(&sources, vec![merged(100, 0..2), merged(120, 2..4)]);
    assert_eq!(cache.peek(&key(100)).unwrap()[0].bytes.len(), 20);
    assert!(cache.peek(&key(120)).is_none());
    assert!(sources.iter().flatten().all(|source| cache.peek(source).is_none()));
    assert_eq!(cache.stats().bytes, 20);
}

/// A merge is no use of what it merges: it must not push out what clients have read since.
#[tokio::test]
async fn merged_extents_keep_the_place_of_their_newest_source() {
    let cache = BlockCache::new(Env::current(), 40);
    (0..4).for_each(|position| cache.insert(key(position), blocks(10)));
    let merged = MergedBlocks { key: key(100), blocks: blocks(20), sources: 0..2 };
    cache.replace(&[Some(key(0)), Some(key(1))], vec![merged]);
    cache.insert(key(4), blocks(10));
    let is_here = |position| cache.peek(&key(position)).is_some();
    assert!(!is_here(100) && is_here(2) && is_here(3) && is_here(4));
}
