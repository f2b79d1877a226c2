//! Tables committed to an Iceberg REST catalog that is not ours.
//!
//! Files are made and put as for the embedded catalog; then the catalog is asked to make the
//! change, instead of a pointer being moved. It writes the metadata file itself.
//!
//! * [`RestCatalog::find`] reads a table: one GET, and one of the manifest list where it is new.
//! * [`RestCatalog::create`] makes an empty one with Floe's schema, specs and properties; its first
//!   rows come with a commit like all others. Which table is a topic's stands in [`known`].
//! * [`RestCatalog::commit`] makes a change on condition of what the change was made on: the
//!   table's uuid, the snapshots of main and of the tag, the schema. So no commit is ever made
//!   twice, and one that was overtaken is refused (409).
//!
//! An outcome that is unknown (time-out, connection cut, 5xx) is looked up: as long as the table is
//! what the change was made on, it is asked for again, which does no harm; else the table tells, by
//! the snapshot's id, whether the change is in it.
//!
//! A table that the catalog has no more is *dropped*: it is not made again until an operator says
//! so.

mod auth;
mod config;
mod http;
pub(crate) mod known;
mod making;
#[cfg(test)]
mod tests;

pub use config::{OAuth2Client, RestAuth, RestConfig, SigV4Keys};
pub use known::note_log_ends;

use crate::commit::{LoadedTable, TableHead, parsed_metadata};
use crate::place::TablePlace;
use crate::pointer::TablePointer;
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use floe_env::{Env, Error, ErrorKind, Result};
use floe_metadata::MetadataStore;
use floe_store::ObjectStore;
use http::{Answer, Call, Http};
use iceberg::spec::TableMetadata;
use iceberg::{TableRequirement, TableUpdate};
use kfs::{ClusterId, TopicId};
use known::KnownTable;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Times that a commit is asked for, or looked up, until its outcome is known.
const TRIES_MAX: u32 = 6;
/// First pause between two of these; doubles each time.
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// A version of a table as the catalog tells it.
#[derive(Debug)]
pub(crate) struct Told {
    /// Address of its metadata file; empty where the catalog does not say.
    pub(crate) location: String,
    pub(crate) metadata: TableMetadata,
    pub(crate) json: Bytes,
}

/// What there is of a topic's table.
#[derive(Debug)]
pub(crate) enum Found {
    /// It was never made.
    Nothing,
    /// The version that is known.
    Same,
    /// A newer one.
    Newest(Box<LoadedTable>),
    /// The catalog has it no more: its full name.
    Dropped(String),
}

/// What became of a commit.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It made this version.
    Applied(Box<Told>),
    /// It was refused: the table is another by now, or gone.
    Rejected,
    /// It may have been made, and the table has changed since: the table tells.
    Undecided,
}

/// A catalog that tables are committed to.
pub(crate) struct RestCatalog {
    http: Http,
    /// What stands behind `/v1` in every path.
    prefix: OnceCell<String>,
    namespace: String,
    cluster: ClusterId,
    store: Arc<dyn ObjectStore>,
    metadata: MetadataStore,
}

#[derive(Deserialize)]
struct TableAnswer {
    #[serde(rename = "metadata-location")]
    location: Option<String>,
    metadata: Box<RawValue>,
}

#[derive(Serialize)]
struct CommitBody<'a> {
    identifier: Identifier<'a>,
    requirements: &'a [TableRequirement],
    updates: &'a [TableUpdate],
}

#[derive(Serialize)]
struct Identifier<'a> {
    namespace: [&'a str; 1],
    name: &'a str,
}

/// Asks a catalog whether it takes these credentials, and has the namespace. Answers what was
/// found, in a few words.
///
/// # Errors
/// `Unavailable` where it gives no answer; `Invalid` where it refuses.
pub async fn check_catalog(env: &Env, config: &RestConfig, namespace: &str) -> Result<String> {
    let http = Http::new(env.clone(), config.clone());
    let url = http.url(&http.ask_prefix().await?, &["namespaces", namespace], &[])?;
    let answer = http.read(url).await?;
    match answer.status {
        status if status.is_success() => Ok(format!("answers, and has namespace {namespace}")),
        _ if answer.is_missing() => {
            Ok(format!("answers; namespace {namespace} comes with the first table"))
        }
        _ => Err(answer.error(&format!("look for namespace {namespace}"))),
    }
}

