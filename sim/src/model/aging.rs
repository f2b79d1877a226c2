//! Topics of which retention takes something, by age or by size:
//!
//! * No acknowledged record goes before its time, and none for its size while less than asked would
//!   stay.
//! * None goes that the topic's table has not read: no table is behind for a day here.
//! * When nobody writes any more, what is over goes within a stated time
//!   ([`Audit::aged_out`](crate::audit::Audit::aged_out)).

use super::{Model, State};
use floe_metadata::rows::PartitionState;
use kfs::TopicPartition;
use std::collections::BTreeMap;

/// What is kept of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Records of so many milliseconds.
    Time(i64),
    /// So many bytes.
    Size(u64),
}

/// A partition of such a topic.
pub(crate) struct Aging {
    keep: Keep,
    has_table: bool,
    log_start: i64,
    /// The timestamps of acknowledged records, by offset.
    dated: BTreeMap<i64, i64>,
}

impl Model {
    /// From now on retention may take records of this partition.
    pub fn ages(&self, partition: TopicPartition, keep: Keep, has_table: bool) {
        let aging = Aging { keep, has_table, log_start: 0, dated: BTreeMap::new() };
        self.with(|state| state.aging.insert(partition, aging));
    }

    /// Records with these timestamps are acknowledged from `base_offset` on.
    pub fn dated(&self, partition: TopicPartition, base_offset: i64, timestamps_ms: &[i64]) {
        self.with(|state| {
            if let Some(aging) = state.aging.get_mut(&partition) {
                aging.dated.extend((base_offset..).zip(timestamps_ms.iter().copied()));
            }
        });
    }

    /// True where retention may take only what a table has read.
    pub fn ages_behind_table(&self, partition: TopicPartition) -> bool {
        self.with(|state| state.aging.get(&partition).is_some_and(|aging| aging.has_table))
    }

    /// All partitions of which retention takes something without waiting for a table.
    pub fn aging(&self) -> Vec<(TopicPartition, Keep)> {
        let all = |state: &mut State| {
            let without_table = state.aging.iter().filter(|(_, aging)| !aging.has_table);
            without_table.map(|(partition, aging)| (*partition, aging.keep)).collect()
        };
        self.with(all)
    }

    /// A log start was asked to move and is this now, at `now_ms` of the store's clock. False for a
    /// partition of which retention takes nothing.
    pub fn aged(&self, partition: TopicPartition, ends: &PartitionState, now_ms: i64) -> bool {
        self.with(|state| {
            let Some(aging) = state.aging.get_mut(&partition) else { return false };
            let (before, start) = (aging.log_start, ends.log_start_offset);
            aging.log_start = start;
            let mut found = Vec::new();
            if start < before {
                found.push(format!("{partition}: log start goes back to {start}"));
            }
            let gone: Vec<(i64, i64)> =
                aging.dated.range(..start).map(|(offset, time)| (*offset, *time)).collect();
            aging.dated.retain(|offset, _| *offset >= start);
            match aging.keep {
                Keep::Time(kept_ms) => {
                    for (offset, time_ms) in gone.iter().filter(|(_, ms)| now_ms - ms <= kept_ms) {
                        let age_ms = now_ms - time_ms;
                        found.push(format!(
                            "{partition} {offset}: goes before its time, {age_ms} ms old"
                        ));
                    }
                }
                Keep::Size(kept) if start > before && ends.bytes < kept => {
                    let left = ends.bytes;
                    found.push(format!("{partition}: {left} bytes are left where {kept} are kept"));
                }
                Keep::Size(_) => {}
            }
            state.counts.aged += gone.len() as u64;
            found.into_iter().for_each(|text| state.violation(text));
            true
        })
    }
}
