//! What this process wrote last: partitions' rows as its commits left them, and how the server's
//! clock stood. From them a commit is decided without reading anything, and made on condition that
//! nobody has raised a partition's version meanwhile.
//!
//! Whoever decides from rows takes them out, and puts back what it wrote once that is certain. So a
//! commit whose end is in doubt leaves nothing behind, and one beside it reads the server's rows.

use crate::codec;
use crate::decide::{CommitPartition, CommitRows};
use crate::rows::PartitionState;
use floe_env::{Env, Instant, Result};
use kfs::TopicPartition;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Remembered rows, bytes; beyond, all are forgotten and it begins anew.
const REMEMBERED_BYTES_MAX: usize = 64 << 20;
/// What a row takes beside its packed producers, bytes.
const ROW_BYTES: usize = 128;

/// A partition's row as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenRow {
    pub(super) state: PartitionState,
    /// As stored.
    pub(super) producers: Vec<u8>,
}

impl WrittenRow {
    fn bytes(&self) -> usize {
        ROW_BYTES + self.producers.len()
    }
}

/// The server's clock as it once was.
#[derive(Clone, Copy, Debug)]
struct Clock {
    server_ms: i64,
    read_at: Instant,
}

#[derive(Debug, Default)]
struct Remembered {
    rows: BTreeMap<TopicPartition, WrittenRow>,
    bytes: usize,
    clock: Option<Clock>,
}

impl Remembered {
    fn remove(&mut self, partition: TopicPartition) -> Option<WrittenRow> {
        let row = self.rows.remove(&partition)?;
        self.bytes -= row.bytes();
        Some(row)
    }
}

/// Rows that this process wrote last.
#[derive(Debug, Default)]
pub(super) struct RecentRows {
    remembered: Mutex<Remembered>,
    is_refusal_told: AtomicBool,
}

impl RecentRows {
    /// Takes out the rows of these partitions and answers the server's clock, ms; `None`, and
    /// nothing is taken, where one is not known.
    pub(super) fn take(
        &self,
        env: &Env,
        partitions: &[TopicPartition],
    ) -> Result<Option<(CommitRows, i64)>> {
        let mut taken = Vec::with_capacity(partitions.len());
        let now_ms = {
            let remembered = &mut *self.remembered.lock();
            let is_known = |partition| remembered.rows.contains_key(partition);
            let Some(clock) = remembered.clock.filter(|_| partitions.iter().all(is_known)) else {
                return Ok(None);
            };
            let named = partitions.iter().copied();
            taken.extend(named.filter_map(|one| Some((one, remembered.remove(one)?))));
            let passed = env.monotonic().duration_since(clock.read_at).as_millis();
            clock.server_ms.saturating_add_unsigned(u64::try_from(passed).unwrap_or(u64::MAX))
        };
        let mut rows = Vec::with_capacity(taken.len());
        for (partition, row) in taken {
            let producers = codec::decode_producers(&row.producers)?;
            let partition_row =
                CommitPartition { state: row.state, producers, spilled: Vec::new() };
            rows.push((partition, partition_row));
        }
        let partitions = rows.into_iter().collect();
        Ok(Some((CommitRows { partitions, ..CommitRows::default() }, now_ms)))
    }

    /// Remembers what a commit wrote. A row that another one has remembered meanwhile stays where
    /// it is newer.
    pub(super) fn put(&self, written: impl IntoIterator<Item = (TopicPartition, WrittenRow)>) {
        let remembered = &mut *self.remembered.lock();
        for (partition, row) in written {
            let version = row.state.version;
            if remembered.rows.get(&partition).is_some_and(|known| known.state.version > version) {
                continue;
            }
            remembered.remove(partition);
            if remembered.bytes + row.bytes() > REMEMBERED_BYTES_MAX {
                remembered.rows.clear();
                remembered.bytes = 0;
            }
            remembered.bytes += row.bytes();
            remembered.rows.insert(partition, row);
        }
    }

    /// Forgets all: a new session may be with a server that lacks what was written last.
    pub(super) fn forget_all(&self) {
        let remembered = &mut *self.remembered.lock();
        remembered.rows.clear();
        remembered.bytes = 0;
    }

    /// Forgets partitions that have ended, or whose versions others raise or have raised.
    pub(super) fn forget(&self, partitions: &[TopicPartition]) {
        let remembered = &mut *self.remembered.lock();
        for partition in partitions {
            remembered.remove(*partition);
        }
    }

    /// Says, once, that the server refuses commits in one flight for a reason that is no race: each
    /// then costs a transaction in vain.
    pub(super) fn tell_refusal(&self, error: &tokio_postgres::Error) {
        if !self.is_refusal_told.swap(true, Ordering::Relaxed) {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(%error, cause, "PostgreSQL refuses commits in one flight");
        }
    }

    /// Notes the server's clock, ms, just read.
    pub(super) fn note_clock(&self, env: &Env, server_ms: i64) {
        self.remembered.lock().clock = Some(Clock { server_ms, read_at: env.monotonic() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfs::{PartitionIndex, TopicId};
    use std::time::Duration;
    use uuid::Uuid;

    fn named(index: i32) -> TopicPartition {
        TopicPartition { topic: TopicId(Uuid::from_u128(1)), partition: PartitionIndex(index) }
    }

    fn row(version: u64, producers: usize) -> WrittenRow {
        let state = PartitionState { version, ..PartitionState::default() };
        WrittenRow { state, producers: vec![0; producers] }
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_taken_together_or_not_at_all() {
        let (env, recent) = (Env::current(), RecentRows::default());
        recent.put([(named(1), row(5, 0))]);
        assert!(recent.take(&env, &[named(1)]).unwrap().is_none(), "no clock yet");
        recent.note_clock(&env, 1_000);
        assert!(recent.take(&env, &[named(1), named(2)]).unwrap().is_none());
        recent.put([(named(2), row(7, 0)), (named(1), row(4, 0))]);
        env.sleep(Duration::from_millis(20)).await;
        let (rows, now_ms) = recent.take(&env, &[named(1), named(2)]).unwrap().unwrap();
        let versions: Vec<u64> = rows.partitions.values().map(|row| row.state.version).collect();
        assert_eq!((versions, now_ms), (vec![5, 7], 1_020));
        assert!(recent.take(&env, &[named(1)]).unwrap().is_none(), "taken once");
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let (env, recent) = (Env::current(), RecentRows::default());
        recent.note_clock(&env, 0);
        recent.put([(named(1), row(1, REMEMBERED_BYTES_MAX / 2))]);
        recent.put([(named(2), row(1, REMEMBERED_BYTES_MAX / 2))]);
        assert!(recent.take(&env, &[named(1)]).unwrap().is_none());
        recent.forget(&[named(2)]);
        assert_eq!(recent.remembered.lock().bytes, 0);
    }
}
