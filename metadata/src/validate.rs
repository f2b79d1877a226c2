//! Checks of what callers hand in, made before any row is touched, the same for every backend.

use crate::facts::{Change, Check, FactKey, FactRange, Fence, PartitionChange, Write};
use crate::rows::{BatchFacts, Extent, MarkerFacts, Place, Replacement, SegmentFacts};
use floe_env::{Error, Result};
use kfs::{SegmentId, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};

/// The longest key of a fact, bytes as stored: what a PostgreSQL index row holds for certain.
pub const FACT_KEY_BYTES_MAX: usize = 2000;
/// The largest value of a fact, bytes.
pub const FACT_VALUE_BYTES_MAX: usize = 16 << 20;
/// Keys and values that one change writes, bytes: far below what one message to PostgreSQL holds.
pub const CHANGE_BYTES_MAX: usize = 256 << 20;
/// Segments in one commit.
pub const COMMIT_SEGMENTS_MAX: usize = 1024;
/// Batches in one commit.
pub const COMMIT_BATCHES_MAX: usize = 1 << 20;

/// Markers that one call writes.
pub const MARKERS_MAX: usize = crate::transactions::TRANSACTION_PARTITIONS_MAX;

/// Partitions whose fresh extents get rows of their own in one transaction.
pub const UNPACKED_PARTITIONS_MAX: usize = 256;

/// Checks the segments of one commit.
pub(crate) fn check_segments(segments: &[SegmentFacts]) -> Result<()> {
    if segments.len() > COMMIT_SEGMENTS_MAX {
        return Err(Error::limit(format!("more than {COMMIT_SEGMENTS_MAX} segments in a commit")));
    }
    let sections = segments.iter().flat_map(|segment| &segment.sections);
    let batches: usize = sections.map(|section| section.batches.len()).sum();
    if batches > COMMIT_BATCHES_MAX {
        return Err(Error::limit(format!("more than {COMMIT_BATCHES_MAX} batches in a commit")));
    }
    for segment in segments {
        check_segment(segment)
            .map_err(|reason| Error::invalid(format!("segment {}: {reason}", segment.id)))?;
    }
    Ok(())
}

/// Checks a segment's id alone: its counter must fit what SQL stores.
pub(crate) fn check_segment_id(id: SegmentId) -> Result<()> {
    if i64::try_from(id.counter).is_err() {
        return Err(Error::invalid(format!("segment {id}: counter is beyond 2^63 - 1")));
    }
    Ok(())
}

fn check_segment(segment: &SegmentFacts) -> Result<(), String> {
    if i64::try_from(segment.id.counter).is_err() || i64::try_from(segment.size).is_err() {
        return Err("counter or size is beyond 2^63 - 1".to_owned());
    }
    check_object_key(&segment.key)?;
    let mut seen = BTreeSet::new();
    for section in &segment.sections {
        let partition = section.topic_partition();
        if !seen.insert(partition) {
            return Err(format!("partition {partition} occurs twice"));
        }
        let mut end = section.batches.first().map_or(0, |batch| batch.position);
        for batch in &section.batches {
            check_batch(batch, end).map_err(|reason| format!("partition {partition}: {reason}"))?;
            end = batch.position.saturating_add(u64::from(batch.length));
        }
        if end > segment.size {
            return Err(format!("partition {partition}: batches end beyond the object"));
        }
    }
    Ok(())
}

fn check_batch(batch: &BatchFacts, expected_position: u64) -> Result<(), String> {
    if batch.position != expected_position {
        return Err(format!("batch at {} does not touch the one before", batch.position));
    }
    if batch.length == 0 || batch.record_count == 0 {
        return Err("batch without bytes or records".to_owned());
    }
    if batch.transaction.is_some() && batch.producer.is_none() {
        return Err("transactional batch without a producer".to_owned());
    }
    if let Some(producer) = &batch.producer
        && (producer.first_sequence < 0
            || producer.last_sequence < 0
            || producer.id.0 < 0
            || producer.epoch.0 < 0)
    {
        return Err("negative producer id, epoch or sequence".to_owned());
    }
    Ok(())
}

