//! A table as it is now: pointer, metadata, manifests, progress, and whether it may be written at
//! all.

use super::columns::mapping_of;
use super::encoded::{EncodedMetadata, compressed};
use super::head::{TableCounts, TableHead, metadata_of};
use super::manifest::{ExistingFile, parse_list, parse_manifest};
use super::own::{own_progress, own_snapshot};
use super::refs::parse_refs;
use super::snapshot::BACKDATED_MS;
use crate::mapping::Mapping;
use crate::place::TablePlace;
use crate::pointer::TablePointer;
use crate::progress::{PROGRESS_KEY, Progress};
use bytes::Bytes;
use floe_env::{Env, Error, Result};
use floe_store::ObjectStore;
use iceberg::spec::{FormatVersion, ManifestFile, Snapshot, SnapshotRef, TableMetadata};
use kfs::{ClusterId, TopicId};
use std::sync::Arc;
use uuid::Uuid;

/// The tag that every commit moves to its snapshot, so that nobody's expiry removes the newest
/// progress map.
pub const TAG: &str = "floe";
/// Table property: the cluster that writes the table.
pub const CLUSTER_PROPERTY: &str = "floe.cluster-id";
/// Table property: the topic whose history the table is.
pub const TOPIC_PROPERTY: &str = "floe.topic-id";
/// Table property: the topic's name.
pub const TOPIC_NAME_PROPERTY: &str = "floe.topic-name";
/// Table property: the table's name, without its namespace, as of its newest commit.
pub const TABLE_NAME_PROPERTY: &str = "floe.table-name";
/// Summary key: offsets that no table can ever hold, over the table's whole life.
pub const GAP_OFFSETS_KEY: &str = "floe.gap-offsets";
/// Summary key: rows ever committed with something in `_kafka_rescued`.
pub const RESCUED_ROWS_KEY: &str = "floe.rescued-rows";
/// Summary key: rows ever committed with a `_kafka_error`.
pub const UNDECODABLE_ROWS_KEY: &str = "floe.undecodable-rows";

/// One version of a table, whole.
#[derive(Debug)]
pub struct LoadedTable {
    /// All but the metadata.
    pub head: Arc<TableHead>,
    /// The metadata.
    pub metadata: TableMetadata,
    /// The metadata as JSON.
    pub(super) encoded: EncodedMetadata,
}

impl std::ops::Deref for LoadedTable {
    type Target = TableHead;

    fn deref(&self) -> &TableHead {
        &self.head
    }
}

impl LoadedTable {
    /// Reads a version: one GET for the metadata, one for the manifest list.
    ///
    /// # Errors
    /// `Corrupt` where a file is missing or makes no sense; whatever the store answers.
    pub async fn load(
        env: &Env,
        store: &dyn ObjectStore,
        cluster: ClusterId,
        pointer: TablePointer,
    ) -> Result<Self> {
        let topic = pointer.topic().ok_or_else(|| Error::bug("no topic's table"))?;
        let place = TablePlace::new(store, cluster, topic, pointer.table_id);
        let file = get(store, &place.key_of(&pointer.metadata_location)?).await?;
        // Of a thousand snapshots it takes milliseconds, and looks are on the connections' threads.
        let decoding =
            env.blocking(move || Decoded::of(file, (cluster, topic), (pointer, place), false));
        let Decoded { mut head, metadata, encoded, list } = decoding.await?;
        if let Some(url) = list {
            head.manifests = parse_list(&url, &get(store, &head.place.key_of(&url)?).await?)?;
        }
        Ok(Self { head: Arc::new(head), metadata, encoded })
    }

