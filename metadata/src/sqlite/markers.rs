//! The end of a transaction: facts and markers in one transaction.

use super::error::SqlResult;
use super::fresh::FreshExtents;
use super::{commit, facts, log, producers};
use crate::decide::{self, MarkerRow};
use crate::facts::{Change, ChangeOutcome};
use crate::rows::{MarkerFacts, MarkerOutcome};
use kfs::TopicPartition;
use rusqlite::Connection;

/// See [`Backend::end_transaction`](crate::Backend::end_transaction).
pub(crate) fn end(
    fresh: FreshExtents<'_>,
    change: &Change,
    markers: &[MarkerFacts],
    now_ms: i64,
) -> SqlResult<Option<Vec<MarkerOutcome>>> {
    if facts::change(fresh, change, now_ms)? == ChangeOutcome::Rejected {
        return Ok(None);
    }
    let sql = fresh.sql;
    let mut outcomes = Vec::with_capacity(markers.len());
    for marker in markers {
        outcomes.push(write_marker(sql, marker, now_ms)?);
    }
    Ok(Some(outcomes))
}

fn write_marker(sql: &Connection, marker: &MarkerFacts, now_ms: i64) -> SqlResult<MarkerOutcome> {
    let partition = marker.partition;
    let mut statement = sql.prepare_cached(commit::READ_PARTITION)?;
    let Some(mut row) = commit::read_partition(&mut statement, partition)? else {
        return Ok(MarkerOutcome::UnknownPartition);
    };
    if row.producers.has_spilled && row.producers.get(marker.producer).is_none() {
        producers::add_spilled(sql, partition, marker.producer, &mut row.producers)?;
    }
    let (outcome, written) = decide::decide_marker(&mut row, marker, now_ms);
    let Some(written) = written else {
        return Ok(outcome);
    };
    row.spilled = row.producers.spill();
    commit::write_partitions(sql, &[(partition, row)])?;
    insert(sql, partition, &written)?;
    Ok(outcome)
}

fn insert(sql: &Connection, partition: TopicPartition, written: &MarkerRow) -> SqlResult<()> {
    log::insert_extent(sql, partition, &written.extent, None)?;
    let Some(aborted) = &written.aborted else {
        return Ok(());
    };
    let mut statement =
        sql.prepare_cached("INSERT INTO aborted VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    statement.execute((
        partition.topic.0.as_bytes(),
        partition.partition.0,
        aborted.last_offset,
        aborted.producer.0,
        aborted.first_offset,
        aborted.last_stable_offset,
    ))?;
    Ok(())
}
