//! Subscriptions by regular expression, in RE2 syntax, matched against whole topic names.
//!
//! Expressions are run by the `regex` crate, whose syntax is RE2's but for a few things that are
//! rewritten ([`rewritten`]). Its time is linear in the name's length, and its memory bounded.
//!
//! Topic names are ASCII, and so are RE2's `\w`, `\d`, `\s` and `\b`: expressions are compiled as
//! such. The crate's limit of size counts only what comes last. Before it, each class with Unicode
//! may take thousands of ranges, or milliseconds: so only short expressions may name such.

use super::TopicDirectory;
use super::re2::rewritten;
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ast::ErrorKind;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// A longer expression is refused, bytes: parsed, it takes some hundred times as much memory.
const SOURCE_BYTES_MAX: usize = 64 << 10;
/// One with characters or classes of Unicode is refused above this, bytes.
const UNICODE_SOURCE_BYTES_MAX: usize = 256;
/// A compiled expression that needs more memory is refused, bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;
const TOO_LARGE: &str = "expression too large";

/// A regular expression for topic names.
#[derive(Debug, Clone)]
pub struct TopicPattern {
    source: String,
    regex: Regex,
}

impl PartialEq for TopicPattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for TopicPattern {}

impl TopicPattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Why it is none, in RE2's words.
    pub fn new(source: &str) -> Result<Self, &'static str> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(TOO_LARGE);
        }
        let plain = rewritten(source)?;
        if let Err(error) = regex_syntax::ast::parse::Parser::new().parse(&plain) {
            return Err(re2_words(error.kind()));
        }
        Ok(Self { source: source.to_owned(), regex: compiled(&plain)? })
    }

    /// Whether the whole name matches.
    pub fn matches(&self, topic: &str) -> bool {
        self.regex.is_match(topic.as_bytes())
    }
}

fn compiled(plain: &str) -> Result<Regex, &'static str> {
    let whole = format!(r"\A(?:{plain})\z");
    let build = |unicode: bool| {
        let mut builder = RegexBuilder::new(&whole);
        builder.unicode(unicode).size_limit(COMPILED_BYTES_MAX).build()
    };
    let built = match build(false) {
        // It parses, so it names something that is not in ASCII.
        Err(regex::Error::Syntax(_)) if plain.len() > UNICODE_SOURCE_BYTES_MAX => {
            return Err(TOO_LARGE);
        }
        Err(regex::Error::Syntax(_)) => build(true),
        other => other,
    };
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => TOO_LARGE,
        _ => "invalid character class range",
    })
}

/// What an expression matches in one directory.
#[derive(Debug, Clone)]
pub(super) struct Matches {
    revision: u64,
    topics: Vec<(Uuid, i32)>,
}

impl Matches {
    /// An expression that does not compile matches nothing: it was checked when it came, maybe by
    /// another version.
    pub(super) fn find(source: &str, directory: &TopicDirectory) -> Self {
        let pattern = TopicPattern::new(source).ok();
        let matched = directory
            .all()
            .filter(|(name, ..)| pattern.as_ref().is_some_and(|pattern| pattern.matches(name)));
        let topics = matched.map(|(_, id, partitions)| (id, partitions)).collect();
        Self { revision: directory.revision(), topics }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = (Uuid, i32)> + '_ {
        self.topics.iter().copied()
    }
}

fn re2_words(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ClassUnclosed => "missing closing ]",
        ErrorKind::ClassRangeInvalid | ErrorKind::ClassRangeLiteral => {
            "invalid character class range"
        }
        ErrorKind::EscapeUnexpectedEof => "trailing backslash at end of expression",
        ErrorKind::GroupUnclosed => "missing closing )",
        ErrorKind::GroupUnopened => "unexpected )",
        ErrorKind::GroupNameDuplicate { .. } => "duplicate capture group name",
        ErrorKind::GroupNameEmpty
        | ErrorKind::GroupNameInvalid
        | ErrorKind::GroupNameUnexpectedEof => "invalid named capture",
        ErrorKind::RepetitionMissing => "missing argument to repetition operator",
        ErrorKind::RepetitionCountInvalid
        | ErrorKind::RepetitionCountDecimalEmpty
        | ErrorKind::RepetitionCountUnclosed => "invalid repeat count",
        ErrorKind::UnsupportedLookAround
        | ErrorKind::FlagDanglingNegation
        | ErrorKind::FlagDuplicate { .. }
        | ErrorKind::FlagRepeatedNegation { .. }
        | ErrorKind::FlagUnexpectedEof
        | ErrorKind::FlagUnrecognized => "invalid or unsupported Perl syntax",
        ErrorKind::NestLimitExceeded(_) => "expression nests too deeply",
        _ => "invalid escape sequence",
    }
}