fn check_object_key(key: &str) -> Result<(), String> {
    if key.is_empty() || key.len() > FACT_KEY_BYTES_MAX || key.contains('\0') {
        return Err("object key is empty, too long or holds a NUL".to_owned());
    }
    Ok(())
}

/// Checks keys, sizes, and that nothing occurs twice.
pub(crate) fn check_change(change: &Change) -> Result<()> {
    let mut checked = BTreeSet::new();
    for check in &change.checks {
        check_key(&check.key)?;
        if !checked.insert(&check.key) {
            return Err(Error::invalid(format!("fact {} is checked twice", check.key.as_str())));
        }
    }
    let mut written = BTreeSet::new();
    let mut bytes = 0;
    for write in &change.writes {
        let key = write_key(write);
        check_key(key)?;
        bytes += key.as_str().len();
        if let Write::Put(_, value) = write
            && value.len() > FACT_VALUE_BYTES_MAX
        {
            return Err(Error::limit(format!(
                "fact {}: {} bytes, more than {FACT_VALUE_BYTES_MAX}",
                key.as_str(),
                value.len()
            )));
        }
        if let Write::Put(_, value) = write {
            bytes += value.len();
        }
        if !written.insert(key) {
            return Err(Error::invalid(format!("fact {} is written twice", key.as_str())));
        }
    }
    if bytes > CHANGE_BYTES_MAX {
        return Err(Error::limit(format!("a change writes over {CHANGE_BYTES_MAX} bytes")));
    }
    let mut partitions = BTreeSet::new();
    for change in &change.partitions {
        let partition = changed_partition(change);
        if !partitions.insert(partition) {
            return Err(Error::invalid(format!("partition {partition} is changed twice")));
        }
        if let PartitionChange::CreateAt(_, offset) = change
            && *offset < 0
        {
            return Err(Error::invalid(format!("partition {partition} is to begin at {offset}")));
        }
    }
    Ok(())
}

/// Checks the end of a transaction.
pub(crate) fn check_end(change: &Change, markers: &[MarkerFacts]) -> Result<()> {
    check_change(change)?;
    if !change.partitions.is_empty() {
        return Err(Error::invalid("partitions neither begin nor end with a transaction"));
    }
    if markers.len() > MARKERS_MAX {
        return Err(Error::limit(format!("more than {MARKERS_MAX} markers at once")));
    }
    let mut partitions = BTreeSet::new();
    for marker in markers {
        if !partitions.insert(marker.partition) {
            let twice = format!("partition {} gets two markers", marker.partition);
            return Err(Error::invalid(twice));
        }
        if marker.producer.0 < 0 || marker.epoch.0 < 0 {
            return Err(Error::invalid("a marker has a negative producer id or epoch"));
        }
    }
    Ok(())
}

/// The key that a write changes.
pub(crate) fn write_key(write: &Write) -> &FactKey {
    match write {
        Write::Put(key, _) | Write::Delete(key) => key,
    }
}

/// The partition that begins or ends.
pub(crate) fn changed_partition(change: &PartitionChange) -> TopicPartition {
    match change {
        PartitionChange::Create(partition)
        | PartitionChange::CreateAt(partition, _)
        | PartitionChange::Drop(partition) => *partition,
    }
}

/// The partition that begins, and the offset of its first record.
pub(crate) fn created_partition(change: &PartitionChange) -> Option<(TopicPartition, i64)> {
    match change {
        PartitionChange::Create(partition) => Some((*partition, 0)),
        PartitionChange::CreateAt(partition, offset) => Some((*partition, *offset)),
        PartitionChange::Drop(_) => None,
    }
}

/// Checks a fact's key.
pub(crate) fn check_key(key: &FactKey) -> Result<()> {
    if key.as_str().len() > FACT_KEY_BYTES_MAX {
        return Err(Error::limit(format!("a fact's key is over {FACT_KEY_BYTES_MAX} bytes")));
    }
    if key.as_str().contains('\0') {
        return Err(Error::invalid("a fact's key holds a NUL"));
    }
    Ok(())
}

