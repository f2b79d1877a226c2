//! Snapshots of several tables at one cut: everything that was acknowledged before the call, and
//! nothing behind it, so that a transaction over their topics is in all of them or in none.
//!
//! The tables are held first, each when no turn of its own runs; then the last stable offsets of
//! all their topics are taken in one read; then each table is brought to exactly there, and let go.
//! Nothing is made anew where a table has all already. Cost: what a commit of each costs.

use crate::bridge::Bridge;
use crate::log_reader::PartitionCut;
use crate::names;
use crate::worker::Worker;
use floe_env::{Error, Lane, Result};
use futures::future::join_all;
use kfs::TopicId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Tables of one flush.
const TABLES_MAX: usize = 1000;
/// The longest that a flush waits for turns that run already.
const HOLD_TIMEOUT: Duration = Duration::from_secs(300);

/// A table after a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushedTable {
    /// Its name.
    pub name: String,
    /// The topic.
    pub topic: String,
    /// The snapshot at the cut; `None` where the topic has no records yet, or it failed.
    pub snapshot_id: Option<i64>,
    /// Rows in it.
    pub rows: u64,
    /// By partition, the offset behind the cut's last record.
    pub cut: Vec<i64>,
    /// Why the table is not at the cut, if so.
    pub error: Option<String>,
}

impl Bridge {
    /// Makes snapshots of tables at one cut, by the tables' names without their namespace. What
    /// kept one from it is in the answer, and keeps no other. Goes on where the caller goes away.
    ///
    /// # Errors
    /// `Invalid` for a name that no topic's table has, or can have; `Retry` where turns that run
    /// take too long; whatever the stores answer.
    pub async fn flush(&self, names: &[String]) -> Result<Vec<FlushedTable>> {
        if names.len() > TABLES_MAX {
            return Err(Error::limit(format!("{TABLES_MAX} tables can be flushed at once")));
        }
        let mut workers = BTreeMap::new();
        for name in names {
            let found = self.worker_to_flush(name).await?;
            let worker =
                found.ok_or_else(|| Error::invalid(format!("there is no table {name}")))?;
            workers.insert(worker.topic, worker);
        }
        let bridge = self.clone();
        let flushing = async move { bridge.flush_all(workers).await };
        let flushed = self.env().spawn("flush tables", Lane::Background, flushing).await;
        flushed.unwrap_or_else(|error| Err(Error::bug(error.to_string())))
    }

    /// Of a table that is there, or of a topic whose table is to get this name.
    async fn worker_to_flush(&self, name: &str) -> Result<Option<Arc<Worker>>> {
        let topics = self.topics().await?;
        if let Some(worker) = self.worker_named(&self.config().namespace, name).await? {
            return Ok(Some(worker));
        }
        let is_named = |topic: TopicId, topic_name: &str| {
            names::candidates(topic_name, topic).iter().any(|candidate| candidate == name)
        };
        let mut enabled = topics.iter().filter(|topic| self.is_enabled(topic));
        let topic = enabled.find(|topic| is_named(topic.id, &topic.name));
        Ok(topic.map(|topic| self.worker(topic.id, &topic.name)))
    }

    async fn flush_all(
        &self,
        workers: BTreeMap<TopicId, Arc<Worker>>,
    ) -> Result<Vec<FlushedTable>> {
        // In the order of topic ids, so that two flushes do not wait for each other.
        let holding = async {
            let mut held = Vec::with_capacity(workers.len());
            for worker in workers.values() {
                held.push(worker.hold().await);
            }
            held
        };
        let held = self.env().timeout(HOLD_TIMEOUT, holding).await;
        let _held = held.ok_or_else(|| Error::retry("a table's running commit takes too long"))?;
        let topics = self.topics().await?;
        let counts: BTreeMap<TopicId, i32> =
            topics.iter().map(|topic| (topic.id, topic.partition_count)).collect();
        let wanted: Vec<(TopicId, i32)> =
            workers.keys().map(|topic| (*topic, counts.get(topic).copied().unwrap_or(0))).collect();
        let cuts = self.log().cuts(&wanted).await?;
        let flushing = workers.values().zip(cuts).map(|(worker, cut)| flush_one(worker, cut));
        let flushing: Vec<_> = flushing.collect();
        Ok(join_all(flushing).await)
    }
}

/// Brings a table that is held to a cut.
async fn flush_one(worker: &Arc<Worker>, cut: Option<Vec<PartitionCut>>) -> FlushedTable {
    let status = worker.status();
    let mut flushed = FlushedTable {
        name: status.table.unwrap_or_else(|| names::plain_name(&worker.topic_name)),
        topic: worker.topic_name.clone(),
        snapshot_id: None,
        rows: 0,
        cut: Vec::new(),
        error: None,
    };
    let Some(cut) = cut else {
        flushed.error = Some("its topic was deleted".to_owned());
        return flushed;
    };
    flushed.cut = cut.iter().map(|partition| partition.last_stable_offset).collect();
    let has_records = cut.iter().any(|ends| ends.last_stable_offset > ends.log_start_offset);
    let brought =
        if has_records || worker.head().is_some() { worker.bring_to(&cut).await } else { Ok(()) };
    match brought.and(worker.newest().await) {
        Ok(Some(table)) => {
            flushed.name.clone_from(&table.pointer.name);
            flushed.snapshot_id = table.metadata.current_snapshot_id();
            flushed.rows = table.total("total-records");
        }
        Ok(None) => {}
        Err(error) => flushed.error = Some(error.to_string()),
    }
    flushed
}
