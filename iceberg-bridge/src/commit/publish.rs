//! The step that makes a commit visible: the pointer moves, or the catalog that the table is in
//! makes the change.

use super::encoded::{EncodedMetadata, compressed};
use super::own::{TAG_PROPERTY, noted};
use super::refs::parse_refs;
use super::{LoadedTable, Moved, Prepared, Staged, TAG, until_known};
use crate::commit::Committer;
use crate::pointer::TablePointer;
use crate::rest::{Committed, RestCatalog, Told};
use floe_env::Result;
use iceberg::spec::MAIN_BRANCH;
use iceberg::{TableRequirement, TableUpdate};

impl Committer {
    /// Makes what was prepared on `base` its next version. Answers the pointer of that; a catalog
    /// that is not ours says what it has made, which then is what `prepared` has.
    ///
    /// # Errors
    /// `UnknownOutcome` where it may have been made; all others mean that it was not.
    pub(super) async fn publish(
        &self,
        base: &LoadedTable,
        staged: &Staged,
        prepared: &mut Prepared,
    ) -> Result<(Moved, TablePointer)> {
        let Some(catalog) = &self.rest else {
            let pointer = base.pointer.moved(prepared.metadata_location.clone());
            let moving = || self.pointers.swap(&base.pointer, &pointer);
            return Ok((until_known(&self.env, moving).await?, pointer));
        };
        let updates = updates(catalog, base, staged, prepared);
        let requirements = requirements(catalog, base);
        let id = prepared.snapshot_id;
        let made = catalog.commit(base, &requirements, &updates, id).await?;
        let told = match made {
            Committed::Applied(told) => *told,
            Committed::Rejected => return Ok((Moved::Rejected, base.pointer.clone())),
            Committed::Undecided => return Ok((Moved::Undecided, base.pointer.clone())),
        };
        let Told { location, metadata, json } = told;
        let pointer = base.pointer.at(location, &metadata);
        // What it did not let go is still read by others.
        prepared.expired.retain(|old| metadata.snapshot_by_id(old.snapshot_id()).is_none());
        prepared.refs = parse_refs(&json)?;
        prepared.metadata_file = vec![compressed(&json)?];
        (prepared.metadata, prepared.encoded) = (metadata, EncodedMetadata::read(json));
        Ok((Moved::Applied, pointer))
    }
}

/// What the commit was made on. The tag is among it, so that a request which comes late, after main
/// was rolled back to where it began, does nothing.
fn requirements(catalog: &RestCatalog, base: &LoadedTable) -> Vec<TableRequirement> {
    let metadata = &base.metadata;
    let of_ref = |name: &str| TableRequirement::RefSnapshotIdMatch {
        r#ref: name.to_owned(),
        snapshot_id: base.refs.get(name).map(|reference| reference.snapshot_id),
    };
    let main = TableRequirement::RefSnapshotIdMatch {
        r#ref: MAIN_BRANCH.to_owned(),
        snapshot_id: metadata.current_snapshot_id(),
    };
    let schema =
        TableRequirement::CurrentSchemaIdMatch { current_schema_id: metadata.current_schema_id() };
    let columns = TableRequirement::LastAssignedFieldIdMatch {
        last_assigned_field_id: metadata.last_column_id(),
    };
    let uuid = TableRequirement::UuidMatch { uuid: metadata.uuid() };
    let tag = catalog.has_tags().then(|| of_ref(TAG));
    [uuid, main, schema, columns].into_iter().chain(tag).collect()
}

/// The change as the catalog is asked for it. Old schemas stay: not every catalog lets them go. Of
/// tag and property only one says what was committed last, also where the setting has changed.
fn updates(
    catalog: &RestCatalog,
    base: &LoadedTable,
    staged: &Staged,
    prepared: &mut Prepared,
) -> Vec<TableUpdate> {
    let has_tags = catalog.has_tags();
    let is_asked_for = |update: &TableUpdate| match update {
        TableUpdate::RemoveSchemas { .. } => false,
        TableUpdate::SetSnapshotRef { ref_name, .. } => has_tags || ref_name == MAIN_BRANCH,
        _ => true,
    };
    let mut updates = std::mem::take(&mut prepared.changes);
    updates.retain(is_asked_for);
    let has_property = base.metadata.properties().contains_key(TAG_PROPERTY);
    if has_tags && has_property {
        let removals = vec![TAG_PROPERTY.to_owned()];
        updates.push(TableUpdate::RemoveProperties { removals });
    }
    if !has_tags && base.refs.contains_key(TAG) {
        // Before its snapshot expires.
        updates.insert(0, TableUpdate::RemoveSnapshotRef { ref_name: TAG.to_owned() });
    }
    if !has_tags {
        let noted = (TAG_PROPERTY.to_owned(), noted(prepared.snapshot_id, &staged.to));
        let property = [noted].into_iter().collect();
        updates.push(TableUpdate::SetProperties { updates: property });
    }
    updates
}
