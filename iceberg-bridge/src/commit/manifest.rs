//! Manifests and manifest lists as bytes. The library writes to files; here its file system is
//! memory, and what it wrote is taken out again, so that all files of a commit can be put at once.

use crate::error::iceberg_error;
use bytes::Bytes;
use floe_env::{Error, Result};
use iceberg::io::FileIO;
use iceberg::spec::{
    DataFile, FormatVersion, Manifest, ManifestFile, ManifestList, ManifestListWriter,
    ManifestStatus, ManifestWriterBuilder, PartitionSpec, SchemaRef, UNASSIGNED_SEQUENCE_NUMBER,
};

/// A file of an earlier commit, with the numbers that it keeps.
#[derive(Clone, Debug)]
pub(crate) struct ExistingFile {
    pub(crate) data_file: DataFile,
    pub(crate) snapshot_id: i64,
    pub(crate) sequence_number: i64,
    pub(super) file_sequence_number: i64,
}

/// What a new manifest lists.
#[derive(Debug)]
pub(super) enum Entries {
    /// Files that this commit adds.
    Added(Vec<DataFile>),
    /// Files of earlier commits, from manifests that this one replaces.
    Existing(Vec<ExistingFile>),
    /// The same, and files that this commit takes out.
    Rewritten {
        /// Files that stay.
        existing: Vec<ExistingFile>,
        /// Files that go.
        deleted: Vec<ExistingFile>,
    },
}

/// Which snapshot a manifest is written for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotPlace {
    pub(crate) id: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) sequence_number: i64,
}

/// Encodes a manifest that will stand at `url`.
pub(super) async fn encode_manifest(
    url: &str,
    snapshot: SnapshotPlace,
    (schema, spec): (SchemaRef, PartitionSpec),
    entries: Entries,
) -> Result<(ManifestFile, Bytes)> {
    let failed = |error| iceberg_error("encode a manifest", error);
    let memory = FileIO::new_with_memory();
    let output = memory.new_output(url).map_err(failed)?;
    let builder = ManifestWriterBuilder::new(output, Some(snapshot.id), schema, spec);
    let mut writer = builder.build_v2_data();
    let (added, existing, deleted) = match entries {
        Entries::Added(added) => (added, Vec::new(), Vec::new()),
        Entries::Existing(existing) => (Vec::new(), existing, Vec::new()),
        Entries::Rewritten { existing, deleted } => (Vec::new(), existing, deleted),
    };
    for file in added {
        // No number of its own: readers take the one that the list gives the manifest.
        writer.add_file(file, UNASSIGNED_SEQUENCE_NUMBER).map_err(failed)?;
    }
    for file in existing {
        let (id, number) = (file.snapshot_id, file.sequence_number);
        let own_number = Some(file.file_sequence_number);
        writer.add_existing_file(file.data_file, id, number, own_number).map_err(failed)?;
    }
    for file in deleted {
        let own_number = Some(file.file_sequence_number);
        let number = file.sequence_number;
        writer.add_delete_file(file.data_file, number, own_number).map_err(failed)?;
    }
    let mut manifest = writer.write_manifest_file().await.map_err(failed)?;
    manifest.sequence_number = snapshot.sequence_number;
    if manifest.min_sequence_number == UNASSIGNED_SEQUENCE_NUMBER {
        manifest.min_sequence_number = snapshot.sequence_number;
    }
    Ok((manifest, read_back(&memory, url).await?))
}

/// Encodes a manifest again that will stand at `url`, with other entries for the same files.
pub(crate) async fn encode_relocated(
    url: &str,
    file: &ManifestFile,
    manifest: &Manifest,
    renamed: impl Fn(&DataFile) -> Result<DataFile>,
) -> Result<Bytes> {
    let failed = |error| iceberg_error("encode a manifest", error);
    let memory = FileIO::new_with_memory();
    let output = memory.new_output(url).map_err(failed)?;
    let shape = manifest.metadata();
    let (schema, spec) = (shape.schema().clone(), shape.partition_spec().clone());
    let builder = ManifestWriterBuilder::new(output, Some(file.added_snapshot_id), schema, spec);
    let mut writer = builder.build_v2_data();
    for entry in manifest.entries() {
        let data_file = renamed(entry.data_file())?;
        let number = entry.sequence_number();
        let written = match entry.status() {
            ManifestStatus::Added => {
                writer.add_file(data_file, number.unwrap_or(UNASSIGNED_SEQUENCE_NUMBER))
            }
            status => {
                let number = number.unwrap_or(file.sequence_number);
                let own = entry.file_sequence_number.or(Some(file.sequence_number));
                match status {
                    ManifestStatus::Deleted => writer.add_delete_file(data_file, number, own),
                    _ => {
                        let id = entry.snapshot_id().unwrap_or(file.added_snapshot_id);
                        writer.add_existing_file(data_file, id, number, own)
                    }
                }
            }
        };
        written.map_err(failed)?;
    }
    writer.write_manifest_file().await.map_err(failed)?;
    read_back(&memory, url).await
}

/// Encodes a manifest list that will stand at `url`.
pub(crate) async fn encode_list(
    url: &str,
    snapshot: SnapshotPlace,
    manifests: &[ManifestFile],
) -> Result<Bytes> {
    let failed = |error| iceberg_error("encode a manifest list", error);
    let memory = FileIO::new_with_memory();
    let output = memory.new_output(url).map_err(failed)?;
    let file = output.writer().await.map_err(failed)?;
    let mut writer =
        ManifestListWriter::v2(file, snapshot.id, snapshot.parent, snapshot.sequence_number);
    writer.add_manifests(manifests.iter().cloned()).map_err(failed)?;
    writer.close().await.map_err(failed)?;
    read_back(&memory, url).await
}

/// The manifests of a list.
pub(super) fn parse_list(url: &str, bytes: &[u8]) -> Result<Vec<ManifestFile>> {
    let list = ManifestList::parse_with_version(bytes, FormatVersion::V2)
        .map_err(|error| iceberg_error(&format!("read manifest list {url}"), error))?;
    Ok(list.consume_entries().into_iter().collect())
}

/// The live files of a manifest, with the numbers that they inherit from its list.
pub(super) fn parse_manifest(file: &ManifestFile, bytes: &[u8]) -> Result<Vec<ExistingFile>> {
    let doing = || format!("read manifest {}", file.manifest_path);
    let manifest = Manifest::parse_avro(bytes).map_err(|error| iceberg_error(&doing(), error))?;
    let live = manifest.entries().iter().filter(|entry| entry.is_alive());
    let numbered = live.map(|entry| ExistingFile {
        data_file: entry.data_file().clone(),
        snapshot_id: entry.snapshot_id().unwrap_or(file.added_snapshot_id),
        sequence_number: entry.sequence_number().unwrap_or(file.sequence_number),
        file_sequence_number: entry.file_sequence_number.unwrap_or(file.sequence_number),
    });
    Ok(numbered.collect())
}

async fn read_back(memory: &FileIO, url: &str) -> Result<Bytes> {
    let failed = |error: iceberg::Error| Error::bug("take a file from memory").with_source(error);
    let input = memory.new_input(url).map_err(failed)?;
    input.read().await.map_err(failed)
}