impl RestCatalog {
    /// A catalog that nothing was asked of yet.
    pub(crate) fn new(
        env: Env,
        config: RestConfig,
        (cluster, namespace): (ClusterId, &str),
        store: Arc<dyn ObjectStore>,
        metadata: MetadataStore,
    ) -> Self {
        let (http, prefix) = (Http::new(env, config), OnceCell::new());
        Self { http, prefix, namespace: namespace.to_owned(), cluster, store, metadata }
    }

    /// Whether a tag says what was committed last, or a property.
    pub(crate) fn has_tags(&self) -> bool {
        self.http.config.has_tags
    }

    /// The topic's table, unless it is the version that is known.
    ///
    /// # Errors
    /// `Unavailable` where the catalog or the store cannot be asked; `Invalid` where it refuses;
    /// `Corrupt` where the version makes no sense, or its files are not in Floe's store.
    pub(crate) async fn find(&self, topic: TopicId, known: Option<&TableHead>) -> Result<Found> {
        let Some(table) = known::read(&self.metadata, topic).await? else {
            return Ok(Found::Nothing);
        };
        let Some(table_id) = table.table_id else { return Ok(Found::Nothing) };
        let Some(told) = self.get(&table).await? else {
            return Ok(Found::Dropped(table.full_name()));
        };
        let is_same = |known: &&TableHead| {
            known.pointer.table_id == table_id
                && table.log_ends.is_none()
                && !told.location.is_empty()
                && known.pointer.metadata_location == told.location
        };
        if known.is_some_and(|known| is_same(&known)) {
            return Ok(Found::Same);
        }
        let loaded = self.loaded(topic, &table, table_id, told).await;
        let name = table.full_name();
        loaded.map(|loaded| Found::Newest(Box::new(loaded))).map_err(|error| error.context(&name))
    }

    async fn loaded(
        &self,
        topic: TopicId,
        table: &KnownTable,
        table_id: uuid::Uuid,
        told: Told,
    ) -> Result<LoadedTable> {
        let name = (table.namespace.as_str(), table.name.as_str());
        let pointer = TablePointer::new(name, topic, table_id, told.location);
        let place = self.place(topic, table);
        let (env, store) = (&self.http.env, self.store.as_ref());
        let loaded =
            LoadedTable::told(env, store, self.cluster, (pointer, place), told.json).await?;
        if table.log_ends.is_none() {
            return Ok(loaded);
        }
        match table.ahead(&loaded.furthest()) {
            Some(why) => Ok(loaded.stopped_by(why)),
            None => {
                self.note_log_ends(topic, None).await?;
                Ok(loaded)
            }
        }
    }

    /// By partition, where the log ended when the metadata was put back from a backup, if the
    /// topic's table may have more.
    ///
    /// # Errors
    /// Whatever the metadata store answers.
    pub(crate) async fn log_ends(&self, topic: TopicId) -> Result<Option<Vec<i64>>> {
        Ok(known::read(&self.metadata, topic).await?.and_then(|known| known.log_ends))
    }

    /// Notes that, or that it is settled.
    ///
    /// # Errors
    /// `Retry` where somebody else has changed what is known of the table; whatever the metadata
    /// store answers.
    pub(crate) async fn note_log_ends(
        &self,
        topic: TopicId,
        log_ends: Option<Vec<i64>>,
    ) -> Result<()> {
        let Some(table) = known::read(&self.metadata, topic).await? else { return Ok(()) };
        let noted = table.with_log_ends(log_ends);
        known::write(&self.metadata, topic, Some(&table), Some(&noted)).await
    }

    fn place(&self, topic: TopicId, table: &KnownTable) -> TablePlace {
        TablePlace::new(self.store.as_ref(), self.cluster, topic, table.folder)
    }

