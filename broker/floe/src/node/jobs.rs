//! A broker's background jobs: tables, expiry of groups, transactions and idle producers, merging,
//! retention, compaction, cleaning up.

use super::bridge_log::BridgeLog;
use crate::broker::Broker;
use crate::compaction::TopicCompaction;
use crate::config::{MEMORY_BUDGET_DEFAULT_MAX_BYTES, MetadataLocation};
use crate::retention::TopicRetention;
use crate::snapshots::Snapshots;
use floe_env::{Background, Monitor, Shutdown};
use floe_iceberg_bridge::commit::ExpiryRules;
use floe_iceberg_bridge::fold::FoldRules;
use floe_iceberg_bridge::sweep::SweepRules;
use floe_iceberg_bridge::{Bridge, BridgeConfig, STAGINGS_MAX};
use floe_log::{
    CleanRules, Cleaner, CompactionRules, Compactor, MergeRules, Merger, Retention, RetentionRules,
    TableHold,
};
use floe_store::ObjectStore;
use std::sync::Arc;
use std::time::Duration;

/// A merged object is no larger than this part of the memory budget; a merge holds twice that.
const MERGE_MEMORY_SHARE: u64 = 8;

/// The keys of one pass of compaction take no more than this part of the memory budget.
const KEYS_MEMORY_SHARE: usize = 8;

/// A compacted object is no larger than this part of the memory budget; a pass holds twice that.
const COMPACTION_MEMORY_SHARE: u64 = 16;

/// A folded file is no larger than this part of the memory budget; a fold holds three times that.
const FOLD_MEMORY_SHARE: u64 = 16;

/// A table's commit holds no more than this part of the memory budget in files that have yet to be
/// put, and twice that while it ends one. As large as a folded file may be: what is put because of
/// it is no small file.
const STAGE_MEMORY_SHARE: u64 = 16;

/// The most that background work holds beside the memory budget, where that is `budget_bytes`.
const fn background_bytes_max(budget_bytes: u64) -> u64 {
    let (merge, fold) = (budget_bytes / MERGE_MEMORY_SHARE, budget_bytes / FOLD_MEMORY_SHARE);
    let stagings = STAGINGS_MAX as u64 * (budget_bytes / STAGE_MEMORY_SHARE);
    2 * merge + 3 * fold + 2 * stagings
}

/// What a broker with the default budget may take in all.
const BROKER_BYTES_MAX: u64 = 512 << 20;
/// Of that, for what no part has to itself: the program, its threads, SQLite, buffers of files.
const OTHER_BYTES: u64 = 48 << 20;
const _: () = assert!(
    MEMORY_BUDGET_DEFAULT_MAX_BYTES
        + background_bytes_max(MEMORY_BUDGET_DEFAULT_MAX_BYTES)
        + OTHER_BYTES
        <= BROKER_BYTES_MAX
);

/// By which rules the jobs work. [`JobRules::product`] has the product's; the simulation has a
/// shorter day.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobRules {
    /// When extents are merged.
    pub merge: MergeRules,
    /// When partitions are compacted. Pause and memory come from the settings.
    pub compaction: CompactionRules,
    /// When objects are deleted.
    pub clean: CleanRules,
    /// When orphans of tables are deleted.
    pub sweep: SweepRules,
    /// When files of tables are folded.
    pub fold: FoldRules,
}

impl JobRules {
    /// The product's rules. A remote store's requests have a price, so merges wait until they are
    /// worth it, and partitions share their objects; a local one has a single process that reads
    /// it, so what is dead goes soon.
    #[must_use]
    pub fn product(is_remote: bool) -> Self {
        let mut rules = Self::default();
        if is_remote {
            rules.merge.bytes_min = floe_log::REMOTE_BYTES_MIN;
            rules.compaction.dirt_bytes_min = floe_log::REMOTE_DIRT_BYTES_MIN;
        } else {
            rules.clean.grace = floe_log::LOCAL_GRACE;
        }
        rules
    }
}

/// The running jobs of one broker.
pub struct Jobs {
    /// The tables; `None` where the configuration has none.
    pub bridge: Option<Bridge>,
    /// What deletes objects of the log.
    pub cleaner: Cleaner,
    /// What moves log starts by age and size.
    pub retention: Retention,
    /// What leaves the newest record of each key.
    pub compactor: Compactor,
    /// What takes snapshots of the metadata, where they are wanted.
    pub(crate) snapshots: Option<Snapshots>,
    running: Vec<Background>,
}

impl Jobs {
    /// Starts all jobs. They end some time after `shutdown`.
    pub fn start(
        broker: &Arc<Broker>,
        objects: &Arc<dyn ObjectStore>,
        rules: JobRules,
        shutdown: &Shutdown,
    ) -> Self {
        let bridge = broker.config.iceberg.enable.then(|| bridge(broker, objects.clone(), rules));
        if let Some(bridge) = &bridge {
            // Nobody has set it before: the broker has just been made.
            let _ = broker.tables.set(bridge.clone());
        }
        let mut running: Vec<Background> =
            bridge.iter().map(|bridge| bridge.start(shutdown.clone())).collect();
        running.extend(bridge.iter().map(|bridge| bridge.start_upkeep(shutdown.clone())));
        running.push(broker.expire_groups());
        running.push(broker.tend_transactions());
        let snapshots = snapshots(broker, objects);
        let interval = broker.config.metadata.snapshot_interval;
        running.extend(snapshots.iter().map(|taker| taker.start(interval, shutdown.clone())));
        let cleaner = Cleaner::beside_snapshots(
            &broker.env,
            &broker.log,
            broker.metadata.clone(),
            rules.clean,
            snapshots.as_ref().map(Snapshots::moment),
        );
        running.push(cleaner.start(shutdown.clone()));
        running.extend(tend_log(broker, rules, shutdown));
        let retention = retention(broker);
        running.push(retention.start(shutdown.clone()));
        let compactor = compactor(broker, rules.compaction);
        running.push(compactor.start(shutdown.clone()));
        Self { bridge, cleaner, retention, compactor, snapshots, running }
    }

