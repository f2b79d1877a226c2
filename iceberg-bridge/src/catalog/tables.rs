//! Tables, as they are read: listed in pages, loaded with a look.

use super::answer::Refusal;
use super::credentials::{self, ReadKeys, StorageCredential};
use super::pages::{PageQuery, Parameters, cut};
use super::{Warehouse, namespaces};
use crate::bridge::Bridge;
use crate::commit::joined;
use crate::external::{TableName, Version};
use crate::look::{Behind, LookAnswer};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use floe_env::{Error, Result as EnvResult};
use futures::stream;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

type TablePath = Path<(String, String, String)>;

pub(super) async fn list(
    State(bridge): State<Bridge>,
    Path((prefix, namespace)): Path<(String, String)>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<Value>, Refusal> {
    let warehouse = Warehouse::named(&prefix)?;
    namespaces::check(&bridge, &namespace).await?;
    let (after, limit) = (query.after(), query.limit()?);
    let mut names = match warehouse {
        Warehouse::Relaxed => bridge.made_table_names(&namespace, after, limit).await?,
        Warehouse::Fresh => bridge.table_names_in(&namespace, after, limit).await?,
    };
    let next = cut(&mut names, limit);
    let identifier = |name: &String| json!({ "namespace": [namespace], "name": name });
    let identifiers: Vec<Value> = names.iter().map(identifier).collect();
    Ok(Json(json!({ "identifiers": identifiers, "next-page-token": next })))
}

#[derive(Debug, Deserialize)]
pub(super) struct LoadQuery {
    snapshots: Option<String>,
}

/// Spark reads `kafka.orders.snapshots` as a table of that name first, and looks for the snapshots
/// of `kafka.orders` only where the answer is that there is no such *table*: so an unknown
/// namespace is not told apart.
pub(super) async fn load(
    State(bridge): State<Bridge>,
    Path((prefix, namespace, name)): TablePath,
    Parameters(query): Parameters<LoadQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let warehouse = Warehouse::named(&prefix)?;
    let table = TableName::new(&namespace, &name);
    let found = newest(&bridge, warehouse, &table).await?;
    let (version, behind) = found.ok_or_else(|| Refusal::no_such_table(&namespace, &name))?;
    if let Some(behind) = behind.filter(|_| bridge.config().refuse_late_looks) {
        let records = behind.records;
        let message = format!("table `{name}` is {records} records behind its topic");
        return Err(Refusal::unavailable(message));
    }
    let answer = LoadAnswer {
        version: &version,
        behind,
        has_refs_only: query.snapshots.as_deref() == Some("refs"),
        has_keys: credentials::are_asked_for(&headers),
    };
    Ok(answer.respond(&bridge, &headers)?)
}

/// The newest version; a topic's table is brought to its topic's end before, unless the warehouse
/// is the relaxed one.
async fn newest(
    bridge: &Bridge,
    warehouse: Warehouse,
    table: &TableName,
) -> EnvResult<Option<(Version, Option<Behind>)>> {
    let looked = |answer: LookAnswer| (Version::of(&answer.table), answer.behind);
    let is_topics = table.namespace == bridge.config().namespace;
    match (bridge.pointer_of(table).await?, warehouse) {
        (Some(pointer), _) if pointer.topic().is_none() => {
            Ok(Some((bridge.external_version(&pointer).await?, None)))
        }
        (Some(pointer), Warehouse::Relaxed) => {
            let newest = bridge.newest_by(&pointer).await?;
            Ok(newest.map(|table| (Version::of(&table), None)))
        }
        (Some(pointer), Warehouse::Fresh) => Ok(bridge.look_by(&pointer).await?.map(looked)),
        // The topic may have its first records, and no table yet.
        (None, Warehouse::Fresh) if is_topics => Ok(bridge.look(&table.name).await?.map(looked)),
        (None, _) => Ok(None),
    }
}

/// What a load is answered with.
pub(super) struct LoadAnswer<'a> {
    pub(super) version: &'a Version,
    pub(super) behind: Option<Behind>,
    /// Only snapshots that a branch or tag names.
    pub(super) has_refs_only: bool,
    /// The client asks for keys.
    pub(super) has_keys: bool,
}

/// All but the metadata.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct LoadTableResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_location: Option<&'a str>,
    config: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    storage_credentials: Vec<StorageCredential>,
}

