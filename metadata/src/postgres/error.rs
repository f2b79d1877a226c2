//! PostgreSQL's errors as error kinds, and which of them are worth another try at once.

use floe_env::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

/// What goes wrong inside a transaction.
#[derive(Debug)]
pub(crate) enum PgError {
    /// A statement before COMMIT was sent: nothing happened.
    Sql(tokio_postgres::Error),
    /// The connection was lost, or the server gave up, when COMMIT had been sent.
    Ambiguous(tokio_postgres::Error),
    /// Ours; the transaction is rolled back.
    Floe(Error),
}

pub(crate) type PgResult<T> = Result<T, PgError>;

impl From<tokio_postgres::Error> for PgError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for PgError {
    fn from(error: Error) -> Self {
        Self::Floe(error)
    }
}

/// What to do about a failed try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Give the error to the caller.
    Fail,
    /// Another transaction was in the way: start over.
    StartOver,
    /// The connection was stale before anything happened: start over on another one.
    Reconnect,
}

impl PgError {
    /// What to do about it.
    pub(crate) fn next_step(&self) -> NextStep {
        let Self::Sql(error) = self else {
            return NextStep::Fail;
        };
        match error.code() {
            None if lost_connection(error) => NextStep::Reconnect,
            None => NextStep::Fail,
            Some(code) if is_server_going(code) => NextStep::Reconnect,
            // A unique violation means that somebody else was first; the next try sees what he did.
            Some(code)
                if *code == SqlState::T_R_SERIALIZATION_FAILURE
                    || *code == SqlState::T_R_DEADLOCK_DETECTED
                    || *code == SqlState::UNIQUE_VIOLATION =>
            {
                NextStep::StartOver
            }
            Some(_) => NextStep::Fail,
        }
    }
}

impl From<PgError> for Error {
    fn from(error: PgError) -> Self {
        match error {
            PgError::Floe(error) => error,
            PgError::Ambiguous(error) => {
                Error::unknown_outcome("PostgreSQL was lost during a commit").with_source(error)
            }
            PgError::Sql(error) => {
                let (kind, message) = describe(&error);
                Error::new(kind, message).with_source(error)
            }
        }
    }
}

/// True where there was no answer of the server.
pub(crate) fn lost_connection(error: &tokio_postgres::Error) -> bool {
    let is_io = std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>());
    error.is_closed() || is_io
}

/// True where the server ends the session: a restart, a crash, a fail-over.
fn is_server_going(code: &SqlState) -> bool {
    code.code().starts_with("57P") || code.code().starts_with("08")
}

/// True where COMMIT itself got this answer and may have been made all the same.
pub(crate) fn is_ambiguous_commit(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        None => true,
        Some(code) => is_server_going(code) || code.code().starts_with("XX"),
    }
}

fn describe(error: &tokio_postgres::Error) -> (ErrorKind, &'static str) {
    let Some(code) = error.code() else {
        let is_wrong_value = error.to_string().contains("deserializing");
        return match is_wrong_value {
            true => (ErrorKind::Corrupt, "a stored row is malformed"),
            false => (ErrorKind::Unavailable, "PostgreSQL cannot be reached"),
        };
    };
    if *code == SqlState::T_R_SERIALIZATION_FAILURE
        || *code == SqlState::T_R_DEADLOCK_DETECTED
        || *code == SqlState::UNIQUE_VIOLATION
    {
        return (ErrorKind::Retry, "metadata transactions got in each other's way");
    }
    match code.code().get(..2).unwrap_or_default() {
        "08" | "53" | "57" | "58" | "25" | "55" => {
            (ErrorKind::Unavailable, "PostgreSQL does not serve")
        }
        "28" | "3D" | "3F" => (ErrorKind::Invalid, "PostgreSQL refuses the connection"),
        "XX" => (ErrorKind::Corrupt, "PostgreSQL found its data damaged"),
        "54" => (ErrorKind::Limit, "a metadata row is too large"),
        _ => (ErrorKind::Bug, "a metadata statement is wrong"),
    }
}
