//! What a client asks first: its settings, and which endpoints there are.

use super::Warehouse;
use super::answer::Refusal;
use super::pages::Parameters;
use crate::bridge::Bridge;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

/// Every endpoint that does something; whatever a client needs beyond, it must do without.
pub(super) const READ_ENDPOINTS: [&str; 8] = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
];
/// Those that are there too where engines may write.
pub(super) const WRITE_ENDPOINTS: [&str; 8] = [
    "POST /v1/{prefix}/namespaces",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
];

#[derive(Debug, Deserialize)]
pub(super) struct ConfigQuery {
    warehouse: Option<String>,
}

pub(super) async fn config(
    State(bridge): State<Bridge>,
    Parameters(query): Parameters<ConfigQuery>,
) -> Result<Json<Value>, Refusal> {
    let warehouse = match query.warehouse.as_deref() {
        None | Some("") => Warehouse::Fresh,
        Some(name) => Warehouse::named(name)?,
    };
    let mut endpoints = READ_ENDPOINTS.to_vec();
    if bridge.config().catalog.external_write {
        endpoints.extend(WRITE_ENDPOINTS);
    }
    Ok(Json(json!({
        "defaults": {},
        "overrides": { "prefix": warehouse.name() },
        "endpoints": endpoints,
    })))
}
