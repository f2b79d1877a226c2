//! What must not stand in any file, and what must stand beside every crate.
//!
//! The words are put together at run time, so that this file does not contain them.

use crate::repository::File;

const README_LINES_MAX: usize = 60;

/// Marks of work left undone, each with what to do instead.
fn markers() -> Vec<(String, &'static str)> {
    let undone = "do it now, or say in the docs what is not there";
    vec![
        (["TO", "DO"].concat(), undone),
        (["FIX", "ME"].concat(), undone),
        (["XX", "X"].concat(), undone),
        (["HA", "CK"].concat(), undone),
    ]
}

/// Code that must not be committed, looked for in Rust files alone.
fn code_markers() -> Vec<(String, &'static str)> {
    vec![
        (["dbg", "!("].concat(), "take it out, or trace"),
        (["to", "do!("].concat(), "write it, or return an error that says it is not supported"),
        (["unimple", "mented!("].concat(), "write it, or return an error that says so"),
        (["#[ign", "ore"].concat(), "a test that never runs proves nothing: mend or remove it"),
    ]
}

/// Folders of one machine. Temporary folders come from `tempfile`, `mktemp` and their like.
fn machine_paths() -> Vec<String> {
    ["work", "root", "home", "tmp"].iter().map(|folder| format!("/{folder}")).collect()
}

/// Hosts of registries: packages are named, the client knows where they are.
fn registry_hosts() -> Vec<String> {
    [
        ["crates", ".io"],
        ["pypi", ".org"],
        ["pythonhosted", ".org"],
        ["npmjs", ".org"],
        ["npmjs", ".com"],
        ["proxy.golang", ".org"],
        ["repo1.maven", ".org"],
        ["repo.maven.apache", ".org"],
        ["deb.debian", ".org"],
        ["archive.ubuntu", ".com"],
        ["ghcr", ".io"],
        ["quay", ".io"],
        ["docker", ".io"],
    ]
    .iter()
    .map(|parts| parts.concat())
    .collect()
}

/// Banned words, machine paths and registry hosts in one file.
pub fn violations(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let lock_file = matches!(file.name(), "Cargo.lock" | "go.sum" | "package-lock.json");
    for (index, line) in file.text.lines().enumerate() {
        let mut report = |what: &str, advice: &str| {
            found.push(format!("{}:{}: {what}: {advice}", file.path, index + 1));
        };
        for (marker, advice) in markers() {
            if contains_word(line, &marker) {
                report(&marker, advice);
            }
        }
        if file.path.ends_with(".rs") {
            for (marker, advice) in code_markers() {
                if line.contains(&marker) {
                    report(&marker, advice);
                }
            }
        }
        for path in machine_paths() {
            if contains_path(line, &path) {
                report(&path, "a folder of one machine: take a relative or a temporary one");
            }
        }
        for host in registry_hosts() {
            if !lock_file && contains_word(line, &host) {
                report(&host, "name the package, not the registry's host");
            }
        }
    }
    found
}

/// Crates' folders without a README, or with a long one. Fuzz targets belong to the crate above.
pub fn missing_readmes(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    let manifests = files.iter().filter(|file| file.name() == "Cargo.toml");
    let is_crate = |file: &&File| file.text.contains("[package]");
    for manifest in manifests.filter(is_crate).filter(|file| !file.folder().ends_with("/fuzz")) {
        let path = format!("{}/README.md", manifest.folder());
        match files.iter().find(|file| file.path == path) {
            None => found.push(format!("{path}: missing: say what the crate is and how to use it")),
            Some(readme) => {
                let lines = readme.text.lines().count();
                if lines > README_LINES_MAX {
                    found.push(format!(
                        "{path}: {lines} lines, at most {README_LINES_MAX}: move detail to docs/"
                    ));
                }
            }
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` stands in `line` with no letter, digit or underscore on either side.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether `path` stands in `line` as the beginning of an absolute path.
fn contains_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let inside = |c: char| is_word(c) || "./-}])>*$~".contains(c);
        !before.is_some_and(inside) && !after.is_some_and(|c| is_word(c) || c == '-')
    })
}
