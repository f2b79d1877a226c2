//! The catalog made anew after the metadata store was lost.
//!
//! Every version of a table stands on the object store before its pointer moves, and says what the
//! table holds, and whose it is. So the newest whole version of each folder is registered again. It
//! may be one whose pointer never moved: its rows were in the log as well.
//!
//! What the log held beside is lost: nobody knows any more which segments were committed. A topic
//! is made anew with the id that its table names, and its partitions go on behind what the table
//! holds, so that no offset of the table is ever given again. Topics' configs are lost too.
//!
//! Nothing may run meanwhile. It may be called again where it was cut short. Cost: a LIST or two a
//! folder, and a table's metadata, manifest list and newest manifests.

use crate::commit::{LoadedTable, TABLE_NAME_PROPERTY, TOPIC_NAME_PROPERTY};
use crate::names;
use crate::place::TablePlace;
use crate::pointer::{FactPointers, TablePointer, TablePointers};
use crate::progress::Progress;
use crate::sweep::{ids_of, next_folder};
use floe_env::{Env, Error, ErrorKind, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::ChangeOutcome;
use floe_metadata::topics::TopicCreation;
use floe_store::ObjectStore;
use floe_store::key::check_key;
use kfs::{ClusterId, PartitionIndex, TopicId, TopicPartition};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Files that one call lists.
const FILES_PER_PAGE: usize = 1000;
/// How the names of metadata files end.
const METADATA_ENDING: &str = ".metadata.json";

/// What became of one table's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecoveredTable {
    /// The folder's name: topic id and table uuid.
    pub folder: String,
    /// The table's name, if it is in the catalog now.
    pub table: Option<String>,
    /// Its topic's name.
    pub topic: Option<String>,
    /// Its rows.
    pub rows: u64,
    /// Why it is not in the catalog, if it is not.
    pub problem: Option<String>,
}

/// A table that was found.
struct Found {
    folder: String,
    /// Names its newest whole version; the name is filled in when it is registered.
    pointer: TablePointer,
    topic: TopicId,
    topic_name: String,
    /// The names to try, in order.
    names: Vec<String>,
    progress: Progress,
    rows: u64,
    updated_ms: i64,
}

/// The stores.
struct Recovering<'a> {
    env: &'a Env,
    store: &'a dyn ObjectStore,
    metadata: &'a MetadataStore,
    pointers: FactPointers,
    cluster: ClusterId,
    namespace: &'a str,
}

