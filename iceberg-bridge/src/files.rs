//! Data files as manifest entries: what an encoded file is once it has a place.

use crate::encode::{Bounds, EncodedFile, FileSlot};
use crate::schema::{SPEC_DAY, SPEC_UNPARTITIONED};
use floe_env::{Error, Result};
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Literal, Struct,
};
use std::collections::BTreeMap;

/// The manifest entry of a file that stands, or will stand, at `url`.
///
/// # Errors
/// `Bug` where the library refuses an entry with all fields set.
pub fn data_file(file: &EncodedFile, url: String) -> Result<DataFile> {
    let (spec_id, partition) = match file.slot {
        FileSlot::Mixed => (SPEC_UNPARTITIONED, Struct::empty()),
        FileSlot::Day(day) => (SPEC_DAY, Struct::from_iter([day.map(Literal::date)])),
    };
    let counted = file.nulls.iter();
    let (mut lower, mut upper) = (BTreeMap::new(), BTreeMap::new());
    for (id, bounds) in &file.bounds {
        let (min, max) = datums(bounds);
        lower.insert(*id, min);
        upper.extend(max.map(|max| (*id, max)));
    }
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(url)
        .file_format(DataFileFormat::Parquet)
        .partition_spec_id(spec_id)
        .partition(partition)
        .record_count(file.rows)
        .file_size_in_bytes(file.bytes.len() as u64)
        .column_sizes(file.column_bytes.iter().map(|(id, bytes)| (*id, *bytes)).collect())
        .value_counts(counted.clone().map(|(id, _)| (*id, file.rows)).collect())
        .null_value_counts(counted.map(|(id, nulls)| (*id, *nulls)).collect())
        .lower_bounds(lower.into_iter().collect())
        .upper_bounds(upper.into_iter().collect())
        .split_offsets(Some(file.split_offsets.clone()))
        .build()
        .map_err(|error| Error::bug(format!("manifest entry of a data file: {error}")))
}

fn datums(bounds: &Bounds) -> (Datum, Option<Datum>) {
    let time = Datum::timestamptz_micros;
    match bounds {
        Bounds::Int { min, max } => (Datum::int(*min), Some(Datum::int(*max))),
        Bounds::Time { min, max } => (time(*min), Some(time(*max))),
        Bounds::Whole { min, max } => (Datum::long(*min), Some(Datum::long(*max))),
        Bounds::Double { min, max } => (Datum::double(*min), Some(Datum::double(*max))),
        Bounds::Text { min, max } => (Datum::string(min), max.as_deref().map(Datum::string)),
    }
}
