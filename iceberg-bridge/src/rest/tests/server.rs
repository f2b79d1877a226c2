//! A catalog of the tests: it keeps tables in memory, checks requirements, applies updates, and
//! fails as planned.

use crate::place::TablePlace;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use floe_env::{Env, Lane};
use iceberg::spec::{
    MAIN_BRANCH, PartitionSpec, Schema, SortOrder, TableMetadata, TableMetadataBuilder,
};
use iceberg::{TableRequirement, TableUpdate};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use uuid::Uuid;

/// What becomes of a request that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It works.
    None,
    /// 401.
    Unauthorized,
    /// 503, and nothing has happened.
    Unavailable,
    /// It works, and 503 is answered.
    AppliedAndUnavailable,
    /// It works, and 202 is answered, without a word more.
    AppliedAndAccepted,
    /// It works, somebody between asks once more, and hands on the answer to that, 409; from then
    /// on, if so, nobody reaches the catalog.
    AppliedAndRepeated { is_last: bool },
    /// It works, others rename the table at once, and 503 is answered.
    AppliedAndRenamed,
    /// It works, and the answer breaks off.
    AppliedAndCut,
    /// It works, and the answer does not come in time.
    AppliedAndSlow,
    /// The answer does not come in time, and it is made after that.
    Late,
    /// Others change the table just before.
    Foreign,
}

/// A table, and how often it has changed.
#[derive(Clone)]
pub(super) struct Table {
    pub(super) metadata: TableMetadata,
    pub(super) version: u64,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) namespaces: BTreeSet<String>,
    pub(super) tables: BTreeMap<String, Table>,
    /// What becomes of the next requests that change a table or make one.
    pub(super) faults: VecDeque<Fault>,
    /// The one token that is good; none is needed where there is none.
    pub(super) token: Option<String>,
    /// What token answers say, s.
    pub(super) expires_in: Option<u64>,
    pub(super) tokens_given: u64,
    pub(super) are_tokens_away: bool,
    /// Questions for tokens are never answered.
    pub(super) are_tokens_silent: bool,
    pub(super) commits: u64,
    pub(super) loads: u64,
    /// Requests that change tables are refused with this.
    pub(super) refusal: Option<StatusCode>,
    pub(super) refuses_tags: bool,
    /// Somebody before the catalog answers questions for tables with a page of its own, and 404.
    pub(super) is_behind_a_page: bool,
    /// Questions for tables are never answered.
    pub(super) is_silent: bool,
    /// Snapshots are not let go.
    pub(super) keeps_snapshots: bool,
}

/// What a renamed table is called.
pub(super) const RENAMED: &str = "elsewhere";

