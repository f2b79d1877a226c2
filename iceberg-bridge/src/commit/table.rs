//! A table as it is now: pointer, metadata, manifests, progress, and whether it may be written at
//! all.

use super::columns::mapping_of;
use super::manifest::parse_list;
use crate::mapping::Mapping;
use crate::place::TablePlace;
use crate::pointer::TablePointer;
use crate::progress::{PROGRESS_KEY, Progress};
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_store::ObjectStore;
use iceberg::spec::{ManifestFile, Snapshot, TableMetadata};
use kfs::{ClusterId, TopicId};
use std::sync::Arc;

/// The tag that every commit moves to its snapshot, so that nobody's expiry removes the newest
/// progress map.
pub const TAG: &str = "floe";
/// Table property: the cluster that writes the table.
pub const CLUSTER_PROPERTY: &str = "floe.cluster-id";
/// Table property: the topic whose history the table is.
pub const TOPIC_PROPERTY: &str = "floe.topic-id";
/// Summary key: offsets that no table can ever hold, over the table's whole life.
pub const GAP_OFFSETS_KEY: &str = "floe.gap-offsets";

/// One version of a table.
#[derive(Debug)]
pub struct LoadedTable {
    /// The fact that names this version.
    pub pointer: TablePointer,
    /// Where its files are.
    pub place: TablePlace,
    /// The metadata.
    pub metadata: TableMetadata,
    /// The metadata file.
    pub metadata_json: Bytes,
    /// The manifests of the current snapshot.
    pub manifests: Vec<ManifestFile>,
    /// How far the table has got.
    pub progress: Progress,
    /// The columns beside the ten.
    pub mapping: Mapping,
    /// Why the table must not be written, if so.
    pub stopped: Option<String>,
}

impl LoadedTable {
    /// Reads a version: one GET for the metadata, one for the manifest list.
    ///
    /// # Errors
    /// `Corrupt` where a file is missing or makes no sense; whatever the store answers.
    pub async fn load(
        store: &dyn ObjectStore,
        cluster: ClusterId,
        pointer: TablePointer,
    ) -> Result<Self> {
        let topic = pointer.topic();
        let place = TablePlace::new(store, cluster, topic, pointer.table_id);
        let location = &pointer.metadata_location;
        let metadata_json = get(store, &place.key_of(location)?).await?;
        let metadata: TableMetadata = serde_json::from_slice(&metadata_json)
            .map_err(|error| Error::corrupt(format!("metadata {location}")).with_source(error))?;
        let manifests = match metadata.current_snapshot() {
            None => Vec::new(),
            Some(snapshot) => {
                let url = snapshot.manifest_list();
                parse_list(url, &get(store, &place.key_of(url)?).await?)?
            }
        };
        let judged = judge(&metadata, cluster, topic);
        let judged = judged.and_then(|progress| Ok((progress, mapping_of(&metadata)?)));
        let (progress, mapping, stopped) = match judged {
            Ok((progress, mapping)) => (progress, mapping, None),
            Err(reason) => (Progress::start(topic), Mapping::new(), Some(reason)),
        };
        Ok(Self { pointer, place, metadata, metadata_json, manifests, progress, mapping, stopped })
    }

    /// The current snapshot's entry in the summary that Floe writes for itself.
    pub fn summary(&self, key: &str) -> Option<&str> {
        summary_value(self.metadata.current_snapshot()?, key)
    }

    /// Offsets that no table can ever hold, over the table's whole life.
    pub fn gap_offsets(&self) -> i64 {
        self.summary(GAP_OFFSETS_KEY).and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

pub(super) fn summary_value<'a>(snapshot: &'a Snapshot, key: &str) -> Option<&'a str> {
    snapshot.summary().additional_properties.get(key).map(String::as_str)
}

/// A whole object that must be there.
pub(super) async fn get(store: &dyn ObjectStore, key: &str) -> Result<Bytes> {
    store.get(key).await?.ok_or_else(|| Error::corrupt(format!("object `{key}` is missing")))
}

/// The table's progress, or why it must not be written: it is not ours, or what it holds is not
/// what we last committed.
fn judge(metadata: &TableMetadata, cluster: ClusterId, topic: TopicId) -> Result<Progress, String> {
    let property = |key| metadata.properties().get(key).map_or("none", String::as_str);
    for (key, ours) in
        [(CLUSTER_PROPERTY, cluster.to_string()), (TOPIC_PROPERTY, topic.to_string())]
    {
        if property(key) != ours {
            return Err(format!("not ours: {key} is {}, not {ours}", property(key)));
        }
    }
    let main = newest_map(metadata)?;
    let tagged = metadata.snapshot_for_ref(TAG).map(progress_of);
    let tagged = tagged.flatten().transpose()?;
    match (main, tagged) {
        (None, _) => Err("replaced: no snapshot in main's history has a progress map".to_owned()),
        (_, None) => Err(format!("tag {TAG} has no progress map")),
        (Some(main), _) if main.topic != topic => {
            Err(format!("not ours: the progress map is of topic {}", main.topic))
        }
        (Some(main), Some(tagged)) if main != tagged => Err(format!(
            "rolled back: main's newest map is {}, tag {TAG} has {}",
            main.pack(),
            tagged.pack()
        )),
        (Some(main), Some(_)) => Ok(main),
    }
}

/// The first map on the way from main's head to its oldest ancestor.
fn newest_map(metadata: &TableMetadata) -> Result<Option<Progress>, String> {
    let mut next = metadata.current_snapshot();
    // Each snapshot is visited once at most, even if parents form a ring.
    for _ in 0..metadata.snapshots().len() {
        let Some(snapshot) = next else { break };
        if let Some(map) = progress_of(snapshot) {
            return map.map(Some);
        }
        next = snapshot.parent_snapshot_id().and_then(|parent| metadata.snapshot_by_id(parent));
    }
    Ok(None)
}

fn progress_of(snapshot: &Arc<Snapshot>) -> Option<Result<Progress, String>> {
    let text = summary_value(snapshot, PROGRESS_KEY)?;
    Some(Progress::unpack(text).map_err(|error| error.to_string()))
}

/// Metadata as a file.
pub(super) fn metadata_file(metadata: &TableMetadata) -> Result<Bytes> {
    let json = serde_json::to_vec(metadata)
        .map_err(|error| Error::bug("encode table metadata").with_source(error))?;
    Ok(Bytes::from(json))
}
