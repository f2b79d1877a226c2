//! One connection: its session settings, and its prepared statements.

use super::error::{PgError, PgResult, is_ambiguous_commit};
use super::options::PostgresOptions;
use super::tls::{self, Tls};
use floe_env::{Env, Error, Lane, Result};
use futures::future::join_all;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, Statement};

/// Requests that one flight sends in order; `join_all` polls so few in the order given.
const FLIGHT_REQUESTS_MAX: usize = 30;

/// Statements are planned once: all find their rows by key, in the order of their parameters, and
/// planning one for arrays of 10,000 keys takes longer than running it. Not every server of this
/// protocol has the setting.
const ONE_PLAN: &str = "SET plan_cache_mode TO force_generic_plan";

/// Two transactions may lock rows in another order where one does not read them first: rather than
/// wait for each other, the hasty one gives up.
const BEGIN_WITHOUT_WAITING: &str = "BEGIN; SET LOCAL lock_timeout = '100ms'";

type SqlResult = Result<Vec<Row>, tokio_postgres::Error>;

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
        let plans = client.batch_execute(ONE_PLAN);
        let durable = client.query_one("SHOW synchronous_commit", &[]);
        let (set, plans, durable) = futures::join!(set, plans, durable);
        set.map_err(PgError::from)?;
        if let Err(error) = plans {
            tracing::debug!(%error, "the server plans each statement anew");
        }
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
        let (begun, rows) = futures::join!(begin, self.send(queries, &statements));
        begun?;
        // The first error is the cause of those after it.
        rows.into_iter().map(|rows| rows.map_err(PgError::from)).collect()
    }

    /// Sends these changes and COMMIT in one flight. A failed statement makes COMMIT roll back,
    /// which it reports as success, so every answer is looked at.
    pub(crate) async fn commit(&self, changes: &[Query<'_>]) -> PgResult<()> {
        assert!(changes.len() < FLIGHT_REQUESTS_MAX, "a flight is sent in order");
        let statements = self.prepare_all(changes).await?;
        let commit = self.client.batch_execute("COMMIT");
        let (answers, committed) = futures::join!(self.send(changes, &statements), commit);
        committed_answers(Ok(()), answers, committed).map(|_| ())
    }

    /// Sends a whole transaction in one flight. It waits for no lock longer than a moment; then it
    /// fails, as where any of its statements does, and the transaction is left to be rolled back.
    pub(crate) async fn run_at_once(&self, queries: &[Query<'_>]) -> PgResult<Vec<Vec<Row>>> {
        assert!(queries.len() + 1 < FLIGHT_REQUESTS_MAX, "a flight is sent in order");
        let statements = self.prepare_all(queries).await?;
        let begin = self.client.batch_execute(BEGIN_WITHOUT_WAITING);
        let commit = self.client.batch_execute("COMMIT");
        let (begun, answers, committed) =
            futures::join!(begin, self.send(queries, &statements), commit);
        committed_answers(begun, answers, committed)
    }

    /// Sends queries in order.
    async fn send(&self, queries: &[Query<'_>], statements: &[Statement]) -> Vec<SqlResult> {
        let queries = queries.iter().zip(statements);
        join_all(queries.map(|(query, sql)| self.client.query(sql, query.parameters))).await
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

/// The answers of a transaction that has ended with COMMIT.
fn committed_answers(
    begun: Result<(), tokio_postgres::Error>,
    answers: Vec<SqlResult>,
    committed: Result<(), tokio_postgres::Error>,
) -> PgResult<Vec<Vec<Row>>> {
    let answers = begun.and_then(|()| answers.into_iter().collect::<Result<Vec<_>, _>>());
    let answers = answers.map_err(|error| {
        // An answer of the server to a statement before COMMIT: COMMIT rolled back.
        let certain = error.code().is_some();
        if certain { PgError::Sql(error) } else { PgError::Ambiguous(error) }
    })?;
    committed.map_err(|error| match is_ambiguous_commit(&error) {
        true => PgError::Ambiguous(error),
        false => PgError::Sql(error),
    })?;
    Ok(answers)
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
    let Some(roots) = &options.tls else {
        let (client, connection) = options.config.connect(NoTls).await.map_err(PgError::from)?;
        drive(env, connection);
        return Ok(client);
    };
    let tls = Tls::load(env, roots).await?;
    let connected = options.config.connect(tls).await;
    let (client, connection) = connected
        .map_err(|error| tls::explain(&error).unwrap_or_else(|| PgError::from(error).into()))?;
    drive(env, connection);
    Ok(client)
}

/// Runs a connection's reading and writing until its client is gone.
fn drive(
    env: &Env,
    connection: impl Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
) {
    env.spawn("postgres-connection", Lane::Foreground, async move {
        // Whoever has the client sees the same.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to PostgreSQL ended");
        }
    });
}
