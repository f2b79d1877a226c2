//! From keys to column names: escaped, and unique without regard to case among their neighbours.

use std::collections::BTreeSet;

/// Names that Iceberg gives meaning to, at every level.
const RESERVED: [&str; 8] = [
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
    "_commit_snapshot_id",
];
/// Beginnings of names that are Iceberg's or ours.
const RESERVED_PREFIXES: [&str; 2] = ["_change_", "_kafka_"];
/// Stands before a reserved name, and for an empty one.
const ESCAPE: &str = "field";

/// The name of a column of `key`; `taken` has its neighbours' names, lower-cased.
pub(crate) fn column_name(key: &str, suffix: Option<&str>, taken: &BTreeSet<String>) -> String {
    let is_odd = |c: char| c == '.' || c.is_control();
    let shown: String = key.chars().map(|c| if is_odd(c) { '_' } else { c }).collect();
    let mut name = escaped(shown);
    if let Some(suffix) = suffix {
        name = escaped(format!("{name}__{suffix}"));
    }
    let is_free = |name: &str| !taken.contains(&name.to_lowercase());
    if is_free(&name) {
        return name;
    }
    let numbered = (2_u64..).map(|number| escaped(format!("{name}__{number}")));
    numbered.into_iter().find(|name| is_free(name)).unwrap_or(name)
}

fn escaped(name: String) -> String {
    let lower = name.to_lowercase();
    let is_reserved = RESERVED.contains(&lower.as_str())
        || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    if is_reserved || name.is_empty() { format!("{ESCAPE}{name}") } else { name }
}
