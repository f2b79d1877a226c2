//! There are no views.

use super::answer::Refusal;
use super::{Warehouse, namespaces};
use crate::bridge::Bridge;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

/// Trino asks for a view before each table, and takes only this answer for "none".
pub(super) async fn load(
    Path((prefix, namespace, name)): Path<(String, String, String)>,
) -> Result<StatusCode, Refusal> {
    Warehouse::named(&prefix)?;
    Err(Refusal::no_such_view(&namespace, &name))
}

pub(super) async fn list(
    State(bridge): State<Bridge>,
    Path((prefix, namespace)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    Warehouse::named(&prefix)?;
    namespaces::check(&bridge, &namespace).await?;
    Ok(Json(json!({ "identifiers": [], "next-page-token": null })))
}
