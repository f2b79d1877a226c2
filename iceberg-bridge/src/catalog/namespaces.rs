//! Namespaces: there is one, of one level.

use super::Warehouse;
use super::answer::Refusal;
use crate::bridge::Bridge;
use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
pub(super) struct NamespacesQuery {
    parent: Option<String>,
}

pub(super) async fn list(
    State(bridge): State<Bridge>,
    Path(prefix): Path<String>,
    Query(query): Query<NamespacesQuery>,
) -> Result<Json<Value>, Refusal> {
    Warehouse::named(&prefix)?;
    let namespace = &bridge.config().namespace;
    let namespaces = match query.parent.as_deref() {
        None | Some("") => json!([[namespace]]),
        Some(parent) if parent == namespace => json!([]),
        Some(parent) => return Err(Refusal::no_such_namespace(parent)),
    };
    Ok(Json(json!({ "namespaces": namespaces, "next-page-token": null })))
}

/// Answers HEAD too.
pub(super) async fn load(
    State(bridge): State<Bridge>,
    Path((prefix, namespace)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    Warehouse::named(&prefix)?;
    check(&bridge, &namespace)?;
    Ok(Json(json!({ "namespace": [namespace], "properties": { "owner": "floe" } })))
}

/// Refuses any namespace but the one there is.
pub(super) fn check(bridge: &Bridge, namespace: &str) -> Result<(), Refusal> {
    if bridge.config().namespace == namespace {
        return Ok(());
    }
    Err(Refusal::no_such_namespace(namespace))
}
