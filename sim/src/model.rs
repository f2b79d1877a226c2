//! What clients were promised, and the checks of it.
//!
//! * An acknowledged record is in the log at its acknowledged offset, whatever dies.
//! * It is visible before it is acknowledged: a fetch that begins afterwards sees its end.
//! * Watermark and log start never go back, for any client.
//! * A log start moves only as far as somebody asked; from the acknowledgement of a DeleteRecords
//!   on nothing below is served, and nothing above is ever lost.
//! * Offsets are dense, and what was read once reads the same for ever.
//! * An idempotent producer's records are in the log once each, in order, without a gap; a plain
//!   one's at most as often as they were sent and at least as often as they were acknowledged, and
//!   those that were sent once are in order.
//!
//! What a client gets from a broker that has been replaced may be old, but never wrong: ends are
//! not compared, records are. What retention takes is checked in [`aging`], what compaction takes
//! in [`keeping`], tables in
//! [`crate::table_model`].

use crate::assignments::{Assignments, Place};
use floe_env::Instant;
use kfs::TopicPartition;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

mod aging;
mod keeping;
#[cfg(test)]
mod tests;

use aging::Aging;
pub use aging::Keep;
use keeping::Keeping;
pub use keeping::{Keyed, Newest};

/// Violations that are kept.
const VIOLATIONS_MAX: usize = 100;

/// One producer's record: who sent it, and the how-manieth it is.
pub type RecordName = (u32, u64);

/// The member of a JSON value that has the record's name.
pub const NAME_KEY: &str = "name";
/// JSON values have a second member, of so many different keys.
pub const SECOND_KEYS: u64 = 23;

/// The value of a record: its name, and something to fill it up. Every other is a JSON object, of
/// which a table makes columns.
pub fn value_of((producer, number): RecordName, padding: usize) -> String {
    let name = format!("{producer}/{number}/{}", "x".repeat(padding));
    match number % 2 {
        0 => name,
        _ => {
            let second = number % SECOND_KEYS;
            format!("{{\"{NAME_KEY}\":\"{name}\",\"k{second}\":{number}}}")
        }
    }
}

/// The name of the record that has this value.
pub fn name_of(value: &[u8]) -> Option<RecordName> {
    let text = std::str::from_utf8(value).ok()?;
    let object = text.starts_with('{').then(|| serde_json::from_str::<Value>(text));
    let object = object.transpose().ok()?;
    let named = object.as_ref().map_or(Some(text), |object| object[NAME_KEY].as_str())?;
    let mut parts = named.split('/');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What a client got of one partition.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The partition.
    pub partition: TopicPartition,
    /// The ends that the answer may not be behind, by [`Model::bounds`] before the request.
    pub bounds: Bounds,
    /// The broker had been replaced when it answered, perhaps without knowing.
    pub is_stale: bool,
    /// The first offset that was asked for.
    pub from: i64,
    /// As answered.
    pub log_start: i64,
    /// As answered.
    pub high_watermark: i64,
    /// Offsets and records.
    pub records: Vec<(i64, RecordName)>,
}

/// What an answer to a request that begins now may not be behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The least high watermark.
    pub end: i64,
    /// The least log start.
    pub log_start: i64,
}

/// A partition's log start.
#[derive(Clone, Copy, Debug, Default)]
struct LogStart {
    /// As the metadata store has it.
    now: i64,
    /// The greatest that was acknowledged.
    promised: i64,
    /// The greatest that was asked for: by number, or by a request for all that there is, which
    /// was then told this.
    asked: i64,
    /// Requests for all that there is which may still be carried out.
    open_for_all: u32,
}

/// How often something happened without which some check has nothing to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commits of a group's offsets that were acknowledged.
    pub group_commits: u64,
    /// Acknowledged requests to delete records that moved a log start.
    pub deletions: u64,
    /// Answers of the catalog that did not say that they are behind.
    pub whole_looks: u64,
    /// Records of topics that are made and deleted again, read back.
    pub read_back: u64,
    /// Acknowledged records that retention took.
    pub aged: u64,
    /// Records that compaction took.
    pub compacted: u64,
    /// Partitions that members of a consumer group were told to have.
    pub assigned: u64,
}

impl Counts {
    /// Adds what another run counted.
    pub fn add(&mut self, other: &Self) {
        self.group_commits += other.group_commits;
        self.deletions += other.deletions;
        self.whole_looks += other.whole_looks;
        self.read_back += other.read_back;
        self.aged += other.aged;
        self.compacted += other.compacted;
        self.assigned += other.assigned;
    }
}

