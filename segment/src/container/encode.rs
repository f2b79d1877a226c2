//! Footers to bytes.

use super::fields::{Unknown, footer, put_field, section};
use super::{Footer, IndexEntry, ProducerRun, Section, SectionOffsets};
use crate::bytes_io::{put_unsigned_varint, put_varint, put_varlong};
use crate::ids::TopicId;
use std::collections::BTreeMap;

/// Flag bits of the records field.
pub(super) const TRANSACTIONAL_FLAG: u64 = 1;
pub(super) const CONTROL_FLAG: u64 = 2;

impl Footer {
    /// The footer's bytes, the same for the same footer.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 80 * self.sections.len());
        put_field(&mut out, footer::CLUSTER, Unknown::Refuse, self.cluster.0.as_bytes());
        if let Some(id) = self.segment {
            let mut payload = Vec::new();
            put_varint(&mut payload, id.broker.0);
            put_varlong(&mut payload, id.epoch.0);
            put_unsigned_varint(&mut payload, id.counter);
            put_field(&mut out, footer::SEGMENT_ID, Unknown::Ignore, &payload);
        }
        let topics = self.put_topics(&mut out);
        let mut payload = Vec::new();
        let mut field = Vec::new();
        for section in &self.sections {
            payload.clear();
            let topic_index = topics[&(section.topic, &*section.topic_name)];
            section.encode(topic_index, &mut payload, &mut field);
            put_field(&mut out, footer::SECTION, Unknown::Refuse, &payload);
        }
        out
    }

    /// Each topic once, in the order of its first section; the sections name it by its index.
    fn put_topics(&self, out: &mut Vec<u8>) -> BTreeMap<(TopicId, &str), u64> {
        let mut topics = BTreeMap::new();
        let mut payload = Vec::new();
        for section in &self.sections {
            let next = topics.len() as u64;
            topics.entry((section.topic, &*section.topic_name)).or_insert_with(|| {
                payload.extend_from_slice(section.topic.0.as_bytes());
                put_unsigned_varint(&mut payload, section.topic_name.len() as u64);
                payload.extend_from_slice(section.topic_name.as_bytes());
                next
            });
        }
        put_field(out, footer::TOPICS, Unknown::Refuse, &payload);
        topics
    }
}

impl Section {
    /// Appends the section's fields; `field` is scratch space.
    fn encode(&self, topic_index: u64, out: &mut Vec<u8>, field: &mut Vec<u8>) {
        let mut put = |id, unknown, write: &dyn Fn(&mut Vec<u8>)| {
            field.clear();
            write(field);
            put_field(out, id, unknown, field);
        };
        put(section::PARTITION, Unknown::Refuse, &|field| {
            put_unsigned_varint(field, topic_index);
            put_unsigned_varint(field, self.partition.0 as u64);
        });
        put(section::BYTES, Unknown::Refuse, &|field| {
            put_unsigned_varint(field, self.position);
            put_unsigned_varint(field, self.length);
            field.extend_from_slice(&self.crc.to_be_bytes());
        });
        put(section::RECORDS, Unknown::Refuse, &|field| self.encode_records(field));
        put(section::OFFSETS, Unknown::Refuse, &|field| self.encode_offsets(field));
        if !self.producers.is_empty() {
            put(section::PRODUCERS, Unknown::Ignore, &|field| {
                self.producers.iter().for_each(|run| encode_run(run, field));
            });
        }
        // A section's start needs no entry of its own.
        if self.index != [self.start_entry()] {
            put(section::INDEX, Unknown::Ignore, &|field| encode_index(self, field));
        }
        if !self.aborted.is_empty() {
            put(section::ABORTED, Unknown::Refuse, &|field| self.encode_aborted(field));
        }
        if let Some(horizon_ms) = self.delete_horizon_ms {
            put(section::DELETE_HORIZON, Unknown::Ignore, &|field| put_varlong(field, horizon_ms));
        }
    }

    fn encode_records(&self, out: &mut Vec<u8>) {
        let transactional = if self.has_transactional { TRANSACTIONAL_FLAG } else { 0 };
        let control = if self.has_control { CONTROL_FLAG } else { 0 };
        put_unsigned_varint(out, transactional | control);
        put_unsigned_varint(out, self.batch_count);
        put_unsigned_varint(out, self.record_count);
        put_varlong(out, self.min_timestamp_ms);
        put_unsigned_varint(out, distance(self.min_timestamp_ms, self.max_timestamp_ms));
    }

    fn encode_offsets(&self, out: &mut Vec<u8>) {
        match self.offsets {
            SectionOffsets::Relative => out.push(0),
            SectionOffsets::Absolute { base_offset, last_offset } => {
                out.push(1);
                put_unsigned_varint(out, base_offset as u64);
                put_unsigned_varint(out, distance(base_offset, last_offset));
            }
        }
    }

    fn encode_aborted(&self, out: &mut Vec<u8>) {
        for aborted in &self.aborted {
            put_unsigned_varint(out, aborted.producer.0 as u64);
            put_unsigned_varint(out, aborted.first_offset as u64);
            put_unsigned_varint(out, distance(aborted.first_offset, aborted.last_offset));
            put_unsigned_varint(out, aborted.last_stable_offset as u64);
        }
    }
}

fn encode_run(run: &ProducerRun, out: &mut Vec<u8>) {
    put_unsigned_varint(out, run.producer.0 as u64);
    put_varint(out, i32::from(run.epoch.0));
    put_unsigned_varint(out, run.first_sequence as u64);
    let steps = run.last_sequence.wrapping_sub(run.first_sequence) & i32::MAX;
    put_unsigned_varint(out, steps as u64);
}

/// Each entry as its distance from the one before; the timestamp below the section's greatest.
fn encode_index(section: &Section, out: &mut Vec<u8>) {
    let mut last = IndexEntry { relative_offset: 0, position: 0, max_timestamp_ms: 0 };
    for entry in &section.index {
        put_unsigned_varint(out, entry.relative_offset - last.relative_offset);
        put_unsigned_varint(out, entry.position - last.position);
        put_unsigned_varint(out, distance(entry.max_timestamp_ms, section.max_timestamp_ms));
        last = *entry;
    }
}

/// `to - from` where `from <= to`; the difference of two i64 fits a u64.
fn distance(from: i64, to: i64) -> u64 {
    to.wrapping_sub(from) as u64
}
