//! A version's metadata as JSON and as a file, both in pieces. Most of it is two lists, of
//! snapshots and of which of them was current when, and from one version to the next they change
//! at their ends alone. So they are encoded, and compressed, in runs that versions share, and a
//! commit encodes what is new: its work is the same with a thousand snapshots as with ten. Pure.
//!
//! The JSON is byte for byte that of [`metadata_file`], which encodes everything anew.

mod gzip;
mod runs;
#[cfg(test)]
mod tests;
mod whole;

pub(super) use whole::{METADATA_CODEC_PROPERTY, compressed, json_of};
pub(crate) use whole::{is_compressed, metadata_file};

use super::refs::Refs;
use bytes::Bytes;
use floe_env::Result;
use gzip::{Packer, Part};
use iceberg::spec::{
    FormatVersion, MetadataLog, PartitionSpec, PartitionStatisticsFile, Schema, SnapshotRef,
    SortOrder, StatisticsFile, TableMetadata,
};
use runs::{LogEntry, Runs};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::Deref;
use uuid::Uuid;
use whole::unwritten;

const LOG_KEY: &str = "snapshot-log";
const SNAPSHOTS_KEY: &str = "snapshots";

/// A version's metadata as JSON, and what the next version can have of it.
#[derive(Debug, Default)]
pub(crate) struct EncodedMetadata {
    json: Vec<Bytes>,
    log: Runs<LogEntry>,
    snapshots: Runs<SnapshotRef>,
}

impl EncodedMetadata {
    /// Of JSON that was read.
    pub(super) fn read(json: Bytes) -> Self {
        Self { json: vec![json], ..Self::default() }
    }

    /// Encodes a version, whose branches and tags are `refs`, and which was made of `before`.
    /// Answers its file too, in pieces.
    pub(super) fn of(
        metadata: &TableMetadata,
        refs: &Refs,
        before: &Self,
    ) -> Result<(Self, Vec<Bytes>)> {
        let has_lists = metadata.snapshots().len() > 0 && !metadata.history().is_empty();
        if metadata.format_version() != FormatVersion::V2 || !has_lists {
            let (json, file) = metadata_file(metadata)?;
            return Ok((Self::read(json), vec![file]));
        }
        let packer = &mut Packer::new();
        let (log, newest_log) = Runs::of(&log_of(metadata), &before.log, packer)?;
        let (snapshots, newest) = Runs::of(&snapshots_of(metadata), &before.snapshots, packer)?;
        let (begin, end) = around(metadata, refs)?;
        let between = format!("],\"{SNAPSHOTS_KEY}\":[").into_bytes();
        let begin = packer.part(begin)?;
        let between = packer.part([newest_log, between].concat())?;
        let end = packer.part([newest, end].concat())?;
        let parts: Vec<&Part> = std::iter::once(&begin)
            .chain(log.parts())
            .chain([&between])
            .chain(snapshots.parts())
            .chain([&end])
            .collect();
        let json: Vec<Bytes> = parts.iter().map(|part| part.plain.clone()).collect();
        let file =
            if is_compressed(metadata) { gzip::file(parts.iter().copied()) } else { json.clone() };
        Ok((Self { json, log, snapshots }, file))
    }

    /// The JSON, in pieces.
    pub(crate) fn json(&self) -> &[Bytes] {
        &self.json
    }
}

/// Pieces in one.
pub(crate) fn joined(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [whole] => whole.clone(),
        pieces => Bytes::from(pieces.concat()),
    }
}

/// Oldest first; the library's order is another with every run.
fn snapshots_of(metadata: &TableMetadata) -> Vec<SnapshotRef> {
    let numbers = |snapshot: &SnapshotRef| (snapshot.sequence_number(), snapshot.snapshot_id());
    // The numbers beside the references: to sort these alone would be to jump about in memory.
    let mut numbered: Vec<((i64, i64), &SnapshotRef)> =
        metadata.snapshots().map(|snapshot| (numbers(snapshot), snapshot)).collect();
    numbered.sort_unstable_by_key(|(numbers, _)| *numbers);
    numbered.into_iter().map(|(_, snapshot)| snapshot.clone()).collect()
}

