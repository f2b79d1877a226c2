//! Which table of the catalog is a topic's: a fact of the metadata store, so that a name is chosen
//! once, and nobody else's table is ever taken for it.
//!
//! Facts: `catalog-tables/{topic id}`. It is written before the catalog is asked to make the table,
//! then without its uuid, and again with it. It stays when the topic goes: the table is the
//! catalog's, and its files are not for the sweep. Nor are those of a table that is forgotten
//! because the catalog has it no more, which leaves `catalog-folders/{topic id}/{folder}`: it may
//! be there under another name.

use crate::progress::Progress;
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::{Change, ChangeOutcome, Check, Expect, FactKey, FactRange, Write};
use kfs::{PartitionIndex, TopicId, TopicPartition};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

const CATALOG_TABLES: &str = "catalog-tables";
const CATALOG_FOLDERS: &str = "catalog-folders";
const FORMAT_VERSION: u32 = 1;
/// Facts that one look at all of them reads at once.
const FACTS_PER_PAGE: usize = 1000;

/// A topic's table in a catalog that is not ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownTable {
    version: u32,
    /// The namespace.
    pub(crate) namespace: String,
    /// The name in it.
    pub(crate) name: String,
    /// With the topic's id, the name of the folder that has its files.
    pub(crate) folder: Uuid,
    /// The uuid that the catalog gave it; `None` while it may not be made.
    pub(crate) table_id: Option<Uuid>,
    /// By partition, where the log ended when the metadata was put back from a backup: until it is
    /// known that the table has no more than that, or an operator has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log_ends: Option<Vec<i64>>,
}

impl KnownTable {
    /// A table that is to be made.
    pub(super) fn wanted(namespace: &str, name: &str, folder: Uuid) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let version = FORMAT_VERSION;
        Self { version, namespace, name, folder, table_id: None, log_ends: None }
    }

    /// The same, once it is there.
    pub(super) fn made(&self, table_id: Uuid) -> Self {
        Self { table_id: Some(table_id), ..self.clone() }
    }

    /// The name with its namespace.
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }

    /// The same, with other ends of the log.
    pub(super) fn with_log_ends(&self, log_ends: Option<Vec<i64>>) -> Self {
        Self { log_ends, ..self.clone() }
    }

    /// Why the table must not be written, if it has more than the log had when that was put back:
    /// offsets of its rows are given again, to other records.
    pub(super) fn ahead(&self, progress: &Progress) -> Option<String> {
        let ends = self.log_ends.as_ref()?;
        let end = |partition| ends.get(partition).copied().unwrap_or(0);
        let mut has = progress.next_offsets.iter().copied().enumerate();
        let (partition, has) = has.find(|(partition, has)| *has > end(*partition))?;
        let end = end(partition);
        Some(format!(
            "ahead: the metadata was put back from a backup, where partition {partition} ended at \
             {end}, and the table has it up to {has}; resume it with --rewind to go on at the \
             log's end, beside the rows of the part that is lost"
        ))
    }

    fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("a struct of text and numbers is JSON"))
    }
}

fn key_of(topic: TopicId) -> FactKey {
    FactKey::new(&[CATALOG_TABLES, &topic.to_string()])
}

fn folder_key(topic: TopicId, folder: Uuid) -> FactKey {
    FactKey::new(&[CATALOG_FOLDERS, &topic.to_string(), &folder.to_string()])
}

fn decode(key: &FactKey, bytes: &Bytes) -> Result<KnownTable> {
    let known: KnownTable = serde_json::from_slice(bytes)
        .map_err(|error| Error::corrupt(format!("fact {}", key.as_str())).with_source(error))?;
    if known.version != FORMAT_VERSION {
        let (key, version) = (key.as_str(), known.version);
        return Err(Error::invalid(format!("fact {key} has unknown version {version}")));
    }
    Ok(known)
}

/// A topic's table.
pub(crate) async fn read(metadata: &MetadataStore, topic: TopicId) -> Result<Option<KnownTable>> {
    let key = key_of(topic);
    let bytes = metadata.backend().get(std::slice::from_ref(&key)).await?.pop().flatten();
    bytes.map(|bytes| decode(&key, &bytes)).transpose()
}

