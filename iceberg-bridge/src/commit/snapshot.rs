//! The metadata of the next version, made in memory from the version before: one snapshot more, the
//! tags, and the expiry of old snapshots. Pure.

use super::Gap;
use super::columns::{MAPPING_PROPERTY, with_columns};
use super::encoded::METADATA_CODEC_PROPERTY;
use super::expiry::{ExpiryRules, expired_snapshots, hour_tag, outdated_tags};
use super::manifest::SnapshotPlace;
use super::refs::{Refs, moved_main, tag};
use super::table::{
    CLUSTER_PROPERTY, GAP_OFFSETS_KEY, LoadedTable, RESCUED_ROWS_KEY, TABLE_NAME_PROPERTY, TAG,
    TOPIC_NAME_PROPERTY, TOPIC_PROPERTY, UNDECODABLE_ROWS_KEY, life_count, summary_value,
};
use crate::encode::DecodeCounts;
use crate::error::iceberg_error;
use crate::mapping::{MAPPING_VERSION, Mapping};
use crate::progress::{PROGRESS_KEY, Progress};
use crate::schema::{SPEC_DAY, day_spec, iceberg_schema};
use floe_env::{Error, Result};
use iceberg::spec::{
    DataFile, FormatVersion, MAIN_BRANCH, Operation, PartitionSpec, Snapshot, SnapshotRef,
    SortOrder, Summary, TableMetadata, TableMetadataBuildResult, TableMetadataBuilder,
};
use kfs::{ClusterId, TopicId};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// How much earlier than now a snapshot is dated, ms. DuckDB reads a table as of the start of its
/// transaction, by its own clock, which is before the look that the transaction makes: a snapshot
/// that is dated by the commit would not be seen by the very query that asked for it.
pub(super) const BACKDATED_MS: i64 = 10_000;
/// How much earlier than a table's newest change a snapshot may be dated, ms.
const CLOCKS_APART_MS_MAX: i64 = 60_000;
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

/// A table before its first snapshot. Its topic's name and its own stand in it too: they are all
/// that is left of them where the metadata store is lost.
pub(super) fn empty_table(
    owner: &Ownership,
    (topic_name, table_name): (&str, &str),
    location: &str,
) -> Result<TableMetadata> {
    let failed = |error| iceberg_error("make a table", error);
    let of_files = [
        ("write.metadata.previous-versions-max", METADATA_FILES_KEPT.to_string()),
        (METADATA_CODEC_PROPERTY, "gzip".to_owned()),
    ];
    let of_files = of_files.into_iter().map(|(key, value)| (key.to_owned(), value));
    let properties = owner_properties(owner.cluster, owner.topic, (topic_name, table_name));
    let properties = properties.chain(of_files).collect();
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

/// The properties of every table of a topic: whose it is, and how it is written.
pub(crate) fn owner_properties(
    cluster: ClusterId,
    topic: TopicId,
    (topic_name, table_name): (&str, &str),
) -> impl Iterator<Item = (String, String)> {
    let properties = [
        (CLUSTER_PROPERTY, cluster.to_string()),
        (TOPIC_PROPERTY, topic.to_string()),
        (TOPIC_NAME_PROPERTY, topic_name.to_owned()),
        (TABLE_NAME_PROPERTY, table_name.to_owned()),
        (MAPPING_PROPERTY, MAPPING_VERSION.to_string()),
        ("write.parquet.compression-codec", "zstd".to_owned()),
    ];
    properties.into_iter().map(|(key, value)| (key.to_owned(), value))
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
    pub(super) operation: Operation,
    pub(super) files: Vec<&'a DataFile>,
    /// Files that the snapshot no longer has.
    pub(super) removed: Totals,
    pub(super) progress: &'a Progress,
    pub(super) gaps: &'a [Gap],
    pub(super) mapping: &'a Mapping,
    pub(super) counts: &'a DecodeCounts,
    /// An entry of its own in the summary.
    pub(super) note: Option<(&'static str, &'static str)>,
}

/// Sums over data files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
}

