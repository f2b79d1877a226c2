//! One copy of each direct dependency: two make a binary larger, and their types do not fit each
//! other.

use std::collections::BTreeMap;

/// Direct dependencies of which others force a second copy, and who does.
const COPIES_ALLOWED: &[(&str, &str)] = &[
    ("base64", "0.22 of arrow, iceberg and ours beside 0.23 of hyper-util"),
    ("reqwest", "0.12 of iceberg beside 0.13 of object_store and ours"),
];

/// The versions of each crate in a lock file.
pub fn versions(lock: &str) -> BTreeMap<&str, Vec<&str>> {
    let value = |line: &'_ str, key: &str| -> Option<std::ops::Range<usize>> {
        let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        let length = rest.strip_suffix('"')?.len();
        let start = line.len() - rest.len();
        Some(start..start + length)
    };
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(range) = value(line, "name") {
            name = &line[range];
        } else if let Some(range) = value(line, "version") {
            if !name.is_empty() {
                all.entry(name).or_default().push(&line[range]);
            }
            name = "";
        }
    }
    all
}

/// Direct dependencies (by their own names) of which the lock file has more than one version.
pub fn violations(lock: &str, direct: &[String]) -> Vec<String> {
    let all = versions(lock);
    let mut found = Vec::new();
    for name in direct {
        let copies = all.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        let allowed = COPIES_ALLOWED.iter().any(|(each, _)| each == name);
        if copies.len() > 1 && !allowed {
            found.push(format!(
                "Cargo.lock: {name} is there as {}: take the version that the tree has, or name \
                 who forces it in tidy/src/lockfile.rs (`cargo tree -i {name}@VERSION`)",
                copies.join(" and ")
            ));
        }
    }
    found
}