/// Registers every table of the cluster that the catalog lacks. Answers what became of each folder,
/// the tables that were changed last first. `progress` is told how far it is.
///
/// # Errors
/// Whatever the stores answer; what is wrong with one table is its problem alone.
pub async fn recover(
    env: &Env,
    store: &dyn ObjectStore,
    metadata: &MetadataStore,
    (cluster, namespace): (ClusterId, &str),
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<Vec<RecoveredTable>> {
    let pointers = FactPointers::new(metadata.clone());
    let recovering = Recovering { env, store, metadata, pointers, cluster, namespace };
    let (mut found, mut tables) = (Vec::new(), Vec::new());
    let mut after: Option<String> = None;
    while let Some(folder) = next_folder(store, cluster, after).await? {
        after = Some(folder.clone());
        let Some((topic, table)) = ids_of(&folder) else { continue };
        progress(format!("{} folders read", found.len() + tables.len()));
        match recovering.find(&folder, topic, table).await? {
            Ok(one) => found.push(one),
            Err(problem) => tables.push(RecoveredTable {
                folder,
                table: None,
                topic: None,
                rows: 0,
                problem: Some(problem),
            }),
        }
    }
    // Of topics that had one name one after the other, the newest gets it.
    found.sort_by_key(|found| Reverse(found.updated_ms));
    let mut registered = Vec::with_capacity(found.len() + tables.len());
    for found in found {
        progress(format!("{} tables registered", registered.len()));
        let outcome = recovering.register(&found).await?;
        let (table, problem) = (outcome.as_ref().ok().cloned(), outcome.err());
        let Found { folder, topic_name, rows, .. } = found;
        registered.push(RecoveredTable { folder, table, topic: Some(topic_name), rows, problem });
    }
    registered.append(&mut tables);
    Ok(registered)
}

impl Recovering<'_> {
    /// The newest whole version in a table's folder, or why there is none.
    async fn find(
        &self,
        folder: &str,
        topic: TopicId,
        table: Uuid,
    ) -> Result<Result<Found, String>> {
        let place = TablePlace::new(self.store, self.cluster, topic, table);
        for (version, keys) in self.versions(&place).await?.into_iter().rev() {
            let mut newest: Option<LoadedTable> = None;
            for key in keys {
                let location = place.url_of(&key)?;
                let named = (self.namespace, "");
                let mut pointer = TablePointer::new(named, topic, table, location);
                pointer.metadata_version = version;
                // Of two that were to be the same version, one at most became it. Either is whole;
                // the one that holds more loses nothing.
                if let Some(whole) = self.whole(pointer).await?
                    && newest.as_ref().is_none_or(|known| rank(&whole) > rank(known))
                {
                    newest = Some(whole);
                }
            }
            if let Some(newest) = newest {
                let problem = newest.owner_problem(self.cluster);
                return Ok(problem.map_or_else(|| Ok(found(folder, newest)), Err));
            }
        }
        Ok(Err("no version of it is whole: a creation that was never finished".to_owned()))
    }

    /// Keys of the metadata files in a table's folder, by the version that they were to be.
    async fn versions(&self, place: &TablePlace) -> Result<BTreeMap<u64, Vec<String>>> {
        let folder = format!("{}/metadata", place.key());
        let (mut versions, mut after) = (BTreeMap::<u64, Vec<String>>::new(), None::<String>);
        loop {
            let page = self.store.list(&folder, after.as_deref(), FILES_PER_PAGE).await?;
            let Some(last) = page.last() else { return Ok(versions) };
            after = Some(last.key.clone());
            for object in page {
                if let Some(version) = version_of(&object.key, &folder) {
                    versions.entry(version).or_default().push(object.key);
                }
            }
        }
    }

    /// A version all of whose own files are there. Those of the versions before were there before
    /// it was made.
    async fn whole(&self, pointer: TablePointer) -> Result<Option<LoadedTable>> {
        match self.load_whole(pointer).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
            other => other,
        }
    }

    async fn load_whole(&self, pointer: TablePointer) -> Result<Option<LoadedTable>> {
        let table = LoadedTable::load(self.env, self.store, self.cluster, pointer).await?;
        let Some(newest) = table.metadata.current_snapshot_id() else { return Ok(None) };
        for manifest in table.manifests.iter().filter(|file| file.added_snapshot_id == newest) {
            let files = table.files_of(self.store, manifest).await?;
            for file in files.iter().filter(|file| file.snapshot_id == newest) {
                let key = table.place.key_of(file.data_file.file_path())?;
                // Only engines make such names, and they put a file before they commit it.
                if check_key(&key).is_err() {
                    continue;
                }
                let size = self.store.head(&key).await?.map(|object| object.size);
                if size != Some(file.data_file.file_size_in_bytes()) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(table))
    }

    /// The name under which the table is in the catalog now, or why it is not.
    async fn register(&self, found: &Found) -> Result<Result<String, String>> {
        let topic = found.topic;
        if let Some(known) = self.pointers.by_topic(topic).await? {
            let is_same = known.table_id == found.pointer.table_id;
            let other = || format!("its topic has another table, {}", known.name);
            return Ok(if is_same { Ok(known.name.clone()) } else { Err(other()) });
        }
        if let Some(problem) = self.topic_problem(found).await? {
            return Ok(Err(problem));
        }
        for name in &found.names {
            if self.pointers.create(&found.pointer.renamed(self.namespace, name)).await?
                == ChangeOutcome::Applied
            {
                tracing::info!(table = %name, rows = found.rows, "table registered again");
                return Ok(Ok(name.clone()));
            }
        }
        Ok(Err("all its names are taken".to_owned()))
    }

    /// Makes the topic where it is lost. Why the table cannot be its, if so.
    async fn topic_problem(&self, found: &Found) -> Result<Option<String>> {
        let (topic, name) = (found.topic, &found.topic_name);
        let mut next_offsets = found.progress.next_offsets.clone();
        if next_offsets.is_empty() {
            next_offsets.push(0);
        }
        if self.metadata.topic_by_id(topic).await?.is_some() {
            return self.ends_problem(topic, &next_offsets).await;
        }
        match self.metadata.recreate_topic(topic, name, &next_offsets).await? {
            TopicCreation::Created(_) => Ok(None),
            TopicCreation::AlreadyExists(_) => Ok(Some(format!("another topic is named {name}"))),
        }
    }

    /// A log that is behind its table would give offsets again that the table has passed.
    async fn ends_problem(&self, topic: TopicId, next_offsets: &[i64]) -> Result<Option<String>> {
        for (index, next) in next_offsets.iter().enumerate() {
            let index = i32::try_from(index)
                .map_err(|_| Error::corrupt(format!("partition {index} of a table")))?;
            let partition = TopicPartition { topic, partition: PartitionIndex(index) };
            let state = self.metadata.partition_states(&[partition]).await?.pop().flatten();
            let end = state.map_or(0, |state| state.high_watermark);
            if end < *next {
                return Ok(Some(format!(
                    "its topic is there and ends at {end} in partition {index}, and the table \
                     holds all up to {next}"
                )));
            }
        }
        Ok(None)
    }
}

/// By how much a table holds, and when it was changed.
fn rank(table: &LoadedTable) -> (i128, i64) {
    let offsets = table.furthest().next_offsets.into_iter().map(i128::from).sum();
    (offsets, table.metadata.last_updated_ms())
}

/// The version of a metadata file in a folder.
fn version_of(key: &str, folder: &str) -> Option<u64> {
    let name = key.strip_prefix(folder)?.strip_prefix('/')?;
    let (version, _) = name.strip_suffix(METADATA_ENDING)?.split_once('-')?;
    version.parse().ok()
}

fn found(folder: &str, table: LoadedTable) -> Found {
    let topic = table.progress.topic;
    let property = |key: &str| table.metadata.properties().get(key).cloned();
    // Tables of the first release do not say their names.
    let topic_name = property(TOPIC_NAME_PROPERTY).unwrap_or_else(|| format!("recovered-{topic}"));
    let own_name = property(TABLE_NAME_PROPERTY);
    let others = names::candidates(&topic_name, topic);
    Found {
        folder: folder.to_owned(),
        names: own_name.into_iter().chain(others).collect(),
        progress: table.furthest(),
        rows: table.total("total-records"),
        updated_ms: table.metadata.last_updated_ms(),
        pointer: table.pointer.clone(),
        topic,
        topic_name,
    }
}