    /// Views of how they are doing.
    pub fn monitors(&self) -> Vec<Monitor> {
        self.running.iter().map(Background::monitor).collect()
    }

    /// Waits until all have ended after a shutdown.
    pub async fn join(self) {
        for job in self.running {
            job.join().await;
        }
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn bridge(broker: &Arc<Broker>, objects: Arc<dyn ObjectStore>, rules: JobRules) -> Bridge {
    let settings = &broker.config.iceberg;
    let budget_bytes = broker.config.memory.budget_bytes;
    let share = budget_bytes / FOLD_MEMORY_SHARE;
    let stage_bytes = usize::try_from(budget_bytes / STAGE_MEMORY_SHARE).unwrap_or(usize::MAX);
    let defaults = BridgeConfig::new(broker.identity.cluster);
    let config = BridgeConfig {
        exclude_topics: settings.exclude_topics.clone(),
        namespace: settings.namespace.clone(),
        look_timeout: settings.look_timeout,
        lag_max: settings.commit_interval,
        delete_retention: settings.delete_retention,
        expiry: ExpiryRules {
            snapshots_max: settings.snapshots_max,
            snapshot_age_min_ms: milliseconds(settings.snapshot_age),
            time_travel_ms: milliseconds(settings.time_travel),
        },
        sweep: rules.sweep,
        fold: FoldRules { file_bytes_max: rules.fold.file_bytes_max.min(share), ..rules.fold },
        mapping_limits: settings.mapping_limits,
        catalog: settings.catalog.clone(),
        rest: settings.rest.clone(),
        stage_bytes_max: defaults.stage_bytes_max.min(stage_bytes),
        ..defaults
    };
    let log = BridgeLog { log: broker.log.clone(), metadata: broker.metadata.clone() };
    Bridge::new(broker.env.clone(), config, objects, broker.metadata.clone(), Arc::new(log))
}

/// Snapshots of SQLite's file, unless the settings want none; PostgreSQL has its own tools.
fn snapshots(broker: &Broker, objects: &Arc<dyn ObjectStore>) -> Option<Snapshots> {
    let config = &broker.config.metadata;
    match &config.location {
        MetadataLocation::Sqlite(file) if !config.snapshot_interval.is_zero() => {
            let (objects, metadata) = (objects.clone(), broker.metadata.clone());
            Some(Snapshots::new(&broker.env, objects, metadata, file.clone()))
        }
        _ => None,
    }
}

fn retention(broker: &Broker) -> Retention {
    let (kafka, iceberg) = (&broker.config.kafka, &broker.config.iceberg);
    let hold = TableHold { time_ms: milliseconds(iceberg.log_hold), bytes: iceberg.log_hold_bytes };
    let rules = RetentionRules { pause: kafka.log_retention.check_interval, hold };
    let policy = Arc::new(TopicRetention(broker.config.clone()));
    Retention::new(&broker.env, &broker.log, broker.metadata.clone(), policy, rules)
}

fn compactor(broker: &Broker, rules: CompactionRules) -> Compactor {
    let (cleaner, budget) = (broker.config.kafka.log_cleaner, broker.config.memory.budget_bytes);
    let keys = usize::try_from(budget).unwrap_or(usize::MAX) / KEYS_MEMORY_SHARE;
    let rules = CompactionRules {
        pause: cleaner.backoff,
        key_bytes_max: cleaner.dedupe_buffer_bytes.min(keys),
        object_bytes_max: rules.object_bytes_max.min(budget / COMPACTION_MEMORY_SHARE),
        ..rules
    };
    let policy = Arc::new(TopicCompaction(broker.config.clone()));
    Compactor::new(&broker.env, &broker.log, broker.metadata.clone(), policy, rules)
}

/// Starts the jobs that keep the log small: merging, and forgetting idle producers.
fn tend_log(broker: &Broker, rules: JobRules, shutdown: &Shutdown) -> [Background; 2] {
    let (env, log, metadata) = (&broker.env, &broker.log, &broker.metadata);
    let share = broker.config.memory.budget_bytes / MERGE_MEMORY_SHARE;
    let object_bytes_max = rules.merge.object_bytes_max.min(share);
    let merge = MergeRules { object_bytes_max, ..rules.merge };
    let merger = Merger::new(env, log, metadata.clone(), merge);
    let expiration = broker.config.kafka.producer_id_expiration;
    [
        merger.start(shutdown.clone()),
        floe_log::start_producer_expiry(env, metadata.clone(), expiration, shutdown.clone()),
    ]
}
