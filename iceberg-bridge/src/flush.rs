//! Snapshots of several tables at one cut: everything that was acknowledged before the call, and
//! nothing behind it, so that a transaction over their topics is in all of them or in none.
//!
//! The tables are held first, each when no commit of its own runs; then the last stable offsets of
//! all their topics are taken in one read; then each table is brought to exactly there, and let go.
//! Nothing is made anew where a table has all already. Cost: what a commit of each costs.

use crate::bridge::Bridge;
use crate::commit::LoadedTable;
use crate::log_reader::PartitionCut;
use crate::names;
use crate::worker::Worker;
use floe_env::{Error, Lane, Result};
use floe_metadata::topics::Topic;
use futures::future::join_all;
use kfs::TopicId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// Tables of one flush.
const TABLES_MAX: usize = 1000;
/// Partitions of their topics: their ends are taken in one read.
const PARTITIONS_MAX: i64 = 100_000;
/// The longest that a flush waits for commits that run already, and for another flush.
const HOLD_TIMEOUT: Duration = Duration::from_secs(300);

/// A table after a flush.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushedTable {
    /// Its name; over HTTP with its namespace and a dot before it.
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
        let workers = self.workers_to_flush(names).await?;
        let bridge = self.clone();
        let flushing = async move { bridge.flush_all(workers).await };
        let flushed = self.env().spawn("flush tables", Lane::Background, flushing).await;
        flushed.unwrap_or_else(|error| Err(Error::bug(error.to_string())))
    }

    /// Those of tables that are there, or of topics whose tables are to get these names.
    async fn workers_to_flush(&self, names: &[String]) -> Result<BTreeMap<TopicId, Arc<Worker>>> {
        let topics = self.topics().await?;
        let made_there = match self.rest() {
            Some(catalog) => Some(catalog.topics_by_name().await?),
            None => None,
        };
        let (mut to_make, mut workers) = (None, BTreeMap::new());
        for name in names {
            let made = match &made_there {
                Some(made) => match made.get(name).and_then(|topics| self.living(topics)) {
                    Some(topic) => Some(self.worker_by_id(topic, name).await?),
                    None => None,
                },
                None => self.worker_named(&self.config().namespace, name).await?,
            };
            let worker = made.or_else(|| {
                let to_make = to_make.get_or_insert_with(|| self.names_to_make(&topics));
                to_make.get(name).map(|topic| self.worker(topic.id, &topic.name))
            });
            let worker =
                worker.ok_or_else(|| Error::invalid(format!("there is no table {name}")))?;
            workers.insert(worker.topic, worker);
        }
        Ok(workers)
    }

    /// Topics by all the names that their tables may get.
    fn names_to_make<'a>(&self, topics: &'a [Topic]) -> BTreeMap<String, &'a Topic> {
        let mut to_make = BTreeMap::new();
        for topic in topics.iter().filter(|topic| self.is_enabled(topic)) {
            for name in names::candidates(&topic.name, topic.id) {
                to_make.entry(name).or_insert(topic);
            }
        }
        to_make
    }

    async fn flush_all(
        &self,
        workers: BTreeMap<TopicId, Arc<Worker>>,
    ) -> Result<Vec<FlushedTable>> {
        let holding: Vec<_> =
            workers.values().cloned().map(|worker| async move { worker.hold().await }).collect();
        let holding = async {
            // One at a time, so that two do not wait for each other.
            let _waiting = self.flushes().lock().await;
            join_all(holding).await
        };
        let held = self.env().timeout(HOLD_TIMEOUT, holding).await;
        let held = held.ok_or_else(|| Error::retry("a table's running commit takes too long"))?;
        let topics = self.topics().await?;
        let known = topics.iter().filter(|topic| workers.contains_key(&topic.id));
        let wanted: Vec<(TopicId, i32)> =
            known.map(|topic| (topic.id, topic.partition_count)).collect();
        if wanted.iter().map(|(_, count)| i64::from(*count)).sum::<i64>() > PARTITIONS_MAX {
            let limit = format!("tables of {PARTITIONS_MAX} partitions can be flushed at once");
            return Err(Error::limit(limit));
        }
        let cuts = self.log().cuts_at_once(&wanted).await?;
        let cuts = wanted.into_iter().zip(cuts).filter_map(|((id, _), cut)| Some((id, cut?)));
        let mut cuts: BTreeMap<TopicId, Vec<PartitionCut>> = cuts.collect();
        let held = workers.into_values().zip(held);
        let flushing: Vec<_> = held
            .map(|(worker, held)| flush_one(cuts.remove(&worker.topic), worker, held))
            .collect();
        Ok(join_all(flushing).await)
    }
}

/// Brings a table to a cut, and lets it go.
async fn flush_one(
    cut: Option<Vec<PartitionCut>>,
    worker: Arc<Worker>,
    held: OwnedMutexGuard<()>,
) -> FlushedTable {
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
    let brought = bring(&worker, &cut).await;
    drop(held);
    match brought {
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

/// The version at the cut; none of a topic that has no records yet.
async fn bring(worker: &Arc<Worker>, cut: &[PartitionCut]) -> Result<Option<Arc<LoadedTable>>> {
    let mut is_wanted = cut.iter().any(|ends| ends.last_stable_offset > ends.log_start_offset);
    // Its log may have nothing any more.
    is_wanted = is_wanted || worker.head().is_some() || worker.refresh_head().await?.is_some();
    if is_wanted || worker.dropped().is_some() {
        worker.bring_to(cut).await?;
    }
    worker.newest().await
}