#[derive(Default)]
pub(crate) struct State {
    violations: Vec<String>,
    producers: BTreeMap<u32, Ledger>,
    pub(crate) promised: BTreeMap<TopicPartition, BTreeMap<i64, RecordName>>,
    read: BTreeMap<TopicPartition, BTreeMap<i64, RecordName>>,
    starts: BTreeMap<TopicPartition, LogStart>,
    aging: BTreeMap<TopicPartition, Aging>,
    keeping: BTreeMap<TopicPartition, Keeping>,
    /// By table and sequence number.
    snapshots: BTreeMap<(Uuid, i64), i64>,
    ends: BTreeMap<TopicPartition, i64>,
    last_seen: BTreeMap<(u32, TopicPartition), (i64, i64)>,
    counts: Counts,
    assignments: Assignments,
}

/// What one producer did.
struct Ledger {
    partition: TopicPartition,
    is_idempotent: bool,
    /// How often each record was sent, by number.
    sent: Vec<u32>,
    /// At which offsets each was acknowledged, by number.
    acked: BTreeMap<u64, Vec<i64>>,
}

/// The model; clones are the same one.
#[derive(Clone, Default)]
pub struct Model(Arc<Mutex<State>>);

impl State {
    pub(crate) fn violation(&mut self, text: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(text);
        }
    }
}

impl State {
    fn start(&self, partition: TopicPartition) -> LogStart {
        self.starts.get(&partition).copied().unwrap_or_default()
    }

    fn check_ends(&mut self, client: u32, seen: &Seen) {
        let Seen { partition, bounds, log_start, high_watermark, from, .. } = *seen;
        if high_watermark < bounds.end {
            let floor = bounds.end;
            self.violation(format!(
                "{partition}: client {client} sees watermark {high_watermark} after {floor}"
            ));
        }
        let last = self.last_seen.insert((client, partition), (high_watermark, log_start));
        if last.is_some_and(|last| high_watermark < last.0 || log_start < last.1) {
            self.violation(format!(
                "{partition}: client {client} sees start {log_start} and watermark \
                 {high_watermark} after {last:?}"
            ));
        }
        if from < bounds.log_start {
            let floor = bounds.log_start;
            self.violation(format!("{partition}: {from} is served below the log start {floor}"));
        }
        if log_start > self.start(partition).now {
            self.violation(format!("{partition}: client {client} sees start {log_start}"));
        }
    }

    /// A record that anybody read anywhere.
    pub(crate) fn check_record(
        &mut self,
        partition: TopicPartition,
        offset: i64,
        name: RecordName,
    ) {
        let before = self.read.entry(partition).or_default().insert(offset, name);
        if before.is_some_and(|before| before != name) {
            self.violation(format!("{partition} {offset}: read {before:?}, now {name:?}"));
        }
        let promised = self.promised.get(&partition).and_then(|all| all.get(&offset)).copied();
        if promised.is_some_and(|promised| promised != name) {
            self.violation(format!(
                "{partition} {offset}: acknowledged {promised:?}, but read {name:?}"
            ));
        }
    }

    /// A snapshot of a table was seen: the id under which its number was seen first.
    pub(crate) fn snapshot(&mut self, table: Uuid, number: i64, id: i64) -> i64 {
        *self.snapshots.entry((table, number)).or_insert(id)
    }

    /// The greatest log start that there ever was.
    pub(crate) fn log_start(&self, partition: TopicPartition) -> i64 {
        self.start(partition).now
    }
}

impl Model {
    /// Notes that something must not be.
    pub fn violation(&self, text: String) {
        self.0.lock().violation(text);
    }

    /// All that must not be, so far.
    pub fn violations(&self) -> Vec<String> {
        self.0.lock().violations.clone()
    }

    /// A producer begins.
    pub fn producer(&self, id: u32, partition: TopicPartition, is_idempotent: bool) {
        let ledger = Ledger { partition, is_idempotent, sent: Vec::new(), acked: BTreeMap::new() };
        self.0.lock().producers.insert(id, ledger);
    }

    /// Records `first..first + count` of a producer are sent, perhaps again.
    pub fn sends(&self, producer: u32, first: u64, count: u64) {
        let mut state = self.0.lock();
        let Some(ledger) = state.producers.get_mut(&producer) else { return };
        for number in first as usize..(first + count) as usize {
            if ledger.sent.len() <= number {
                ledger.sent.resize(number + 1, 0);
            }
            ledger.sent[number] += 1;
        }
    }

