//! The configuration file: TOML, flattened to dotted names, so that `[kafka]` with
//! `"num.partitions" = 3` and with `num.partitions = 3` are the same.

use floe_env::{Error, Result};
use std::io::Read;
use std::path::Path;
use toml::{Table, Value};

/// Larger files are no configuration.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a file of text whole.
///
/// # Errors
/// `Invalid` where it cannot be read, is larger than `bytes_max` or is not UTF-8.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    let shown = path.display();
    let failed =
        |error: std::io::Error| Error::invalid(format!("cannot read {shown}")).with_source(error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > bytes_max {
        return Err(Error::invalid(format!("{shown} is larger than {bytes_max} bytes")));
    }
    Ok(text)
}

/// Reads the file's values with their dotted names, in the order of the names.
///
/// # Errors
/// `Invalid` where the file cannot be read or is not TOML. The message has the line's number but
/// nothing of the line, which may hold a secret.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, Value)>> {
    let text = read_text(path, FILE_BYTES_MAX)?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(""));
        let line = before.matches('\n').count() + 1;
        let reason = error.message().lines().next().unwrap_or("not TOML").to_owned();
        Error::invalid(format!("{} line {line}: {reason}", path.display()))
    })?;
    let mut values = Vec::new();
    flatten("", table, &mut values);
    Ok(values)
}

/// The depth is bounded by the parser's own limit.
fn flatten(prefix: &str, table: Table, values: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => flatten(&name, inner, values),
            value => values.push((name, value)),
        }
    }
}
