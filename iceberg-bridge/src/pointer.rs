//! Which metadata file is a table's newest: one fact a table, moved by compare-and-set. It is the
//! only thing that makes a commit visible.
//!
//! Facts: `tables/{namespace}/{name}` is the pointer; `table-of-topic/{topic id}` says which table
//! a topic has, so that a name is chosen once. Both are made in one change, and removed in one,
//! which leaves `removed-tables/{topic id}/{table uuid}`: whose files are to go, and since when.
//!
//! A table that an engine has made belongs to no topic: its pointer is of version 2, which earlier
//! releases refuse by name, and `external` stands where others have their topic. Its uuid may be
//! the engine's choice and names its folder, so `external-tables/{table uuid}` says that it is
//! taken.

use crate::table_settings::{ENABLE_CONFIG, TableSettings};
use async_trait::async_trait;
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::{Change, ChangeOutcome, Check, Expect, FactKey, FactRange, Write};
use floe_metadata::topics::{decode_topic, topic_key};
use iceberg::spec::TableMetadata;
use kfs::TopicId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Times that a topic may change while its table is made.
const TOPIC_CHANGES_MAX: u32 = 8;
/// Of tables that belong to a topic.
const FORMAT_VERSION: u32 = 1;
/// Of tables that belong to none.
const EXTERNAL_VERSION: u32 = 2;
/// Stands for the topic of a table that has none.
const EXTERNAL: &str = "external";
/// Pointers that one look at all of them reads at once.
const POINTERS_PER_PAGE: usize = 1000;
const TABLES: &str = "tables";
const TABLE_OF_TOPIC: &str = "table-of-topic";
const REMOVED_TABLES: &str = "removed-tables";
const EXTERNAL_TABLES: &str = "external-tables";

/// A table of the embedded catalog and its newest metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TablePointer {
    version: u32,
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
    /// The topic whose history the table is; `None` for a table that an engine has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<Uuid>,
    /// The table's uuid, as in its metadata.
    pub table_id: Uuid,
    /// Address of the newest metadata file.
    pub metadata_location: String,
    /// Counts the metadata files, from 0.
    pub metadata_version: u64,
    /// Counts the orphan sweeps that have deleted files: a commit whose files were staged before
    /// one of them is fenced by it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sweeps: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TablePointer {
    /// A pointer in this version's format.
    pub fn new(
        (namespace, name): (&str, &str),
        topic: TopicId,
        table: Uuid,
        metadata_location: String,
    ) -> Self {
        Self {
            version: FORMAT_VERSION,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            topic_id: Some(topic.0),
            table_id: table,
            metadata_location,
            metadata_version: 0,
            sweeps: 0,
        }
    }

    /// The pointer of a new table that belongs to no topic.
    pub fn external(
        (namespace, name): (&str, &str),
        table: Uuid,
        metadata_location: String,
    ) -> Self {
        Self {
            version: EXTERNAL_VERSION,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            topic_id: None,
            table_id: table,
            metadata_location,
            metadata_version: 0,
            sweeps: 0,
        }
    }

    /// The same table under another name.
    #[must_use]
    pub fn renamed(&self, namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), ..self.clone() }
    }

    /// The pointer after a commit.
    #[must_use]
    pub fn moved(&self, metadata_location: String) -> Self {
        let metadata_version = self.metadata_version + 1;
        Self { metadata_location, metadata_version, ..self.clone() }
    }

    /// The pointer of a version that another catalog has made. What counts its versions is the
    /// number that each snapshot raises.
    #[must_use]
    pub(crate) fn at(&self, metadata_location: String, metadata: &TableMetadata) -> Self {
        let count = metadata.last_sequence_number();
        let metadata_version = u64::try_from(count).unwrap_or(0);
        Self { metadata_location, metadata_version, ..self.clone() }
    }

    /// The pointer of the same version, which fences every commit that began before.
    #[must_use]
    pub(crate) fn swept(&self) -> Self {
        Self { sweeps: self.sweeps + 1, ..self.clone() }
    }

    /// The topic whose history the table is.
    pub fn topic(&self) -> Option<TopicId> {
        self.topic_id.map(TopicId)
    }

    fn key(&self) -> FactKey {
        table_key(&self.namespace, &self.name)
    }

    fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("a struct of text and numbers is JSON"))
    }

    fn decode(key: &FactKey, bytes: &Bytes) -> Result<Self> {
        let pointer: Self = serde_json::from_slice(bytes)
            .map_err(|error| Error::corrupt(format!("fact {}", key.as_str())).with_source(error))?;
        match (pointer.version, pointer.topic_id) {
            (FORMAT_VERSION, Some(_)) | (EXTERNAL_VERSION, None) => Ok(pointer),
            (FORMAT_VERSION, None) | (EXTERNAL_VERSION, Some(_)) => {
                Err(Error::corrupt(format!("fact {} has another version's form", key.as_str())))
            }
            (version, _) => {
                let key = key.as_str();
                Err(Error::invalid(format!("fact {key} has unknown version {version}")))
            }
        }
    }
}

