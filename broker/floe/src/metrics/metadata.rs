//! Changes of the metadata store, each of which waits until it is durable, and its snapshots.

use super::registrar::{Registrar, label_values};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Segments,
    Transactions,
    Facts,
    Upkeep,
}

label_values!(Kind {
    Segments => "segments",
    Transactions => "transactions",
    Facts => "facts",
    Upkeep => "upkeep",
});

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: Kind,
}

/// Changes of the metadata store.
pub struct MetadataMetrics {
    /// Commits of segments.
    pub segments: Counter,
    /// Ends of transactions.
    pub transactions: Counter,
    /// Changes of facts.
    pub facts: Counter,
    /// What keeps the rest small.
    pub upkeep: Counter,
    /// When the newest snapshot was taken, seconds since 1970; 0 where there is none.
    pub snapshot_time: Gauge,
}

impl MetadataMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        let changes: Family<Labels, Counter> = registrar.counters(
            "metadata_changes",
            &["kind"],
            "Changes asked of the metadata store, by kind: segments (commits of records), \
             transactions (their ends), facts (topics, groups, transactional ids, tables), upkeep.",
        );
        let of = |kind| changes.get_or_create_owned(&Labels { kind });
        Self {
            segments: of(Kind::Segments),
            transactions: of(Kind::Transactions),
            facts: of(Kind::Facts),
            upkeep: of(Kind::Upkeep),
            snapshot_time: registrar.gauge(
                "metadata_snapshot_time_seconds",
                "What was committed before this moment, in seconds since 1970, is in the newest \
                 snapshot of the metadata in the object store, or there is nothing newer. 0 where \
                 none is taken, or none has been yet.",
            ),
        }
    }
}
