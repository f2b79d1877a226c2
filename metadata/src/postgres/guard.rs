//! The single-broker guard: an advisory lock that a session of its own holds, which the server
//! releases when the process or its connection dies. Data is safe without it, because every write
//! is fenced; it keeps a second broker from being started by mistake.

use super::connection::Connection;
use super::error::{PgError, PgResult};
use super::options::PostgresOptions;
use floe_env::{Env, Error, Result};
use std::time::Duration;
use tokio::sync::Mutex;

/// A killed predecessor's session takes a moment to end.
const TRIES_AT_START: u32 = 10;
const WAIT_AT_START: Duration = Duration::from_millis(200);

/// The lock's session.
pub(crate) struct Guard {
    session: Mutex<Connection>,
}

impl Guard {
    /// Takes the lock, or says who has it.
    pub(crate) async fn take(env: &Env, options: &PostgresOptions) -> Result<Self> {
        for _ in 1..TRIES_AT_START {
            match locked_session(env, options).await {
                Ok(session) => return Ok(Self { session: Mutex::new(session) }),
                Err(error) if error.is_transient() => env.sleep(WAIT_AT_START).await,
                Err(error) => return Err(error),
            }
        }
        let session = locked_session(env, options).await?;
        Ok(Self { session: Mutex::new(session) })
    }

    /// Makes sure that the lock is held, taking it again where its session was lost.
    pub(crate) async fn hold(&self, env: &Env, options: &PostgresOptions) -> Result<()> {
        let mut session = self.session.lock().await;
        if session.is_closed() {
            *session = locked_session(env, options).await?;
        }
        Ok(())
    }
}

async fn locked_session(env: &Env, options: &PostgresOptions) -> Result<Connection> {
    let session = Connection::open(env, options).await?;
    let key = lock_key(&options.schema);
    let rows = session.query("SELECT pg_try_advisory_lock($1)", &[&key]).await?;
    let is_ours = rows.first().map(|row| row.try_get::<_, bool>(0)).transpose();
    if is_ours.map_err(PgError::from)? == Some(true) {
        return Ok(session);
    }
    let holder = holder(&session, key).await?;
    Err(Error::unavailable(format!("metadata is in use by another {holder}")))
}

async fn holder(session: &Connection, key: i64) -> PgResult<String> {
    let rows = session
        .query(
            "SELECT activity.application_name || coalesce(' at ' || host(activity.client_addr), '')
             FROM pg_locks locks JOIN pg_stat_activity activity USING (pid)
             WHERE locks.locktype = 'advisory' AND locks.granted
                 AND (locks.classid::bigint << 32 | locks.objid::bigint) = $1",
            &[&key],
        )
        .await?;
    match rows.first() {
        Some(row) => Ok(row.try_get(0)?),
        None => Ok("broker".to_owned()),
    }
}

/// The lock's number: FNV-1a of the schema's name.
fn lock_key(schema: &str) -> i64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in b"floe:".iter().chain(schema.as_bytes()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash as i64
}