/// A table that is in the catalog no more, and whose files are still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedTable {
    /// The topic whose history it was.
    pub topic: Option<TopicId>,
    /// The table's uuid.
    pub table: Uuid,
    /// The metadata store's clock when it was removed, ms.
    pub removed_ms: i64,
}

/// One table's part of a change of several.
#[derive(Clone, Debug)]
pub struct PointerMove {
    /// What it must be now; `None` for a table that an engine makes.
    pub old: Option<TablePointer>,
    /// What it becomes, under the same name or another.
    pub new: TablePointer,
}

/// All pointers. `Rejected` means that nothing changed; `UnknownOutcome` that the same call may be
/// made again.
#[async_trait]
pub trait TablePointers: Send + Sync + 'static {
    /// The table of a topic.
    async fn by_topic(&self, topic: TopicId) -> Result<Option<TablePointer>>;

    /// The table of a name.
    async fn by_name(&self, namespace: &str, name: &str) -> Result<Option<TablePointer>>;

    /// Tables of a namespace by name, behind `after`, `limit` at most.
    async fn list(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TablePointer>>;

    /// Makes a table, if neither its name nor its topic has one.
    ///
    /// Errors: `Invalid` where the topic was deleted, or says by now that it has no table: a broker
    /// that wakes up late must not bring one back that was dropped.
    async fn create(&self, pointer: &TablePointer) -> Result<ChangeOutcome>;

    /// Moves a pointer, if it still is `old`.
    async fn swap(&self, old: &TablePointer, new: &TablePointer) -> Result<ChangeOutcome>;

    /// Moves several pointers, or none: where each still is what it was, each new name and uuid is
    /// free, and what `also` asks for holds; then `also` is written too.
    async fn move_all(&self, moves: &[PointerMove], also: Change) -> Result<ChangeOutcome>;

    /// Takes a table out of the catalog, if its pointer still is `old`, and notes its files.
    async fn remove(&self, old: &TablePointer) -> Result<ChangeOutcome>;

    /// Tables that were removed and whose files have not been deleted, `limit` at most.
    async fn removed(&self, limit: usize) -> Result<Vec<RemovedTable>>;

    /// Whether a table was removed and its files have not been deleted.
    async fn is_removed(&self, topic: Option<TopicId>, table: Uuid) -> Result<bool>;

    /// Whether a table that belongs to no topic has this uuid, or had it and has left files.
    async fn is_taken(&self, table: Uuid) -> Result<bool>;

    /// Forgets a removed table, whose files are gone.
    async fn forget(&self, table: &RemovedTable) -> Result<()>;

    /// Whether files that others may have put may be deleted: not while the metadata store was put
    /// back from a backup and knows not of all that was committed. Asked before each deletion.
    async fn may_delete(&self) -> Result<bool>;
}

/// Pointers as facts of the metadata store.
pub struct FactPointers(MetadataStore);

impl FactPointers {
    /// Over a metadata store.
    pub fn new(metadata: MetadataStore) -> Self {
        Self(metadata)
    }

    /// The tables of all namespaces.
    pub(crate) async fn all(&self) -> Result<Vec<TablePointer>> {
        let FactRange { mut from, until } = FactKey::new(&[TABLES]).folder();
        let mut found = Vec::new();
        loop {
            let range = FactRange { from, until: until.clone() };
            let page = self.0.backend().scan(&range, POINTERS_PER_PAGE).await?;
            for (key, bytes) in &page {
                found.push(TablePointer::decode(key, bytes)?);
            }
            match page.last() {
                // The first key behind: a NUL never occurs in a key.
                Some((last, _)) if page.len() == POINTERS_PER_PAGE => {
                    from = format!("{}\0", last.as_str());
                }
                _ => return Ok(found),
            }
        }
    }

