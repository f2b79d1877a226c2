//! The metadata of the next version, made in memory from the version before: one append, the tag,
//! and the expiry of old snapshots. Pure.

use super::Gap;
use super::columns::{MAPPING_PROPERTY, with_columns};
use super::manifest::SnapshotPlace;
use super::table::{
    CLUSTER_PROPERTY, GAP_OFFSETS_KEY, LoadedTable, TAG, TOPIC_PROPERTY, summary_value,
};
use crate::error::iceberg_error;
use crate::mapping::{MAPPING_VERSION, Mapping};
use crate::progress::{PROGRESS_KEY, Progress};
use crate::schema::{SPEC_DAY, day_spec, iceberg_schema};
use floe_env::{Error, Result};
use iceberg::spec::{
    DataFile, FormatVersion, Operation, PartitionSpec, Snapshot, SnapshotRef, SnapshotReference,
    SnapshotRetention, SortOrder, Summary, TableMetadata, TableMetadataBuildResult,
    TableMetadataBuilder,
};
use kfs::{ClusterId, TopicId};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Snapshots that are kept whatever their age.
const SNAPSHOTS_KEPT: usize = 100;
/// Snapshots above which the oldest go whatever their age, so that metadata stays small.
const SNAPSHOTS_MAX: usize = 1000;
/// Snapshots go in batches of this size, so that few commits have the work.
const EXPIRY_BATCH: usize = 50;
/// Age below which a snapshot stays, unless there are too many, ms.
const SNAPSHOT_AGE_MIN_MS: i64 = 60 * 60 * 1000;
/// How much earlier than now a snapshot is dated, ms. DuckDB reads a table as of the start of its
/// transaction, by its own clock, which is before the look that the transaction makes: a snapshot
/// that is dated by the commit would not be seen by the very query that asked for it.
pub(super) const BACKDATED_MS: i64 = 10_000;
/// Metadata files that are kept behind the newest.
const METADATA_FILES_KEPT: usize = 100;

/// Summary key: gaps that this commit found, as JSON.
pub(super) const GAPS_KEY: &str = "floe.gaps";

/// Who a new table belongs to.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// The cluster.
    pub cluster: ClusterId,
    /// The topic.
    pub topic: TopicId,
    /// The table's uuid.
    pub table: Uuid,
}

/// A table before its first snapshot.
pub(super) fn empty_table(owner: &Ownership, location: &str) -> Result<TableMetadata> {
    let failed = |error| iceberg_error("make a table", error);
    let properties = [
        (CLUSTER_PROPERTY, owner.cluster.to_string()),
        (TOPIC_PROPERTY, owner.topic.to_string()),
        (MAPPING_PROPERTY, MAPPING_VERSION.to_string()),
        ("write.parquet.compression-codec", "zstd".to_owned()),
        ("write.metadata.previous-versions-max", METADATA_FILES_KEPT.to_string()),
    ];
    let properties = properties.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let schema = iceberg_schema(&Mapping::new())?;
    let made = TableMetadataBuilder::new(
        schema.clone(),
        PartitionSpec::unpartition_spec(),
        SortOrder::unsorted_order(),
        location.to_owned(),
        FormatVersion::V2,
        properties,
    );
    let made = made.map_err(failed)?.assign_uuid(owner.table);
    let made = made.add_default_partition_spec(day_spec()?).map_err(failed)?;
    let metadata = made.build().map_err(failed)?.metadata;
    if metadata.current_schema().as_struct() != schema.as_struct()
        || metadata.default_partition_spec_id() != SPEC_DAY
    {
        return Err(Error::bug("the library gave the new table other ids than the fixed ones"));
    }
    undated(&metadata)
}

/// The library dates a new table by the system's clock. Its first snapshot will date it by ours.
fn undated(metadata: &TableMetadata) -> Result<TableMetadata> {
    let failed = |error| Error::bug("date a new table").with_source(error);
    let mut json = serde_json::to_value(metadata).map_err(failed)?;
    json["last-updated-ms"] = 0.into();
    serde_json::from_value(json).map_err(failed)
}

/// What a commit adds.
pub(super) struct Addition<'a> {
    pub(super) files: Vec<&'a DataFile>,
    pub(super) progress: &'a Progress,
    pub(super) gaps: &'a [Gap],
    pub(super) mapping: &'a Mapping,
}

/// The version after `metadata`.
pub(super) struct NextVersion {
    pub(super) built: TableMetadataBuildResult,
    /// Snapshots that the version no longer has, oldest first.
    pub(super) expired: Vec<SnapshotRef>,
}

