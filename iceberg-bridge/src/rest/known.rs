//! Which table of the catalog is a topic's: a fact of the metadata store, so that a name is chosen
//! once, and nobody else's table is ever taken for it.
//!
//! Facts: `catalog-tables/{topic id}`. It is written before the catalog is asked to make the table,
//! then without its uuid, and again with it. It stays when the topic goes: the table is the
//! catalog's, and its files are not for the sweep.

use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::MetadataStore;
use floe_metadata::facts::{Change, ChangeOutcome, Check, Expect, FactKey, FactRange, Write};
use kfs::TopicId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const CATALOG_TABLES: &str = "catalog-tables";
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
}

impl KnownTable {
    /// A table that is to be made.
    pub(super) fn wanted(namespace: &str, name: &str, folder: Uuid) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { version: FORMAT_VERSION, namespace, name, folder, table_id: None }
    }

    /// The same, once it is there.
    pub(super) fn made(&self, table_id: Uuid) -> Self {
        Self { table_id: Some(table_id), ..self.clone() }
    }

    /// The name with its namespace.
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }

    fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("a struct of text and numbers is JSON"))
    }
}

fn key_of(topic: TopicId) -> FactKey {
    FactKey::new(&[CATALOG_TABLES, &topic.to_string()])
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

/// The topic of a table, by its name.
pub(super) async fn topic_of(
    metadata: &MetadataStore,
    namespace: &str,
    name: &str,
) -> Result<Option<TopicId>> {
    let FactRange { mut from, until } = FactKey::new(&[CATALOG_TABLES]).folder();
    loop {
        let range = FactRange { from, until: until.clone() };
        let page = metadata.backend().scan(&range, FACTS_PER_PAGE).await?;
        for (key, bytes) in &page {
            let known = decode(key, bytes)?;
            if known.namespace == namespace && known.name == name {
                let corrupt = || Error::corrupt(format!("fact {} names no topic", key.as_str()));
                let topic = key.segments().get(1).and_then(|id| Uuid::parse_str(id).ok());
                return topic.map(TopicId).ok_or_else(corrupt).map(Some);
            }
        }
        match page.last() {
            // The first key behind: a NUL never occurs in a key.
            Some((last, _)) if page.len() == FACTS_PER_PAGE => {
                from = format!("{}\0", last.as_str());
            }
            _ => return Ok(None),
        }
    }
}

/// Writes what is known of a topic's table, if it still is `old`; `None` forgets it.
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
    let write = match new {
        Some(new) => Write::Put(key.clone(), new.encode()),
        None => Write::Delete(key.clone()),
    };
    let checks = vec![Check { key, expect }];
    let change = Change { checks, writes: vec![write], ..Change::default() };
    match metadata.change(&change).await? {
        ChangeOutcome::Applied => Ok(()),
        ChangeOutcome::Rejected => Err(Error::retry("somebody else has made the topic's table")),
    }
}
