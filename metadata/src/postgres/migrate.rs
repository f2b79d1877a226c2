//! Brings the schema to this version; brokers that start at the same time take turns. The rules are
//! those of the SQLite backend: `min_broker` is the oldest version whose code may use the schema.

use super::connection::{Connection, query};
use super::error::{PgError, PgResult};
use floe_env::Error;

struct Migration {
    sql: &'static str,
    min_broker: i64,
}

/// In order; the first leads to version 1. An entry that was released never changes.
const MIGRATIONS: &[Migration] =
    &[Migration { sql: include_str!("migrations/0001_initial.sql"), min_broker: 1 }];

/// One migration at a time in a database; any number serves.
const MIGRATION_LOCK: i64 = 0x666c_6f65;

pub(crate) async fn migrate(connection: &Connection, schema: &str) -> PgResult<()> {
    connection.begin(&[query("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK])]).await?;
    // The name is checked to need no quotes.
    connection
        .run_script(&format!(
            "CREATE SCHEMA IF NOT EXISTS {schema};
             CREATE TABLE IF NOT EXISTS schema_version
                 (version bigint NOT NULL, min_broker bigint NOT NULL)"
        ))
        .await?;
    let rows = connection.query("SELECT version, min_broker FROM schema_version", &[]).await?;
    let (version, min_broker): (i64, i64) = match rows.first() {
        Some(row) => (row.try_get(0)?, row.try_get(1)?),
        None => {
            connection.run_script("INSERT INTO schema_version VALUES (0, 0)").await?;
            (0, 0)
        }
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
        .map_err(|_| PgError::Floe(Error::corrupt("the metadata's schema version is negative")))?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(done) {
        connection.run_script(migration.sql).await?;
        let update = format!(
            "UPDATE schema_version SET version = {}, min_broker = {}",
            index + 1,
            migration.min_broker
        );
        connection.run_script(&update).await?;
    }
    connection.commit(&[]).await
}
