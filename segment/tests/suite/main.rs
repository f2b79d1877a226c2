//! Tests of the public interface: batches against Kafka's own, validation, codecs, the container
//! with its golden files, version 1, properties, and the fuzz targets over their corpora.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod batches;
mod codecs;
mod container;
mod golden;
mod hostile;
mod properties;
mod validation;
mod version1;

use bytes::Bytes;
use kfs::{BatchBuilder, NewRecord};
use std::path::PathBuf;

/// Set to write golden files and corpora anew instead of comparing them.
const REGENERATE: &str = "KFS_REGENERATE";

fn regenerate() -> bool {
    std::env::var_os(REGENERATE).is_some()
}

fn golden_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(golden_path(name)).expect(name)
}

/// A batch of `count` records with values of `value_len` bytes, timestamps from `timestamp_ms`.
fn plain_batch(count: usize, value_len: usize, timestamp_ms: i64) -> Bytes {
    filled(BatchBuilder::new(), count, value_len, timestamp_ms)
}

fn filled(mut builder: BatchBuilder, count: usize, value_len: usize, timestamp_ms: i64) -> Bytes {
    let value = vec![b'v'; value_len];
    for index in 0..count {
        let record = NewRecord {
            timestamp_ms: timestamp_ms + index as i64,
            key: Some(b"key"),
            value: Some(&value),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

/// Changes bytes of a batch and makes its checksum right again.
fn changed(batch: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut changed = batch.to_vec();
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    fix_crc(&mut changed);
    changed
}

fn fix_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