/// Whether a folder has the files of a topic's table in a catalog, or of one that was forgotten.
pub(crate) async fn is_folder(
    metadata: &MetadataStore,
    topic: TopicId,
    folder: Uuid,
) -> Result<bool> {
    if read(metadata, topic).await?.is_some_and(|known| known.folder == folder) {
        return Ok(true);
    }
    let left = metadata.backend().get(&[folder_key(topic, folder)]).await?;
    Ok(left.iter().any(Option::is_some))
}

/// Notes where the log of each table's topic ends, after the metadata was put back from a backup
/// and before anything is written: tables in another catalog have not gone back with it.
///
/// # Errors
/// Whatever the store answers. May be called again.
pub async fn note_log_ends(metadata: &MetadataStore) -> Result<()> {
    for (topic, known) in all(metadata).await? {
        let Some(of_topic) = metadata.topic_by_id(topic).await? else { continue };
        let partition = |index| TopicPartition { topic, partition: PartitionIndex(index) };
        let partitions: Vec<_> = (0..of_topic.partition_count).map(partition).collect();
        let states = metadata.partition_states(&partitions).await?;
        let ends = states.iter().map(|state| state.map_or(0, |state| state.high_watermark));
        let noted = known.with_log_ends(Some(ends.collect()));
        write(metadata, topic, Some(&known), Some(&noted)).await?;
    }
    Ok(())
}

/// The topics of all tables by their names, also those that are gone. A name has several where a
/// topic was deleted, its table dropped, and both made again.
pub(super) async fn topics_by_name(
    metadata: &MetadataStore,
    namespace: &str,
) -> Result<BTreeMap<String, Vec<TopicId>>> {
    let mut topics: BTreeMap<String, Vec<TopicId>> = BTreeMap::new();
    let known = all(metadata).await?.into_iter();
    for (topic, known) in known.filter(|(_, known)| known.namespace == namespace) {
        topics.entry(known.name).or_default().push(topic);
    }
    Ok(topics)
}

/// What is known of all topics' tables.
async fn all(metadata: &MetadataStore) -> Result<Vec<(TopicId, KnownTable)>> {
    let FactRange { mut from, until } = FactKey::new(&[CATALOG_TABLES]).folder();
    let mut found = Vec::new();
    loop {
        let range = FactRange { from, until: until.clone() };
        let page = metadata.backend().scan(&range, FACTS_PER_PAGE).await?;
        for (key, bytes) in &page {
            let corrupt = || Error::corrupt(format!("fact {} names no topic", key.as_str()));
            let topic = key.segments().get(1).and_then(|id| Uuid::parse_str(id).ok());
            found.push((topic.map(TopicId).ok_or_else(corrupt)?, decode(key, bytes)?));
        }
        match page.last() {
            // The first key behind: a NUL never occurs in a key.
            Some((last, _)) if page.len() == FACTS_PER_PAGE => {
                from = format!("{}\0", last.as_str());
            }
            _ => return Ok(found),
        }
    }
}

/// Writes what is known of a topic's table, if it still is `old`; `None` forgets it, but for its
/// folder.
///
/// # Errors
/// `Retry` where somebody else has changed it; whatever the store answers.
pub(super) async fn write(
    metadata: &MetadataStore,
    topic: TopicId,
    old: Option<&KnownTable>,
    new: Option<&KnownTable>,
) -> Result<()> {
    let key = key_of(topic);
    let expect = old.map_or(Expect::Absent, |old| Expect::Value(old.encode()));
    let mut writes = vec![match new {
        Some(new) => Write::Put(key.clone(), new.encode()),
        None => Write::Delete(key.clone()),
    }];
    if let (Some(old), None) = (old, new) {
        writes.push(Write::Put(folder_key(topic, old.folder), Bytes::new()));
    }
    let checks = vec![Check { key, expect }];
    let change = Change { checks, writes, ..Change::default() };
    match metadata.change(&change).await? {
        ChangeOutcome::Applied => Ok(()),
        ChangeOutcome::Rejected => Err(Error::retry("somebody else has made the topic's table")),
    }
}
