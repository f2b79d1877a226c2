//! `floe tables`: asks a running broker, and makes the catalog anew after the metadata was lost.

use super::arguments::{RecoverArguments, TablesArguments, TablesCommand, Target};
use super::assembly::Assembly;
use super::client::escape;
use super::{Failure, Outcome, print, print_json, progress, relocate, runtime};
use crate::http::{FlushRequest, ResumeRequest, TableView};
use crate::text::{bytes, plain, table};
use floe_env::date::utc_text;
use floe_env::{Error, Result};
use floe_iceberg_bridge::{FlushedTable, RecoveredTable};
use std::sync::Arc;
use std::time::Duration;

/// The longest that a flush may take: tables that are far behind are brought to the cut all the
/// way.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3600);

pub(super) fn run(arguments: TablesArguments, assembly: Arc<dyn Assembly>) -> Outcome {
    let TablesArguments { target, command } = arguments;
    match command {
        None | Some(TablesCommand::List) => {
            let tables = all(&target)?;
            if target.json { print_json(&tables) } else { print(&listing(&tables)) }
        }
        Some(TablesCommand::Describe { name }) => {
            let tables = all(&target)?;
            let found = tables.iter().find(|table| is_named(table, &name));
            let found = found.ok_or_else(|| no_table(&name))?;
            if target.json { print_json(found) } else { print(&description(found)) }
        }
        Some(TablesCommand::Resume { name, rewind, .. }) => {
            let resumed = resume(&target, &name, if rewind { "rewind" } else { "from-here" })?;
            if target.json { print_json(&resumed) } else { print(&listing(&[resumed])) }
        }
        Some(TablesCommand::Flush { names }) => {
            let flushed = flush(&target, names)?;
            if target.json {
                print_json(&flushed)?;
            } else {
                print(&flushes(&flushed))?;
            }
            flush_verdict(&flushed)
        }
        Some(TablesCommand::Recover(arguments)) => recover(arguments, target.json, &assembly),
        Some(TablesCommand::Relocate(arguments)) => relocate::run(arguments, assembly),
    }
}

fn recover(arguments: RecoverArguments, is_json: bool, assembly: &Arc<dyn Assembly>) -> Outcome {
    let config = arguments.settings.config()?;
    let recovering = async |env| assembly.recover_tables(&env, &config, &progress::show).await;
    let tables = runtime::run_command(recovering)?;
    progress::clear();
    let tables = tables?;
    if is_json {
        print_json(&tables)?;
    } else {
        print(&recovered(&tables))?;
    }
    verdict(&tables)
}

/// A failure where a table could not be put back.
pub(super) fn verdict(tables: &[RecoveredTable]) -> Outcome {
    let is_whole = tables.iter().all(|table| table.problem.is_none());
    if is_whole { Ok(()) } else { Err(Failure::Reported) }
}

/// What became of each table, and what that means.
pub(super) fn recovered(tables: &[RecoveredTable]) -> String {
    if tables.is_empty() {
        return "There is no table in the object store.\n".to_owned();
    }
    let rows = tables.iter().map(|table| {
        vec![
            or_none(table.table.clone()),
            or_none(table.topic.clone()),
            table.rows.to_string(),
            table.folder.clone(),
            table.problem.clone().unwrap_or_else(|| "in the catalog".to_owned()),
        ]
    });
    let listing = table(&["TABLE", "TOPIC", "ROWS", "FOLDER", "STATE"], rows.collect());
    format!(
        "{listing}\nTheir topics go on behind these rows. What was in no table yet is lost, and so \
         are topics' configs\nand groups' offsets. Nothing is deleted from the object store until \
         `floe doctor --reconcile`.\n"
    )
}

fn no_table(name: &str) -> Error {
    Error::invalid(format!("there is no table {name}"))
}

/// By its name, with or without the namespace.
fn is_named(table: &TableView, name: &str) -> bool {
    table.name == name || table.name.split_once('.').is_some_and(|(_, inside)| inside == name)
}

fn all(target: &Target) -> Result<Vec<TableView>> {
    let tables = runtime::run_command(async |env| {
        target.client(env)?.get::<Vec<TableView>>("/v1/tables").await
    })??;
    tables.ok_or_else(|| Error::invalid("the broker does not know /v1/tables"))
}