    /// A version as another catalog tells it: one GET for the manifest list.
    ///
    /// # Errors
    /// As of [`LoadedTable::load`].
    pub(crate) async fn told(
        env: &Env,
        store: &dyn ObjectStore,
        cluster: ClusterId,
        (pointer, place): (TablePointer, TablePlace),
        json: Bytes,
    ) -> Result<Self> {
        let topic = pointer.topic().ok_or_else(|| Error::bug("no topic's table"))?;
        let decoding = env.blocking(move || {
            let file = compressed(&json)?;
            let mut decoded = Decoded::of(json, (cluster, topic), (pointer, place), true)?;
            let TableHead { pointer, .. } = &decoded.head;
            decoded.head.pointer = pointer.at(pointer.metadata_location.clone(), &decoded.metadata);
            decoded.head.file = vec![file];
            Ok::<_, Error>(decoded)
        });
        let Decoded { mut head, metadata, encoded, list } = decoding.await?;
        if let Some(url) = list {
            head.manifests = parse_list(&url, &get(store, &head.place.key_of(&url)?).await?)?;
        }
        Ok(Self { head: Arc::new(head), metadata, encoded })
    }

    #[cfg(test)]
    pub(crate) fn metadata_json(&self) -> Bytes {
        super::joined(self.metadata_json_pieces())
    }

    /// The metadata as JSON, in pieces.
    pub fn metadata_json_pieces(&self) -> &[Bytes] {
        self.encoded.json()
    }

    /// The same version, which must not be written.
    pub(crate) fn stopped_by(mut self, why: String) -> Self {
        // Nobody else has a version that was just loaded.
        if let Some(head) = Arc::get_mut(&mut self.head) {
            head.stopped.get_or_insert(why);
        }
        self
    }

    /// Why it is not the table of the pointer's topic, if so.
    pub(crate) fn owner_problem(&self, cluster: ClusterId) -> Option<String> {
        owner_problem(&self.metadata, (cluster, self.progress.topic), self.pointer.table_id)
    }

    /// The furthest that it ever got, as far as it says: also where it is stopped, behind which
    /// offsets nothing was ever committed.
    pub(crate) fn furthest(&self) -> Progress {
        let known = maps(&self.metadata).ok();
        let known = known.into_iter().flat_map(|maps| [maps.main, maps.tagged]).flatten();
        known.fold(self.progress.clone(), |furthest, map| furthest.max(&map))
    }

    /// The manifests of one of its snapshots.
    pub(crate) async fn manifests_of(
        &self,
        store: &dyn ObjectStore,
        snapshot: &Snapshot,
    ) -> Result<Vec<ManifestFile>> {
        if self.metadata.current_snapshot_id() == Some(snapshot.snapshot_id()) {
            return Ok(self.manifests.clone());
        }
        let url = snapshot.manifest_list();
        parse_list(url, &get(store, &self.place.key_of(url)?).await?)
    }

    /// The live files of one of its manifests.
    pub(crate) async fn files_of(
        &self,
        store: &dyn ObjectStore,
        manifest: &ManifestFile,
    ) -> Result<Vec<ExistingFile>> {
        let key = self.place.key_of(&manifest.manifest_path)?;
        parse_manifest(manifest, &get(store, &key).await?)
    }

    /// The current snapshot's entry in the summary that Floe writes for itself.
    pub fn summary(&self, key: &str) -> Option<&str> {
        summary_value(self.metadata.current_snapshot()?, key)
    }

