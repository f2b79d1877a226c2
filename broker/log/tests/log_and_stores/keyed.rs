//! Records with keys, and what compaction must leave of them.

use crate::rig::batch;
use floe_log::{AppendBatch, CompactionRules, CompactionTerms, FetchFrom, Log};
use kfs::{BatchBuilder, NewRecord, TopicPartition};
use std::collections::BTreeMap;
use std::future::Future;
use std::task::Poll;

/// A key, and a value or none.
pub(crate) type Pair<'a> = (Option<&'a str>, Option<&'a str>);

/// A record as a reader sees it: offset, time, key, value, value of its header.
pub(crate) type Seen = (i64, i64, String, Option<String>, String);

/// Anything dirty is worth a pass.
pub(crate) fn terms() -> CompactionTerms {
    CompactionTerms {
        dirty_ratio_min: 0.0,
        lag_ms_min: 0,
        lag_ms_max: i64::MAX,
        delete_retention_ms: 20_000_000,
        has_table: false,
    }
}

pub(crate) fn rules() -> CompactionRules {
    CompactionRules::default()
}

/// A batch whose records all have this time.
pub(crate) fn keyed(partition: TopicPartition, at_ms: i64, pairs: &[Pair<'_>]) -> AppendBatch {
    let mut builder = BatchBuilder::new();
    for (key, value) in pairs {
        let header = format!("h{}", value.unwrap_or_default());
        let record = NewRecord {
            timestamp_ms: at_ms,
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            headers: &[(b"h", Some(header.as_bytes()))],
        };
        builder.push(&record).expect("a small record");
    }
    let values = vec![""; pairs.len()];
    AppendBatch {
        bytes: builder.build().expect("a batch"),
        max_timestamp_ms: at_ms,
        ..batch(partition, at_ms, &values)
    }
}

/// All records from an offset on.
pub(crate) async fn seen(log: &Log, partition: TopicPartition, offset: i64) -> Vec<Seen> {
    let from = FetchFrom { partition, offset, bytes_max: 8 << 20, committed_only: false };
    let fetched = log.fetch(from).await.expect("fetch");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut found = Vec::new();
    for batch in fetched.records.iter().flat_map(|slice| kfs::batches(slice)) {
        let batch = batch.expect("whole batches");
        batch.verify_crc().expect("crc");
        for record in batch.records(1 << 20).expect("records").iter() {
            let record = record.expect("a record");
            let at = batch.header.base_offset + i64::from(record.offset_delta);
            let time = batch.header.record_timestamp_ms(record.timestamp_delta);
            let mut headers = record.headers;
            let header = headers.next().and_then(|(_, value)| value).map(text).unwrap_or_default();
            let key = record.key.map(text).unwrap_or_default();
            found.push((at, time, key, record.value.map(text), header));
        }
    }
    found.retain(|one| one.0 >= offset);
    found
}

/// The newest record of each key, by offset.
pub(crate) fn newest(seen: &[Seen]) -> Vec<Seen> {
    let by_key: BTreeMap<&str, &Seen> = seen.iter().map(|one| (one.2.as_str(), one)).collect();
    let mut newest: Vec<Seen> = by_key.into_values().cloned().collect();
    newest.sort();
    newest
}

/// Polls a future so many times at most, and drops it then. True where it was done before.
pub(crate) async fn poll_times<F: Future>(future: F, times: usize) -> bool {
    let mut future = Box::pin(future);
    let mut polled = 0;
    std::future::poll_fn(move |context| {
        if polled == times {
            return Poll::Ready(false);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => {
                if polled == times {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    })
    .await
}
