//! Namespaces, of one level: that of topics' tables, and those that engines have made.

use super::answer::Refusal;
use super::pages::{PageQuery, Parameters, cut};
use super::writes::Body;
use super::{Warehouse, check_writes};
use crate::bridge::Bridge;
use crate::external::PropertyChanges;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

type NamespacePath = Path<(String, String)>;

pub(super) async fn list(
    State(bridge): State<Bridge>,
    Path(prefix): Path<String>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<Value>, Refusal> {
    Warehouse::named(&prefix)?;
    if let Some(parent) = query.parent.as_deref().filter(|parent| !parent.is_empty()) {
        // None has another within.
        check(&bridge, parent).await?;
        return Ok(Json(json!({ "namespaces": [], "next-page-token": null })));
    }
    let limit = query.limit()?;
    let mut names = bridge.namespaces(query.after(), limit).await?;
    let next = cut(&mut names, limit);
    let namespaces: Vec<Value> = names.iter().map(|name| json!([name])).collect();
    Ok(Json(json!({ "namespaces": namespaces, "next-page-token": next })))
}

/// Answers HEAD too.
pub(super) async fn load(
    State(bridge): State<Bridge>,
    Path((prefix, name)): NamespacePath,
) -> Result<Json<Value>, Refusal> {
    Warehouse::named(&prefix)?;
    let namespace = bridge.namespace(&name).await?;
    let namespace = namespace.ok_or_else(|| Refusal::no_such_namespace(&name))?;
    Ok(Json(json!({ "namespace": [name], "properties": namespace.properties })))
}

/// Refuses a namespace that is not there.
pub(super) async fn check(bridge: &Bridge, name: &str) -> Result<(), Refusal> {
    match bridge.namespace(name).await? {
        Some(_) => Ok(()),
        None => Err(Refusal::no_such_namespace(name)),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct CreateNamespace {
    namespace: Vec<String>,
    #[serde(default)]
    properties: Option<BTreeMap<String, String>>,
}

pub(super) async fn create(
    State(bridge): State<Bridge>,
    Path(prefix): Path<String>,
    body: Result<Body<CreateNamespace>, Refusal>,
) -> Result<Json<Value>, Refusal> {
    check_writes(&bridge, &prefix)?;
    let Body(request) = body?;
    let name = of_one_level(&request.namespace)?;
    let properties = request.properties.unwrap_or_default();
    bridge.create_namespace(&name, properties.clone()).await?;
    Ok(Json(json!({ "namespace": [name], "properties": properties })))
}

/// The name of a namespace, which has one level.
pub(super) fn of_one_level(levels: &[String]) -> Result<String, Refusal> {
    match levels {
        [name] => Ok(name.clone()),
        _ => Err(Refusal::bad_request("a namespace has one level here".to_owned())),
    }
}

pub(super) async fn remove(
    State(bridge): State<Bridge>,
    Path((prefix, name)): NamespacePath,
) -> Result<StatusCode, Refusal> {
    check_writes(&bridge, &prefix)?;
    bridge.drop_namespace(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(super) struct ChangeProperties {
    #[serde(default)]
    removals: Option<Vec<String>>,
    #[serde(default)]
    updates: Option<BTreeMap<String, String>>,
}

pub(super) async fn change(
    State(bridge): State<Bridge>,
    Path((prefix, name)): NamespacePath,
    body: Result<Body<ChangeProperties>, Refusal>,
) -> Result<Json<Value>, Refusal> {
    check_writes(&bridge, &prefix)?;
    let Body(request) = body?;
    let updates = request.updates.unwrap_or_default();
    let removals = request.removals.unwrap_or_default();
    if let Some(key) = removals.iter().find(|key| updates.contains_key(*key)) {
        return Err(Refusal::bad_request(format!("property {key} is set and removed")));
    }
    let changes = PropertyChanges { updates, removals };
    let missing = bridge.change_namespace(&name, &changes).await?;
    let removed: Vec<&String> =
        changes.removals.iter().filter(|key| !missing.contains(key)).collect();
    let updated: Vec<&String> = changes.updates.keys().collect();
    Ok(Json(json!({ "updated": updated, "removed": removed, "missing": missing })))
}