#[derive(Clone)]
pub(super) struct Server {
    env: Env,
    pub(super) uri: String,
    pub(super) inner: Arc<Mutex<Inner>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Creation {
    name: String,
    schema: Schema,
    location: Option<String>,
    properties: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Commit {
    requirements: Vec<TableRequirement>,
    updates: Vec<TableUpdate>,
}

/// So long is too slow for [`TIMEOUT`].
pub(super) const SLOW: Duration = Duration::from_millis(3000);
/// How long the tests' requests may take, also on a machine that has much else to do.
pub(super) const TIMEOUT: Duration = Duration::from_millis(1500);

impl Server {
    pub(super) async fn start() -> Self {
        let env = Env::current();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/catalog/", listener.local_addr().unwrap());
        let server = Self { env: env.clone(), uri, inner: Arc::default() };
        let routes = Router::new()
            .route("/catalog/v1/config", get(config))
            .route("/catalog/v1/oauth/tokens", post(tokens))
            .route("/catalog/v1/the/prefix/namespaces", post(make_namespace))
            .route("/catalog/v1/the/prefix/namespaces/{namespace}", get(namespace))
            .route("/catalog/v1/the/prefix/namespaces/{namespace}/tables", post(create))
            .route(
                "/catalog/v1/the/prefix/namespaces/{namespace}/tables/{name}",
                get(load).post(commit),
            )
            .with_state(server.clone());
        drop(env.spawn("catalog", Lane::Foreground, async move {
            axum::serve(listener, routes).await.unwrap();
        }));
        server
    }

    pub(super) fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.inner.lock().faults = faults.into_iter().collect();
    }

    pub(super) fn table(&self, name: &str) -> Table {
        self.inner.lock().tables.get(name).cloned().expect("the catalog has the table")
    }

    /// Changes a table as others would.
    pub(super) fn change(
        &self,
        name: &str,
        make: impl FnOnce(TableMetadataBuilder) -> TableMetadataBuilder,
    ) {
        let mut inner = self.inner.lock();
        let table = inner.tables.get_mut(name).expect("the catalog has the table");
        let builder = table.metadata.clone().into_builder(Some("mem:/other".to_owned()));
        table.metadata = make(builder).build().unwrap().metadata;
        table.version += 1;
    }

    pub(super) fn rename(&self, from: &str, to: &str) {
        let mut inner = self.inner.lock();
        let table = inner.tables.remove(from).expect("the catalog has the table");
        inner.tables.insert(to.to_owned(), table);
    }

    /// The answer to a request that may not go on.
    fn refused(&self, headers: &HeaderMap) -> Option<Response> {
        let token = self.inner.lock().token.clone();
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match token {
            Some(token) if given != Some(&format!("Bearer {token}")) => {
                Some(said(StatusCode::UNAUTHORIZED, "NotAuthorizedException"))
            }
            _ => None,
        }
    }

    async fn faulty(&self, change: impl FnOnce() -> Response + Send + 'static) -> Response {
        if let Some(refusal) = self.inner.lock().refusal {
            return said(refusal, "ForbiddenException");
        }
        let fault = self.inner.lock().faults.pop_front().unwrap_or(Fault::None);
        let unavailable = || said(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableException");
        match fault {
            Fault::None | Fault::Foreign => change(),
            Fault::Unauthorized => said(StatusCode::UNAUTHORIZED, "NotAuthorizedException"),
            Fault::Unavailable => unavailable(),
            Fault::AppliedAndUnavailable => {
                change();
                unavailable()
            }
            Fault::AppliedAndAccepted => {
                change();
                StatusCode::ACCEPTED.into_response()
            }
            Fault::AppliedAndRepeated { is_last } => {
                change();
                self.inner.lock().is_behind_a_page = is_last;
                said(StatusCode::CONFLICT, "CommitFailedException")
            }
            Fault::AppliedAndRenamed => {
                change();
                self.rename("t", RENAMED);
                unavailable()
            }
            Fault::AppliedAndCut => {
                let status = change().status();
                let cut =
                    futures::stream::once(async { Err::<String, _>(std::io::Error::other("cut")) });
                (status, Body::from_stream(cut)).into_response()
            }
            Fault::AppliedAndSlow => {
                let answer = change();
                self.env.sleep(SLOW).await;
                answer
            }
            Fault::Late => {
                let env = self.env.clone();
                // Whoever asked goes away, and the request is still on its way.
                drop(self.env.spawn("late request", Lane::Foreground, async move {
                    env.sleep(SLOW).await;
                    change();
                }));
                self.env.sleep(SLOW).await;
                unavailable()
            }
        }
    }
}

fn said(status: StatusCode, kind: &str) -> Response {
    let error = json!({"error": {"message": "as planned", "type": kind, "code": status.as_u16()}});
    (status, Json(error)).into_response()
}

fn shown(name: &str, table: &Table) -> Response {
    let location = format!("mem:///{name}/{}.metadata.json", table.version);
    let answer = json!({"metadata-location": location, "metadata": table.metadata, "config": {}});
    Json(answer).into_response()
}

async fn config() -> Response {
    Json(json!({"defaults": {}, "overrides": {"prefix": "the/prefix"}})).into_response()
}

async fn tokens(State(server): State<Server>, form: String) -> Response {
    let is_silent = server.inner.lock().are_tokens_silent;
    if is_silent {
        server.env.sleep(SLOW).await;
    }
    let mut inner = server.inner.lock();
    if inner.are_tokens_away {
        return said(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableException");
    }
    let wanted = "grant_type=client_credentials&client_id=me&client_secret=s3cret%26&scope=all";
    if form != wanted {
        return said(StatusCode::UNAUTHORIZED, "invalid_client");
    }
    inner.tokens_given += 1;
    let token = format!("token-{}", inner.tokens_given);
    inner.token = Some(token.clone());
    let mut answer = json!({"access_token": token, "token_type": "bearer"});
    if let Some(seconds) = inner.expires_in {
        answer["expires_in"] = seconds.into();
    }
    Json(answer).into_response()
}

async fn namespace(
    State(server): State<Server>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = server.refused(&headers) {
        return refused;
    }
    match server.inner.lock().namespaces.contains(&name) {
        true => Json(json!({"namespace": [name], "properties": {}})).into_response(),
        false => said(StatusCode::NOT_FOUND, "NoSuchNamespaceException"),
    }
}

async fn make_namespace(
    State(server): State<Server>,
    headers: HeaderMap,
    Json(body): Json<serde_json::Value>,
) -> Response {
    if let Some(refused) = server.refused(&headers) {
        return refused;
    }
    if let Some(refusal) = server.inner.lock().refusal {
        return said(refusal, "ForbiddenException");
    }
    let name = body["namespace"][0].as_str().unwrap().to_owned();
    server.inner.lock().namespaces.insert(name);
    Json(body).into_response()
}

async fn load(
    State(server): State<Server>,
    Path((_, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = server.refused(&headers) {
        return refused;
    }
    let is_silent = {
        let mut inner = server.inner.lock();
        inner.loads += 1;
        inner.is_silent
    };
    if is_silent {
        server.env.sleep(SLOW).await;
    }
    let inner = server.inner.lock();
    if inner.is_behind_a_page {
        return (StatusCode::NOT_FOUND, "<html>no route</html>").into_response();
    }
    match inner.tables.get(&name) {
        Some(table) => shown(&name, table),
        None => said(StatusCode::NOT_FOUND, "NoSuchTableException"),
    }
}

async fn create(
    State(server): State<Server>,
    headers: HeaderMap,
    Json(body): Json<Creation>,
) -> Response {
    if let Some(refused) = server.refused(&headers) {
        return refused;
    }
    let own = server.clone();
    server.faulty(move || own.created(body)).await
}

async fn commit(
    State(server): State<Server>,
    Path((_, name)): Path<(String, String)>,
    headers: HeaderMap,
    Json(body): Json<Commit>,
) -> Response {
    if let Some(refused) = server.refused(&headers) {
        return refused;
    }
    if server.inner.lock().faults.front() == Some(&Fault::Foreign) {
        server.change(&name, |builder| {
            builder
                .set_properties([("theirs".to_owned(), "1".to_owned())].into_iter().collect())
                .unwrap()
        });
        super::foreign_snapshot(&server, &name);
    }
    let own = server.clone();
    server.faulty(move || own.committed(&name, body)).await
}

impl Server {
    fn created(&self, body: Creation) -> Response {
        let mut inner = self.inner.lock();
        if inner.tables.contains_key(&body.name) {
            return said(StatusCode::CONFLICT, "AlreadyExistsException");
        }
        let location = body.location.unwrap_or_else(|| format!("mem:///own/{}", body.name));
        let mut properties = body.properties;
        assert_eq!(properties.remove("format-version").as_deref(), Some("2"));
        let made = TableMetadataBuilder::new(
            body.schema,
            PartitionSpec::unpartition_spec(),
            SortOrder::unsorted_order(),
            location,
            iceberg::spec::FormatVersion::V2,
            properties.into_iter().collect(),
        );
        let id = Uuid::from_u128(0x7ab1e + inner.tables.len() as u128 + u128::from(inner.commits));
        let metadata = made.unwrap().assign_uuid(id).build().unwrap().metadata;
        let table = Table { metadata, version: 0 };
        inner.tables.insert(body.name.clone(), table.clone());
        shown(&body.name, &table)
    }

    fn committed(&self, name: &str, body: Commit) -> Response {
        let mut inner = self.inner.lock();
        let (refuses_tags, keeps_snapshots) = (inner.refuses_tags, inner.keeps_snapshots);
        let Some(table) = inner.tables.get_mut(name) else {
            return said(StatusCode::NOT_FOUND, "NoSuchTableException");
        };
        for requirement in &body.requirements {
            if requirement.check(Some(&table.metadata)).is_err() {
                return said(StatusCode::CONFLICT, "CommitFailedException");
            }
        }
        let mut builder = table.metadata.clone().into_builder(Some("mem:/before".to_owned()));
        for update in body.updates {
            if refuses_tags && is_tag(&update) {
                return said(StatusCode::BAD_REQUEST, "ValidationException");
            }
            if keeps_snapshots && matches!(update, TableUpdate::RemoveSnapshots { .. }) {
                continue;
            }
            builder = update.apply(builder).unwrap();
        }
        table.metadata = builder.build().unwrap().metadata;
        table.version += 1;
        let answer = shown(name, table);
        inner.commits += 1;
        answer
    }
}

fn is_tag(update: &TableUpdate) -> bool {
    matches!(update, TableUpdate::SetSnapshotRef { ref_name, .. } if ref_name != MAIN_BRANCH)
}

/// The folder of a table's files, as its properties say.
pub(super) fn data_path(table: &Table) -> String {
    table.metadata.properties()["write.data.path"].clone()
}

/// Whether a table's location is a folder of the tests' store.
pub(super) fn is_at(table: &Table, place: &TablePlace) -> bool {
    table.metadata.location() == place.url()
}
