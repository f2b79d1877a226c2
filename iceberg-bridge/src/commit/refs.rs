//! Branches and tags. The library keeps a table's references to itself, so they are read from its
//! JSON, and kept beside the metadata.

use floe_env::{Error, Result};
use iceberg::spec::{MAIN_BRANCH, SnapshotReference, SnapshotRetention};
use serde::Deserialize;
use std::collections::BTreeMap;

/// References by name.
pub(super) type Refs = BTreeMap<String, SnapshotReference>;

#[derive(Deserialize)]
struct WithRefs {
    #[serde(default)]
    refs: Refs,
}

/// The references of a table.
pub(super) fn parse_refs(metadata_json: &[u8]) -> Result<Refs> {
    let parsed: WithRefs = serde_json::from_slice(metadata_json)
        .map_err(|error| Error::corrupt("references of a table").with_source(error))?;
    Ok(parsed.refs)
}

/// Main at another snapshot. What others have said of how long its snapshots stay is kept.
pub(super) fn moved_main(refs: &Refs, snapshot_id: i64) -> SnapshotReference {
    match refs.get(MAIN_BRANCH) {
        Some(main) if main.is_branch() => SnapshotReference { snapshot_id, ..main.clone() },
        _ => branch(snapshot_id),
    }
}

pub(super) fn branch(snapshot_id: i64) -> SnapshotReference {
    let retention = SnapshotRetention::Branch {
        min_snapshots_to_keep: None,
        max_snapshot_age_ms: None,
        max_ref_age_ms: None,
    };
    SnapshotReference::new(snapshot_id, retention)
}

pub(super) fn tag(snapshot_id: i64, max_ref_age_ms: Option<i64>) -> SnapshotReference {
    SnapshotReference::new(snapshot_id, SnapshotRetention::Tag { max_ref_age_ms })
}