impl Totals {
    pub(super) fn of<'a>(files: impl IntoIterator<Item = &'a DataFile>) -> Self {
        files.into_iter().fold(Self::default(), |sum, file| Self {
            files: sum.files + 1,
            records: sum.records + file.record_count(),
            bytes: sum.bytes + file.file_size_in_bytes(),
        })
    }
}

/// The version after another.
pub(super) struct NextVersion {
    pub(super) built: TableMetadataBuildResult,
    /// Its branches and tags.
    pub(super) refs: Refs,
    /// Snapshots that the version no longer has, oldest first.
    pub(super) expired: Vec<SnapshotRef>,
}

/// A version, and what it was made of.
pub(super) struct Version<'a> {
    /// Its name in the catalog now, which others may have changed.
    pub(super) name: Option<&'a str>,
    pub(super) metadata: TableMetadata,
    pub(super) refs: &'a Refs,
    /// Address of its file, if it has one.
    pub(super) location: Option<String>,
}

/// Adds a snapshot whose manifest list stands at `list_url`, moves main and the tag to it, and lets
/// old snapshots go.
pub(super) fn next_version(
    before: Version<'_>,
    snapshot: SnapshotPlace,
    list_url: String,
    now_ms: i64,
    rules: &ExpiryRules,
    addition: &Addition<'_>,
) -> Result<NextVersion> {
    let failed = |error| iceberg_error("make a table's next version", error);
    let Version { name, metadata, refs, location } = before;
    let known_name = metadata.properties().get(TABLE_NAME_PROPERTY).map(String::as_str);
    let new_name = name.filter(|name| known_name != Some(*name));
    let summary = summary(&metadata, addition);
    let timestamp_ms = snapshot_date_ms(&metadata, now_ms);
    let mut refs = refs.clone();
    let outdated = outdated_tags(&metadata, &refs, timestamp_ms, rules);
    refs.retain(|name, _| !outdated.contains(name));
    let mut moved = vec![(TAG.to_owned(), tag(snapshot.id, None))];
    moved.extend(hour_tag(metadata.current_snapshot(), timestamp_ms, rules));
    refs.extend(moved.iter().cloned());
    let main = moved_main(&refs, snapshot.id);
    refs.insert(MAIN_BRANCH.to_owned(), main.clone());
    let expired = expired_snapshots(&metadata, &refs, timestamp_ms, rules);
    let expired_ids: Vec<i64> = expired.iter().map(|snapshot| snapshot.snapshot_id()).collect();
    let outdated_statistics = statistics_without_snapshot(&metadata, &expired_ids);
    let (mut builder, schema_id) =
        with_columns(metadata, location, addition.mapping, &expired_ids)?;
    let added = Snapshot::builder()
        .with_snapshot_id(snapshot.id)
        .with_parent_snapshot_id(snapshot.parent)
        .with_sequence_number(snapshot.sequence_number)
        .with_timestamp_ms(timestamp_ms)
        .with_manifest_list(list_url)
        .with_summary(summary)
        .with_schema_id(schema_id)
        .build();
    if let Some(name) = new_name {
        let property = [(TABLE_NAME_PROPERTY.to_owned(), name.to_owned())];
        builder = builder.set_properties(property.into_iter().collect()).map_err(failed)?;
    }
    builder = builder.add_snapshot(added).map_err(failed)?;
    builder = builder.set_ref(MAIN_BRANCH, main).map_err(failed)?;
    // Before those that are set: a table that was rolled back gets an outdated one anew.
    for name in outdated {
        builder = builder.remove_ref(&name);
    }
    for (name, reference) in moved {
        builder = builder.set_ref(&name, reference).map_err(failed)?;
    }
    builder = builder.remove_snapshots(&expired_ids);
    for id in outdated_statistics {
        builder = builder.remove_statistics(id).remove_partition_statistics(id);
    }
    let built = builder.build().map_err(failed)?;
    Ok(NextVersion { built, refs, expired })
}

