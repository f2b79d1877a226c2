//! Tables, as engines change them: made, committed, renamed, dropped.

use super::answer::Refusal;
use super::tables::LoadAnswer;
use super::{check_writes, credentials, namespaces};
use crate::bridge::Bridge;
use crate::external::{NewTable, Rejection, TableCommit, TableName, Version};
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use iceberg::spec::{Schema, SortOrder, UnboundPartitionSpec};
use iceberg::{TableRequirement, TableUpdate};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// A request's body, as JSON. Engines differ in what they call it, so its type is not asked for.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|refused| Refusal::bad_request(refused.body_text()))?;
        let read = serde_json::from_slice(&body);
        read.map(Self).map_err(|error| Refusal::bad_request(format!("the body: {error}")))
    }
}

#[derive(Debug, Deserialize)]
struct Identifier {
    namespace: Vec<String>,
    name: String,
}

impl Identifier {
    fn table(&self) -> Result<TableName, Refusal> {
        Ok(TableName::new(&namespaces::of_one_level(&self.namespace)?, &self.name))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CreateTable {
    name: String,
    location: Option<String>,
    schema: Schema,
    partition_spec: Option<UnboundPartitionSpec>,
    write_order: Option<SortOrder>,
    #[serde(default)]
    stage_create: Option<bool>,
    #[serde(default)]
    properties: Option<BTreeMap<String, String>>,
}

pub(super) async fn create(
    State(bridge): State<Bridge>,
    Path((prefix, namespace)): Path<(String, String)>,
    headers: HeaderMap,
    body: Result<Body<CreateTable>, Refusal>,
) -> Result<Response, Refusal> {
    check_writes(&bridge, &prefix)?;
    let Body(request) = body?;
    if let Some(location) = request.location.filter(|location| !location.is_empty()) {
        let why = format!("tables lie where the catalog puts them, not at {location}");
        return Err(Refusal::bad_request(why));
    }
    let name = TableName::new(&namespace, &request.name);
    let table = NewTable {
        schema: request.schema,
        spec: request.partition_spec,
        order: request.write_order,
        properties: request.properties.unwrap_or_default(),
    };
    let is_staged = request.stage_create.unwrap_or(false);
    let made = Box::pin(bridge.create_external(name, table, is_staged)).await?;
    respond(&bridge, &headers, &made)
}

#[derive(Debug, Deserialize)]
pub(super) struct CommitTable {
    identifier: Option<Identifier>,
    #[serde(default)]
    requirements: Vec<TableRequirement>,
    #[serde(default)]
    updates: Vec<TableUpdate>,
}

impl CommitTable {
    fn of(self, name: TableName) -> TableCommit {
        TableCommit { name, requirements: self.requirements, updates: self.updates }
    }
}

pub(super) async fn commit(
    State(bridge): State<Bridge>,
    Path((prefix, namespace, name)): Path<(String, String, String)>,
    headers: HeaderMap,
    body: Result<Body<CommitTable>, Refusal>,
) -> Result<Response, Refusal> {
    check_writes(&bridge, &prefix)?;
    let Body(request) = body?;
    let commit = [request.of(TableName::new(&namespace, &name))];
    let made = Box::pin(bridge.commit_external(&commit)).await?.pop();
    let made = made.ok_or_else(|| Rejection::Conflict("nothing was changed".to_owned()))?;
    respond(&bridge, &headers, &made)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CommitTransaction {
    table_changes: Vec<CommitTable>,
}

/// All tables' changes, or none.
pub(super) async fn commit_transaction(
    State(bridge): State<Bridge>,
    Path(prefix): Path<String>,
    body: Result<Body<CommitTransaction>, Refusal>,
) -> Result<StatusCode, Refusal> {
    check_writes(&bridge, &prefix)?;
    let Body(request) = body?;
    let mut commits = Vec::with_capacity(request.table_changes.len());
    for change in request.table_changes {
        let named = change.identifier.as_ref().map(Identifier::table).transpose()?;
        let named =
            named.ok_or_else(|| Refusal::bad_request("a change names no table".to_owned()))?;
        commits.push(change.of(named));
    }
    Box::pin(bridge.commit_external(&commits)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(super) struct RenameTable {
    source: Identifier,
    destination: Identifier,
}

pub(super) async fn rename(
    State(bridge): State<Bridge>,
    Path(prefix): Path<String>,
    body: Result<Body<RenameTable>, Refusal>,
) -> Result<StatusCode, Refusal> {
    check_writes(&bridge, &prefix)?;
    let Body(request) = body?;
    let (from, to) = (request.source.table()?, request.destination.table()?);
    bridge.rename_external(&from, &to).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Purged or not, the files go after the retention of deleted tables.
pub(super) async fn remove(
    State(bridge): State<Bridge>,
    Path((prefix, namespace, name)): Path<(String, String, String)>,
) -> Result<StatusCode, Refusal> {
    check_writes(&bridge, &prefix)?;
    bridge.drop_external(&TableName::new(&namespace, &name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn respond(bridge: &Bridge, headers: &HeaderMap, version: &Version) -> Result<Response, Refusal> {
    let has_keys = credentials::are_asked_for(headers);
    let answer = LoadAnswer { version, behind: None, has_refs_only: false, has_keys };
    Ok(answer.respond(bridge, &HeaderMap::new())?)
}
