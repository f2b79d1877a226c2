//! Plain text for people: columns and paragraphs.

/// Columns of a page.
const PAGE_COLUMNS: usize = 100;

/// Rows under headings, in columns as wide as their widest cell. Control characters, which names
/// from outside may hold, are shown as `?` so that they cannot steer a terminal.
pub(crate) fn table(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.len()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let headings: Vec<String> = headings.iter().map(|&heading| heading.to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&headings).chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let cell = plain(cell);
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The text with every control character replaced by `?`.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// A paragraph in lines of at most 100 columns; a longer word has a line of its own.
pub(crate) fn wrap(paragraph: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in paragraph.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= PAGE_COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// A number of bytes in the largest unit that leaves it above one.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = count as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// Compares a generated page with the one in `docs/`, or writes it where `UPDATE_DOCS` is set.
#[cfg(test)]
pub(crate) fn check_page(name: &str, page: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "docs/{name} is out of date: run the tests with UPDATE_DOCS=1");
    let long = page.lines().find(|line| line.len() > PAGE_COLUMNS);
    assert_eq!(long, None, "a line of docs/{name} is too long");
}