    /// Records `first..first + count` of a producer are acknowledged from `base_offset` on.
    pub fn acknowledged(&self, producer: u32, first: u64, count: u64, base_offset: i64) {
        let state = &mut *self.0.lock();
        let Some(ledger) = state.producers.get_mut(&producer) else { return };
        let promised = state.promised.entry(ledger.partition).or_default();
        let mut doubled = Vec::new();
        for number in first..first + count {
            let offset = base_offset + (number - first) as i64;
            ledger.acked.entry(number).or_default().push(offset);
            if let Some(other) = promised.insert(offset, (producer, number))
                && (other != (producer, number) || !ledger.is_idempotent)
            {
                doubled.push(format!(
                    "{} offset {offset} is acknowledged for {producer}/{number} and for {}/{}",
                    ledger.partition, other.0, other.1
                ));
            }
        }
        let end = state.ends.entry(ledger.partition).or_default();
        *end = (*end).max(base_offset + count as i64);
        doubled.into_iter().for_each(|text| state.violation(text));
    }

    /// What an answer to a request that begins now may not be behind.
    pub fn bounds(&self, partition: TopicPartition) -> Bounds {
        let state = self.0.lock();
        let end = state.ends.get(&partition).copied().unwrap_or(0);
        Bounds { end, log_start: state.start(partition).promised }
    }

    /// The least end that an answer to a request which begins now may name.
    pub fn end(&self, partition: TopicPartition) -> i64 {
        self.0.lock().ends.get(&partition).copied().unwrap_or(0)
    }

    /// Records that a client has a right to: acknowledged ones.
    pub fn acknowledged_count(&self) -> usize {
        self.0.lock().promised.values().map(BTreeMap::len).sum()
    }

