//! What a table may be: the committed records that ever were, less the gaps. Each once, at its
//! partition and offset; and a look sees every record that was acknowledged before it began. Its
//! snapshots are one line: none that somebody saw is ever replaced.

use crate::model::Model;
use crate::table_files::TableContent;
use floe_iceberg_bridge::progress::{PROGRESS_KEY, Progress};
use kfs::{PartitionIndex, TopicId, TopicPartition};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use uuid::Uuid;

/// Summary key of the gaps that a commit found.
const GAPS_KEY: &str = "floe.gaps";

/// A table as somebody saw it.
pub struct TableSeen<'a> {
    /// The topic.
    pub topic: TopicId,
    /// Acknowledged ends of all partitions when the look began.
    pub floors: &'a [i64],
    /// The answer said that it is behind.
    pub is_behind: bool,
    /// What is in it.
    pub content: &'a TableContent,
}

/// Checks a table against what clients were promised and have read. Each violation is noted, with
/// `who` in front.
pub fn check_table(model: &Model, who: &str, seen: &TableSeen<'_>) {
    for finding in findings(model, seen) {
        model.violation(format!("{who}: {finding}"));
    }
}

fn findings(model: &Model, seen: &TableSeen<'_>) -> Vec<String> {
    let progress = seen.content.summary.get(PROGRESS_KEY).ok_or("no progress map".to_owned());
    let progress = progress.and_then(|text| Progress::unpack(text).map_err(|e| e.to_string()));
    let progress = match progress {
        Ok(progress) => progress,
        Err(error) => return vec![error],
    };
    let mut found = Vec::new();
    found.extend(rewritten(model, seen.content.table, &seen.content.snapshots));
    let mut rows: BTreeMap<i32, BTreeMap<i64, _>> = BTreeMap::new();
    let mut first_doubled = None;
    for (partition, offset, name) in &seen.content.rows {
        if rows.entry(*partition).or_default().insert(*offset, *name).is_some() {
            first_doubled.get_or_insert((partition, offset));
        }
    }
    if let Some((partition, offset)) = first_doubled {
        found.push(format!("partition {partition} offset {offset} is there twice"));
    }
    for (at, floor) in seen.floors.iter().enumerate() {
        let index = at as i32;
        let partition = TopicPartition { topic: seen.topic, partition: PartitionIndex(index) };
        let end = progress.next_offset(at);
        if !seen.is_behind && end < *floor {
            found.push(format!("{partition}: table ends at {end}, acknowledged was {floor}"));
        }
        let gaps = gaps(seen.content, at);
        let log_start = model.log_start(partition);
        if let Some(gap) = gaps.iter().find(|gap| gap.end > log_start) {
            found.push(format!("{partition}: gap {gap:?} beyond log start {log_start}"));
        }
        let rows = rows.remove(&index).unwrap_or_default();
        let is_lost = |offset: &i64| {
            !rows.contains_key(offset) && !gaps.iter().any(|gap| gap.contains(offset))
        };
        if let Some(lost) = (0..end).find(is_lost) {
            found.push(format!("{partition}: table ends at {end} and lacks {lost}"));
        }
        if let Some((last, _)) = rows.last_key_value().filter(|(last, _)| **last >= end) {
            found.push(format!("{partition}: table ends at {end} and has {last}"));
        }
        model.with(|state| {
            rows.iter().for_each(|(offset, name)| state.check_record(partition, *offset, *name));
        });
    }
    found.extend(rows.keys().map(|index| format!("rows of partition {index}")));
    found
}

/// The snapshots, as sequence numbers and ids, that took the place of others.
pub fn rewritten(model: &Model, table: Uuid, snapshots: &[(i64, i64)]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, id) in snapshots {
        let known = model.with(|state| state.snapshot(table, *number, *id));
        if known != *id {
            found.push(format!("history is rewritten: snapshot {number} was {known}, is {id}"));
        }
    }
    found
}

/// The offsets of a partition that the table never had, over all snapshots.
fn gaps(content: &TableContent, partition: usize) -> Vec<Range<i64>> {
    let texts = content.summaries.iter().filter_map(|summary| summary.get(GAPS_KEY));
    let lists = texts.filter_map(|text| serde_json::from_str::<Vec<Value>>(text).ok()).flatten();
    let of_partition = lists.filter(|gap| gap["partition"] == partition);
    let range = |gap: Value| Some(gap["from"].as_i64()?..gap["until"].as_i64()?);
    of_partition.filter_map(range).collect()
}
