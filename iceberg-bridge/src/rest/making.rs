//! Making a topic's table: under the first free of its names, with Floe's schema, specs and
//! properties, and no row.
//!
//! What is wanted is noted first (see [`super::known`]), so a table whose answer was lost is found
//! again: it has Floe's properties, names the folder that was noted, and no snapshot was ever
//! committed to it. Cost: once a table, a request for the namespace, one for the table, and one for
//! the second partition spec, which a catalog gives the number that Floe's files are written for.

use super::known::{self, KnownTable};
use super::{RestCatalog, Told};
use crate::commit::{LoadedTable, is_untouched, owner_properties};
use crate::mapping::Mapping;
use crate::names;
use crate::schema::{DAY_FIELD_NAME, SPEC_DAY, day_spec, iceberg_schema};
use axum::http::StatusCode;
use bytes::Bytes;
use floe_env::{Error, ErrorKind, Result};
use iceberg::spec::{FormatVersion, Schema, TableMetadata};
use iceberg::{TableRequirement, TableUpdate};
use kfs::TopicId;
use serde::Serialize;
use std::collections::BTreeMap;

/// The property that chooses a new table's format.
const FORMAT_VERSION_PROPERTY: &str = "format-version";
/// Where engines that write put data, so that all of a table is in Floe's store.
const DATA_PATH_PROPERTY: &str = "write.data.path";
/// Where they put manifests.
const METADATA_PATH_PROPERTY: &str = "write.metadata.path";
/// "The one that was just added."
const LAST_ADDED: i32 = -1;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct CreateBody<'a> {
    name: &'a str,
    schema: &'a Schema,
    stage_create: bool,
    properties: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<&'a str>,
}

#[derive(Serialize)]
struct NamespaceBody<'a> {
    namespace: [&'a str; 1],
    properties: BTreeMap<String, String>,
}

impl RestCatalog {
    /// Makes the topic's table, or finds the one that was just made.
    ///
    /// # Errors
    /// `Invalid` where the catalog refuses, or makes of the table what Floe cannot write;
    /// `Limit` where all names are taken; whatever the stores answer. The same call goes on where
    /// it failed.
    pub(crate) async fn create(&self, topic: TopicId, topic_name: &str) -> Result<LoadedTable> {
        self.make_namespace().await?;
        for name in names::candidates(topic_name, topic) {
            let wanted = self.wanted(topic, &name).await?;
            let properties = self.properties(topic, topic_name, &wanted);
            let Some(told) = self.make(topic, &wanted, &properties).await? else {
                continue;
            };
            let told = self.with_day_spec(&wanted, told).await?;
            check(&told.metadata)?;
            let table_id = told.metadata.uuid();
            let made = wanted.made(table_id);
            known::write(&self.metadata, topic, Some(&wanted), Some(&made)).await?;
            tracing::info!(table = %made.full_name(), %topic, "table made at the catalog");
            return self.loaded(topic, &made, table_id, told).await;
        }
        Err(Error::limit(format!("no free table name for topic {topic_name}")))
    }

    /// Notes what is to be made, in the folder that was noted before.
    async fn wanted(&self, topic: TopicId, name: &str) -> Result<KnownTable> {
        let noted = known::read(&self.metadata, topic).await?;
        if noted.as_ref().is_some_and(|noted| noted.table_id.is_some()) {
            return Err(Error::retry("somebody else has made the topic's table"));
        }
        let folder = noted.as_ref().map_or_else(|| self.http.env.uuid(), |noted| noted.folder);
        let wanted = KnownTable::wanted(&self.namespace, name, folder);
        if noted.as_ref() != Some(&wanted) {
            known::write(&self.metadata, topic, noted.as_ref(), Some(&wanted)).await?;
        }
        Ok(wanted)
    }

    fn properties(
        &self,
        topic: TopicId,
        topic_name: &str,
        wanted: &KnownTable,
    ) -> BTreeMap<String, String> {
        let place = self.place(topic, wanted);
        let mut properties = owner_properties(self.cluster, topic, (topic_name, &wanted.name))
            .collect::<BTreeMap<_, _>>();
        let own = [
            (FORMAT_VERSION_PROPERTY, "2".to_owned()),
            (DATA_PATH_PROPERTY, format!("{}/data", place.url())),
            (METADATA_PATH_PROPERTY, format!("{}/metadata", place.url())),
        ];
        properties.extend(own.map(|(key, value)| (key.to_owned(), value)));
        properties
    }