    /// Counts something.
    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.0.lock().counts);
    }

    /// A consumer group's member holds these partitions, and nothing else, until its session ends.
    pub fn holds(&self, member: &str, places: BTreeSet<Place>, now: Instant, until: Instant) {
        let mut state = self.0.lock();
        if let Some(wrong) = state.assignments.hold(member, places, now, until) {
            state.violation(wrong);
        }
    }

    /// A consumer group's member gives all up but these.
    pub fn gives_up(&self, member: &str, kept: &BTreeSet<Place>) {
        self.0.lock().assignments.give_up(member, kept);
    }

    /// A consumer group's member has nothing any more.
    pub fn releases(&self, member: &str) {
        self.0.lock().assignments.release(member);
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.0.lock().counts
    }

    /// A client got an answer without an error.
    pub fn seen(&self, client: u32, seen: &Seen) {
        let mut state = self.0.lock();
        let Seen { partition, high_watermark, .. } = *seen;
        if !seen.is_stale {
            state.check_ends(client, seen);
        }
        let end = state.ends.entry(partition).or_default();
        *end = (*end).max(high_watermark);
        let mut expected = None;
        for (offset, name) in &seen.records {
            if expected.is_some_and(|expected| expected != *offset) {
                state.violation(format!("{partition}: offset {offset} follows on {expected:?}"));
            }
            if *offset >= high_watermark {
                state.violation(format!("{partition}: {offset} beyond {high_watermark}"));
            }
            expected = Some(offset + 1);
            state.check_record(partition, *offset, *name);
        }
    }

    /// Somebody asks to delete the records below `offset`, or all where there is none. A request
    /// for all must end in [`Model::no_more_for_all`].
    pub fn deletes(&self, partition: TopicPartition, offset: Option<i64>) {
        let mut state = self.0.lock();
        let start = state.starts.entry(partition).or_default();
        start.asked = start.asked.max(offset.unwrap_or(0));
        start.open_for_all += u32::from(offset.is_none());
    }

    /// A request to delete all that there is moves the log start no more: it was answered with the
    /// log start `told`, or was given up so long ago that nothing of it can come.
    pub fn no_more_for_all(&self, partition: TopicPartition, told: Option<i64>) {
        let mut state = self.0.lock();
        let start = state.starts.entry(partition).or_default();
        start.asked = start.asked.max(told.unwrap_or(0));
        start.open_for_all = start.open_for_all.saturating_sub(1);
    }

    /// The records below `low_watermark` are deleted, says the broker; `asked` is what was asked.
    pub fn deleted(&self, partition: TopicPartition, asked: Option<i64>, low_watermark: i64) {
        let mut state = self.0.lock();
        let start = state.starts.entry(partition).or_default();
        let is_news = low_watermark > start.promised;
        start.promised = start.promised.max(low_watermark);
        let now = start.now;
        state.counts.deletions += u64::from(is_news);
        if low_watermark > now || asked.is_some_and(|asked| low_watermark < asked) {
            state.violation(format!(
                "{partition}: asked to delete up to {asked:?}, told {low_watermark}, is {now}"
            ));
        }
    }

    /// The metadata store has moved a log start, or was asked to.
    pub fn log_start_moved(&self, partition: TopicPartition, log_start: i64) {
        let mut state = self.0.lock();
        let start = state.starts.entry(partition).or_default();
        let before = start.now;
        start.now = log_start;
        if log_start < before {
            state.violation(format!("{partition}: log start goes back to {log_start}"));
        } else if log_start > before && log_start > start.asked && start.open_for_all == 0 {
            state.violation(format!("{partition}: nobody asked for log start {log_start}"));
        }
    }

    /// The log start, as the metadata store has it.
    pub fn log_start(&self, partition: TopicPartition) -> i64 {
        self.0.lock().log_start(partition)
    }

    /// A client was told that `offset` is out of range.
    pub fn out_of_range(&self, client: u32, partition: TopicPartition, offset: i64) {
        let mut state = self.0.lock();
        if offset >= state.log_start(partition) {
            state.violation(format!("client {client}: fetch {partition} {offset}: out of range"));
        }
    }

    /// Works on what is known.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock())
    }

    /// Checks a partition's whole content, read when all was over.
    pub fn check_content(&self, partition: TopicPartition, content: &[(i64, RecordName)]) {
        let state = &mut *self.0.lock();
        let mut found = Vec::new();
        let start = state.start(partition).now;
        for (expected, (offset, _)) in (start..).zip(content) {
            if expected != *offset {
                found.push(format!("{partition}: offset {offset} where {expected} belongs"));
                break;
            }
        }
        let by_offset: BTreeMap<i64, RecordName> = content.iter().copied().collect();
        for (what, records) in [("acknowledged", &state.promised), ("read", &state.read)] {
            let of_partition = records.get(&partition).into_iter().flatten();
            for (offset, name) in of_partition.filter(|(offset, _)| **offset >= start) {
                let there = by_offset.get(offset);
                if there != Some(name) {
                    found.push(format!("{partition} {offset}: {what} {name:?}, now {there:?}"));
                }
            }
        }
        let mut numbers: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (_, (producer, number)) in content {
            numbers.entry(*producer).or_default().push(*number);
        }
        for (id, ledger) in &state.producers {
            if ledger.partition == partition {
                let of_producer = numbers.remove(id).unwrap_or_default();
                ledger.check(*id, &of_producer, start, &mut found);
            }
        }
        if let Some(stranger) = numbers.keys().next() {
            found.push(format!("{partition}: records of {stranger}, who never wrote there"));
        }
        found.into_iter().for_each(|text| state.violation(text));
    }
}

impl Ledger {
    /// Checks the numbers of a producer's records as they follow each other in the log.
    /// Those below `start` are not among them.
    fn check(&self, id: u32, numbers: &[u64], start: i64, found: &mut Vec<String>) {
        if self.is_idempotent {
            let first = if start > 0 { numbers.first().copied().unwrap_or(0) } else { 0 };
            let is_whole = numbers.iter().copied().eq(first..first + numbers.len() as u64);
            if !is_whole {
                let gap = (first..).zip(numbers).find(|(expected, number)| expected != *number);
                found.push(format!("idempotent producer {id}: expected and found {gap:?}"));
            }
            return;
        }
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        let mut last_single = None;
        for number in numbers {
            *counts.entry(*number).or_default() += 1;
            let sent = self.sent.get(*number as usize).copied().unwrap_or(0);
            if sent == 1 {
                if last_single.is_some_and(|last| last >= *number) {
                    found.push(format!("producer {id}: {number} comes after {last_single:?}"));
                }
                last_single = Some(*number);
            }
        }
        for (number, sent) in (0..).zip(&self.sent) {
            let count = counts.get(&number).copied().unwrap_or(0);
            let acked = self.acked.get(&number).into_iter().flatten();
            let acked = acked.filter(|offset| **offset >= start).count();
            if count > *sent || (count as usize) < acked {
                found.push(format!(
                    "producer {id}: {number} sent {sent}, acknowledged {acked}, found {count} times"
                ));
            }
        }
    }
}
