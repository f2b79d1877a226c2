//! The files of this checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file that git tracks, or would track: neither ignored nor deleted.
#[derive(Debug, Clone)]
pub struct File {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    /// A file that is not on disk, for samples.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The folder that holds it, empty for the root.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Its name without folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The root of the repository, where the workspace's `Cargo.toml` stands.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tidy lies in the workspace").into()
}

/// Every text file of the repository, in the order of paths.
///
/// # Panics
/// Where git does not answer: without it nothing can be checked.
pub fn files() -> Vec<File> {
    let listed = output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let read = |path: &str| {
        let text = String::from_utf8(std::fs::read(root().join(path)).ok()?).ok()?;
        Some(File { path: path.into(), text })
    };
    paths.into_iter().filter_map(read).collect()
}

/// What a program prints when it is run in the root.
///
/// # Panics
/// Where it cannot be started or fails.
pub fn output(program: &str, arguments: &[&str]) -> String {
    let run = Command::new(program).args(arguments).current_dir(root()).output();
    let run = run.unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{program} {} failed: {errors}", arguments.join(" "));
    String::from_utf8_lossy(&run.stdout).into_owned()
}
