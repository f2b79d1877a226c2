//! Opening a metadata file: durability settings, which are verified, and migrations.
//!
//! Migrations are numbered SQL files. `schema` holds the version that the file is at, and
//! `min_broker`, the oldest schema version whose code may still use it: an older broker refuses to
//! start, one between the two goes on without the newer parts.

use super::error::{SqlResult, statement_error};
use floe_env::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// A migration's SQL, and the oldest code version that can use what it leaves.
struct Migration {
    sql: &'static str,
    min_broker: i64,
}

/// In order; the first leads to version 1. An entry that was released never changes.
const MIGRATIONS: &[Migration] =
    &[Migration { sql: include_str!("migrations/0001_initial.sql"), min_broker: 1 }];

/// `FLOE`, in the file's header, so that no other database is taken for ours.
const APPLICATION_ID: i64 = 0x464c_4f45;
/// How long a connection waits for another one's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Statements that a connection keeps prepared.
const PREPARED_STATEMENTS_MAX: usize = 128;
/// Page cache of the writer and of each reader, KiB.
const WRITER_CACHE_KIB: i64 = 64 << 10;
const READER_CACHE_KIB: i64 = 16 << 10;
/// The log is cut back to this after a checkpoint, bytes.
const WAL_BYTES_KEPT_MAX: i64 = 64 << 20;
/// `PRAGMA synchronous` answers this for FULL.
const SYNCHRONOUS_FULL: i64 = 2;

/// Opens the writer's connection; makes the file, or brings it to this version.
pub(crate) fn open_writer(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> SqlResult<Connection> {
        let mut connection = Connection::open_with_flags(path, flags)?;
        prepare(&connection, WRITER_CACHE_KIB)?;
        refuse_other_files(&connection, path)?;
        make_durable(&connection)?;
        migrate(&mut connection)?;
        Ok(connection)
    };
    let connection = open().map_err(|error| in_file(error.into(), path))?;
    sync_directory(path)?;
    Ok(connection)
}

/// Opens a reader's connection on a file that a writer has opened.
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    // Not read-only: a reader may have to write the log's shared index.
    let connection = open_copier(path)?;
    let only_queries = connection.pragma_update(None, "query_only", true);
    only_queries.map_err(|error| in_file(statement_error(error), path))?;
    Ok(connection)
}

/// Opens a connection that reads, and may write another file.
pub(crate) fn open_copier(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        prepare(&connection, READER_CACHE_KIB)?;
        Ok(connection)
    };
    open().map_err(|error| in_file(statement_error(error), path))
}

fn in_file(error: Error, path: &Path) -> Error {
    error.context(&format!("open metadata file {}", path.display()))
}

fn prepare(connection: &Connection, cache_kib: i64) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS_MAX);
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    // Else statements are compiled again whenever a bound value changes, in case statistics that
    // are never gathered here had something to say about it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A dropped connection must not write: the next start finds the log and goes on from it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}

fn refuse_other_files(connection: &Connection, path: &Path) -> SqlResult<()> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let id: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if tables > 0 && id != APPLICATION_ID {
        let message = format!("{} is not a metadata file of Floe", path.display());
        return Err(Error::invalid(message).into());
    }
    Ok(())
}

fn make_durable(connection: &Connection) -> SqlResult<()> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        let message = format!("the file system does not support WAL (journal mode is {mode})");
        return Err(Error::invalid(message).into());
    }
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection
        .pragma_update_and_check(None, "journal_size_limit", WAL_BYTES_KEPT_MAX, |_| Ok(()))?;
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if synchronous != SYNCHRONOUS_FULL {
        return Err(Error::bug("SQLite did not take synchronous=FULL").into());
    }
    Ok(())
}

/// Brings the file to the newest version, in one transaction.
fn migrate(connection: &mut Connection) -> SqlResult<()> {
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema (version INTEGER NOT NULL, min_broker INTEGER NOT NULL)",
    )?;
    let stored = transaction.query_row("SELECT version, min_broker FROM schema", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    });
    let (version, min_broker) = match stored {
        Ok(found) => found,
        Err(rusqlite::Error::QueryReturnedNoRows) => {
            transaction.execute("INSERT INTO schema VALUES (0, 0)", [])?;
            (0, 0)
        }
        Err(error) => return Err(error.into()),
    };
    let newest = MIGRATIONS.len() as i64;
    if min_broker > newest {
        let message = format!(
            "the metadata's schema version {version} needs a broker that knows version \
             {min_broker}, and this one knows {newest}"
        );
        return Err(Error::invalid(message).into());
    }
    let done = usize::try_from(version)
        .map_err(|_| Error::corrupt("the metadata's schema version is negative"))?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(done) {
        transaction.execute_batch(migration.sql)?;
        transaction.execute(
            "UPDATE schema SET version = ?1, min_broker = ?2",
            (index as i64 + 1, migration.min_broker),
        )?;
    }
    transaction.commit()?;
    Ok(())
}

/// A new file is durable only when its directory is.
fn sync_directory(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let synced = std::fs::File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(|error| {
        Error::unavailable(format!("sync directory {}", parent.display())).with_source(error)
    })
}
