//! One connection: its session settings, and its prepared statements.

use super::error::{PgError, PgResult, is_ambiguous_commit};
use super::options::PostgresOptions;
use floe_env::{Env, Error, Lane, Result};
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, Statement};

/// Requests that one flight sends in order; `join_all` polls so few in the order given.
const FLIGHT_REQUESTS_MAX: usize = 30;

/// The parameters of a statement.
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A session.
pub(crate) struct Connection {
    client: Client,
    statements: Mutex<BTreeMap<&'static str, Statement>>,
}

impl Connection {
    /// Connects, and refuses a server that would lose what it has acknowledged.
    pub(crate) async fn open(env: &Env, options: &PostgresOptions) -> Result<Self> {
        let client = connect(env, options).await?;
        let session = format!(
            "SET search_path TO {}; SET default_transaction_isolation TO 'read committed'",
            options.schema
        );
        let set = client.batch_execute(&session);
        let durable = client.query_one("SHOW synchronous_commit", &[]);
        let (set, durable) = futures::join!(set, durable);
        set.map_err(PgError::from)?;
        let durable: String = durable.map_err(PgError::from)?.get(0);
        if durable == "off" {
            return Err(Error::invalid(
                "PostgreSQL has synchronous_commit=off: acknowledged records would be lost in a \
                 crash; switch it on for Floe's role or database",
            ));
        }
        Ok(Self { client, statements: Mutex::default() })
    }

    /// True once nothing can be sent any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The prepared form of a statement. Prepare all of a flight before it begins.
    pub(crate) async fn prepare(&self, sql: &'static str) -> PgResult<Statement> {
        let known = self.statements.lock().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.lock().insert(sql, statement.clone());
        Ok(statement)
    }

    /// Runs a query outside of a transaction: one statement sees one moment.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> PgResult<Vec<Row>> {
        let statement = self.prepare(sql).await?;
        Ok(self.client.query(&statement, parameters).await?)
    }

    /// Sends BEGIN and these queries in one flight.
    pub(crate) async fn begin(&self, queries: &[Query<'_>]) -> PgResult<Vec<Vec<Row>>> {
        assert!(queries.len() < FLIGHT_REQUESTS_MAX, "a flight is sent in order");
        let statements = self.prepare_all(queries).await?;
        let begin = self.client.batch_execute("BEGIN");
        let rows = queries.iter().zip(&statements);
        let rows = rows.map(|(query, statement)| self.client.query(statement, query.parameters));
        let (begun, rows) = futures::join!(begin, join_all(rows));
        begun?;
        // The first error is the cause of those after it.
        rows.into_iter().map(|rows| rows.map_err(PgError::from)).collect()
    }

    /// Sends these changes and COMMIT in one flight. A failed statement makes COMMIT roll back,
    /// which it reports as success, so every answer is looked at.
    pub(crate) async fn commit(&self, changes: &[Query<'_>]) -> PgResult<()> {
        assert!(changes.len() < FLIGHT_REQUESTS_MAX, "a flight is sent in order");
        let statements = self.prepare_all(changes).await?;
        let sent = changes.iter().zip(&statements);
        let mut flight: Vec<BoxFuture<'_, Result<(), tokio_postgres::Error>>> = sent
            .map(|(change, statement)| {
                let answer = self.client.execute(statement, change.parameters);
                Box::pin(async move { answer.await.map(|_| ()) }) as BoxFuture<'_, _>
            })
            .collect();
        flight.push(Box::pin(self.client.batch_execute("COMMIT")));
        let mut answers = join_all(flight).await;
        let committed = answers.pop().expect("COMMIT was sent");
        for answer in answers {
            if let Err(error) = answer {
                // An answer of the server to a statement before COMMIT: COMMIT rolled back.
                let certain = error.code().is_some();
                return Err(if certain { PgError::Sql(error) } else { PgError::Ambiguous(error) });
            }
        }
        committed.map_err(|error| match is_ambiguous_commit(&error) {
            true => PgError::Ambiguous(error),
            false => PgError::Sql(error),
        })
    }

    /// Leaves a transaction without changing anything.
    pub(crate) async fn roll_back(&self) -> PgResult<()> {
        Ok(self.client.batch_execute("ROLLBACK").await?)
    }

    /// Runs a script outside of any flight, without answers.
    pub(crate) async fn run_script(&self, sql: &str) -> PgResult<()> {
        Ok(self.client.batch_execute(sql).await?)
    }

    async fn prepare_all(&self, queries: &[Query<'_>]) -> PgResult<Vec<Statement>> {
        let mut statements = Vec::with_capacity(queries.len());
        for query in queries {
            statements.push(self.prepare(query.sql).await?);
        }
        Ok(statements)
    }
}

/// A statement with its parameters.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    pub(crate) sql: &'static str,
    pub(crate) parameters: Parameters<'a>,
}

/// Shorthand.
pub(crate) fn query<'a>(sql: &'static str, parameters: Parameters<'a>) -> Query<'a> {
    Query { sql, parameters }
}

async fn connect(env: &Env, options: &PostgresOptions) -> Result<Client> {
    let connected = options.config.connect(NoTls).await;
    let (client, connection) = connected.map_err(PgError::from)?;
    env.spawn("postgres-connection", Lane::Foreground, async move {
        // Whoever has the client sees the same.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to PostgreSQL ended");
        }
    });
    Ok(client)
}