/// Checks a range of keys.
pub(crate) fn check_range(range: &FactRange) -> Result<()> {
    if range.from > range.until {
        return Err(Error::invalid("a range of facts ends before it begins"));
    }
    Ok(())
}

/// The error of a writer whose fence does not hold.
pub(crate) fn fenced(fence: &Fence) -> Error {
    Error::fenced(format!("fact {} is not what the writer's role needs", fence.0.key.as_str()))
}

/// True where a check holds of the value that is there.
pub(crate) fn holds(check: &Check, value: Option<&[u8]>) -> bool {
    match (&check.expect, value) {
        (crate::facts::Expect::Absent, None) => true,
        (crate::facts::Expect::Value(expected), Some(value)) => expected == value,
        _ => false,
    }
}

/// The error of a call about a segment whose outcome is gone.
pub(crate) fn forgotten(id: SegmentId) -> Error {
    Error::invalid(format!("the outcome of segment {id} has been forgotten"))
}

/// The error of a partition that begins twice.
pub(crate) fn partition_exists(partition: TopicPartition) -> Error {
    Error::invalid(format!("partition {partition} exists already"))
}

/// The error of a reference to an object that may be deleted at any moment.
pub(crate) fn object_is_dead(key: &str) -> Error {
    Error::invalid(format!("object {key} is dead and may not be named again"))
}

/// The error of a segment whose object's key names another object already.
pub(crate) fn object_exists(key: &str) -> Error {
    Error::invalid(format!("object {key} is known already"))
}

/// Checks that sources and replacement cover the same offsets without gaps.
pub(crate) fn check_replacement(replacement: &Replacement) -> Result<()> {
    let sources = check_run(&replacement.sources).map_err(Error::invalid)?;
    let replaced = check_run(&replacement.replacement).map_err(Error::invalid)?;
    if sources != replaced {
        return Err(Error::invalid("replacement covers other offsets than its sources"));
    }
    if i64::try_from(replacement.object_size).is_err() {
        return Err(Error::invalid("object size is beyond 2^63 - 1"));
    }
    let (first, last) = sources;
    if replacement.forgotten_aborts.iter().any(|marker| !(first..=last).contains(marker)) {
        return Err(Error::invalid("a marker that is forgotten is not among the sources"));
    }
    Ok(())
}

/// The first and last offset of a run of extents.
fn check_run(extents: &[Extent]) -> Result<(i64, i64), String> {
    let (Some(first), Some(last)) = (extents.first(), extents.last()) else {
        return Err("a run of no extents".to_owned());
    };
    let mut expected = first.base_offset;
    for extent in extents {
        if extent.base_offset != expected || extent.last_offset < extent.base_offset {
            return Err(format!("extent at {} does not touch its run", extent.base_offset));
        }
        expected = extent.last_offset.checked_add(1).ok_or("offset beyond 2^63 - 1")?;
        if let Place::Range { key, position, length } = &extent.place {
            check_object_key(key)?;
            let end = position.checked_add(*length).and_then(|end| i64::try_from(end).ok());
            end.ok_or("extent ends beyond 2^63 - 1")?;
            if *length == 0 {
                return Err("extent without bytes".to_owned());
            }
        }
    }
    Ok((first.base_offset, last.last_offset))
}

/// The objects of which more bytes are named after a replacement.
pub(crate) fn named_objects(replacement: &Replacement) -> impl Iterator<Item = &str> {
    reference_changes(replacement).into_iter().filter(|(_, change)| *change > 0).map(|(key, _)| key)
}

/// How many more bytes of each object are named after a replacement.
pub(crate) fn reference_changes(replacement: &Replacement) -> BTreeMap<&str, i64> {
    let mut changes: BTreeMap<&str, i64> = BTreeMap::new();
    for (extents, sign) in [(&replacement.sources, -1), (&replacement.replacement, 1)] {
        for extent in extents {
            if let Place::Range { key, length, .. } = &extent.place {
                let length = i64::try_from(*length).expect("check_replacement bounds lengths");
                *changes.entry(key).or_default() += sign * length;
            }
        }
    }
    changes
}
