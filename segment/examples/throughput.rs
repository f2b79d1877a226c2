//! How fast a produced batch is validated and a segment is built, on one core:
//! `cargo run --release -p kfs --example throughput`.
#![allow(clippy::disallowed_methods, reason = "it measures, and needs the machine's clock")]

use bytes::Bytes;
use kfs::{
    BatchBuilder, ClusterId, Codec, NewRecord, OffsetMode, PartitionIndex, Rules, SectionStart,
    SegmentBuilder, TimestampRule, TopicId, recompress, validate_batch, verify_crc,
};
use std::hint::black_box;
use std::time::{Duration, Instant};
use uuid::Uuid;

const MEASURE: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;

fn main() {
    let rules = Rules {
        batch_bytes_max: 2 * 1024 * 1024,
        decompressed_bytes_max: 16 * 1024 * 1024,
        require_key: true,
        zstd_allowed: true,
        timestamps: TimestampRule::CreateTime { earliest_ms: 0, latest_ms: i64::MAX },
    };
    for value_len in [100, 1024] {
        let plain = batch(1024 * 1024, value_len);
        report(&format!("crc only, {value_len} B records"), plain.len(), || {
            verify_crc(black_box(&plain)).expect("valid");
        });
        for codec in Codec::ALL {
            let batch = recompress(&plain, codec, None, usize::MAX).expect("small");
            let name = format!("validate {codec}, {value_len} B records ({} B)", batch.len());
            report(&name, plain.len(), || {
                black_box(validate_batch(black_box(&batch), &rules)).expect("valid");
            });
        }
    }
    for (sections, batches, bytes) in [(1, 8, 1024 * 1024), (10_000, 1, 800)] {
        let batch = batch(bytes, 500);
        let total = sections * batches * batch.len();
        let name = format!("segment of {sections} sections, {batches} batches of {bytes} B each");
        report(&name, total, || {
            black_box(segment(sections, batches, &batch));
        });
    }
}

fn batch(bytes: usize, value_len: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    let mut seed = 1_u64;
    while builder.record_bytes() + value_len < bytes {
        // Half of it random, so that the codecs have some work.
        let mut value = vec![b'v'; value_len];
        for byte in value.iter_mut().step_by(2) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (seed >> 60) as u8;
        }
        let (key, value) = (Some(b"some-key".as_slice()), Some(value.as_slice()));
        let timestamp_ms = 1_700_000_000_000 + i64::from(builder.record_count());
        builder.push(&NewRecord { timestamp_ms, key, value, headers: &[] }).expect("small");
    }
    builder.build().expect("small")
}

fn segment(sections: usize, batches: usize, batch: &Bytes) -> u64 {
    let mut builder = SegmentBuilder::new(ClusterId(Uuid::nil()));
    let name = "some-topic".into();
    for index in 0..sections {
        let start = SectionStart {
            topic: TopicId(Uuid::nil()),
            topic_name: std::sync::Arc::clone(&name),
            partition: PartitionIndex(index as i32),
            mode: OffsetMode::Relative,
            min_timestamp_ms: 0,
            aborted: Vec::new(),
            delete_horizon_ms: None,
        };
        builder.add(start, std::iter::repeat_n(batch.clone(), batches)).expect("valid");
    }
    builder.finish().expect("valid").length
}

/// Prints the best of some rounds: other work on the machine only ever slows one down.
fn report(name: &str, bytes: usize, mut work: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut times = 0_u32;
        while start.elapsed() < MEASURE / ROUNDS as u32 {
            work();
            times += 1;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(times));
    }
    println!("{name:70} {:9.1} us {:7.2} GB/s", best * 1e6, bytes as f64 / best / 1e9);
}
