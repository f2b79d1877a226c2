//! Which of our crates may depend on which.
//!
//! The table is the one of the design's "Folders and crates". It counts for every kind of
//! dependency, dev-dependencies too: a test that reaches across a border pulls the other side's
//! build into every run of this side's tests.

use std::collections::{BTreeMap, BTreeSet};

const BASE: &[&str] = &["floe-env", "kfs"];
const STORES: &[&str] = &["floe-store", "floe-metadata"];
const BROKER: &[&str] = &["floe-wire", "floe-log", "floe-coordinator"];
const BRIDGE: &[&str] = &["floe-iceberg-bridge"];
const BINARY: &[&str] = &["floe"];

/// Each crate with the groups of ours that it may depend on.
const ALLOWED: &[(&str, &[&[&str]])] = &[
    ("floe-env", &[]),
    ("kfs", &[]),
    ("floe-store", &[BASE]),
    ("floe-metadata", &[BASE]),
    ("floe-iceberg-bridge", &[BASE, STORES]),
    ("floe-wire", &[BASE, STORES, BROKER]),
    ("floe-log", &[BASE, STORES, BROKER]),
    ("floe-coordinator", &[BASE, STORES, BROKER]),
    ("floe", &[BASE, STORES, BROKER, BRIDGE]),
    ("floe-sim", &[BASE, STORES, BROKER, BRIDGE, BINARY]),
    ("tidy", &[]),
];

/// The workspace's crates, each with the names of those that it depends on, from `cargo metadata`'s
/// JSON.
///
/// # Errors
/// Where the JSON is not what cargo prints.
pub fn edges(metadata: &str) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let parsed: serde_json::Value =
        serde_json::from_str(metadata).map_err(|error| error.to_string())?;
    let packages = parsed["packages"].as_array().ok_or("no packages")?;
    let mut all = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("a package without a name")?;
        let dependencies = package["dependencies"].as_array().ok_or("no dependencies")?;
        let names = dependencies.iter().filter_map(|each| each["name"].as_str().map(String::from));
        all.insert(name.to_owned(), names.collect::<BTreeSet<_>>());
    }
    let ours: BTreeSet<String> = all.keys().cloned().collect();
    for (crate_name, dependencies) in &mut all {
        // A crate may depend on itself: so its tests turn on a feature of its own.
        dependencies.retain(|name| ours.contains(name) && name != crate_name);
    }
    Ok(all)
}

/// Edges that the table does not have, and crates that it does not know.
pub fn violations(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let table: BTreeMap<&str, &[&[&str]]> = ALLOWED.iter().copied().collect();
    let mut found = Vec::new();
    for (name, dependencies) in edges {
        let Some(allowed) = table.get(name.as_str()) else {
            found.push(format!("crate {name} is not in the table of tidy/src/crates.rs: add it"));
            continue;
        };
        for dependency in dependencies {
            if !allowed.iter().any(|group| group.contains(&dependency.as_str())) {
                found.push(format!(
                    "{name} depends on {dependency}, which the design does not allow: \
                     move what it needs, or change the design and the table"
                ));
            }
        }
    }
    for name in table.keys() {
        if !edges.contains_key(*name) {
            found.push(format!("crate {name} is gone: take it out of tidy/src/crates.rs"));
        }
    }
    found
}
