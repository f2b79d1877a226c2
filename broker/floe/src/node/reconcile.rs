//! Compares what is in the object store under the cluster's root with what the metadata store knows
//! of.

use crate::cli::{Deletion, Reconciliation};
use floe_env::Result;
use floe_metadata::MetadataStore;
use floe_metadata::facts::ChangeOutcome;
use floe_store::ObjectStore;
use std::collections::BTreeSet;

/// Objects that one listing brings.
const PAGE_LEN: usize = 1000;
/// Lines of findings that are shown.
const LINES_MAX: usize = 100;

/// Lists the log's objects and asks for each whether the metadata store knows it; and the tables'
/// folders, and asks for the table of each.
pub(super) async fn compare(
    objects: &dyn ObjectStore,
    metadata: &MetadataStore,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<Reconciliation> {
    let mut found = Reconciliation::default();
    let Some(cluster) = metadata.cluster_id().await? else { return Ok(found) };
    let is_restored = metadata.deletion_stop().await?.is_some();
    let root = format!("{cluster}/");
    let mut present = BTreeSet::new();
    let (mut unknown, mut unknown_bytes) = (0u64, 0u64);
    for folder in ["wal", "log"] {
        let mut after: Option<String> = None;
        loop {
            let prefix = format!("{root}{folder}");
            let page = objects.list(&prefix, after.as_deref(), PAGE_LEN).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            let keys: Vec<String> = page
                .iter()
                .map(|object| object.key.strip_prefix(&root).unwrap_or(&object.key).to_owned())
                .collect();
            let known = metadata.known_objects(&keys).await?;
            for ((object, key), is_known) in page.iter().zip(keys).zip(known) {
                if is_known {
                    present.insert(key);
                } else {
                    unknown += 1;
                    unknown_bytes += object.size;
                }
            }
            found.objects += page.len() as u64;
            progress(format!("{} objects", found.objects));
        }
    }
    if unknown > 0 {
        found.notes.push(format!(
            "{unknown} objects ({unknown_bytes} bytes) are not in the metadata: uploads that were \
             never committed{}",
            if is_restored { ", or committed after the backup of the metadata" } else { "" }
        ));
    }
    let lost = floe_iceberg_bridge::sweep::lost_files(objects, metadata, cluster).await?;
    if lost.files > 0 {
        found.objects += lost.files;
        found.notes.push(format!(
            "{} files ({} bytes) are of {} tables that the metadata does not know: tables whose \
             making failed{}",
            lost.files,
            lost.bytes,
            lost.tables,
            if is_restored { ", or that were made after the backup of the metadata" } else { "" }
        ));
    }
    missing(metadata, &present, &mut found).await?;
    Ok(found)
}

/// Whether objects are deleted; lets them be again where that is asked for.
pub(super) async fn deletion(metadata: &MetadataStore, allows: bool) -> Result<Deletion> {
    let Some(stop) = metadata.deletion_stop().await? else { return Ok(Deletion::Goes) };
    if allows && metadata.allow_deletion(&stop).await? == ChangeOutcome::Applied {
        return Ok(Deletion::Allowed);
    }
    Ok(Deletion::Stopped(stop.reason))
}

/// Finds extents whose object is not there.
async fn missing(
    metadata: &MetadataStore,
    present: &BTreeSet<String>,
    found: &mut Reconciliation,
) -> Result<()> {
    use floe_metadata::rows::Place;
    for topic in metadata.topics().await? {
        for index in 0..topic.partition_count {
            let partition =
                kfs::TopicPartition { topic: topic.id, partition: kfs::PartitionIndex(index) };
            let mut offset = 0;
            while let Some(page) = metadata.extents(partition, offset, PAGE_LEN).await? {
                let Some(last) = page.extents.last() else { break };
                offset = last.last_offset + 1;
                for extent in &page.extents {
                    let Place::Range { key, .. } = &extent.place else { continue };
                    if !present.contains(key) && found.problems.len() < LINES_MAX {
                        found.problems.push(format!(
                            "{}-{index}: offsets {} to {} are lost: {key} is missing",
                            topic.name, extent.base_offset, extent.last_offset
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}