fn resume(target: &Target, name: &str, from: &str) -> Result<TableView> {
    let resumed = runtime::run_command(async |env| {
        let path = format!("/v1/tables/{}/resume", escape(name));
        let request = ResumeRequest { from: from.to_owned() };
        target.client(env)?.post::<TableView>(&path, &request).await
    })??;
    resumed.ok_or_else(|| no_table(name))
}

fn flush(target: &Target, tables: Vec<String>) -> Result<Vec<FlushedTable>> {
    progress::show(format!("{} tables are brought to one cut", tables.len()));
    let flushed = runtime::run_command(async |env| {
        let client = target.client(env)?.waiting(FLUSH_TIMEOUT);
        client.post::<Vec<FlushedTable>>("/v1/tables/flush", &FlushRequest { tables }).await
    })?;
    progress::clear();
    flushed?.ok_or_else(|| Error::invalid("the broker does not know /v1/tables/flush"))
}

/// A failure where a table is not at the cut.
pub(super) fn flush_verdict(tables: &[FlushedTable]) -> Outcome {
    let is_whole = tables.iter().all(|table| table.error.is_none());
    if is_whole { Ok(()) } else { Err(Failure::Reported) }
}

/// The snapshots, a line each.
pub(super) fn flushes(tables: &[FlushedTable]) -> String {
    let rows = tables.iter().map(|table| {
        vec![
            table.name.clone(),
            or_none(table.snapshot_id.map(|id| id.to_string())),
            table.rows.to_string(),
            or_none(table.error.clone()),
        ]
    });
    table(&["TABLE", "SNAPSHOT", "ROWS", "ERROR"], rows.collect())
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

pub(super) fn listing(tables: &[TableView]) -> String {
    if tables.is_empty() {
        return "There are no tables yet: a topic's first record makes its table.\n".to_owned();
    }
    let rows = tables.iter().map(|table| {
        let reason = table.reason.as_ref().or(table.last_error.as_ref());
        vec![
            table.name.clone(),
            table.state.clone(),
            table.lag_records.to_string(),
            format!("{:.1} s", table.lag_seconds),
            table.files.to_string(),
            or_none(table.small_file_ratio.map(percent)),
            bytes(table.bytes),
            table.rescued_rows.to_string(),
            table.undecodable_rows.to_string(),
            or_none(table.last_commit_ms.map(utc_text)),
            or_none(reason.cloned()),
        ]
    });
    let headings = [
        "TABLE",
        "STATE",
        "BEHIND",
        "LAG",
        "FILES",
        "SMALL",
        "SIZE",
        "RESCUED",
        "UNDECODABLE",
        "COMMITTED",
        "REASON",
    ];
    table(&headings, rows.collect())
}

/// Everything, a line each.
pub(super) fn description(table: &TableView) -> String {
    let retention = |ms: i64| format!("{:.0} s", ms as f64 / 1000.0);
    let facts = [
        ("topic", table.topic.clone()),
        ("state", table.state.clone()),
        ("reason", or_none(table.reason.clone())),
        ("last error", or_none(table.last_error.clone())),
        ("behind", format!("{} records, {:.1} s", table.lag_records, table.lag_seconds)),
        ("last commit", or_none(table.last_commit_ms.map(utc_text))),
        ("files", format!("{} of {} in all", table.files, bytes(table.bytes))),
        ("small files", or_none(table.small_file_ratio.map(percent))),
        ("columns", format!("{} beside the ten", table.columns)),
        ("rescued", format!("{} rows", table.rescued_rows)),
        ("undecodable", format!("{} rows", table.undecodable_rows)),
        ("lost", format!("{} offsets", table.gap_offsets)),
        ("retention", table.retention_ms.map_or_else(|| "for ever".to_owned(), retention)),
        ("commits", format!("{}, {} failed, since the start", table.commits, table.failures)),
        ("conflicts", format!("{} since the start", table.conflicts)),
        ("PUTs", format!("{} since the start", table.puts)),
    ];
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!("Table {}\n", plain(&table.name));
    for (name, fact) in facts {
        text.push_str(&format!("  {name:width$}  {}\n", plain(&fact)));
    }
    text
}
