//! How far something long has come: one line of a terminal, which the next one overwrites.

use crate::text::plain;
use std::io::{IsTerminal, Write};

/// Shows how far it is. Says nothing to a file.
pub(super) fn show(text: String) {
    write(&plain(&text));
}

/// Takes the line away, for the result.
pub(super) fn clear() {
    write("");
}

fn write(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Nobody depends on seeing it.
        let _ = write!(stderr, "\r\x1b[K{text}");
    }
}