    async fn get(&self, key: FactKey) -> Result<Option<Bytes>> {
        Ok(self.0.backend().get(&[key]).await?.pop().flatten())
    }
}

impl std::fmt::Debug for FactPointers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FactPointers").finish_non_exhaustive()
    }
}

/// What `table-of-topic` holds.
#[derive(Serialize, Deserialize)]
struct TableName {
    namespace: String,
    name: String,
}

fn table_key(namespace: &str, name: &str) -> FactKey {
    FactKey::new(&[TABLES, namespace, name])
}

fn removed_key(topic: Option<TopicId>, table: Uuid) -> FactKey {
    let topic = topic.map_or_else(|| EXTERNAL.to_owned(), |topic| topic.to_string());
    FactKey::new(&[REMOVED_TABLES, &topic, &table.to_string()])
}

fn external_key(table: Uuid) -> FactKey {
    FactKey::new(&[EXTERNAL_TABLES, &table.to_string()])
}

/// A removed table of its fact: the ids are in the key, the time is the value.
fn removed_of(key: &FactKey, value: &Bytes) -> Result<RemovedTable> {
    let corrupt = || Error::corrupt(format!("fact {} is no removed table", key.as_str()));
    let segments = key.segments();
    let id = |at: usize| {
        let segment = segments.get(at).ok_or_else(corrupt)?;
        Uuid::parse_str(segment).map_err(|error| corrupt().with_source(error))
    };
    let time = std::str::from_utf8(value).map_err(|error| corrupt().with_source(error))?;
    let removed_ms = time.parse().map_err(|error| corrupt().with_source(error))?;
    let is_external = segments.get(1).is_some_and(|segment| segment == EXTERNAL);
    let topic = if is_external { None } else { Some(TopicId(id(1)?)) };
    Ok(RemovedTable { topic, table: id(2)?, removed_ms })
}

/// The change that makes a table while its topic is what was read.
fn creation(pointer: &TablePointer, topic: TopicId, known: Bytes) -> Change {
    let (by_name, by_topic) = (pointer.key(), table_of_key(topic));
    let exists = Check { key: topic_key(topic), expect: Expect::Value(known) };
    Change {
        checks: vec![exists, absent(&by_topic), absent(&by_name)],
        writes: vec![Write::Put(by_topic, name_of(pointer)), Write::Put(by_name, pointer.encode())],
        ..Change::default()
    }
}

fn absent(key: &FactKey) -> Check {
    Check { key: key.clone(), expect: Expect::Absent }
}

/// What `table-of-topic` holds of a table.
fn name_of(pointer: &TablePointer) -> Bytes {
    let name = TableName { namespace: pointer.namespace.clone(), name: pointer.name.clone() };
    Bytes::from(serde_json::to_vec(&name).expect("a struct of text is JSON"))
}

/// Adds a table's move to a change.
fn add_move(change: &mut Change, PointerMove { old, new }: &PointerMove) {
    let key = new.key();
    match old {
        None => {
            let (taken, removed) = (external_key(new.table_id), removed_key(None, new.table_id));
            change.checks.extend([absent(&key), absent(&taken), absent(&removed)]);
            change.writes.push(Write::Put(taken, Bytes::new()));
        }
        Some(old) if old.key() == key => {
            change.checks.push(Check { key: key.clone(), expect: Expect::Value(old.encode()) });
        }
        Some(old) => {
            let expect = Expect::Value(old.encode());
            change.checks.extend([Check { key: old.key(), expect }, absent(&key)]);
            change.writes.push(Write::Delete(old.key()));
            let by_topic = new.topic().map(table_of_key);
            change.writes.extend(by_topic.map(|key| Write::Put(key, name_of(new))));
        }
    }
    change.writes.push(Write::Put(key, new.encode()));
}

fn table_of_key(topic: TopicId) -> FactKey {
    FactKey::new(&[TABLE_OF_TOPIC, &topic.to_string()])
}

#[async_trait]
impl TablePointers for FactPointers {
    async fn by_topic(&self, topic: TopicId) -> Result<Option<TablePointer>> {
        let key = table_of_key(topic);
        let Some(bytes) = self.get(key.clone()).await? else { return Ok(None) };
        let table: TableName = serde_json::from_slice(&bytes)
            .map_err(|error| Error::corrupt(format!("fact {}", key.as_str())).with_source(error))?;
        self.by_name(&table.namespace, &table.name).await
    }

