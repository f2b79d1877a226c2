//! The lists that grow with every commit, in runs of entries. A run that an earlier version had
//! with the very same entries is not encoded again. Where one ends depends on the entries alone, so
//! the same list is the same bytes, whatever is known of earlier versions.

use super::gzip::{Packer, Part};
use super::whole::unwritten;
use floe_env::Result;
use iceberg::spec::{Snapshot, SnapshotLog, SnapshotRef};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sequence numbers of a run. Few enough that the newest, which each commit encodes, is little
/// work, and so many that what a run takes beside its entries does not count.
const RUN_NUMBERS: i64 = 32;

/// An entry of such a list.
pub(super) trait Entry: Clone {
    /// The sequence number of the snapshot that it is about.
    fn number(&self) -> i64;

    /// Whether it certainly is the same.
    fn is(&self, other: &Self) -> bool;

    /// Writes it as JSON, with its keys sorted.
    fn write(&self, json: &mut Vec<u8>) -> serde_json::Result<()>;
}

#[derive(Debug)]
struct Run<E> {
    entries: Vec<E>,
    part: Part,
}

/// All runs of a list but the last, to which entries will be added.
#[derive(Debug)]
pub(super) struct Runs<E>(Vec<Arc<Run<E>>>);

impl<E> Default for Runs<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E: Entry> Runs<E> {
    /// Encodes a list in whose place was what `before` has. Answers the JSON of the last run too;
    /// that of all others ends with a comma.
    pub(super) fn of(list: &[E], before: &Self, packer: &mut Packer) -> Result<(Self, Vec<u8>)> {
        let number = |entry: &E| entry.number().div_euclid(RUN_NUMBERS);
        let mut lists: Vec<&[E]> = list.chunk_by(|one, next| number(one) == number(next)).collect();
        let last = lists.pop().unwrap_or_default();
        let mut runs = Vec::with_capacity(lists.len());
        for entries in lists {
            runs.push(match before.0.iter().find(|run| run.has(entries)) {
                Some(known) => known.clone(),
                None => Arc::new(Run::of(entries, packer)?),
            });
        }
        let mut json = written(last)?;
        json.pop();
        Ok((Self(runs), json))
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.0.iter().map(|run| &run.part)
    }

    /// Runs that both have.
    #[cfg(test)]
    pub(super) fn shared(&self, other: &Self) -> usize {
        let is_theirs = |run: &&Arc<Run<E>>| other.0.iter().any(|other| Arc::ptr_eq(run, other));
        self.0.iter().filter(is_theirs).count()
    }
}

impl<E: Entry> Run<E> {
    fn of(entries: &[E], packer: &mut Packer) -> Result<Self> {
        let part = packer.part(written(entries)?)?;
        Ok(Self { entries: entries.to_vec(), part })
    }

    fn has(&self, entries: &[E]) -> bool {
        self.entries.len() == entries.len()
            && self.entries.iter().zip(entries).all(|(known, entry)| known.is(entry))
    }
}

/// Entries, each with a comma behind it.
fn written<E: Entry>(entries: &[E]) -> Result<Vec<u8>> {
    let mut json = Vec::new();
    for entry in entries {
        entry.write(&mut json).map_err(unwritten)?;
        json.push(b',');
    }
    Ok(json)
}

impl Entry for SnapshotRef {
    fn number(&self) -> i64 {
        self.sequence_number()
    }

    /// Versions made one of the other have it in common.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }

    fn write(&self, json: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(json, &SnapshotJson::of(self))
    }
}

/// A snapshot of format version 2, by its keys in their order.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct SnapshotJson<'a> {
    manifest_list: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_snapshot_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_id: Option<i32>,
    sequence_number: i64,
    snapshot_id: i64,
    summary: BTreeMap<&'a str, &'a str>,
    timestamp_ms: i64,
}

impl<'a> SnapshotJson<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let summary = snapshot.summary();
        let others = summary.additional_properties.iter();
        let others = others.map(|(key, value)| (key.as_str(), value.as_str()));
        Self {
            manifest_list: snapshot.manifest_list(),
            parent_snapshot_id: snapshot.parent_snapshot_id(),
            schema_id: snapshot.schema_id(),
            sequence_number: snapshot.sequence_number(),
            snapshot_id: snapshot.snapshot_id(),
            summary: others.chain([("operation", summary.operation.as_str())]).collect(),
            timestamp_ms: snapshot.timestamp_ms(),
        }
    }
}

/// Which snapshot became the current one, and when.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub(super) number: i64,
    /// Its keys are in their order.
    pub(super) entry: SnapshotLog,
}

impl Entry for LogEntry {
    fn number(&self) -> i64 {
        self.number
    }

    fn is(&self, other: &Self) -> bool {
        self.entry == other.entry
    }

    fn write(&self, json: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(json, &self.entry)
    }
}
