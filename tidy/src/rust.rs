//! Sizes of Rust code: what is short can be read.
//!
//! Functions are found by indentation, which rustfmt guarantees: a function ends at the first line
//! that closes a brace at the indentation of its `fn`.

use crate::repository::File;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
/// A test may tell one story in one piece.
const TEST_FUNCTION_LINES_MAX: usize = 120;
const LINE_COLUMNS_MAX: usize = 100;

/// What is too long in a Rust file; nothing in other files.
pub fn violations(file: &File) -> Vec<String> {
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    if lines.len() > FILE_LINES_MAX {
        found.push(format!(
            "{}: {} lines, at most {FILE_LINES_MAX}: give each purpose a file of its own",
            file.path,
            lines.len()
        ));
    }
    found.extend(long_lines(file, &lines));
    found.extend(long_functions(file, &lines));
    found.extend(untested_examples(file, &lines));
    found
}

/// Lines that are too wide, but for those that rustfmt cannot break: a string or an address.
fn long_lines(file: &File, lines: &[&str]) -> Vec<String> {
    let too_wide = |line: &&str| {
        line.chars().count() > LINE_COLUMNS_MAX && !line.contains('"') && !line.contains("://")
    };
    let numbered = lines.iter().enumerate().filter(|(_, line)| too_wide(line));
    numbered
        .map(|(index, line)| {
            let columns = line.chars().count();
            format!(
                "{}:{}: {columns} columns, at most {LINE_COLUMNS_MAX}: wrap it",
                file.path,
                index + 1
            )
        })
        .collect()
}

fn long_functions(file: &File, lines: &[&str]) -> Vec<String> {
    let test = file.name() == "tests.rs" || file.path.contains("tests/");
    let limit = if test { TEST_FUNCTION_LINES_MAX } else { FUNCTION_LINES_MAX };
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let length = function_length(&lines[start..]);
        if length > limit {
            found.push(format!(
                "{}:{}: fn {name} has {length} lines, at most {limit}: take a step out of it",
                file.path,
                start + 1
            ));
        }
    }
    found
}

/// The name of the function that a line begins, if it begins one.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        if let Some(name) = rest.strip_prefix("fn ") {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            return (end > 0).then(|| &name[..end]);
        }
        let (word, after) = rest.split_once(' ')?;
        let qualifier = matches!(word, "pub" | "const" | "async" | "unsafe" | "default" | "extern")
            || word.starts_with("pub(")
            || word == "\"C\"";
        if !qualifier {
            return None;
        }
        rest = after;
    }
}

/// Lines from the one with `fn` to the one that ends the function, both counted.
fn function_length(lines: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = indent(lines[0]);
    let mut body_open = false;
    for (index, line) in lines.iter().enumerate() {
        let end = line.trim_end();
        if index > 0 && body_open && indent(line) == own && line.trim_start().starts_with('}') {
            return index + 1;
        }
        if body_open || line.trim().is_empty() || indent(line) != own {
            continue;
        }
        body_open = end.ends_with('{');
        // A function without a body in a trait, or one that fits in a line.
        if !body_open && (end.ends_with(';') || end.ends_with('}')) {
            return index + 1;
        }
    }
    lines.len()
}

/// Code blocks in docs that rustdoc would compile: `make test` runs none, so they would rot.
fn untested_examples(file: &File, lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = false;
    for (index, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            open = false;
            continue;
        };
        let Some(language) = doc.trim_start().strip_prefix("```") else { continue };
        if !open && (language.is_empty() || language.starts_with("rust")) {
            found.push(format!(
                "{}:{}: an example that nobody runs: make it a test, or mark the block as `text`",
                file.path,
                index + 1
            ));
        }
        open = !open;
    }
    found
}