    async fn by_name(&self, namespace: &str, name: &str) -> Result<Option<TablePointer>> {
        let key = table_key(namespace, name);
        let bytes = self.get(key.clone()).await?;
        bytes.map(|bytes| TablePointer::decode(&key, &bytes)).transpose()
    }

    async fn list(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TablePointer>> {
        let folder = FactKey::new(&[TABLES, namespace]).folder();
        // The first key behind `after`: a NUL never occurs in a key.
        let behind = |name| format!("{}\0", table_key(namespace, name).as_str());
        let from = after.map_or(folder.from, behind);
        if from >= folder.until {
            return Ok(Vec::new());
        }
        let facts = self.0.backend().scan(&FactRange { from, until: folder.until }, limit).await?;
        facts.iter().map(|(key, bytes)| TablePointer::decode(key, bytes)).collect()
    }

    async fn create(&self, pointer: &TablePointer) -> Result<ChangeOutcome> {
        let topic = pointer.topic().ok_or_else(|| Error::bug("a topic's table without a topic"))?;
        let key = topic_key(topic);
        for _ in 0..TOPIC_CHANGES_MAX {
            let known = self.get(key.clone()).await?;
            let known =
                known.ok_or_else(|| Error::invalid(format!("topic {topic} was deleted")))?;
            let settings = TableSettings::of(&decode_topic(topic, &known)?.configs, true);
            if !settings.is_enabled {
                return Err(Error::invalid(format!("topic {topic} has {ENABLE_CONFIG}=false")));
            }
            let outcome = self.0.change(&creation(pointer, topic, known.clone())).await?;
            // A change of the topic between reading and checking it is no other table.
            if outcome == ChangeOutcome::Applied || self.get(key.clone()).await? == Some(known) {
                return Ok(outcome);
            }
        }
        Err(Error::retry(format!("topic {topic} keeps changing")))
    }

    async fn swap(&self, old: &TablePointer, new: &TablePointer) -> Result<ChangeOutcome> {
        let mut change = Change::default();
        add_move(&mut change, &PointerMove { old: Some(old.clone()), new: new.clone() });
        self.0.change(&change).await
    }

    async fn move_all(&self, moves: &[PointerMove], also: Change) -> Result<ChangeOutcome> {
        let mut change = also;
        moves.iter().for_each(|each| add_move(&mut change, each));
        self.0.change(&change).await
    }

    async fn remove(&self, old: &TablePointer) -> Result<ChangeOutcome> {
        let by_name = old.key();
        let now_ms = self.0.now_ms().await?;
        let note = removed_key(old.topic(), old.table_id);
        let mut change = Change {
            checks: vec![Check { key: by_name.clone(), expect: Expect::Value(old.encode()) }],
            writes: vec![Write::Delete(by_name), Write::Put(note, Bytes::from(now_ms.to_string()))],
            ..Change::default()
        };
        let other = old.topic().map_or_else(|| external_key(old.table_id), table_of_key);
        change.writes.push(Write::Delete(other));
        self.0.change(&change).await
    }

    async fn removed(&self, limit: usize) -> Result<Vec<RemovedTable>> {
        let facts = self.0.backend().scan(&FactKey::new(&[REMOVED_TABLES]).folder(), limit).await?;
        facts.iter().map(|(key, value)| removed_of(key, value)).collect()
    }

    async fn is_removed(&self, topic: Option<TopicId>, table: Uuid) -> Result<bool> {
        Ok(self.get(removed_key(topic, table)).await?.is_some())
    }

    async fn is_taken(&self, table: Uuid) -> Result<bool> {
        let keys = [external_key(table), removed_key(None, table)];
        let found = self.0.backend().get(&keys).await?;
        Ok(found.iter().any(Option::is_some))
    }

    async fn forget(&self, table: &RemovedTable) -> Result<()> {
        let key = removed_key(table.topic, table.table);
        let change = Change { writes: vec![Write::Delete(key)], ..Change::default() };
        self.0.change(&change).await.map(|_| ())
    }

    async fn may_delete(&self) -> Result<bool> {
        Ok(self.0.deletion_stop().await?.is_none())
    }
}
