//! The rules over this checkout, and each rule over a sample that breaks it.

use crate::repository::{self, File};
use crate::{crates, lockfile, manifests, rust, text};

/// Fails with every violation on a line of its own.
fn assert_none(violations: &[String]) {
    let count = violations.len();
    assert!(count == 0, "{count} violations:\n  {}", violations.join("\n  "));
}

fn root_file(name: &str) -> String {
    std::fs::read_to_string(repository::root().join(name)).expect("a file of the repository")
}

#[test]
fn crates_depend_only_as_designed() {
    let arguments = ["metadata", "--offline", "--no-deps", "--format-version", "1"];
    let edges = crates::edges(&repository::output("cargo", &arguments)).expect("cargo's JSON");
    assert!(edges.len() > 1, "cargo metadata lists no workspace");
    assert_none(&crates::violations(&edges));
}

#[test]
fn code_is_short() {
    let files = repository::files();
    assert!(files.iter().any(|file| file.path == "tidy/src/tests.rs"), "no files are listed");
    assert_none(&files.iter().flat_map(rust::violations).collect::<Vec<_>>());
}

#[test]
fn no_file_has_banned_text() {
    assert_none(&repository::files().iter().flat_map(text::violations).collect::<Vec<_>>());
}

#[test]
fn every_crate_has_a_short_readme() {
    assert_none(&text::missing_readmes(&repository::files()));
}

#[test]
fn dependencies_are_declared_once() {
    assert_none(&repository::files().iter().flat_map(manifests::violations).collect::<Vec<_>>());
}

#[test]
fn direct_dependencies_have_one_version() {
    let direct = manifests::declared(&root_file("Cargo.toml"));
    assert!(direct.len() > 1, "the workspace declares no dependencies");
    assert_none(&lockfile::violations(&root_file("Cargo.lock"), &direct));
}

#[test]
fn a_forbidden_edge_is_found() {
    let metadata = r#"{"packages": [
        {"name": "kfs", "dependencies": [{"name": "bytes"}, {"name": "floe-store"}]},
        {"name": "floe-store", "dependencies": [{"name": "kfs"}, {"name": "floe-store"}]},
        {"name": "stranger", "dependencies": []}
    ]}"#;
    let found = crates::violations(&crates::edges(metadata).expect("good JSON"));
    assert!(found.iter().any(|each| each.starts_with("kfs depends on floe-store")), "{found:?}");
    assert!(found.iter().any(|each| each.starts_with("crate stranger")), "{found:?}");
    assert!(found.iter().any(|each| each.starts_with("crate floe-sim is gone")), "{found:?}");
    assert!(!found.iter().any(|each| each.starts_with("floe-store depends")), "{found:?}");
    assert!(crates::edges("{}").is_err());
}

/// A function of `lines` lines in a block of an `impl`.
fn function(lines: usize) -> String {
    let body = "        step();\n".repeat(lines - 2);
    format!("impl Some {{\n    pub(crate) async fn long() {{\n{body}    }}\n}}\n")
}

#[test]
fn long_code_is_found() {
    let found = |path: &str, text: &str| rust::violations(&File::new(path, text));
    assert_none(&found("a.rs", &function(70)));
    assert_eq!(found("a.rs", &function(71)).len(), 1);
    assert!(found("a.rs", &function(71))[0].contains("fn long has 71 lines"));
    assert_none(&found("tests.rs", &function(120)));
    assert_eq!(found("a/tests/b.rs", &function(121)).len(), 1);
    assert_eq!(found("a.rs", &"\n".repeat(601)).len(), 1);
    assert_none(&found("a.md", &"\n".repeat(601)));

    let wide = "x".repeat(101);
    assert_eq!(found("a.rs", &format!("// {wide}")).len(), 1);
    assert_none(&found("a.rs", &format!("call(\"{wide}\")")));
    assert_none(&found("a.rs", &format!("// see https://{wide}")));
}

#[test]
fn signatures_without_a_body_end_where_they_end() {
    let many = "    fn next(&self) -> u64;\n".repeat(100);
    let text = format!("trait Some {{\n{many}    fn one(&self) {{}}\n}}\n");
    assert_none(&rust::violations(&File::new("a.rs", &text)));
    let wrapped = "fn wrapped(\n    first: u64,\n) -> u64\nwhere\n    u64: Copy,\n{\n";
    let text = format!("{wrapped}{}}}\n", "    step();\n".repeat(64));
    assert_eq!(rust::violations(&File::new("a.rs", &text)).len(), 1);
}

