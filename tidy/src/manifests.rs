//! How dependencies are declared: once, in the workspace, sorted, with default features off.

use crate::repository::File;

/// Workspace dependencies whose default features may stay on, and why.
const DEFAULT_FEATURES_ALLOWED: &[(&str, &str)] = &[
    ("async-trait", "has no features"),
    ("bytes", "its default is std, which all of its users need"),
    ("crc32c", "has no features"),
    ("http-body-util", "has no default features"),
    ("parking_lot", "has no default features"),
    ("prometheus-client", "has no default features"),
    ("serde", "its default is std, which all of its users need"),
    ("serde_json", "its default is std, which all of its users need"),
    ("snap", "has no features"),
    ("tempfile", "its default is the randomness of the names"),
    ("thiserror", "its default is std"),
];

/// A line of a manifest that declares a dependency.
struct Entry<'a> {
    line: usize,
    name: &'a str,
    text: &'a str,
}

/// What is wrong in a manifest; nothing for other files.
pub fn violations(file: &File) -> Vec<String> {
    if file.name() != "Cargo.toml" {
        return Vec::new();
    }
    if file.folder().is_empty() {
        return workspace_violations(file);
    }
    // A workspace of its own, as a fuzz target is, inherits nothing.
    let apart = sections(&file.text).iter().any(|(name, _)| *name == "workspace");
    if apart { Vec::new() } else { member_violations(file) }
}

/// The sections of a manifest: name, lines with their numbers.
fn sections(text: &str) -> Vec<(&str, Vec<(usize, &str)>)> {
    let mut all: Vec<(&str, Vec<(usize, &str)>)> = vec![("", Vec::new())];
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix('[').and_then(|rest| rest.trim_end().strip_suffix(']')) {
            Some(name) => all.push((name, Vec::new())),
            None => {
                let (_, lines) = all.last_mut().expect("there is a first section");
                lines.push((index + 1, line));
            }
        }
    }
    all
}

/// The dependency of a line, none for comments, empty lines and what continues a line before.
fn entry<'a>(&(line, text): &(usize, &'a str)) -> Option<Entry<'a>> {
    let name_end = text.find(|c: char| !c.is_alphanumeric() && c != '-' && c != '_')?;
    (name_end > 0).then(|| Entry { line, name: &text[..name_end], text })
}

fn member_violations(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    for (section, lines) in sections(&file.text) {
        let is_dependencies = section.ends_with("dependencies");
        if section.contains("dependencies.") {
            found.push(format!("{}: [{section}]: write it as one line of the section", file.path));
        }
        for entry in lines.iter().filter_map(entry).filter(|_| is_dependencies) {
            let inherited = entry.text.contains("workspace = true");
            let itself = entry.text.contains("path = \".\"");
            if !inherited && !itself {
                found.push(format!(
                    "{}:{}: {}: declare it in the workspace and write `{}.workspace = true` here",
                    file.path, entry.line, entry.name, entry.name
                ));
            }
        }
    }
    found
}

fn workspace_violations(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    for (section, lines) in sections(&file.text) {
        if section != "workspace.dependencies" {
            continue;
        }
        let mut previous: Option<Entry<'_>> = None;
        for line in &lines {
            if line.1.trim().is_empty() {
                previous = None; // a group of its own
            }
            let Some(entry) = entry(line) else { continue };
            if let Some(before) = previous.filter(|before| before.name >= entry.name) {
                found.push(format!(
                    "{}:{}: {} stands after {}: sort each group by name",
                    file.path, entry.line, entry.name, before.name
                ));
            }
            let ours = entry.text.contains("path = ");
            let allowed = DEFAULT_FEATURES_ALLOWED.iter().any(|(name, _)| *name == entry.name);
            if !ours && !allowed && !entry.text.contains("default-features = false") {
                found.push(format!(
                    "{}:{}: {}: set default-features = false and name what is needed",
                    file.path, entry.line, entry.name
                ));
            }
            previous = Some(entry);
        }
    }
    found
}

/// The names under which the workspace's manifest declares other people's crates, renamed ones by
/// their own name.
pub fn declared(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (section, lines) in sections(manifest) {
        if section != "workspace.dependencies" {
            continue;
        }
        for entry in lines.iter().filter_map(entry).filter(|each| !each.text.contains("path = ")) {
            let renamed = entry.text.split_once("package = \"").map(|(_, rest)| rest);
            let name = renamed.and_then(|rest| rest.split('"').next()).unwrap_or(entry.name);
            names.push(name.to_owned());
        }
    }
    names
}