    async fn make_namespace(&self) -> Result<()> {
        let namespace = self.namespace.as_str();
        let found = self.read(&["namespaces", namespace]).await?;
        if found.status.is_success() {
            return Ok(());
        }
        if found.status != StatusCode::NOT_FOUND {
            return Err(found.error(&format!("look for namespace {namespace}")));
        }
        let body = NamespaceBody { namespace: [namespace], properties: BTreeMap::new() };
        let call = self.post(&["namespaces"], json(&body)?).await?;
        let made = self.http.call(&call).await?;
        match made.status {
            status if status.is_success() || status == StatusCode::CONFLICT => Ok(()),
            _ => Err(made.error(&format!("there is no namespace {namespace}, and to make it"))),
        }
    }

    /// Asks for the table. `None` where the name is another's.
    async fn make(
        &self,
        topic: TopicId,
        wanted: &KnownTable,
        properties: &BTreeMap<String, String>,
    ) -> Result<Option<Told>> {
        let (namespace, place) = (wanted.namespace.as_str(), self.place(topic, wanted));
        let schema = iceberg_schema(&Mapping::new())?;
        let body = CreateBody {
            name: &wanted.name,
            schema: &schema,
            stage_create: false,
            properties,
            location: self.http.config.sets_location.then(|| place.url()),
        };
        let call = self.post(&["namespaces", namespace, "tables"], json(&body)?).await?;
        let answer = self.http.call(&call).await;
        match answer {
            Ok(answer) if answer.status.is_success() => {
                return self.told(answer.body).await.map(Some);
            }
            Ok(answer) if answer.status == StatusCode::CONFLICT => {}
            // It may be there all the same.
            Ok(answer) if answer.is_unclear() => {
                if self.get(wanted).await?.is_none() {
                    return Err(answer.error(&format!("make table {}", wanted.full_name())));
                }
            }
            Ok(answer) => return Err(answer.error(&format!("make table {}", wanted.full_name()))),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => {
                if self.get(wanted).await?.is_none() {
                    return Err(Error::retry("whether a table was made").with_source(error));
                }
            }
            Err(error) => return Err(error),
        }
        let there = self.get(wanted).await?;
        let data_path = properties.get(DATA_PATH_PROPERTY);
        Ok(there.filter(|told| {
            // Floe's own, in the folder that was noted, and empty since it was made.
            told.metadata.properties().get(DATA_PATH_PROPERTY) == data_path
                && is_untouched(&told.metadata)
        }))
    }

    /// Gives a table its second partition spec, if it lacks it, and Floe's field ids, where the
    /// catalog has numbered columns in another order: no file has been written for its own yet.
    async fn with_day_spec(&self, wanted: &KnownTable, told: Told) -> Result<Told> {
        if told.metadata.default_partition_spec_id() != 0 {
            return Ok(told);
        }
        let schema = iceberg_schema(&Mapping::new())?;
        let is_ours = told.metadata.current_schema().as_struct() == schema.as_struct();
        let renumbered = [
            TableUpdate::AddSchema { schema },
            TableUpdate::SetCurrentSchema { schema_id: LAST_ADDED },
        ];
        let renumbered = renumbered.into_iter().filter(|_| !is_ours);
        let requirements = [
            TableRequirement::UuidMatch { uuid: told.metadata.uuid() },
            TableRequirement::DefaultSpecIdMatch { default_spec_id: 0 },
        ];
        let partitioned = [
            TableUpdate::AddSpec { spec: day_spec()? },
            TableUpdate::SetDefaultSpec { spec_id: LAST_ADDED },
        ];
        let updates: Vec<TableUpdate> = renumbered.chain(partitioned).collect();
        let name = (wanted.namespace.as_str(), wanted.name.as_str());
        let call = self.commit_call(name, &requirements, &updates).await?;
        let answer = self.http.call(&call).await?;
        if !answer.status.is_success() {
            return Err(answer.error("give a new table its partitions"));
        }
        self.told(answer.body).await
    }
}

/// Whether the catalog made what was asked for.
fn check(metadata: &TableMetadata) -> Result<()> {
    let refuse = |what: &str| {
        Err(Error::invalid(format!("the catalog gave the new table {what}: Floe cannot write it")))
    };
    if metadata.format_version() != FormatVersion::V2 {
        return refuse(&format!("format version {}", metadata.format_version()));
    }
    if metadata.current_schema().as_struct() != iceberg_schema(&Mapping::new())?.as_struct() {
        return refuse("other columns, or other field ids");
    }
    let spec = metadata.default_partition_spec();
    let fields: Vec<&str> = spec.fields().iter().map(|field| field.name.as_str()).collect();
    if spec.spec_id() != SPEC_DAY || fields != [DAY_FIELD_NAME] {
        return refuse("other partitions");
    }
    Ok(())
}

fn json(body: &impl Serialize) -> Result<Bytes> {
    let bytes = serde_json::to_vec(body);
    bytes.map(Bytes::from).map_err(|error| Error::bug("a request as JSON").with_source(error))
}
