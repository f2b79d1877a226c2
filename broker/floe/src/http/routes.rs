//! Which path is answered by what.

use super::error::Failure;
use super::inspect::{
    ExtentsPage, FlushRequest, Inspect, ResumeRequest, StatusView, TableView, TopicView, TopicsPage,
};
use crate::metrics::Metrics;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use floe_env::Error;
use floe_iceberg_bridge::FlushedTable;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::watch;

/// Topics and extents in one answer, at most and if not asked otherwise.
const PAGE_ROWS_MAX: usize = 1000;

const START_PAGE: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>Floe</title>
<h1>Floe</h1>
<p>A Kafka-compatible broker whose storage is the lakehouse. On this address:</p>
<ul>
<li><a href=\"/healthz\">/healthz</a>: whether the process lives
<li><a href=\"/readyz\">/readyz</a>: whether it serves clients
<li><a href=\"/metrics\">/metrics</a>: metrics for Prometheus
<li><a href=\"/v1/status\">/v1/status</a>: this broker
<li><a href=\"/v1/topics\">/v1/topics</a>: topics
<li><a href=\"/v1/tables\">/v1/tables</a>: Iceberg tables and how far they are behind
<li>/v1/extents?topic=NAME&amp;partition=0&amp;offset=0: where records lie
<li><a href=\"/iceberg/v1/config\">/iceberg</a>: the Iceberg REST catalog
</ul>
</html>
";

/// Whether clients are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They are not, for this reason.
    NotReady(String),
    /// They are.
    Ready,
}

/// What the routes answer from.
#[derive(Clone)]
pub struct Routes {
    /// Whether clients are served.
    pub readiness: watch::Receiver<Readiness>,
    /// The metrics.
    pub metrics: Metrics,
    /// The broker; asked only while it is ready.
    pub inspect: Arc<dyn Inspect>,
}

/// All routes. `iceberg`'s own begin with `/iceberg`; it limits the bodies that it takes itself,
/// over the limit that is set here.
pub fn router(routes: Routes, iceberg: Option<Router>) -> Router {
    let own = Router::new()
        .route("/", get(|| async { Html(START_PAGE) }))
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .route("/v1/topics", get(topics))
        .route("/v1/topics/{name}", get(topic))
        .route("/v1/tables", get(tables))
        .route("/v1/tables/flush", post(flush_tables))
        .route("/v1/tables/{name}/resume", post(resume_table))
        .route("/v1/extents", get(extents))
        .with_state(routes);
    let all = match iceberg {
        Some(iceberg) => own.merge(iceberg),
        None => own,
    };
    all.fallback(|| async { Failure::not_found("no such path; / lists what there is") })
        .layer(DefaultBodyLimit::max(super::BODY_BYTES_MAX))
}

async fn readyz(State(routes): State<Routes>) -> Response {
    let readiness = routes.readiness.borrow().clone();
    match readiness {
        Readiness::Ready => "ready\n".into_response(),
        Readiness::NotReady(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response()
        }
    }
}

async fn metrics(State(routes): State<Routes>) -> Result<Response, Failure> {
    let is_ready = *routes.readiness.borrow() == Readiness::Ready;
    routes.metrics.process.ready.set(i64::from(is_ready));
    let text = routes.metrics.encode()?;
    let format = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, format)], text).into_response())
}

async fn status(State(routes): State<Routes>) -> Result<Json<StatusView>, Failure> {
    let status = routes.when_ready()?.status().await?;
    Ok(Json(status))
}

#[derive(Deserialize)]
struct TopicsQuery {
    after: Option<String>,
    limit: Option<usize>,
}

async fn topics(
    State(routes): State<Routes>,
    query: Result<Query<TopicsQuery>, QueryRejection>,
) -> Result<Json<TopicsPage>, Failure> {
    let query = parameters(query)?;
    let limit = page_rows(query.limit);
    let page = routes.when_ready()?.topics(query.after.as_deref(), limit).await?;
    Ok(Json(page))
}

async fn topic(
    State(routes): State<Routes>,
    Path(name): Path<String>,
) -> Result<Json<TopicView>, Failure> {
    let found = routes.when_ready()?.topic(&name).await?;
    found.map(Json).ok_or_else(|| Failure::not_found(format!("no topic {name}")))
}

async fn tables(State(routes): State<Routes>) -> Result<Json<Vec<TableView>>, Failure> {
    let tables = routes.when_ready()?.tables().await?;
    Ok(Json(tables))
}

/// Takes JSON only, which no page of another origin can send unasked.
async fn resume_table(
    State(routes): State<Routes>,
    Path(name): Path<String>,
    request: Result<Json<ResumeRequest>, JsonRejection>,
) -> Result<Json<TableView>, Failure> {
    let Json(request) = request.map_err(|refused| Error::invalid(refused.body_text()))?;
    let resumed = routes.when_ready()?.resume_table(&name, &request).await?;
    resumed.map(Json).ok_or_else(|| Failure::not_found(format!("no table {name}")))
}

/// As JSON only, for the same reason.
async fn flush_tables(
    State(routes): State<Routes>,
    request: Result<Json<FlushRequest>, JsonRejection>,
) -> Result<Json<Vec<FlushedTable>>, Failure> {
    let Json(request) = request.map_err(|refused| Error::invalid(refused.body_text()))?;
    Ok(Json(routes.when_ready()?.flush_tables(&request).await?))
}

#[derive(Deserialize)]
struct ExtentsQuery {
    topic: String,
    #[serde(default)]
    partition: i32,
    #[serde(default)]
    offset: i64,
    limit: Option<usize>,
}

async fn extents(
    State(routes): State<Routes>,
    query: Result<Query<ExtentsQuery>, QueryRejection>,
) -> Result<Json<ExtentsPage>, Failure> {
    let query = parameters(query)?;
    let (topic, partition) = (&query.topic, query.partition);
    let inspect = routes.when_ready()?;
    let page = inspect.extents(topic, partition, query.offset, page_rows(query.limit)).await?;
    page.map(Json).ok_or_else(|| Failure::not_found(format!("no partition {topic}-{partition}")))
}

impl Routes {
    fn when_ready(&self) -> Result<&dyn Inspect, Failure> {
        match &*self.readiness.borrow() {
            Readiness::Ready => Ok(self.inspect.as_ref()),
            Readiness::NotReady(reason) => {
                Err(Error::unavailable(format!("not ready: {reason}")).into())
            }
        }
    }
}

fn page_rows(asked: Option<usize>) -> usize {
    asked.unwrap_or(PAGE_ROWS_MAX).clamp(1, PAGE_ROWS_MAX)
}

fn parameters<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Failure> {
    match query {
        Ok(Query(parameters)) => Ok(parameters),
        Err(rejection) => Err(Error::invalid(rejection.body_text()).into()),
    }
}
