//! Requests to the object store, which cost money, and the cache that saves them.

use super::registrar::{Histograms, Registrar, label_values};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::time::Duration;

/// A kind of request, as stores bill them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Creates an object.
    Put,
    /// Reads an object or a range of one.
    Get,
    /// Asks for an object's size.
    Head,
    /// Lists keys.
    List,
    /// Removes objects.
    Delete,
}

label_values!(RequestKind {
    Put => "put",
    Get => "get",
    Head => "head",
    List => "list",
    Delete => "delete",
});

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// Well.
    Ok,
    /// With an error that certainly had no effect.
    Failed,
    /// With an error that may have had an effect.
    Unknown,
}

label_values!(RequestOutcome { Ok => "ok", Failed => "failed", Unknown => "unknown" });

const KINDS: [RequestKind; 5] =
    [RequestKind::Put, RequestKind::Get, RequestKind::Head, RequestKind::List, RequestKind::Delete];
const OUTCOMES: [RequestOutcome; 3] =
    [RequestOutcome::Ok, RequestOutcome::Failed, RequestOutcome::Unknown];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: RequestKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    kind: RequestKind,
    outcome: RequestOutcome,
}

/// Requests to the object store.
pub struct StoreMetrics {
    requests: [[Counter; 3]; 5],
    seconds: [Histogram; 5],
    bytes: [Counter; 5],
}

impl StoreMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        let requests: Family<RequestLabels, Counter> = registrar.counters(
            "store_requests",
            &["kind", "outcome"],
            "Requests to the object store, retries counted.",
        );
        let seconds: Histograms<KindLabels> = registrar.histograms(
            "store_request_seconds",
            &["kind"],
            "Time of a request to the object store.",
        );
        let bytes: Family<KindLabels, Counter> = registrar.counters(
            "store_bytes",
            &["kind"],
            "Bytes of objects sent to and received from the object store.",
        );
        Self {
            requests: KINDS.map(|kind| {
                OUTCOMES
                    .map(|outcome| requests.get_or_create_owned(&RequestLabels { kind, outcome }))
            }),
            seconds: KINDS.map(|kind| seconds.get_or_create_owned(&KindLabels { kind })),
            bytes: KINDS.map(|kind| bytes.get_or_create_owned(&KindLabels { kind })),
        }
    }

    /// Records a request: how it ended, how long it took, and the bytes of objects it moved.
    pub fn request(
        &self,
        kind: RequestKind,
        outcome: RequestOutcome,
        latency: Duration,
        bytes: u64,
    ) {
        self.requests(kind, outcome).inc();
        self.seconds[kind as usize].observe(latency.as_secs_f64());
        self.bytes(kind).inc_by(bytes);
    }

    /// The counter of requests of a kind and outcome.
    pub fn requests(&self, kind: RequestKind, outcome: RequestOutcome) -> &Counter {
        &self.requests[kind as usize][outcome as usize]
    }

    /// The counter of bytes of a kind of request.
    pub fn bytes(&self, kind: RequestKind) -> &Counter {
        &self.bytes[kind as usize]
    }
}

/// The cache of blocks read.
pub struct CacheMetrics {
    /// Reads answered from memory.
    pub hits: Counter,
    /// Reads that took a request to the store.
    pub misses: Counter,
    /// Bytes held, in the cache or by answers.
    pub held_bytes: Gauge,
    /// Blocks put out to make room.
    pub evictions: Counter,
}

impl CacheMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        Self {
            hits: registrar.counter("cache_hits", "Blocks read from memory."),
            misses: registrar.counter("cache_misses", "Blocks that had to be read from the store."),
            held_bytes: registrar
                .gauge("cache_held_bytes", "Bytes of blocks in memory, cached or held by answers."),
            evictions: registrar.counter("cache_evictions", "Blocks put out to make room."),
        }
    }
}
