//! Reads a table's manifests, for the tests of other modules.

use super::LoadedTable;
use super::manifest::parse_manifest;
use super::table::get;
use floe_store::ObjectStore;
use iceberg::spec::DataFile;

pub(crate) async fn table_files(store: &dyn ObjectStore, table: &LoadedTable) -> Vec<DataFile> {
    let mut files = Vec::new();
    for manifest in &table.manifests {
        let key = table.place.key_of(&manifest.manifest_path).unwrap();
        let bytes = get(store, &key).await.unwrap();
        assert_eq!(bytes.len(), usize::try_from(manifest.manifest_length).unwrap());
        let existing = parse_manifest(manifest, &bytes).unwrap();
        files.extend(existing.into_iter().map(|file| file.data_file));
    }
    files
}
