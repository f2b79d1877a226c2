//! Errors of the libraries below, as errors that cross crates.

use floe_env::{Error, ErrorKind};

/// An error of the `iceberg` crate. All its work here is in memory, so bad data is corrupt and the
/// rest is a bug.
pub(crate) fn iceberg_error(doing: &str, error: iceberg::Error) -> Error {
    let kind = match error.kind() {
        iceberg::ErrorKind::DataInvalid => ErrorKind::Corrupt,
        _ => ErrorKind::Bug,
    };
    Error::new(kind, doing.to_owned()).with_source(error)
}

/// An error while a data file is written in memory.
pub(crate) fn parquet_error(doing: &str, error: parquet::errors::ParquetError) -> Error {
    Error::bug(doing.to_owned()).with_source(error)
}
