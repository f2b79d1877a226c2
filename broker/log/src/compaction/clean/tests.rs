//! Batches in, batches out; and many random logs against a simple model.

use super::*;
use floe_env::Env;
use floe_env::simulated::Node;
use floe_metadata::rows::{AbortedTransaction, ProducerState, RememberedBatch};
use kfs::{Codec, Marker, ProducerEpoch, ProducerId, control_batch, set_base_offset};
use std::collections::BTreeMap;

const BYTES_MAX: usize = 1 << 20;
const RETENTION_MS: i64 = 1_000_000;

/// A key, and a value or none.
type Pair<'a> = (Option<&'a str>, Option<&'a str>);

/// A log of one partition, in memory.
#[derive(Clone, Default)]
struct TestLog {
    batches: Vec<Bytes>,
    end: i64,
    aborted: Vec<AbortedTransaction>,
    producers: Vec<ProducerState>,
    /// Passes have been up to here.
    cleaned: i64,
    /// `delete.retention.ms` is 0.
    tombstones_go_at_once: bool,
}

/// A record as a reader sees it: offset, time, key, value, value of its header.
type Seen = (i64, i64, Option<String>, Option<String>, String);

impl TestLog {
    fn push(&mut self, mut builder: BatchBuilder, records: &[Pair<'_>]) {
        for (key, value) in records {
            let at = self.end + i64::from(builder.record_count());
            let header = format!("h{at}");
            let record = NewRecord {
                timestamp_ms: 1_000 - at,
                key: key.map(str::as_bytes),
                value: value.map(str::as_bytes),
                headers: &[(b"h", Some(header.as_bytes())), (b"h", None)],
            };
            builder.push(&record).expect("a small record");
        }
        self.append(&builder.build().expect("a batch"));
    }

    fn plain(&mut self, records: &[Pair<'_>]) {
        self.push(BatchBuilder::new(), records);
    }

    fn of(&mut self, producer: i64, is_transactional: bool, records: &[Pair<'_>]) {
        let first_sequence = self.sequence(producer);
        let id = ProducerId(producer);
        let mut builder = BatchBuilder::new().producer(id, ProducerEpoch(0), first_sequence);
        if is_transactional {
            builder = builder.transactional().codec(Codec::Lz4, None);
        }
        let base_offset = self.end;
        self.push(builder, records);
        let remembered = RememberedBatch {
            first_sequence,
            last_sequence: first_sequence + records.len() as i32 - 1,
            base_offset,
            last_offset: self.end - 1,
            max_timestamp_ms: 0,
        };
        let producer = self.producer(producer);
        producer.batches.push(remembered);
        if is_transactional {
            producer.transaction_start.get_or_insert(base_offset);
        }
    }

    fn producer(&mut self, producer: i64) -> &mut ProducerState {
        let id = ProducerId(producer);
        if !self.producers.iter().any(|known| known.id == id) {
            self.producers.push(ProducerState {
                id,
                epoch: ProducerEpoch(0),
                batches: Vec::new(),
                transaction_start: None,
                last_written_ms: 0,
            });
        }
        self.producers.iter_mut().find(|known| known.id == id).expect("it was just put there")
    }

    fn sequence(&mut self, producer: i64) -> i32 {
        self.producer(producer).batches.last().map_or(0, |batch| batch.last_sequence + 1)
    }

    fn end(&mut self, producer: i64, marker: Marker) {
        let began = self.producer(producer).transaction_start.take();
        let offset = self.end;
        let batch = control_batch(marker, ProducerId(producer), ProducerEpoch(0), 0, 7);
        self.append(&batch);
        if let (Some(first_offset), Marker::Abort) = (began, marker) {
            let producer = ProducerId(producer);
            let (last_offset, last_stable_offset) = (offset, self.stable());
            let aborted =
                AbortedTransaction { producer, first_offset, last_offset, last_stable_offset };
            self.aborted.push(aborted);
        }
    }

    fn append(&mut self, batch: &[u8]) {
        let mut batch = batch.to_vec();
        set_base_offset(&mut batch, self.end);
        self.end = BatchHeader::parse(&batch).expect("a batch").last_offset() + 1;
        self.batches.push(batch.into());
    }

    /// The last stable offset.
    fn stable(&self) -> i64 {
        let open = self.producers.iter().filter_map(|producer| producer.transaction_start);
        open.min().unwrap_or(self.end)
    }

    /// One pass up to the last stable offset.
    fn pass(&mut self, now_ms: i64) -> Tally {
        self.pass_with(now_ms, usize::MAX)
    }

    fn pass_with(&mut self, now_ms: i64, key_bytes_max: usize) -> Tally {
        let until = self.stable();
        let aborted = Aborted::new(self.aborted.clone());
        let offsets = (until - self.cleaned).unsigned_abs();
        let mut newest = NewestOffsets::new(3, self.cleaned - 1, offsets, key_bytes_max);
        let views = |batches: &[Bytes]| -> Vec<Bytes> {
            let below = |batch: &&Bytes| view(batch).header.last_offset() < until;
            batches.iter().filter(below).cloned().collect()
        };
        let below = views(&self.batches);
        for batch in below.iter().filter(|one| view(one).header.last_offset() >= self.cleaned) {
            let noted = note_keys(&mut newest, &view(batch), &aborted, self.cleaned, BYTES_MAX);
            if noted.expect("a whole batch").is_err() {
                break;
            }
        }
        self.cleaned = newest.latest() + 1;
        let rules = Rules {
            now_ms,
            delete_retention_ms: if self.tombstones_go_at_once { 0 } else { RETENTION_MS },
            until,
            decompressed_bytes_max: BYTES_MAX,
        };
        let mut cleaner = BatchCleaner {
            rules,
            newest,
            last_batches: LastBatches::new(&self.producers),
            unended: Unended::default(),
            tally: Tally::default(),
        };
        let mut after = Vec::new();
        for batch in &below {
            match cleaner.clean(&view(batch), &aborted).expect("a whole batch") {
                Cleaned::Kept => after.push(batch.clone()),
                Cleaned::Rewritten(rewritten) => after.push(rewritten),
                Cleaned::Gone => {}
            }
        }
        after.extend_from_slice(&self.batches[below.len()..]);
        self.batches = after;
        // What was aborted is told for as long as its marker is there.
        let markers: Vec<i64> = self.headers().iter().map(BatchHeader::last_offset).collect();
        self.aborted.retain(|aborted| markers.contains(&aborted.last_offset));
        cleaner.tally
    }

    fn headers(&self) -> Vec<BatchHeader> {
        self.batches.iter().map(|batch| view(batch).header).collect()
    }

    /// What a consumer of committed records gets, as Kafka's own finds it: an aborted transaction
    /// is open from its first offset until its producer's next marker.
    fn committed(&self) -> Vec<Seen> {
        let mut told = self.aborted.clone();
        told.sort_by_key(|aborted| aborted.first_offset);
        let mut told = told.into_iter().peekable();
        let (mut open, mut seen) = (Vec::new(), Vec::new());
        for batch in &self.batches {
            let batch = view(batch);
            batch.verify_crc().expect("a right checksum");
            while let Some(one) = told.next_if(|one| one.first_offset <= batch.header.last_offset())
            {
                open.push(one.producer.0);
            }
            if batch.header.last_offset() >= self.stable() {
                break;
            }
            if batch.header.is_control() {
                open.retain(|producer| *producer != batch.header.producer_id);
            } else if !(batch.header.is_transactional() && open.contains(&batch.header.producer_id))
            {
                seen.extend(records(&batch));
            }
        }
        seen
    }

    /// The offsets of all records, aborted ones too.
    fn offsets(&self) -> Vec<i64> {
        self.batches.iter().flat_map(|batch| records(&view(batch))).map(|seen| seen.0).collect()
    }
}

fn view(batch: &Bytes) -> BatchView<'_> {
    BatchView::parse(batch).expect("a batch")
}

fn records(batch: &BatchView<'_>) -> Vec<Seen> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let seen = |record: Record<'_>| {
        let headers: Vec<_> = record.headers.collect();
        let header = headers.first().and_then(|(_, value)| *value).map(text).unwrap_or_default();
        let offset = offset_of(&batch.header, &record);
        let time = batch.header.record_timestamp_ms(record.timestamp_delta);
        (offset, time, record.key.map(text), record.value.map(text), header)
    };
    let records = batch.records(BYTES_MAX).expect("its records");
    records.iter().map(|record| seen(record.expect("a record"))).collect()
}

/// The newest value of each key, and the offset.
fn newest_values(seen: &[Seen]) -> BTreeMap<String, (i64, Option<String>)> {
    let keyed = seen
        .iter()
        .filter_map(|(offset, _, key, value, _)| Some((key.clone()?, (*offset, value.clone()))));
    keyed.collect()
}

#[test]
fn the_newest_record_of_each_key_stays_with_offset_time_and_headers() {
    let mut log = TestLog::default();
    log.plain(&[(Some("a"), Some("1")), (Some("b"), Some("1")), (None, Some("no key"))]);
    log.plain(&[(Some("a"), Some("2"))]);
    log.plain(&[(Some("a"), Some("3")), (Some("c"), Some("1"))]);
    let before = log.committed();
    let tally = log.pass(0);
    assert_eq!((tally.records_removed, tally.horizon_ms), (3, None));
    assert_eq!(log.committed(), [before[1].clone(), before[4].clone(), before[5].clone()]);
    let places: Vec<_> =
        log.headers().iter().map(|header| (header.base_offset, header.last_offset())).collect();
    assert_eq!(places, [(0, 2), (4, 5)], "batches keep their offsets");
    let again = log.batches.clone();
    assert_eq!(log.pass(9), Tally::default());
    assert_eq!(log.batches, again, "what is clean is not touched");
}

#[test]
fn a_tombstone_stays_until_the_horizon_that_the_first_pass_sets() {
    let mut log = TestLog::default();
    log.plain(&[(Some("a"), Some("1")), (Some("b"), Some("1"))]);
    log.plain(&[(Some("a"), None), (Some("c"), Some("1"))]);
    log.plain(&[(Some("d"), Some("1"))]);
    let before = log.committed();
    let tally = log.pass(500);
    assert_eq!(tally.horizon_ms, Some(500 + RETENTION_MS));
    let header = log.headers()[1];
    assert!(header.has_delete_horizon() && header.base_timestamp_ms == 500 + RETENTION_MS);
    assert_eq!(log.committed()[1], before[2], "its time is as before");
    let untouched = log.batches.clone();
    assert_eq!(log.pass(499 + RETENTION_MS).horizon_ms, tally.horizon_ms);
    assert_eq!(log.batches, untouched);
    let tally = log.pass(500 + RETENTION_MS);
    assert_eq!((tally.records_removed, tally.horizon_ms), (1, None));
    assert_eq!(log.offsets(), [1, 3, 4]);
    assert_eq!(log.committed()[1], before[3], "its neighbour's, too");
}

#[test]
fn a_horizon_that_is_past_at_once_still_asks_for_another_pass() {
    let mut log = TestLog { tombstones_go_at_once: true, ..TestLog::default() };
    log.plain(&[(Some("a"), None), (Some("b"), Some("1"))]);
    log.plain(&[(Some("c"), Some("1"))]);
    assert_eq!(log.pass(500).horizon_ms, Some(500), "the tombstone waits for it");
    let tally = log.pass(500);
    assert_eq!((tally.records_removed, tally.horizon_ms), (1, None));
    assert_eq!(log.offsets(), [1, 2]);
}

#[test]
fn a_tombstone_of_a_key_that_came_again_goes_at_once() {
    let mut log = TestLog::default();
    log.plain(&[(Some("a"), None)]);
    log.plain(&[(Some("a"), Some("1"))]);
    assert_eq!(log.pass(0).horizon_ms, None);
    assert_eq!(log.offsets(), [1]);
}

#[test]
fn the_last_batch_of_a_producer_and_of_all_stays_without_its_records() {
    let mut log = TestLog::default();
    log.of(7, false, &[(Some("a"), Some("1")), (Some("a"), Some("2"))]);
    log.of(7, false, &[(Some("a"), Some("3"))]);
    log.of(8, false, &[(Some("a"), Some("4"))]);
    log.plain(&[(None, Some("a record without a key at the end"))]);
    log.pass(0);
    let found: Vec<_> = log.headers().iter().map(|h| (h.last_offset(), h.record_count)).collect();
    assert_eq!(found, [(2, 0), (3, 1), (4, 0)], "7's last batch, 8's, and the end");
    let seven = log.headers()[0];
    assert_eq!((seven.producer_id, seven.base_sequence, seven.last_sequence()), (7, 2, 2));
    // Both are forgotten, and the log goes on.
    log.producers.clear();
    log.plain(&[(Some("b"), Some("1"))]);
    log.pass(0);
    assert_eq!(log.headers().iter().map(BatchHeader::last_offset).collect::<Vec<_>>(), [3, 5]);
}

#[test]
fn aborted_records_go_and_their_marker_after_them() {
    let mut log = TestLog::default();
    log.of(7, true, &[(Some("a"), Some("aborted"))]);
    log.end(7, Marker::Abort);
    log.of(7, true, &[(Some("a"), Some("1"))]);
    log.end(7, Marker::Commit);
    log.of(7, true, &[(Some("b"), Some("1"))]);
    log.end(7, Marker::Commit);
    log.plain(&[(Some("z"), Some("1"))]);
    log.pass(0);
    assert_eq!(log.offsets(), [1, 2, 3, 4, 5, 6], "the abort's marker stays with its pass");
    assert!(!log.headers()[0].has_delete_horizon());
    let tally = log.pass(10);
    let horizon_ms = 10 + RETENTION_MS.max(MARKER_KEPT_MS_MIN);
    assert_eq!(
        (log.headers()[0].base_timestamp_ms, tally.horizon_ms),
        (horizon_ms, Some(horizon_ms))
    );
    log.pass(horizon_ms - 1);
    assert_eq!((log.offsets().len(), log.aborted.len()), (6, 1));
    log.pass(horizon_ms);
    assert_eq!(log.offsets(), [2, 3, 4, 5, 6], "markers of records that are there stay");
    assert_eq!(log.committed().len(), 3, "and nobody takes them for aborted");
    assert!(log.aborted.is_empty());
}

#[test]
fn a_commits_marker_goes_once_all_its_records_are_superseded() {
    let mut log = TestLog::default();
    log.of(7, true, &[(Some("a"), Some("1"))]);
    log.end(7, Marker::Commit);
    log.plain(&[(Some("a"), Some("2"))]);
    log.producers.clear();
    log.pass(0);
    assert_eq!(log.offsets(), [1, 2]);
    log.pass(0);
    assert!(log.headers()[0].has_delete_horizon());
    log.pass(RETENTION_MS);
    assert_eq!(log.offsets(), [2]);
}

#[test]
fn nothing_of_or_behind_an_open_transaction_is_touched() {
    let mut log = TestLog::default();
    log.plain(&[(Some("a"), Some("1"))]);
    log.plain(&[(Some("a"), Some("2"))]);
    log.of(7, true, &[(Some("a"), Some("open"))]);
    log.plain(&[(Some("a"), Some("3"))]);
    log.pass(0);
    assert_eq!(log.offsets(), [1, 2, 3], "a=2 is the newest of what is decided");
}

#[test]
fn a_table_of_keys_that_is_full_ends_the_pass_early_and_safely() {
    let mut log = TestLog::default();
    for round in 0..4 {
        let keys: Vec<String> = (0..5).map(|key| format!("k{}", (key + round) % 7)).collect();
        let tombstone = (Some("t"), None);
        let records: Vec<Pair<'_>> = keys.iter().map(|key| (Some(&key[..]), Some("v"))).collect();
        log.plain(&[&records[..], &[tombstone]].concat());
    }
    let expected = newest_values(&log.committed());
    let mut passes = 0;
    while log.cleaned < log.end {
        let before = log.cleaned;
        log.pass_with(0, 4 * super::super::newest::ENTRY_BYTES);
        passes += 1;
        assert!(log.cleaned >= before + 3, "a table of three keys gets three records further");
        assert_eq!(newest_values(&log.committed()), expected);
        for header in log.headers().iter().filter(|header| header.has_delete_horizon()) {
            assert!(header.last_offset() < log.cleaned, "no horizon before all is known");
        }
    }
    assert!(passes > 2);
    assert_eq!(log.offsets().len(), expected.len());
}

/// Adds something random to a log.
fn grow(log: &mut TestLog, env: &Env) {
    let dice = |sides: u64| env.random_u64() % sides;
    let keys = ["a", "b", "c", "d", "e"];
    let mut records = Vec::new();
    for _ in 0..=dice(4) {
        let key = keys.get(dice(6) as usize).copied();
        records.push((key, ["x", "y", "z"].get(dice(4) as usize).copied()));
    }
    let producer = 1 + dice(3) as i64;
    let is_open = log.producer(producer).transaction_start.is_some();
    match dice(8) {
        0..3 => log.plain(&records),
        3 if !is_open => log.of(producer, false, &records),
        4 | 5 => log.of(producer, true, &records),
        _ if is_open => {
            log.end(producer, if dice(2) == 0 { Marker::Abort } else { Marker::Commit });
        }
        // Who aborts or commits nothing leaves a marker, too.
        _ => log.end(producer, Marker::Commit),
    }
}

/// What must hold after every pass, whatever the log.
fn check(before: &[Seen], log: &TestLog, seed: u64) {
    let after = log.committed();
    assert!(after.iter().all(|seen| before.contains(seen)), "seed {seed}: a record changed");
    let stable: Vec<Seen> = before.iter().filter(|seen| seen.0 < log.stable()).cloned().collect();
    let values = |seen: &[Seen]| -> BTreeMap<String, (i64, Option<String>)> {
        newest_values(seen).into_iter().filter(|(_, (_, value))| value.is_some()).collect()
    };
    assert_eq!(values(&after), values(&stable), "seed {seed}: other values");
    let cleaned: Vec<&Seen> = after.iter().filter(|seen| seen.0 < log.cleaned).collect();
    let keys: std::collections::BTreeSet<_> = cleaned.iter().map(|seen| &seen.2).collect();
    assert_eq!(keys.len(), cleaned.len(), "seed {seed}: a key stands twice");
    assert!(cleaned.iter().all(|seen| seen.2.is_some()), "seed {seed}: a record without a key");
    let headers = log.headers();
    for pair in headers.windows(2) {
        assert!(pair[0].last_offset() < pair[1].base_offset, "seed {seed}: offsets out of order");
    }
    if log.cleaned > 0 {
        let ends_at = |header: &BatchHeader| header.last_offset() + 1 == log.stable();
        assert!(headers.iter().any(ends_at), "seed {seed}: nothing says where the hole ends");
    }
}

#[test]
fn random_logs_keep_the_newest_value_of_each_key() {
    for seed in 0..400 {
        let env = Env::simulated(Node::new(seed));
        let mut log = TestLog::default();
        let mut original = TestLog::default();
        let mut now_ms = 0;
        for _ in 0..12 {
            for _ in 0..=env.random_u64() % 8 {
                let begun = log.batches.len();
                grow(&mut log, &env);
                original.batches.extend_from_slice(&log.batches[begun..]);
            }
            (original.end, original.producers) = (log.end, log.producers.clone());
            for aborted in &log.aborted {
                if !original.aborted.contains(aborted) {
                    original.aborted.push(*aborted);
                }
            }
            now_ms += (env.random_u64() % 3) as i64 * RETENTION_MS / 2;
            let room = if env.random_u64().is_multiple_of(3) { 8 } else { 1 << 10 };
            log.pass_with(now_ms, room * super::super::newest::ENTRY_BYTES);
            let tombstones = original.committed();
            check(&tombstones, &log, seed);
        }
        // Everything ends, and all horizons pass: no tombstone is left, and no aborted record.
        for producer in 1..=3 {
            if log.producer(producer).transaction_start.is_some() {
                log.end(producer, Marker::Commit);
            }
        }
        for _ in 0..4 {
            now_ms += 2 * RETENTION_MS;
            log.pass(now_ms);
        }
        let left = log.committed();
        assert!(left.iter().all(|seen| seen.3.is_some()), "seed {seed}: a tombstone is left");
        let all = log.batches.iter().filter(|batch| !view(batch).header.is_control());
        let count: usize = all.map(|batch| records(&view(batch)).len()).sum();
        assert_eq!(count, left.len(), "seed {seed}: an aborted record is left");
        assert!(log.aborted.is_empty() || log.headers().iter().any(BatchHeader::is_control));
    }
}