    /// A sum that the current snapshot states, 0 where it does not.
    pub fn total(&self, key: &str) -> u64 {
        self.summary(key).and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// A metadata file in memory.
struct Decoded {
    /// Without its manifests.
    head: TableHead,
    metadata: TableMetadata,
    encoded: EncodedMetadata,
    /// The address of the manifest list. The files of a table that is not ours may be anywhere,
    /// and are not read.
    list: Option<String>,
}

impl Decoded {
    /// A table of the embedded catalog is made with its first rows, so one without any was
    /// replaced; another catalog makes it empty.
    fn of(
        file: Bytes,
        (cluster, topic): (ClusterId, TopicId),
        (pointer, place): (TablePointer, TablePlace),
        may_be_empty: bool,
    ) -> Result<Self> {
        let (metadata, json) = metadata_of(&file, &pointer.metadata_location)?;
        let owner = owner_problem(&metadata, (cluster, topic), pointer.table_id);
        let current = metadata.current_snapshot().filter(|_| owner.is_none());
        let list = current.map(|snapshot| snapshot.manifest_list().to_owned());
        let judged = match owner {
            Some(problem) => Err(problem),
            // The embedded catalog refuses that; nothing makes it undone.
            None if metadata.format_version() != FormatVersion::V2 => Err(format!(
                "upgraded: its format version is {}, and Floe writes version 2; drop it, and resume \
                 it with --rewind to make it anew",
                metadata.format_version()
            )),
            None if may_be_empty && is_untouched(&metadata) => Ok(Progress::start(topic)),
            None => judge(&metadata, topic),
        };
        let judged = judged.and_then(|progress| Ok((progress, mapping_of(&metadata)?)));
        let (progress, mapping, stopped) = match judged {
            Ok((progress, mapping)) => (progress, mapping, None),
            Err(reason) => (held(&metadata, topic), Mapping::new(), Some(reason)),
        };
        let head = TableHead {
            pointer,
            place,
            refs: parse_refs(&json)?,
            manifests: Vec::new(),
            progress,
            mapping,
            stopped,
            counts: counts_of(&metadata),
            file: vec![file],
        };
        Ok(Self { head, metadata, encoded: EncodedMetadata::read(json), list })
    }
}

/// What Floe's snapshots count: of the whole life, and of the current one.
pub(super) fn counts_of(metadata: &TableMetadata) -> TableCounts {
    // Others may leave a total out of their snapshots; the last word on it is about right.
    let total = |key| {
        let stated = main_line(metadata).find_map(|snapshot| summary_value(snapshot, key));
        stated.and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    let own = own_snapshot(metadata);
    TableCounts {
        gap_offsets: life_count(metadata, GAP_OFFSETS_KEY),
        rescued_rows: life_count(metadata, RESCUED_ROWS_KEY),
        undecodable_rows: life_count(metadata, UNDECODABLE_ROWS_KEY),
        files: total("total-data-files"),
        bytes: total("total-files-size"),
        committed_ms: own.map(|own| own.timestamp_ms() + BACKDATED_MS),
    }
}

/// Main's snapshots from the newest to the oldest that is there.
pub(super) fn main_line(metadata: &TableMetadata) -> impl Iterator<Item = &SnapshotRef> {
    let parent = |snapshot: &&SnapshotRef| {
        snapshot.parent_snapshot_id().and_then(|parent| metadata.snapshot_by_id(parent))
    };
    // Each snapshot is visited once at most, even if parents form a ring.
    std::iter::successors(metadata.current_snapshot(), parent).take(metadata.snapshots().len())
}

pub(super) fn summary_value<'a>(snapshot: &'a Snapshot, key: &str) -> Option<&'a str> {
    snapshot.summary().additional_properties.get(key).map(String::as_str)
}

/// A metadata file, as JSON and as what it means.
pub(crate) async fn read_metadata(
    env: &Env,
    store: &dyn ObjectStore,
    key: &str,
) -> Result<(Bytes, TableMetadata)> {
    let (file, location) = (get(store, key).await?, key.to_owned());
    // As of topics' tables, not on the connections' threads.
    let (metadata, json) = env.blocking(move || metadata_of(&file, &location)).await?;
    Ok((json, metadata))
}

/// Floe's newest snapshot carries such counts on: those that others make do not.
pub(super) fn life_count(metadata: &TableMetadata, key: &str) -> u64 {
    let own = own_snapshot(metadata);
    let count = own.and_then(|own| summary_value(own, key));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// A whole object that must be there.
pub(super) async fn get(store: &dyn ObjectStore, key: &str) -> Result<Bytes> {
    store.get(key).await?.ok_or_else(|| Error::corrupt(format!("object `{key}` is missing")))
}

/// Why a table is not this topic's, if so: it is never written, and never resumed.
pub(super) fn owner_problem(
    metadata: &TableMetadata,
    (cluster, topic): (ClusterId, TopicId),
    table: Uuid,
) -> Option<String> {
    let property = |key| metadata.properties().get(key).map_or("none", String::as_str);
    for (key, ours) in
        [(CLUSTER_PROPERTY, cluster.to_string()), (TOPIC_PROPERTY, topic.to_string())]
    {
        if property(key) != ours {
            return Some(format!("not ours: {key} is {}, not {ours}", property(key)));
        }
    }
    if metadata.uuid() != table {
        let uuid = metadata.uuid();
        return Some(format!("not ours: the table's uuid is {uuid}, not {table}"));
    }
    match maps(metadata).ok()?.main {
        Some(main) if main.topic != topic => {
            Some(format!("not ours: the progress map is of topic {}", main.topic))
        }
        _ => None,
    }
}

/// What a table says of its progress.
pub(super) struct Maps {
    /// The newest map in main's history: what main's rows are.
    pub(super) main: Option<Progress>,
    /// The map under the tag: what Floe committed last.
    pub(super) tagged: Option<Progress>,
    /// No map was found in main's history, and not all of that is there any more.
    pub(super) is_history_expired: bool,
}

pub(super) fn maps(metadata: &TableMetadata) -> Result<Maps, String> {
    let tagged = own_progress(metadata)?;
    let mut next = metadata.current_snapshot();
    // Each snapshot is visited once at most, even if parents form a ring.
    for _ in 0..metadata.snapshots().len() {
        let Some(snapshot) = next else { break };
        if let Some(map) = progress_of(snapshot) {
            return Ok(Maps { main: Some(map?), tagged, is_history_expired: false });
        }
        let Some(parent) = snapshot.parent_snapshot_id() else { break };
        next = metadata.snapshot_by_id(parent);
        if next.is_none() {
            return Ok(Maps { main: None, tagged, is_history_expired: true });
        }
    }
    Ok(Maps { main: None, tagged, is_history_expired: false })
}

/// What main of a stopped table says that it holds.
fn held(metadata: &TableMetadata, topic: TopicId) -> Progress {
    let main = maps(metadata).ok().and_then(|maps| maps.main);
    main.filter(|main| main.topic == topic).unwrap_or_else(|| Progress::start(topic))
}

/// The progress of a table that is ours, or why it must not be written: what it holds is not what
/// we last committed.
fn judge(metadata: &TableMetadata, topic: TopicId) -> Result<Progress, String> {
    let Maps { main, tagged, is_history_expired } = maps(metadata)?;
    if main.is_none() && !is_history_expired {
        return Err("replaced: no snapshot in main's history has a progress map".to_owned());
    }
    let Some(tagged) = tagged else { return Err(format!("tag {TAG} has no progress map")) };
    if tagged.topic != topic {
        return Err(format!("tag {TAG} has the progress map of topic {}", tagged.topic));
    }
    match main {
        Some(main) if main == tagged => Ok(main),
        Some(main) => Err(format!(
            "rolled back: main's newest map is {}, tag {TAG} has {}",
            main.pack(),
            tagged.pack()
        )),
        None if has_rows_of_tag(metadata) => Ok(tagged),
        None => Err(format!("main's history has expired, and its rows are not those of tag {TAG}")),
    }
}

/// Whether nothing was ever committed to a table: another catalog has just made it.
pub(crate) fn is_untouched(metadata: &TableMetadata) -> bool {
    metadata.snapshots().len() == 0 && metadata.last_sequence_number() == 0
}

/// Whether main, whose history has expired, goes on from the tag: it is newer and has as many rows,
/// as after a compaction, and not after a roll-back.
fn has_rows_of_tag(metadata: &TableMetadata) -> bool {
    let (main, tagged) = (metadata.current_snapshot(), own_snapshot(metadata));
    let (Some(main), Some(tagged)) = (main, tagged) else { return false };
    let records = |snapshot| summary_value(snapshot, "total-records");
    main.sequence_number() > tagged.sequence_number()
        && records(main).is_some()
        && records(main) == records(tagged)
}

pub(super) fn progress_of(snapshot: &Arc<Snapshot>) -> Option<Result<Progress, String>> {
    let text = summary_value(snapshot, PROGRESS_KEY)?;
    Some(Progress::unpack(text).map_err(|error| error.to_string()))
}

/// The metadata in the JSON of some address.
pub(crate) fn parsed_metadata(json: &Bytes, location: &str) -> Result<TableMetadata> {
    metadata_of(json, location).map(|(metadata, _)| metadata)
}
