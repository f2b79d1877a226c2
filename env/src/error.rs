//! Errors that cross crates. Their kind says what the caller must do; the message says what
//! happened, in lower case and with its context. Each crate keeps a precise error of its own where
//! callers tell cases apart, and turns it into this one at its border. An error is logged once,
//! where it is handled.

use std::fmt;
use std::sync::Arc;

/// What the caller must do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nothing happened; the same call may succeed later.
    Retry,
    /// It may or may not have happened; ask again by id before doing anything else.
    UnknownOutcome,
    /// A newer holder has taken over; stop acting in this role.
    Fenced,
    /// The input is wrong and stays wrong.
    Invalid,
    /// Stored bytes are not what was written.
    Corrupt,
    /// A store or peer cannot be reached; nothing happened.
    Unavailable,
    /// A named limit is reached; nothing happened.
    Limit,
    /// Floe itself is wrong.
    Bug,
}

/// An error with its kind, its message and what caused it.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync + 'static>>,
}

/// Shorthand for results whose error crosses crates.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
    ) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// The same error with what was being done put before its message.
    #[must_use]
    pub fn context(mut self, doing: &str) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened, without its cause.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// True where the call had certainly no effect and may be made again as it is.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Retry | ErrorKind::Unavailable | ErrorKind::Limit)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        let mut cause = self.source.as_deref().map(|cause| cause as &dyn std::error::Error);
        while let Some(error) = cause {
            write!(formatter, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

macro_rules! constructor {
    ($(#[$doc:meta])* $name:ident, $kind:ident) => {
        impl Error {
            $(#[$doc])*
            pub fn $name(message: impl Into<String>) -> Self {
                Self::new(ErrorKind::$kind, message)
            }
        }
    };
}

constructor! {
    /// Nothing happened; try again.
    retry, Retry
}
constructor! {
    /// Ask again by id.
    unknown_outcome, UnknownOutcome
}
constructor! {
    /// A newer holder has taken over.
    fenced, Fenced
}
constructor! {
    /// The input is wrong.
    invalid, Invalid
}
constructor! {
    /// Stored bytes are wrong.
    corrupt, Corrupt
}
constructor! {
    /// A store or peer cannot be reached.
    unavailable, Unavailable
}
constructor! {
    /// A named limit is reached.
    limit, Limit
}
constructor! {
    /// Floe itself is wrong.
    bug, Bug
}
