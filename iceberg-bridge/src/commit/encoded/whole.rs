//! Metadata encoded and decoded as a whole: of any format version, in time that grows with what it
//! lists.

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use floe_env::{Error, Result};
use iceberg::spec::TableMetadata;
use serde_json::Value;
use std::io::{Read as _, Write as _};

/// Table property: how its metadata files are compressed.
pub(in crate::commit) const METADATA_CODEC_PROPERTY: &str = "write.metadata.compression-codec";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Metadata that is larger is refused: no table of ours comes near it.
const METADATA_BYTES_MAX: u64 = 256 << 20;
/// What metadata lists, and by which numbers of each.
const LISTS: [(&str, &[&str]); 6] = [
    ("schemas", &["schema-id"]),
    ("partition-specs", &["spec-id"]),
    ("sort-orders", &["order-id"]),
    ("snapshots", &["sequence-number", "snapshot-id"]),
    ("statistics", &["snapshot-id"]),
    ("partition-statistics", &["snapshot-id"]),
];

/// Metadata as JSON, and as a file: compressed where the table says so. Keys and lists are sorted,
/// so that the same version is the same bytes: the library's own order changes from run to run.
pub(crate) fn metadata_file(metadata: &TableMetadata) -> Result<(Bytes, Bytes)> {
    let mut sorted = serde_json::to_value(metadata).map_err(unwritten)?;
    for (list, numbers) in LISTS {
        if let Some(list) = sorted.get_mut(list).and_then(Value::as_array_mut) {
            let number = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_i64);
            list.sort_by_cached_key(|entry| -> Vec<Option<i64>> {
                numbers.iter().map(|key| number(entry, key)).collect()
            });
        }
    }
    let json = Bytes::from(serde_json::to_vec(&sorted).map_err(unwritten)?);
    if !is_compressed(metadata) {
        return Ok((json.clone(), json));
    }
    let file = compressed(&json)?;
    Ok((json, file))
}

/// The file of some metadata, compressed.
pub(in crate::commit) fn compressed(json: &[u8]) -> Result<Bytes> {
    let failed = |error| Error::bug("compress table metadata").with_source(error);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(json).map_err(failed)?;
    Ok(Bytes::from(encoder.finish().map_err(failed)?))
}

/// Whether the table's metadata files are compressed.
pub(crate) fn is_compressed(metadata: &TableMetadata) -> bool {
    let codec = metadata.properties().get(METADATA_CODEC_PROPERTY);
    codec.is_some_and(|codec| codec.eq_ignore_ascii_case("gzip"))
}

/// The JSON of a metadata file: what a file is, its first bytes say.
pub(in crate::commit) fn json_of(file: Bytes) -> std::io::Result<Bytes> {
    if !file.starts_with(&GZIP_MAGIC) {
        return Ok(file);
    }
    let mut json = Vec::new();
    GzDecoder::new(file.as_ref()).take(METADATA_BYTES_MAX + 1).read_to_end(&mut json)?;
    if json.len() as u64 > METADATA_BYTES_MAX {
        return Err(std::io::Error::other(format!("more than {METADATA_BYTES_MAX} bytes")));
    }
    Ok(Bytes::from(json))
}

pub(super) fn unwritten(error: serde_json::Error) -> Error {
    Error::bug("encode table metadata").with_source(error)
}
