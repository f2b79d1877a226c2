//! A few connections, so that commits share an fsync of the server, and what becomes of a
//! connection and of a call after a try.

use super::connection::Connection;
use super::error::{NextStep, PgError, PgResult};
use super::guard::Guard;
use super::options::PostgresOptions;
use floe_env::{Env, Error, Result};
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 4;
/// How often one call starts over.
const ATTEMPTS_MAX: u32 = 20;
/// How often of these for a lost connection: each idle one may be stale.
const RECONNECTS_MAX: u32 = CONNECTIONS_MAX as u32 + 1;
/// The longest random wait before a call starts over, milliseconds.
const WAIT_MS_MAX: u32 = 50;

/// The connections.
pub(crate) struct Pool {
    env: Env,
    options: PostgresOptions,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    guard: Option<Guard>,
}

/// A connection for one try; closed when dropped in the middle of a transaction.
pub(crate) struct Taken {
    connection: Connection,
    /// It has just been made.
    pub(crate) is_new: bool,
    _permit: OwnedSemaphorePermit,
}

impl Deref for Taken {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// How often a call has started over.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    all: u32,
    reconnects: u32,
}

/// Whatever keeps a running broker from its server (a certificate that is being changed, a role
/// that is missing on a standby): nothing happened, and it may be mended any time.
fn away(error: Error) -> Error {
    Error::unavailable("PostgreSQL does not take a new session").with_source(error)
}

impl Pool {
    pub(crate) fn new(
        env: Env,
        options: PostgresOptions,
        guard: Option<Guard>,
        first: Connection,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { env, options, permits, idle: Mutex::new(vec![first]), guard }
    }

    /// A connection, an idle one if there is.
    pub(crate) async fn take(&self) -> Result<Taken> {
        if let Some(guard) = &self.guard {
            guard.hold(&self.env, &self.options).await.map_err(away)?;
        }
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| Error::bug("the connections' semaphore is closed"))?;
        let idle = {
            let mut idle = self.idle.lock();
            idle.retain(|connection| !connection.is_closed());
            idle.pop()
        };
        let is_new = idle.is_none();
        let connection = match idle {
            Some(connection) => connection,
            None => Connection::open(&self.env, &self.options).await.map_err(away)?,
        };
        Ok(Taken { connection, is_new, _permit: permit })
    }

    /// Takes a connection back after a try. `None`: start over.
    pub(crate) async fn settle<T>(
        &self,
        taken: Taken,
        result: PgResult<T>,
        attempts: &mut Attempts,
    ) -> Option<Result<T>> {
        let error = match result {
            Ok(value) => {
                self.put_back(taken);
                return Some(Ok(value));
            }
            Err(error) => error,
        };
        let step = error.next_step();
        let is_usable = !matches!(error, PgError::Ambiguous(_)) && step != NextStep::Reconnect;
        if is_usable && taken.roll_back().await.is_ok() {
            self.put_back(taken);
        }
        attempts.all += 1;
        attempts.reconnects += u32::from(step == NextStep::Reconnect);
        let is_over = attempts.all >= ATTEMPTS_MAX || attempts.reconnects >= RECONNECTS_MAX;
        if step == NextStep::Fail || is_over {
            return Some(Err(error.into()));
        }
        let wait_ms = f64::from(attempts.all.min(WAIT_MS_MAX)) * self.env.random_unit();
        self.env.sleep(Duration::from_secs_f64(wait_ms / 1000.0)).await;
        None
    }

    fn put_back(&self, taken: Taken) {
        if !taken.connection.is_closed() {
            self.idle.lock().push(taken.connection);
        }
    }
}
