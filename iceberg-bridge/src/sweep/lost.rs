//! What a sweep would take for lost, for whoever must know before it is deleted.

use super::{FILES_PER_PAGE, Owner, ids_of, next_folder, owner_of};
use crate::place::TablePlace;
use crate::pointer::FactPointers;
use floe_env::Result;
use floe_metadata::MetadataStore;
use floe_store::ObjectStore;
use kfs::ClusterId;

/// Files of tables that the metadata store does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostFiles {
    /// Tables, each with a folder of its own.
    pub tables: u64,
    /// Their files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// Counts the files of tables that were never made, or made after the backup from which the
/// metadata was put back. Files that a known table does not name are not counted.
///
/// # Errors
/// Those of both stores.
pub async fn lost_files(
    store: &dyn ObjectStore,
    metadata: &MetadataStore,
    cluster: ClusterId,
) -> Result<LostFiles> {
    let pointers = FactPointers::new(metadata.clone());
    let (mut lost, mut folder) = (LostFiles::default(), None);
    loop {
        folder = next_folder(store, cluster, folder).await?;
        let Some(name) = &folder else { return Ok(lost) };
        let Some((topic, table)) = ids_of(name) else { continue };
        let owner = owner_of(&pointers, metadata, topic, table).await?;
        if !matches!(owner, Owner::Nobody) {
            continue;
        }
        lost.tables += 1;
        let place = TablePlace::new(store, cluster, topic, table);
        let mut after: Option<String> = None;
        loop {
            let page = store.list(place.key(), after.as_deref(), FILES_PER_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            lost.files += page.len() as u64;
            lost.bytes += page.iter().map(|object| object.size).sum::<u64>();
        }
    }
}