    /// Makes a change of `base`, whose snapshot that would be `snapshot_id`.
    ///
    /// # Errors
    /// `UnknownOutcome` where the change may have been made; all others mean that it was not.
    pub(crate) async fn commit(
        &self,
        base: &LoadedTable,
        requirements: &[TableRequirement],
        updates: &[TableUpdate],
        snapshot_id: i64,
    ) -> Result<Committed> {
        let name = &base.pointer.name;
        let call = self.commit_call((&base.pointer.namespace, name), requirements, updates).await?;
        let main = base.metadata.current_snapshot_id();
        let mut pause = TRY_PAUSE;
        let mut unknown = match self.ask_commit(&call, snapshot_id).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => error,
            known => return known,
        };
        for _ in 1..TRIES_MAX {
            tracing::debug!(table = %name, error = %unknown, "looking up a commit's outcome");
            self.http.env.sleep(pause).await;
            pause *= 2;
            match self.table((&base.pointer.namespace, name)).await {
                Ok(Some(told)) if told.metadata.current_snapshot_id() == main => {}
                Ok(_) => return Ok(Committed::Undecided),
                Err(error) => {
                    unknown = unknown.with_source(error);
                    continue;
                }
            }
            // As it was: either it did not arrive, or it is still on its way. The one that comes
            // second is refused.
            match self.ask_commit(&call, snapshot_id).await {
                Ok(Committed::Rejected) => return Ok(Committed::Undecided),
                Ok(known) => return Ok(known),
                Err(error) => unknown = unknown.with_source(error),
            }
        }
        Err(unknown)
    }

    async fn commit_call(
        &self,
        (namespace, name): (&str, &str),
        requirements: &[TableRequirement],
        updates: &[TableUpdate],
    ) -> Result<Call> {
        let identifier = Identifier { namespace: [namespace], name };
        let body = CommitBody { identifier, requirements, updates };
        let body = serde_json::to_vec(&body)
            .map_err(|error| Error::bug("a commit as JSON").with_source(error))?;
        self.post(&["namespaces", namespace, "tables", name], Bytes::from(body)).await
    }

    async fn ask_commit(&self, call: &Call, snapshot_id: i64) -> Result<Committed> {
        let answer = self.http.call(call).await?;
        match answer.status {
            StatusCode::OK => {
                let lost = |error| Error::unknown_outcome("a commit's answer").with_source(error);
                let told = self.told(answer.body).await.map_err(lost)?;
                if told.metadata.current_snapshot_id() != Some(snapshot_id) {
                    return Ok(Committed::Undecided);
                }
                Ok(Committed::Applied(Box::new(told)))
            }
            StatusCode::CONFLICT => Ok(Committed::Rejected),
            _ if answer.is_missing() => Ok(Committed::Rejected),
            _ if answer.is_unclear() => {
                let said = answer.said();
                Err(Error::unknown_outcome(format!("the catalog answers a commit with {said}")))
            }
            _ => Err(answer.error("commit to a table")),
        }
    }

    /// The table as the catalog has it now.
    async fn get(&self, table: &KnownTable) -> Result<Option<Told>> {
        self.table((&table.namespace, &table.name)).await
    }

    async fn table(&self, (namespace, name): (&str, &str)) -> Result<Option<Told>> {
        let path = ["namespaces", namespace, "tables", name];
        let answer = self.read(&path).await?;
        match answer.status {
            StatusCode::OK => self.told(answer.body).await.map(Some),
            _ if answer.is_missing() => Ok(None),
            _ => Err(answer.error(&format!("load table {namespace}.{name}"))),
        }
    }

    async fn told(&self, body: Bytes) -> Result<Told> {
        // Of a thousand snapshots it takes milliseconds.
        let decoding = self.http.env.blocking(move || {
            let answer: TableAnswer = serde_json::from_slice(&body).map_err(|error| {
                Error::corrupt("the catalog's answer about a table").with_source(error)
            })?;
            let json = Bytes::from(answer.metadata.get().to_owned());
            let location = answer.location.unwrap_or_default();
            let metadata = parsed_metadata(&json, &location)?;
            Ok(Told { location, metadata, json })
        });
        decoding.await
    }

    async fn post(&self, path: &[&str], body: Bytes) -> Result<Call> {
        let url = self.http.url(self.prefix().await?, path, &[])?;
        Ok(Call { method: Method::POST, url, body: Some(body) })
    }

    async fn read(&self, path: &[&str]) -> Result<Answer> {
        let url = self.http.url(self.prefix().await?, path, &[])?;
        self.http.read(url).await
    }

    /// What stands behind `/v1`, which is asked for once.
    async fn prefix(&self) -> Result<&str> {
        let prefix = self.prefix.get_or_try_init(|| self.http.ask_prefix()).await?;
        Ok(prefix)
    }

    /// The topics of all tables by the tables' names, also of those that are gone.
    ///
    /// # Errors
    /// Whatever the metadata store answers.
    pub(crate) async fn topics_by_name(&self) -> Result<BTreeMap<String, Vec<TopicId>>> {
        known::topics_by_name(&self.metadata, &self.namespace).await
    }

    /// Forgets a table that the catalog has no more, so that it is made anew.
    ///
    /// # Errors
    /// Whatever the metadata store answers.
    pub(crate) async fn forget(&self, topic: TopicId) -> Result<()> {
        let Some(table) = known::read(&self.metadata, topic).await? else { return Ok(()) };
        known::write(&self.metadata, topic, Some(&table), None).await
    }
}
