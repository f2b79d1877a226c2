//! A store that counts what it is asked: requests are money, and their time is the product's.

use crate::object::{ObjectMeta, ObjectStore, PutOutcome};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::{Env, ErrorKind, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A kind of call, as stores bill them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// A conditional create.
    Put,
    /// A read of an object or of a range.
    Get,
    /// A look at an object's size.
    Head,
    /// A listing.
    List,
    /// A deletion.
    Delete,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedCall {
    /// What was asked.
    pub kind: CallKind,
    /// What was wrong, if anything.
    pub error: Option<ErrorKind>,
    /// How long it took.
    pub took: Duration,
    /// Bytes of objects written or read.
    pub bytes: u64,
}

/// Counts of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls that ended.
    pub requests: u64,
    /// Those among them that ended with an error.
    pub errors: u64,
    /// Bytes written or read; for listings and deletions, objects.
    pub volume: u64,
    /// The sum of how long they took.
    pub latency: Duration,
}

/// Counts of every kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Conditional creates.
    pub put: CallCounts,
    /// Reads of objects and of ranges.
    pub get: CallCounts,
    /// Looks at an object's size.
    pub head: CallCounts,
    /// Listings.
    pub list: CallCounts,
    /// Deletions.
    pub delete: CallCounts,
}

#[derive(Debug, Default)]
struct Counter {
    requests: AtomicU64,
    errors: AtomicU64,
    volume: AtomicU64,
    latency_us: AtomicU64,
}

impl Counter {
    fn snapshot(&self) -> CallCounts {
        CallCounts {
            requests: self.requests.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            volume: self.volume.load(Ordering::Relaxed),
            latency: Duration::from_micros(self.latency_us.load(Ordering::Relaxed)),
        }
    }
}

#[derive(Default)]
struct Counters {
    put: Counter,
    get: Counter,
    head: Counter,
    list: Counter,
    delete: Counter,
    observer: OnceLock<CallObserver>,
}

/// Is told of each call when it has ended; it must not block.
type CallObserver = Box<dyn Fn(EndedCall) + Send + Sync>;

impl Counters {
    fn of(&self, kind: CallKind) -> &Counter {
        match kind {
            CallKind::Put => &self.put,
            CallKind::Get => &self.get,
            CallKind::Head => &self.head,
            CallKind::List => &self.list,
            CallKind::Delete => &self.delete,
        }
    }
}

/// The counts of a store, for metrics; cheap to clone.
#[derive(Clone, Default)]
pub struct StoreCounters(Arc<Counters>);

impl StoreCounters {
    /// From now on tells `observer` of every call that has ended, on the thread that waited for it.
    /// The first observer stays.
    pub fn on_call(&self, observer: impl Fn(EndedCall) + Send + Sync + 'static) {
        // A second one would see half of the calls.
        let _ = self.0.observer.set(Box::new(observer));
    }

    /// The counts now. Each is exact; together they are of about one moment.
    pub fn snapshot(&self) -> StoreCounts {
        StoreCounts {
            put: self.0.put.snapshot(),
            get: self.0.get.snapshot(),
            head: self.0.head.snapshot(),
            list: self.0.list.snapshot(),
            delete: self.0.delete.snapshot(),
        }
    }
}

/// A store that counts its calls. It belongs directly around the bare store, below the retries, so
/// that every request counts.
pub struct Counted {
    env: Env,
    inner: Arc<dyn ObjectStore>,
    counters: StoreCounters,
}

impl Counted {
    /// Counts the calls of a store.
    pub fn new(env: Env, inner: Arc<dyn ObjectStore>) -> Self {
        Self { env, inner, counters: StoreCounters::default() }
    }

    /// The counts.
    pub fn counters(&self) -> StoreCounters {
        self.counters.clone()
    }

    async fn count<T>(
        &self,
        kind: CallKind,
        call: impl Future<Output = Result<T>>,
        volume: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let started = self.env.monotonic();
        let result = call.await;
        let took = self.env.monotonic().duration_since(started);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let volume = result.as_ref().map_or(0, volume);
        let counter = self.counters.0.of(kind);
        counter.requests.fetch_add(1, Ordering::Relaxed);
        counter.latency_us.fetch_add(took_us, Ordering::Relaxed);
        counter.volume.fetch_add(volume, Ordering::Relaxed);
        counter.errors.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
        if let Some(observer) = self.counters.0.observer.get() {
            let error = result.as_ref().err().map(floe_env::Error::kind);
            let has_bytes = matches!(kind, CallKind::Put | CallKind::Get);
            let bytes = if has_bytes { volume } else { 0 };
            observer(EndedCall { kind, error, took, bytes });
        }
        result
    }
}

#[async_trait]
impl ObjectStore for Counted {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        self.count(CallKind::Put, self.inner.put(key, parts), |outcome| match outcome {
            PutOutcome::Created => size,
            PutOutcome::Exists => 0,
        })
        .await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let call = self.inner.get_range(key, range);
        self.count(CallKind::Get, call, |bytes| bytes.len() as u64).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let volume = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.count(CallKind::Get, self.inner.get(key), volume).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.count(CallKind::Head, self.inner.head(key), |_| 0).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let call = self.inner.list(prefix, after, limit);
        self.count(CallKind::List, call, |found| found.len() as u64).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        let count = keys.len() as u64;
        self.count(CallKind::Delete, self.inner.delete(keys), |()| count).await
    }

    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }
}
