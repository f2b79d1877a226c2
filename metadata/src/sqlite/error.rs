//! SQLite's errors as error kinds.

use floe_env::Error;
use rusqlite::ErrorCode;

/// What goes wrong inside a transaction: SQLite's own errors, or ours.
#[derive(Debug)]
pub(crate) enum SqlError {
    Sqlite(rusqlite::Error),
    Floe(Error),
}

pub(crate) type SqlResult<T> = Result<T, SqlError>;

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        Self::Floe(error)
    }
}

impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Floe(error) => error,
            SqlError::Sqlite(error) => statement_error(error),
        }
    }
}

/// The error of a statement whose transaction is rolled back: nothing happened.
pub(crate) fn statement_error(error: rusqlite::Error) -> Error {
    use rusqlite::Error as Sqlite;
    let described = match &error {
        Sqlite::SqliteFailure(failure, _) => code_error(failure.code),
        Sqlite::FromSqlConversionFailure(..)
        | Sqlite::IntegralValueOutOfRange(..)
        | Sqlite::InvalidColumnType(..)
        | Sqlite::Utf8Error(..) => Error::corrupt("a stored row is malformed"),
        _ => Error::bug("a metadata statement is wrong"),
    };
    described.with_source(error)
}

fn code_error(code: ErrorCode) -> Error {
    match code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            Error::corrupt("the metadata file is damaged")
        }
        ErrorCode::DiskFull => Error::unavailable("the metadata file's disk is full"),
        ErrorCode::SystemIoFailure => Error::unavailable("the metadata file cannot be used"),
        ErrorCode::CannotOpen
        | ErrorCode::PermissionDenied
        | ErrorCode::ReadOnly
        | ErrorCode::NoLargeFileSupport => {
            Error::unavailable("the metadata file cannot be opened or written")
        }
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted => Error::retry("the metadata file is busy"),
        ErrorCode::TooBig => Error::limit("a metadata row is too large"),
        _ => Error::bug("a metadata statement is wrong"),
    }
}

/// True where a COMMIT may have reached the disk although it failed: a write or sync of the log
/// went wrong after its pages, and maybe its end mark, were handed to the system.
pub(crate) fn is_ambiguous_commit(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}
