//! What a version of a table reaches: itself, older metadata files that it lists, statistics, and
//! the lists, manifests and files of all its snapshots.

use crate::bridge::Bridge;
use crate::commit::LoadedTable;
use floe_env::Result;
use iceberg::spec::SnapshotRef;
use std::collections::BTreeSet;

impl Bridge {
    /// Takes the names of all files that the version reaches out of `names`. Reads snapshots from
    /// the newest to the oldest, and no more once nothing is left to look for.
    pub(crate) async fn strike_reachable(
        &self,
        table: &LoadedTable,
        names: &mut BTreeSet<String>,
    ) -> Result<()> {
        let metadata = &table.metadata;
        let mut strike = |url: &str| {
            if let Some(name) = name_of(table, url) {
                names.remove(name);
            }
        };
        strike(&table.pointer.metadata_location);
        metadata.metadata_log().iter().for_each(|log| strike(&log.metadata_file));
        metadata.statistics_iter().for_each(|file| strike(&file.statistics_path));
        metadata.partition_statistics_iter().for_each(|file| strike(&file.statistics_path));
        let mut newest_first: Vec<&SnapshotRef> = metadata.snapshots().collect();
        newest_first.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.sequence_number()));
        newest_first.iter().for_each(|snapshot| strike(snapshot.manifest_list()));
        let mut read = BTreeSet::new();
        for snapshot in newest_first {
            if names.is_empty() {
                return Ok(());
            }
            for manifest in table.manifests_of(self.store(), snapshot).await? {
                if let Some(name) = name_of(table, &manifest.manifest_path) {
                    names.remove(name);
                }
                if !read.insert(manifest.manifest_path.clone()) {
                    continue;
                }
                for file in table.files_of(self.store(), &manifest).await? {
                    if let Some(name) = name_of(table, file.data_file.file_path()) {
                        names.remove(name);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A file's name below the table's folder, if it is there.
fn name_of<'a>(table: &LoadedTable, url: &'a str) -> Option<&'a str> {
    table.place.name_of(url)
}
