//! RE2's syntax for the `regex` crate, where the two differ: `\Q...\E` quotes; `\<` and `\>` are
//! plain characters, and so are `[`, `&`, `~` and most hyphens within a class; flags that only the
//! crate has are no flags.

/// The classes that have names, such as `[:alpha:]`, or `[:^alpha:]` for all other characters.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];
/// The longest of them with its brackets, bytes.
const NAMED_CLASS_BYTES_MAX: usize = 11;
/// What may stand between `(?` and `:` or `)`.
const FLAGS: &str = "imsU-";
/// The longest name of a property of characters with its braces, as in `\p{Greek}`, bytes.
const PROPERTY_BYTES_MAX: usize = 64;
/// Escapes that stand for many characters, and so begin no range.
const MANY: &str = "dDsSwWpP";

/// The expression with the same meaning for the crate, in time linear in its length.
///
/// # Errors
/// What RE2 says of something that only the crate would take.
pub(super) fn rewritten(source: &str) -> Result<String, &'static str> {
    let mut rewriter = Rewriter { rest: source, plain: String::with_capacity(source.len()) };
    while let Some(character) = rewriter.rest.chars().next() {
        match character {
            '\\' => rewriter.escape(),
            '[' => rewriter.class()?,
            '(' => rewriter.group()?,
            _ => rewriter.copy(1),
        }
    }
    Ok(rewriter.plain)
}

struct Rewriter<'a> {
    rest: &'a str,
    plain: String,
}

impl Rewriter<'_> {
    /// Takes so many characters over as they are, or all that are left.
    fn copy(&mut self, characters: usize) {
        let bytes = self.rest.chars().take(characters).map(char::len_utf8).sum();
        let (head, tail) = self.rest.split_at(bytes);
        self.plain.push_str(head);
        self.rest = tail;
    }

    fn escape(&mut self) {
        if let Some(quoted) = self.rest.strip_prefix(r"\Q") {
            let (literal, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            self.plain.push_str(&regex_syntax::escape(literal));
            self.rest = after;
        } else if self.rest.starts_with(r"\<") || self.rest.starts_with(r"\>") {
            self.rest = &self.rest[1..];
            self.copy(1);
        } else {
            self.copy(2);
        }
    }

    fn group(&mut self) -> Result<(), &'static str> {
        if let Some(inner) = self.rest.strip_prefix("(?") {
            let is_named = inner.starts_with("P<") || inner.starts_with('<');
            let mut flags = inner.chars().take_while(|it| it.is_ascii_alphabetic() || *it == '-');
            if !is_named && flags.any(|flag| !FLAGS.contains(flag)) {
                return Err("invalid or unsupported Perl syntax");
            }
        }
        self.copy(1);
        Ok(())
    }

    fn class(&mut self) -> Result<(), &'static str> {
        self.copy(if self.rest.starts_with("[^") { 2 } else { 1 });
        let mut is_first = true;
        // A bracket that closes at once is a character of the class.
        while !self.rest.is_empty() && (is_first || !self.rest.starts_with(']')) {
            is_first = false;
            if let Some(characters) = self.named_class()? {
                self.copy(characters);
                continue;
            }
            let begins_range = self.class_character();
            let is_last = self.rest.starts_with("-]") || self.rest == "-";
            if begins_range && self.rest.starts_with('-') && !is_last {
                self.copy(1);
                self.class_character();
            }
        }
        self.copy(1);
        Ok(())
    }

    /// The length of the named class that comes next, if one does.
    fn named_class(&self) -> Result<Option<usize>, &'static str> {
        let head = &self.rest.as_bytes()[..self.rest.len().min(NAMED_CLASS_BYTES_MAX)];
        let Some(inner) = head.strip_prefix(b"[:") else { return Ok(None) };
        let Some(end) = inner.windows(2).position(|it| it == b":]") else { return Ok(None) };
        let name = inner[..end].strip_prefix(b"^").unwrap_or(&inner[..end]);
        match NAMED_CLASSES.iter().any(|known| known.as_bytes() == name) {
            true => Ok(Some(end + 4)),
            false => Err("invalid character class range"),
        }
    }

    /// Takes one character of a class over, or an escape. Whether a range may begin with it.
    fn class_character(&mut self) -> bool {
        if let Some(escaped) = self.rest.strip_prefix('\\') {
            let is_many = escaped.starts_with(|character| MANY.contains(character));
            self.copy(2 + property_name(escaped));
            return !is_many;
        }
        if self.rest.starts_with(['[', ']', '&', '~', '-', '^']) {
            self.plain.push('\\');
        }
        self.copy(1);
        true
    }
}

/// Characters of the name that belongs to an escape such as `pL` or `p{Greek}`; 0 for others.
fn property_name(escaped: &str) -> usize {
    let Some(name) = escaped.strip_prefix(['p', 'P']) else { return 0 };
    if !name.starts_with('{') {
        return 1;
    }
    let head = &name.as_bytes()[..name.len().min(PROPERTY_BYTES_MAX)];
    // Where the brace is not closed, or behind what cannot be in a name, nothing is right.
    let end = head.iter().position(|byte| *byte == b'}' || !byte.is_ascii());
    end.map_or(0, |end| end + 1)
}
