//! Finds the name that was probably meant.

/// The candidate nearest to an unknown name, if one is near: a candidate of which `name` is the
/// last part, else the one with the fewest single-character edits, of which a third of the name's
/// characters may differ.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted = plain(name);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let known = plain(candidate);
        let is_last_part = known.ends_with(&format!(".{wanted}"));
        let edits = if is_last_part { 0 } else { edits_between(&wanted, &known) };
        if best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, candidate));
        }
    }
    let edits_max = (wanted.len() / 3).max(2);
    best.filter(|(edits, _)| *edits <= edits_max).map(|(_, candidate)| candidate)
}

/// Lower case, with one separator.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '-'], ".")
}

/// Insertions, deletions and replacements that turn `from` into `to` (Levenshtein), over bytes:
/// every known name is ASCII.
fn edits_between(from: &str, to: &str) -> usize {
    let to = to.as_bytes();
    let mut previous: Vec<usize> = (0..=to.len()).collect();
    for (row, from_byte) in from.bytes().enumerate() {
        let mut current = vec![row + 1];
        for (column, to_byte) in to.iter().enumerate() {
            let replaced = previous[column] + usize::from(from_byte != *to_byte);
            let inserted = current[column] + 1;
            let deleted = previous[column + 1] + 1;
            current.push(replaced.min(inserted).min(deleted));
        }
        previous = current;
    }
    previous[to.len()]
}
