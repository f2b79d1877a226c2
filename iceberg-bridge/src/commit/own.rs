//! What Floe committed last, as the table says: by the tag, or, where a catalog has no tags, by a
//! property. Pure.

use super::TAG;
use super::table::progress_of;
use crate::progress::Progress;
use iceberg::spec::{SnapshotRef, TableMetadata};

/// Table property: what the tag says where there are no tags, as `<snapshot id> <progress map>`.
pub(super) const TAG_PROPERTY: &str = "floe.tag";

/// The property's value.
pub(super) fn noted(snapshot_id: i64, progress: &Progress) -> String {
    format!("{snapshot_id} {}", progress.pack())
}

/// The newest snapshot of Floe's, if it is still there.
pub(super) fn own_snapshot(metadata: &TableMetadata) -> Option<&SnapshotRef> {
    let noted = || {
        let (id, _) = metadata.properties().get(TAG_PROPERTY)?.split_once(' ')?;
        metadata.snapshot_by_id(id.parse().ok()?)
    };
    metadata.snapshot_for_ref(TAG).or_else(noted)
}

/// Its map, which the property has also where the snapshot has expired.
pub(super) fn own_progress(metadata: &TableMetadata) -> Result<Option<Progress>, String> {
    if let Some(tagged) = metadata.snapshot_for_ref(TAG) {
        return progress_of(tagged).transpose();
    }
    let Some(noted) = metadata.properties().get(TAG_PROPERTY) else { return Ok(None) };
    let (_, packed) = noted.split_once(' ').unwrap_or_default();
    Progress::unpack(packed).map(Some).map_err(|error| error.to_string())
}