/// Snapshots of which engines have left statistics, and which are not there any more. The library
/// keeps these; their files are orphans from then on, which the sweep finds.
fn statistics_without_snapshot(metadata: &TableMetadata, expired: &[i64]) -> BTreeSet<i64> {
    let of_tables = metadata.statistics_iter().map(|file| file.snapshot_id);
    let of_partitions = metadata.partition_statistics_iter().map(|file| file.snapshot_id);
    let is_gone = |id: &i64| expired.contains(id) || metadata.snapshot_by_id(*id).is_none();
    of_tables.chain(of_partitions).filter(is_gone).collect()
}

/// Dates only go forward, also where a clock goes back.
fn snapshot_date_ms(metadata: &TableMetadata, now_ms: i64) -> i64 {
    let backdated_ms = now_ms - BACKDATED_MS;
    match metadata.current_snapshot() {
        Some(_) => backdated_ms.max(metadata.last_updated_ms() + 1),
        // Another catalog has dated the empty table, by its own clock. What is dated much earlier
        // it would refuse.
        None => backdated_ms.max(metadata.last_updated_ms() - CLOCKS_APART_MS_MAX),
    }
}

fn summary(metadata: &TableMetadata, addition: &Addition<'_>) -> Summary {
    let (added, removed) = (Totals::of(addition.files.iter().copied()), addition.removed);
    let gap_offsets: i64 = addition.gaps.iter().map(|gap| gap.until - gap.from).sum();
    let mut values = BTreeMap::from([
        ("added-data-files", added.files.to_string()),
        ("added-records", added.records.to_string()),
        ("added-files-size", added.bytes.to_string()),
        (PROGRESS_KEY, addition.progress.pack()),
    ]);
    values.extend(totals(metadata.current_snapshot(), added, removed));
    if removed.files > 0 {
        values.insert("deleted-data-files", removed.files.to_string());
        values.insert("deleted-records", removed.records.to_string());
        values.insert("removed-files-size", removed.bytes.to_string());
    }
    let lived = [
        (GAP_OFFSETS_KEY, gap_offsets.unsigned_abs()),
        (RESCUED_ROWS_KEY, addition.counts.rescued_rows),
        (UNDECODABLE_ROWS_KEY, addition.counts.undecodable_rows),
    ];
    for (key, added) in lived {
        let count = life_count(metadata, key).saturating_add(added);
        if count > 0 {
            values.insert(key, count.to_string());
        }
    }
    if !addition.gaps.is_empty() {
        let gaps = serde_json::to_string(addition.gaps).expect("numbers and text are JSON");
        values.insert(GAPS_KEY, gaps);
    }
    if let Some((key, value)) = addition.note {
        values.insert(key, value.to_owned());
    }
    let values = values.into_iter().map(|(key, value)| (key.to_owned(), value));
    let operation = addition.operation.clone();
    Summary { operation, additional_properties: values.collect() }
}

/// The totals behind `parent`. One that others have left out of theirs is not known any more, and
/// is left out: engines take what is stated for true, deletes too.
fn totals(
    parent: Option<&SnapshotRef>,
    added: Totals,
    removed: Totals,
) -> impl Iterator<Item = (&'static str, String)> {
    let totals = [
        ("total-data-files", added.files, removed.files),
        ("total-records", added.records, removed.records),
        ("total-files-size", added.bytes, removed.bytes),
        // We make no deletes, and those of others stay.
        ("total-delete-files", 0, 0),
        ("total-position-deletes", 0, 0),
        ("total-equality-deletes", 0, 0),
    ];
    totals.into_iter().filter_map(move |(key, added, removed)| {
        let before: u64 = match parent {
            Some(parent) => summary_value(parent, key)?.parse().ok()?,
            None => 0,
        };
        Some((key, before.saturating_add(added).saturating_sub(removed).to_string()))
    })
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
