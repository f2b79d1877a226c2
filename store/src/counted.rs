//! A store that counts what it is asked: requests are money, and their time is the product's.

use crate::object::{ObjectMeta, ObjectStore, PutOutcome};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::{Env, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

#[derive(Debug, Default)]
struct Counters {
    put: Counter,
    get: Counter,
    head: Counter,
    list: Counter,
    delete: Counter,
}

/// The counts of a store, for metrics; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StoreCounters(Arc<Counters>);

impl StoreCounters {
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
        counter: &Counter,
        call: impl Future<Output = Result<T>>,
        volume: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let started = self.env.monotonic();
        let result = call.await;
        let took = self.env.monotonic().duration_since(started);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        counter.requests.fetch_add(1, Ordering::Relaxed);
        counter.latency_us.fetch_add(took_us, Ordering::Relaxed);
        match &result {
            Ok(value) => counter.volume.fetch_add(volume(value), Ordering::Relaxed),
            Err(_) => counter.errors.fetch_add(1, Ordering::Relaxed),
        };
        result
    }
}

#[async_trait]
impl ObjectStore for Counted {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        let counter = &self.counters.0.put;
        self.count(counter, self.inner.put(key, parts), |outcome| match outcome {
            PutOutcome::Created => size,
            PutOutcome::Exists => 0,
        })
        .await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let call = self.inner.get_range(key, range);
        self.count(&self.counters.0.get, call, |bytes| bytes.len() as u64).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let volume = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.count(&self.counters.0.get, self.inner.get(key), volume).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.count(&self.counters.0.head, self.inner.head(key), |_| 0).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let call = self.inner.list(prefix, after, limit);
        self.count(&self.counters.0.list, call, |found| found.len() as u64).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        let count = keys.len() as u64;
        self.count(&self.counters.0.delete, self.inner.delete(keys), |()| count).await
    }

    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }
}