fn log_of(metadata: &TableMetadata) -> Vec<LogEntry> {
    let number = |id| metadata.snapshot_by_id(id).map_or(0, |named| named.sequence_number());
    let entries = metadata.history().iter();
    entries
        .map(|entry| LogEntry { number: number(entry.snapshot_id), entry: entry.clone() })
        .collect()
}

/// What stands before the entries of the log, and what stands behind those of the snapshots: of all
/// keys, in their order, these two stand beside each other.
fn around(metadata: &TableMetadata, refs: &Refs) -> Result<(Vec<u8>, Vec<u8>)> {
    let others: Map<String, Value> = Others::of(metadata, refs).members().map_err(unwritten)?;
    let (mut begin, mut end) = (b"{".to_vec(), b"]".to_vec());
    for (key, value) in &others {
        if key.as_str() < LOG_KEY {
            write_member(&mut begin, key, value).map_err(unwritten)?;
            begin.push(b',');
        } else {
            end.push(b',');
            write_member(&mut end, key, value).map_err(unwritten)?;
        }
    }
    begin.extend_from_slice(format!("\"{LOG_KEY}\":[").as_bytes());
    end.push(b'}');
    Ok((begin, end))
}

fn write_member(json: &mut Vec<u8>, key: &str, value: &Value) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *json, key)?;
    json.push(b':');
    serde_json::to_writer(json, value)
}

/// Metadata of format version 2 without the two lists.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Others<'a> {
    format_version: u8,
    table_uuid: Uuid,
    location: &'a str,
    last_sequence_number: i64,
    last_updated_ms: i64,
    last_column_id: i32,
    schemas: Vec<&'a Schema>,
    current_schema_id: i32,
    partition_specs: Vec<&'a PartitionSpec>,
    default_spec_id: i32,
    last_partition_id: i32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_snapshot_id: Option<i64>,
    #[serde(skip_serializing_if = "<[MetadataLog]>::is_empty")]
    metadata_log: &'a [MetadataLog],
    sort_orders: Vec<&'a SortOrder>,
    default_sort_order_id: i64,
    refs: &'a Refs,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statistics: Vec<&'a StatisticsFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partition_statistics: Vec<&'a PartitionStatisticsFile>,
}

impl<'a> Others<'a> {
    fn of(metadata: &'a TableMetadata, refs: &'a Refs) -> Self {
        let schemas = metadata.schemas_iter().map(Deref::deref);
        let specs = metadata.partition_specs_iter().map(Deref::deref);
        let orders = metadata.sort_orders_iter().map(Deref::deref);
        let (statistics, of_partitions) =
            (metadata.statistics_iter(), metadata.partition_statistics_iter());
        let properties = metadata.properties().iter();
        Self {
            format_version: 2,
            table_uuid: metadata.uuid(),
            location: metadata.location(),
            last_sequence_number: metadata.last_sequence_number(),
            last_updated_ms: metadata.last_updated_ms(),
            last_column_id: metadata.last_column_id(),
            schemas: sorted(schemas, |schema| schema.schema_id()),
            current_schema_id: metadata.current_schema_id(),
            partition_specs: sorted(specs, |spec| spec.spec_id()),
            default_spec_id: metadata.default_partition_spec_id(),
            last_partition_id: metadata.last_partition_id(),
            properties: properties.map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            current_snapshot_id: metadata.current_snapshot_id(),
            metadata_log: metadata.metadata_log(),
            sort_orders: sorted(orders, |order| order.order_id),
            default_sort_order_id: metadata.default_sort_order_id(),
            refs,
            statistics: sorted(statistics, |file| file.snapshot_id),
            partition_statistics: sorted(of_partitions, |file| file.snapshot_id),
        }
    }

    /// In the order of their keys.
    fn members(&self) -> serde_json::Result<Map<String, Value>> {
        let Value::Object(members) = serde_json::to_value(self)? else { return Ok(Map::new()) };
        Ok(members)
    }
}

fn sorted<'a, T, Id: Ord>(
    entries: impl Iterator<Item = &'a T>,
    id: impl Fn(&T) -> Id,
) -> Vec<&'a T> {
    let mut entries: Vec<&T> = entries.collect();
    entries.sort_by_key(|entry| id(entry));
    entries
}