impl LoadAnswer<'_> {
    /// 304 where the client has this very answer; a version that lacks records has no tag.
    pub(super) fn respond(&self, bridge: &Bridge, headers: &HeaderMap) -> EnvResult<Response> {
        let tag = self.tag(bridge);
        if tag.as_ref().is_some_and(|tag| is_known(headers, tag)) {
            return Ok(
                (StatusCode::NOT_MODIFIED, [(ETAG, tag.unwrap_or_default())]).into_response()
            );
        }
        let pieces = self.body(bridge)?;
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
        let content = [
            (CONTENT_TYPE, "application/json".to_owned()),
            // The body does not tell by itself.
            (CONTENT_LENGTH, length.to_string()),
        ];
        Ok(match tag {
            Some(tag) => (content, [(ETAG, tag)], body).into_response(),
            None => (content, body).into_response(),
        })
    }

    /// A metadata file is never written twice, so its name and that of the settings which come with
    /// it tell one answer from all others.
    fn tag(&self, bridge: &Bridge) -> Option<String> {
        let location = self.version.location.as_ref().filter(|_| self.behind.is_none())?;
        let (_, file) = location.rsplit_once('/')?;
        let snapshots = if self.has_refs_only { "refs" } else { "all" };
        // Other keys have another id; what is secret of them is not to be guessed from a tag.
        let mut config = bridge.config().client_config.clone();
        config.extend(self.keys(bridge).map(ReadKeys::public_config).into_iter().flatten());
        let sum = config.iter().fold(0, |sum, (key, value)| {
            let sum = crc32c::crc32c_append(sum, key.as_bytes());
            crc32c::crc32c_append(sum, value.as_bytes())
        });
        Some(format!("\"{file}-{snapshots}-{sum:08x}\""))
    }

    /// The keys that the client gets.
    fn keys<'b>(&self, bridge: &'b Bridge) -> Option<&'b ReadKeys> {
        bridge.config().catalog.read_keys.as_ref().filter(|_| self.has_keys)
    }

    /// In pieces: the metadata of a thousand snapshots is not copied for each who asks.
    fn body(&self, bridge: &Bridge) -> EnvResult<Vec<Bytes>> {
        let mut config = bridge.config().client_config.clone();
        if let Some(behind) = self.behind {
            config.insert("floe.behind-records".to_owned(), behind.records.to_string());
            config.insert("floe.behind-ms".to_owned(), behind.ms.to_string());
        }
        let keys = self.keys(bridge);
        config.extend(keys.map(ReadKeys::config).into_iter().flatten());
        let location = self.version.place.url();
        let result = LoadTableResult {
            metadata_location: self.version.location.as_deref(),
            config,
            storage_credentials: keys.map(|keys| keys.for_location(location)).into_iter().collect(),
        };
        let mut begin = serde_json::to_vec(&result).map_err(not_json)?;
        // The object goes on, with its last member.
        begin.pop();
        begin.extend_from_slice(b",\"metadata\":");
        let mut pieces = vec![Bytes::from(begin)];
        if self.has_refs_only {
            let json = joined(&self.version.metadata_json);
            pieces.push(with_named_snapshots(&json).map_err(not_json)?);
        } else {
            pieces.extend(self.version.metadata_json.iter().cloned());
        }
        pieces.push(Bytes::from_static(b"}"));
        Ok(pieces)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WithSnapshotId {
    snapshot_id: i64,
}

/// Metadata without the snapshots that no branch or tag names.
fn with_named_snapshots(json: &[u8]) -> serde_json::Result<Bytes> {
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_slice(json)?;
    let (refs, snapshots) = (members.get("refs"), members.get("snapshots"));
    let (Some(refs), Some(snapshots)) = (refs, snapshots) else {
        return Ok(Bytes::copy_from_slice(json));
    };
    let refs: BTreeMap<String, WithSnapshotId> = serde_json::from_str(refs.get())?;
    let named: BTreeSet<i64> = refs.into_values().map(|named| named.snapshot_id).collect();
    let mut kept: Vec<&RawValue> = Vec::new();
    for snapshot in serde_json::from_str::<Vec<&RawValue>>(snapshots.get())? {
        let WithSnapshotId { snapshot_id } = serde_json::from_str(snapshot.get())?;
        if named.contains(&snapshot_id) {
            kept.push(snapshot);
        }
    }
    let kept = to_raw_value(&kept)?;
    members.insert("snapshots".to_owned(), &kept);
    serde_json::to_vec(&members).map(Bytes::from)
}

fn not_json(error: serde_json::Error) -> Error {
    Error::corrupt("table metadata is no JSON").with_source(error)
}

/// Whether the client says that it has an answer with this tag.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|text| text.split(',')).map(str::trim);
    tags.any(|known| known.strip_prefix("W/").unwrap_or(known) == tag || known == "*")
}

/// HEAD: whether there is such a table, without a look.
pub(super) async fn exists(
    State(bridge): State<Bridge>,
    Path((prefix, namespace, name)): TablePath,
) -> Result<StatusCode, Refusal> {
    Warehouse::named(&prefix)?;
    match bridge.pointer_of(&TableName::new(&namespace, &name)).await? {
        Some(_) => Ok(StatusCode::NO_CONTENT),
        None => Err(Refusal::no_such_table(&namespace, &name)),
    }
}

/// Keys for a table, without a look.
pub(super) async fn load_credentials(
    State(bridge): State<Bridge>,
    Path((prefix, namespace, name)): TablePath,
) -> Result<Json<Value>, Refusal> {
    Warehouse::named(&prefix)?;
    let found = bridge.pointer_of(&TableName::new(&namespace, &name)).await?;
    let pointer = found.ok_or_else(|| Refusal::no_such_table(&namespace, &name))?;
    let keys = bridge.config().catalog.read_keys.as_ref();
    let keys: Vec<StorageCredential> =
        keys.map(|keys| keys.for_location(bridge.place_of(&pointer).url())).into_iter().collect();
    Ok(Json(json!({ "storage-credentials": keys })))
}

/// Engines report what they scanned and committed; it is taken and not kept.
pub(super) async fn take_metrics(Path((prefix, _, _)): TablePath) -> Result<StatusCode, Refusal> {
    Warehouse::named(&prefix)?;
    Ok(StatusCode::NO_CONTENT)
}
