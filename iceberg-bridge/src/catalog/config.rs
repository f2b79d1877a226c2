//! What a client asks first: its settings, and a token.

use super::Warehouse;
use super::answer::Refusal;
use axum::Json;
use axum::extract::Query;
use serde::Deserialize;
use serde_json::{Value, json};

/// Every endpoint that does something; whatever a client needs beyond, it must do without.
const ENDPOINTS: [&str; 7] = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
];

/// How long the token of a client that needs one is good for, s. Nobody checks it.
const TOKEN_SECONDS: u32 = 3600;

#[derive(Debug, Deserialize)]
pub(super) struct ConfigQuery {
    warehouse: Option<String>,
}

pub(super) async fn config(Query(query): Query<ConfigQuery>) -> Result<Json<Value>, Refusal> {
    let warehouse = match query.warehouse.as_deref() {
        None | Some("") => Warehouse::Fresh,
        Some(name) => Warehouse::named(name)?,
    };
    Ok(Json(json!({
        "defaults": {},
        "overrides": { "prefix": warehouse.name() },
        "endpoints": ENDPOINTS,
    })))
}

/// Clients that insist on OAuth2 get a token; the catalog is anonymous, so it means nothing.
pub(super) async fn token() -> Json<Value> {
    Json(json!({
        "access_token": "anonymous",
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "token_type": "bearer",
        "expires_in": TOKEN_SECONDS,
    }))
}