#[test]
fn examples_that_nobody_runs_are_found() {
    let found = |text: &str| rust::violations(&File::new("a.rs", text)).len();
    assert_eq!(found("/// ```\n/// a();\n/// ```\nfn b() {}\n"), 1);
    assert_eq!(found("//! ```rust,no_run\n//! a();\n//! ```\n"), 1);
    assert_eq!(found("//! ```text\n//! a -> b\n//! ```\n"), 0);
}

#[test]
fn banned_text_is_found() {
    let found = |path: &str, line: String| text::violations(&File::new(path, &line)).len();
    assert_eq!(found("a.md", ["// TO", "DO: later"].concat()), 1);
    assert_eq!(found("a.rs", ["#[ign", "ore = \"slow\"]"].concat()), 1);
    assert_eq!(found("a.rs", ["dbg", "!(value);"].concat()), 1);
    assert_eq!(found("a.md", ["dbg", "!(value);"].concat()), 0);
    assert_eq!(found("a.sh", ["mktemp floe.XX", "XXXX"].concat()), 0);
    assert_eq!(found("a.sh", ["cd /wo", "rk/main"].concat()), 1);
    assert_eq!(found("a.sh", ["rm '/t", "mp'"].concat()), 1);
    assert_eq!(found("a.sh", ["cat target/t", "mp/a .github/wo", "rkflows/b"].concat()), 0);
    assert_eq!(found("a.toml", ["index = \"https://crates", ".io/\""].concat()), 1);
    assert_eq!(found("Cargo.lock", ["index = \"https://crates", ".io-index\""].concat()), 0);
}

#[test]
fn a_missing_or_long_readme_is_found() {
    let manifest = File::new("a/Cargo.toml", "[package]\nname = \"a\"\n");
    assert_eq!(text::missing_readmes(std::slice::from_ref(&manifest)).len(), 1);
    let long = File::new("a/README.md", &"line\n".repeat(61));
    assert_eq!(text::missing_readmes(&[manifest.clone(), long]).len(), 1);
    let fuzz = File::new("a/fuzz/Cargo.toml", "[package]\n");
    assert_none(&text::missing_readmes(&[manifest, fuzz, File::new("a/README.md", "# a\n")]));
}

#[test]
fn badly_declared_dependencies_are_found() {
    let found = |path: &str, text: &str| manifests::violations(&File::new(path, text)).len();
    let member = "[dependencies]\nbytes.workspace = true\n# why\nserde = { workspace = true }\n";
    assert_eq!(found("a/Cargo.toml", member), 0);
    assert_eq!(found("a/Cargo.toml", "[dev-dependencies]\nbytes = \"1\"\n"), 1);
    assert_eq!(found("a/Cargo.toml", "[dev-dependencies]\na = { path = \".\" }\n"), 0);
    assert_eq!(found("a/fuzz/Cargo.toml", "[workspace]\n[dependencies]\nbytes = \"1\"\n"), 0);
    assert_eq!(found("a/Cargo.toml", "[dependencies.bytes]\nversion = \"1\"\n"), 1);
    let off = "default-features = false }\n";
    let sorted = format!(
        "[workspace.dependencies]\nours = {{ path = \"z\" }}\n\nb = {{ version = \"1\", {off}"
    );
    assert_eq!(found("Cargo.toml", &sorted), 0);
    assert_eq!(found("Cargo.toml", &format!("{sorted}a = {{ version = \"1\", {off}")), 1);
    assert_eq!(found("Cargo.toml", &format!("{sorted}c = \"1\"\n")), 1);
    assert_eq!(found("Cargo.toml", &format!("{sorted}snap = \"1\"\n")), 0);
}

#[test]
fn a_second_copy_is_found() {
    let package = |name: &str, version: &str| {
        format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n\n")
    };
    let lock = [package("a", "1.0.0"), package("a", "2.0.0"), package("b", "1.0.0")].concat();
    let found = |name: &str| lockfile::violations(&lock, &[name.to_owned()]);
    assert_eq!(found("a").len(), 1);
    assert!(found("a")[0].contains("1.0.0 and 2.0.0"));
    assert_none(&found("b"));
    let manifest =
        "[workspace.dependencies]\na2 = { package = \"a\", version = \"2\" }\nb = \"1\"\n";
    assert_eq!(manifests::declared(manifest), ["a", "b"]);
}
