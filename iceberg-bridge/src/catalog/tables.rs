//! Tables: listed in pages, loaded with a look.

use super::answer::Refusal;
use super::{Warehouse, namespaces};
use crate::bridge::Bridge;
use crate::commit::LoadedTable;
use crate::look::Behind;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use floe_env::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Tables on one page at most.
const PAGE_TABLES_MAX: usize = 1000;

type TablePath = Path<(String, String, String)>;

#[derive(Debug, Deserialize)]
pub(super) struct PageQuery {
    #[serde(rename = "pageToken")]
    page_token: Option<String>,
    #[serde(rename = "pageSize")]
    page_size: Option<usize>,
}

/// The page token is the last name of the page before.
pub(super) async fn list(
    State(bridge): State<Bridge>,
    Path((prefix, namespace)): Path<(String, String)>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Value>, Refusal> {
    let warehouse = Warehouse::named(&prefix)?;
    namespaces::check(&bridge, &namespace)?;
    let limit = query.page_size.unwrap_or(PAGE_TABLES_MAX).min(PAGE_TABLES_MAX);
    if limit == 0 {
        return Err(Refusal::bad_request("pageSize must be positive".to_owned()));
    }
    let after = query.page_token.as_deref().filter(|token| !token.is_empty());
    let mut names = match warehouse {
        Warehouse::Relaxed => bridge.made_table_names(after, limit + 1).await?,
        Warehouse::Fresh => bridge.table_names(after, limit + 1).await?,
    };
    let is_last = names.len() <= limit;
    names.truncate(limit);
    let next = names.last().filter(|_| !is_last).cloned();
    let identifier = |name: &String| json!({ "namespace": [namespace], "name": name });
    let identifiers: Vec<Value> = names.iter().map(identifier).collect();
    Ok(Json(json!({ "identifiers": identifiers, "next-page-token": next })))
}

pub(super) async fn load(
    State(bridge): State<Bridge>,
    Path((prefix, namespace, name)): TablePath,
) -> Result<Response, Refusal> {
    let warehouse = Warehouse::named(&prefix)?;
    check_namespace(&bridge, &namespace, &name)?;
    let (table, behind) = match warehouse {
        Warehouse::Relaxed => (bridge.newest(&name).await?, None),
        Warehouse::Fresh => {
            let answer = bridge.look(&name).await?;
            let behind = answer.as_ref().and_then(|answer| answer.behind);
            (answer.map(|answer| answer.table), behind)
        }
    };
    let table = table.ok_or_else(|| Refusal::no_such_table(&namespace, &name))?;
    if let Some(behind) = behind.filter(|_| bridge.config().refuse_late_looks) {
        let records = behind.records;
        let message = format!("table `{name}` is {records} records behind its topic");
        return Err(Refusal::unavailable(message));
    }
    Ok(load_result(&bridge, &table, behind)?)
}

/// Spark reads `kafka.orders.snapshots` as a table of that name first, and looks for the snapshots
/// of `kafka.orders` only where the answer is that there is no such *table*.
fn check_namespace(bridge: &Bridge, namespace: &str, table: &str) -> Result<(), Refusal> {
    namespaces::check(bridge, namespace).map_err(|_| Refusal::no_such_table(namespace, table))
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct LoadTableResult<'a> {
    metadata_location: &'a str,
    metadata: &'a RawValue,
    config: BTreeMap<String, String>,
}

fn load_result(
    bridge: &Bridge,
    table: &LoadedTable,
    behind: Option<Behind>,
) -> Result<Response, Error> {
    let mut config = bridge.config().client_config.clone();
    if let Some(behind) = behind {
        config.insert("floe.behind-records".to_owned(), behind.records.to_string());
        config.insert("floe.behind-ms".to_owned(), behind.ms.to_string());
    }
    let not_json = |error| Error::corrupt("table metadata is no JSON").with_source(error);
    let metadata = serde_json::from_slice(&table.metadata_json).map_err(not_json)?;
    let result =
        LoadTableResult { metadata_location: &table.pointer.metadata_location, metadata, config };
    let body = serde_json::to_vec(&result).map_err(not_json)?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// HEAD: whether there is such a table, without a look.
pub(super) async fn exists(
    State(bridge): State<Bridge>,
    Path((prefix, namespace, name)): TablePath,
) -> Result<StatusCode, Refusal> {
    Warehouse::named(&prefix)?;
    check_namespace(&bridge, &namespace, &name)?;
    if bridge.exists(&name).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Refusal::no_such_table(&namespace, &name))
}

/// Engines report what they scanned and committed; it is taken and not kept.
pub(super) async fn take_metrics(Path((prefix, _, _)): TablePath) -> Result<StatusCode, Refusal> {
    Warehouse::named(&prefix)?;
    Ok(StatusCode::NO_CONTENT)
}

/// There are no views. Trino asks for one before each table, and takes only this answer for "none".
pub(super) async fn load_view(
    Path((prefix, namespace, name)): TablePath,
) -> Result<StatusCode, Refusal> {
    Warehouse::named(&prefix)?;
    Err(Refusal::no_such_view(&namespace, &name))
}

pub(super) async fn list_views(
    State(bridge): State<Bridge>,
    Path((prefix, namespace)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    Warehouse::named(&prefix)?;
    namespaces::check(&bridge, &namespace)?;
    Ok(Json(json!({ "identifiers": [], "next-page-token": null })))
}
