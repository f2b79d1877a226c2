//! Retention of tables: rows older than a topic's `iceberg.retention.ms` leave its table, in
//! commits of their own (`delete`), which carry the progress map and move the tag like all others.
//!
//! Rows go in whole files: a file goes once its newest row is too old, by the bounds in its
//! manifest. So nothing is rewritten, readers that follow appends can skip the commit, and a row
//! stays no longer than its file spans: a day for the files of one day, and for a file of many days
//! until it is so long ago that the file was made. Rows without a timestamp have no age and stay.
//! The files themselves are deleted when the snapshots that name them expire.
//!
//! Cost of a look at a table, which is made four times within its retention and once an hour at
//! least: a GET a manifest.

use crate::bridge::Bridge;
use crate::commit::{CommitEnd, LoadedTable, Removed};
use crate::schema::field;
use crate::worker::Worker;
use floe_env::{Instant, Result};
use iceberg::spec::{DataFile, Datum, ManifestContentType, PrimitiveLiteral};
use kfs::TopicId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Files that one commit takes out.
const FILES_MAX: usize = 10_000;
/// How many times a table is looked at within its retention.
const LOOKS: u32 = 4;
/// The longest time between two looks.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// The least time between two looks.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// What retention has done since the broker started.
#[derive(Debug, Default)]
pub struct TrimCounts {
    /// Commits that took rows out.
    pub trims: AtomicU64,
    /// Files that they took out.
    pub files: AtomicU64,
    /// Rows in these.
    pub rows: AtomicU64,
}

/// When each table was looked at last.
#[derive(Debug, Default)]
pub(crate) struct TrimState {
    looked_at: BTreeMap<TopicId, Instant>,
}

impl Bridge {
    /// Looks at the table that has waited longest, if one is due. True if rows have left it.
    pub(crate) async fn trim_next(&self) -> Result<bool> {
        let Some((worker, retention_ms)) = self.next_to_trim() else { return Ok(false) };
        let Some(base) = worker.newest().await? else { return Ok(false) };
        let trimmed = self.trim(&worker, base, retention_ms).await;
        trimmed.map_err(|error| error.context(&format!("trim the table of {}", worker.topic_name)))
    }

    fn next_to_trim(&self) -> Option<(Arc<Worker>, i64)> {
        let now = self.env().monotonic();
        let workers = self.workers();
        let mut state = self.trim_state().lock();
        state.looked_at.retain(|topic, _| workers.contains_key(topic));
        let due = workers.into_values().filter_map(|worker| {
            let settings = worker.settings();
            let retention_ms = settings.retention_ms.filter(|_| settings.is_enabled)?;
            worker.head().filter(|table| table.stopped.is_none())?;
            let looked_at = state.looked_at.get(&worker.topic).copied();
            let is_due = looked_at.is_none_or(|at| now >= at + pause(retention_ms));
            is_due.then_some((looked_at, worker, retention_ms))
        });
        let (_, worker, retention_ms) = due.min_by_key(|(looked_at, ..)| *looked_at)?;
        state.looked_at.insert(worker.topic, now);
        Some((worker, retention_ms))
    }

    async fn trim(
        &self,
        worker: &Worker,
        base: Arc<LoadedTable>,
        retention_ms: i64,
    ) -> Result<bool> {
        let oldest_ms = self.env().now_ms().saturating_sub(retention_ms);
        let mut removed = self.outdated(&base, oldest_ms.saturating_mul(1000)).await?;
        let (files, rows) = (removed.len() as u64, removed.rows());
        if files == 0 {
            return Ok(false);
        }
        // Before the commit, so that no look waits for it.
        removed.locate(&self.shared_store(), &base).await?;
        let CommitEnd::Committed(table) = worker.trim(base, removed).await? else {
            return Ok(false);
        };
        let counts = self.trim_counts();
        counts.trims.fetch_add(1, Ordering::Relaxed);
        counts.files.fetch_add(files, Ordering::Relaxed);
        counts.rows.fetch_add(rows, Ordering::Relaxed);
        let table = &table.pointer.name;
        tracing::info!(%table, files, rows, retention_ms, "rows left a table: they were too old");
        Ok(true)
    }

    /// Files of the table that have no row as new as `oldest_us`.
    async fn outdated(&self, base: &LoadedTable, oldest_us: i64) -> Result<Removed> {
        let mut removed: Vec<DataFile> = Vec::new();
        let manifests = base.manifests.iter();
        for manifest in manifests.filter(|file| file.content == ManifestContentType::Data) {
            let files = base.files_of(self.store(), manifest).await?.into_iter();
            let files = files.map(|file| file.data_file);
            removed.extend(files.filter(|file| newest_us(file).is_some_and(|at| at < oldest_us)));
            if removed.len() >= FILES_MAX {
                break;
            }
        }
        Ok(removed.into_iter().collect())
    }
}

fn pause(retention_ms: i64) -> Duration {
    let share = Duration::from_millis(retention_ms.max(0).unsigned_abs()) / LOOKS;
    share.clamp(PAUSE_MIN, PAUSE_MAX)
}

/// The time of the newest row, microseconds since the Unix epoch. `None` where a row has none, or
/// the manifest does not say.
fn newest_us(file: &DataFile) -> Option<i64> {
    if file.null_value_counts().get(&field::TIMESTAMP) != Some(&0) {
        return None;
    }
    match file.upper_bounds().get(&field::TIMESTAMP).map(Datum::literal) {
        Some(PrimitiveLiteral::Long(newest_us)) => Some(*newest_us),
        _ => None,
    }
}