/// Adds a snapshot whose manifest list stands at `list_url`, moves main and the tag to it, and lets
/// old snapshots go.
pub(super) fn next_version(
    metadata: TableMetadata,
    metadata_location: Option<String>,
    snapshot: SnapshotPlace,
    list_url: String,
    now_ms: i64,
    addition: &Addition<'_>,
) -> Result<NextVersion> {
    let failed = |error| iceberg_error("make a table's next version", error);
    let summary = summary(metadata.current_snapshot(), addition);
    let backdated_ms = now_ms - BACKDATED_MS;
    // Dates only go forward, also where a clock goes back.
    let timestamp_ms = match metadata.current_snapshot() {
        Some(_) => backdated_ms.max(metadata.last_updated_ms() + 1),
        None => backdated_ms,
    };
    let expired = expired_snapshots(&metadata, timestamp_ms);
    let expired_ids: Vec<i64> = expired.iter().map(|snapshot| snapshot.snapshot_id()).collect();
    let (builder, schema_id) =
        with_columns(metadata, metadata_location, addition.mapping, &expired_ids)?;
    let added = Snapshot::builder()
        .with_snapshot_id(snapshot.id)
        .with_parent_snapshot_id(snapshot.parent)
        .with_sequence_number(snapshot.sequence_number)
        .with_timestamp_ms(timestamp_ms)
        .with_manifest_list(list_url)
        .with_summary(summary)
        .with_schema_id(schema_id)
        .build();
    let tag = SnapshotReference::new(snapshot.id, SnapshotRetention::Tag { max_ref_age_ms: None });
    let builder = builder.set_branch_snapshot(added, "main").map_err(failed)?;
    let builder = builder.set_ref(TAG, tag).map_err(failed)?;
    let built = builder.remove_snapshots(&expired_ids).build().map_err(failed)?;
    Ok(NextVersion { built, expired })
}

fn summary(parent: Option<&SnapshotRef>, addition: &Addition<'_>) -> Summary {
    let total = |key: &str| -> u64 {
        let before = parent.and_then(|parent| summary_value(parent, key));
        before.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let files = addition.files.len() as u64;
    let records: u64 = addition.files.iter().map(|file| file.record_count()).sum();
    let bytes: u64 = addition.files.iter().map(|file| file.file_size_in_bytes()).sum();
    let gap_offsets: i64 = addition.gaps.iter().map(|gap| gap.until - gap.from).sum();
    let gap_offsets = total(GAP_OFFSETS_KEY).saturating_add(gap_offsets.unsigned_abs());
    let mut values = BTreeMap::from([
        ("added-data-files", files.to_string()),
        ("added-records", records.to_string()),
        ("added-files-size", bytes.to_string()),
        ("total-data-files", (total("total-data-files") + files).to_string()),
        ("total-records", (total("total-records") + records).to_string()),
        ("total-files-size", (total("total-files-size") + bytes).to_string()),
        ("total-delete-files", "0".to_owned()),
        ("total-position-deletes", "0".to_owned()),
        ("total-equality-deletes", "0".to_owned()),
        (PROGRESS_KEY, addition.progress.pack()),
    ]);
    if gap_offsets > 0 {
        values.insert(GAP_OFFSETS_KEY, gap_offsets.to_string());
    }
    if !addition.gaps.is_empty() {
        let gaps = serde_json::to_string(addition.gaps).expect("numbers and text are JSON");
        values.insert(GAPS_KEY, gaps);
    }
    let values = values.into_iter().map(|(key, value)| (key.to_owned(), value));
    Summary { operation: Operation::Append, additional_properties: values.collect() }
}

/// Oldest first, never out of the middle, never one that a branch or tag names.
fn expired_snapshots(metadata: &TableMetadata, now_ms: i64) -> Vec<SnapshotRef> {
    let count = metadata.snapshots().len();
    let mut oldest_first: Vec<&SnapshotRef> = metadata.snapshots().collect();
    oldest_first.sort_by_key(|snapshot| snapshot.sequence_number());
    let is_old = |snapshot: &&&SnapshotRef| {
        now_ms.saturating_sub(snapshot.timestamp_ms()) >= SNAPSHOT_AGE_MIN_MS
    };
    let old = oldest_first.iter().take_while(is_old).count();
    let wanted = if count >= SNAPSHOTS_MAX {
        (count - SNAPSHOTS_MAX + EXPIRY_BATCH).max(old.min(count - SNAPSHOTS_KEPT))
    } else if count >= SNAPSHOTS_KEPT + EXPIRY_BATCH {
        old.min(count - SNAPSHOTS_KEPT)
    } else {
        0
    };
    // The current snapshot is main's and the tag's until this commit, and the next one's parent.
    let protected = |snapshot: &SnapshotRef| {
        let id = snapshot.snapshot_id();
        metadata.current_snapshot_id() == Some(id)
            || metadata.snapshot_for_ref(TAG).is_some_and(|tagged| tagged.snapshot_id() == id)
    };
    let unprotected = oldest_first.into_iter().take_while(|snapshot| !protected(snapshot));
    unprotected.take(wanted).cloned().collect()
}

/// The place of the snapshot behind `base`.
pub(super) fn next_snapshot(base: Option<&LoadedTable>, id: i64) -> SnapshotPlace {
    let metadata = base.map(|base| &base.metadata);
    SnapshotPlace {
        id,
        parent: metadata.and_then(TableMetadata::current_snapshot_id),
        sequence_number: metadata.map_or(1, TableMetadata::next_sequence_number),
    }
}
