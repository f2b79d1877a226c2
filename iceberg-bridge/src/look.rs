//! A look: somebody loads a table, so the table is brought to where the topic is now.
//!
//! The cut is taken when the look begins. Covered already: answered at once, nothing is put. Else
//! the look joins a turn, and waits for it for a while; the turn goes on without it. Too late, the
//! newest committed snapshot is the answer, and says how far it is behind.

use crate::bridge::Bridge;
use crate::commit::LoadedTable;
use crate::worker::{Shared, Worker, ends};
use floe_env::{Error, Result};
use std::sync::Arc;

/// How far an answer is behind its look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Offsets that it lacks.
    pub records: i64,
    /// For how long it has lacked some, as far as was seen, ms.
    pub ms: i64,
}

/// A table as a look found it.
#[derive(Clone, Debug)]
pub struct LookAnswer {
    /// The version.
    pub table: Arc<LoadedTable>,
    /// `None` if it has everything that was in the topic when the look began.
    pub behind: Option<Behind>,
}

pub(crate) async fn look(shared: &Shared, worker: &Arc<Worker>) -> Result<Option<LookAnswer>> {
    let Some(cut) = shared.log.cut(worker.topic).await? else {
        // The topic is gone: what the table has is all it will ever have.
        let table = worker.refresh().await?;
        return Ok(table.map(|table| LookAnswer { table, behind: None }));
    };
    let ends = ends(&cut);
    let has_records = cut.iter().any(|ends| ends.last_stable_offset > ends.log_start_offset);
    let newest = worker.head();
    let is_covered = newest.is_some() && worker.covers(&ends);
    // Another broker may have committed it.
    let newest = if is_covered { newest } else { worker.refresh_head().await? };
    if newest.is_none() && !has_records {
        return Ok(None);
    }
    let mut failure = None;
    if !worker.covers(&ends) && !worker.is_hopeless() {
        let mut ended = worker.request(cut, true);
        let waiting = ended.wait_for(Option::is_some);
        failure = match shared.env.timeout(shared.config.look_timeout, waiting).await {
            Some(Ok(end)) => end.clone().and_then(Result::err),
            Some(Err(_)) => Some(Error::retry("the commit went away")),
            None => Some(Error::retry("the commit takes longer than the look may wait")),
        };
    }
    let Some(table) = worker.newest().await? else {
        return failure.map_or(Ok(None), |error| Err(Bridge::no_version(error)));
    };
    let behind = if worker.covers(&ends) { None } else { Some(behind(worker, &ends)) };
    if let Some(behind) = behind {
        let (topic, Behind { records, ms }) = (&worker.topic_name, behind);
        tracing::warn!(%topic, records, ms, "a look was answered with an older snapshot");
    }
    Ok(Some(LookAnswer { table, behind }))
}

fn behind(worker: &Worker, ends: &[i64]) -> Behind {
    let (records, _) = worker.behind(ends);
    Behind { records, ms: i64::try_from(worker.lag().as_millis()).unwrap_or(i64::MAX) }
}
