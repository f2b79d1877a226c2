//! Bytes to footers. Whatever is read is checked against the object's length, so that what a
//! parsed section names can be read without another look.

use super::encode::{CONTROL_FLAG, TRANSACTIONAL_FLAG};
use super::fields::{Fields, footer, section};
use super::{
    AbortedTransaction, CONTAINER_HEADER_LEN, Footer, FormatError, IndexEntry, ProducerRun,
    Section, SectionOffsets, TOPIC_NAME_BYTES_MAX, Trailer,
};
use crate::batch::{HEADER_LEN, add_sequence};
use crate::bytes_io::{ReadError, Reader};
use crate::ids::{
    BrokerEpoch, BrokerId, ClusterId, PartitionIndex, ProducerEpoch, ProducerId, SegmentId, TopicId,
};
use std::sync::Arc;
use uuid::Uuid;

type Topic = (TopicId, Arc<str>);

impl Footer {
    /// Parses the bytes that [`Trailer::footer_range`] names.
    ///
    /// # Errors
    /// `Checksum` if they are not what the trailer says, `CriticalField` for what a later writer
    /// added and this reader must not ignore, `Truncated`, `Missing` and `Invalid`.
    pub fn parse(trailer: &Trailer, bytes: &[u8]) -> Result<Self, FormatError> {
        let body_end = trailer.footer_position;
        if bytes.len() as u64 != trailer.footer_length {
            return Err(FormatError::Truncated("footer"));
        }
        if crc32c::crc32c(bytes) != trailer.footer_crc {
            return Err(FormatError::Checksum("footer"));
        }
        Self::parse_fields(bytes, body_end)
    }

    /// Parses a footer's bytes; the sections must end at `body_end`.
    pub(crate) fn parse_fields(bytes: &[u8], body_end: u64) -> Result<Self, FormatError> {
        let mut cluster = None;
        let mut segment = None;
        let mut topics = Vec::new();
        let mut sections: Vec<Section> = Vec::new();
        for field in Fields::new(bytes, "footer") {
            let field = field?;
            let mut payload = field.payload;
            match field.id {
                footer::CLUSTER => cluster = Some(ClusterId(whole(payload, "cluster", read_uuid)?)),
                footer::TOPICS => {
                    while !payload.is_empty() {
                        topics.push(read_topic(&mut payload)?);
                    }
                }
                footer::SEGMENT_ID => {
                    segment = Some(whole(payload, "segment id", read_segment_id)?)
                }
                footer::SECTION => {
                    let section = read_section(payload.rest(), &topics)?;
                    let after = match sections.last() {
                        Some(last) => last.position + last.length,
                        None => CONTAINER_HEADER_LEN as u64,
                    };
                    let end = section.position.checked_add(section.length);
                    if section.position < after || end.is_none_or(|end| end > body_end) {
                        return Err(FormatError::Invalid("section position"));
                    }
                    sections.push(section);
                }
                _ => field.skip("footer")?,
            }
        }
        let cluster = cluster.ok_or(FormatError::Missing("cluster"))?;
        Ok(Self { cluster, segment, sections })
    }
}

/// What the fields of a section say, before it is known that all are there.
#[derive(Default)]
struct Draft<'a> {
    partition: Option<(Topic, PartitionIndex)>,
    bytes: Option<(u64, u64, u32)>,
    records: Option<Counts>,
    offsets: Option<SectionOffsets>,
    producers: Vec<ProducerRun>,
    index: Option<Reader<'a>>,
    aborted: Vec<AbortedTransaction>,
    delete_horizon_ms: Option<i64>,
}

struct Counts {
    flags: u64,
    batches: u64,
    records: u64,
    min_timestamp_ms: i64,
    max_timestamp_ms: i64,
}

fn read_section(bytes: &[u8], topics: &[Topic]) -> Result<Section, FormatError> {
    let mut draft = Draft::default();
    for field in Fields::new(bytes, "section") {
        let field = field?;
        let payload = field.payload;
        match field.id {
            section::PARTITION => {
                let read = |reader: &mut Reader<'_>| read_partition(reader, topics);
                draft.partition = Some(whole(payload, "section partition", read)?);
            }
            section::BYTES => draft.bytes = Some(whole(payload, "section bytes", read_bytes)?),
            section::RECORDS => {
                draft.records = Some(whole(payload, "section records", read_counts)?);
            }
            section::OFFSETS => {
                draft.offsets = Some(whole(payload, "section offsets", read_offsets)?);
            }
            section::PRODUCERS => draft.producers = list(payload, "producer runs", read_run)?,
            section::INDEX => draft.index = Some(payload),
            section::ABORTED => draft.aborted = list(payload, "aborted list", read_aborted)?,
            section::DELETE_HORIZON => {
                draft.delete_horizon_ms =
                    Some(whole(payload, "delete horizon", |reader| Ok(reader.varlong()?))?);
            }
            _ => field.skip("section")?,
        }
    }
    draft.finish()
}

impl Draft<'_> {
    fn finish(self) -> Result<Section, FormatError> {
        let ((topic, topic_name), partition) =
            self.partition.ok_or(FormatError::Missing("section partition"))?;
        let (position, length, crc) = self.bytes.ok_or(FormatError::Missing("section bytes"))?;
        let counts = self.records.ok_or(FormatError::Missing("section records"))?;
        let offsets = self.offsets.ok_or(FormatError::Missing("section offsets"))?;
        let least_length = counts.batches.checked_mul(HEADER_LEN as u64);
        if counts.batches == 0 || least_length.is_none_or(|least| least > length) {
            return Err(FormatError::Invalid("batch count"));
        }
        let mut section = Section {
            topic,
            topic_name,
            partition,
            position,
            length,
            crc,
            batch_count: counts.batches,
            record_count: counts.records,
            min_timestamp_ms: counts.min_timestamp_ms,
            max_timestamp_ms: counts.max_timestamp_ms,
            has_transactional: counts.flags & TRANSACTIONAL_FLAG != 0,
            has_control: counts.flags & CONTROL_FLAG != 0,
            offsets,
            producers: self.producers,
            index: Vec::new(),
            aborted: self.aborted,
            delete_horizon_ms: self.delete_horizon_ms,
        };
        section.index = match self.index {
            None => vec![section.start_entry()],
            Some(reader) => read_index(reader, length, section.max_timestamp_ms)?,
        };
        Ok(section)
    }
}

/// What a reader of one value may find wrong; `whole` and `list` give it the field's name.
struct Bad;

impl From<ReadError> for Bad {
    fn from(_: ReadError) -> Self {
        Self
    }
}

/// Reads one value, which must be the whole payload.
fn whole<T>(
    mut payload: Reader<'_>,
    name: &'static str,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Bad>,
) -> Result<T, FormatError> {
    match read(&mut payload) {
        Ok(value) if payload.is_empty() => Ok(value),
        _ => Err(FormatError::Invalid(name)),
    }
}

/// Reads values up to the payload's end.
fn list<T>(
    mut payload: Reader<'_>,
    name: &'static str,
    read: impl Fn(&mut Reader<'_>) -> Result<T, Bad>,
) -> Result<Vec<T>, FormatError> {
    let mut values = Vec::new();
    while !payload.is_empty() {
        values.push(read(&mut payload).map_err(|Bad| FormatError::Invalid(name))?);
    }
    Ok(values)
}

fn read_uuid(reader: &mut Reader<'_>) -> Result<Uuid, Bad> {
    Ok(Uuid::from_bytes(reader.array()?))
}

fn read_segment_id(reader: &mut Reader<'_>) -> Result<SegmentId, Bad> {
    Ok(SegmentId {
        broker: BrokerId(reader.varint()?),
        epoch: BrokerEpoch(reader.varlong()?),
        counter: reader.unsigned_varint()?,
    })
}

fn read_topic(reader: &mut Reader<'_>) -> Result<Topic, FormatError> {
    let read = |reader: &mut Reader<'_>| -> Result<Topic, Bad> {
        let id = TopicId(read_uuid(reader)?);
        let length = reader.unsigned_varint()?;
        if length > TOPIC_NAME_BYTES_MAX as u64 {
            return Err(Bad);
        }
        let name = std::str::from_utf8(reader.bytes(length as usize)?).map_err(|_| Bad)?;
        Ok((id, Arc::from(name)))
    };
    read(reader).map_err(|Bad| FormatError::Invalid("topic"))
}

fn read_partition(
    reader: &mut Reader<'_>,
    topics: &[Topic],
) -> Result<(Topic, PartitionIndex), Bad> {
    let topic = usize::try_from(reader.unsigned_varint()?).map_err(|_| Bad)?;
    let topic = topics.get(topic).ok_or(Bad)?;
    let partition = i32::try_from(reader.unsigned_varint()?).map_err(|_| Bad)?;
    Ok((topic.clone(), PartitionIndex(partition)))
}

fn read_bytes(reader: &mut Reader<'_>) -> Result<(u64, u64, u32), Bad> {
    Ok((reader.unsigned_varint()?, reader.unsigned_varint()?, reader.u32()?))
}

fn read_counts(reader: &mut Reader<'_>) -> Result<Counts, Bad> {
    let flags = reader.unsigned_varint()?;
    let batches = reader.unsigned_varint()?;
    let records = reader.unsigned_varint()?;
    let min_timestamp_ms = reader.varlong()?;
    let max_timestamp_ms = above(min_timestamp_ms, reader.unsigned_varint()?)?;
    Ok(Counts { flags, batches, records, min_timestamp_ms, max_timestamp_ms })
}

fn read_offsets(reader: &mut Reader<'_>) -> Result<SectionOffsets, Bad> {
    match reader.u8()? {
        0 => Ok(SectionOffsets::Relative),
        1 => {
            let base_offset = read_offset(reader)?;
            let last_offset = above(base_offset, reader.unsigned_varint()?)?;
            Ok(SectionOffsets::Absolute { base_offset, last_offset })
        }
        _ => Err(Bad),
    }
}

fn read_offset(reader: &mut Reader<'_>) -> Result<i64, Bad> {
    i64::try_from(reader.unsigned_varint()?).map_err(|_| Bad)
}

fn read_run(reader: &mut Reader<'_>) -> Result<ProducerRun, Bad> {
    let producer = ProducerId(read_offset(reader)?);
    let epoch = i16::try_from(reader.varint()?).map_err(|_| Bad)?;
    let first_sequence = i32::try_from(reader.unsigned_varint()?).map_err(|_| Bad)?;
    let steps = i32::try_from(reader.unsigned_varint()?).map_err(|_| Bad)?;
    let last_sequence = add_sequence(first_sequence, steps);
    Ok(ProducerRun { producer, epoch: ProducerEpoch(epoch), first_sequence, last_sequence })
}

fn read_aborted(reader: &mut Reader<'_>) -> Result<AbortedTransaction, Bad> {
    let producer = ProducerId(read_offset(reader)?);
    let first_offset = read_offset(reader)?;
    let last_offset = above(first_offset, reader.unsigned_varint()?)?;
    let last_stable_offset = read_offset(reader)?;
    Ok(AbortedTransaction { producer, first_offset, last_offset, last_stable_offset })
}

/// The entries, whose first is the section's start and whose positions and offsets grow.
fn read_index(
    mut reader: Reader<'_>,
    length: u64,
    section_max_ms: i64,
) -> Result<Vec<IndexEntry>, FormatError> {
    let mut index: Vec<IndexEntry> = Vec::new();
    while !reader.is_empty() {
        let entry = read_index_entry(&mut reader, index.last(), section_max_ms)
            .ok()
            .filter(|entry| entry.position < length)
            .ok_or(FormatError::Invalid("batch index"))?;
        index.push(entry);
    }
    if index.is_empty() { Err(FormatError::Invalid("batch index")) } else { Ok(index) }
}

fn read_index_entry(
    reader: &mut Reader<'_>,
    last: Option<&IndexEntry>,
    section_max_ms: i64,
) -> Result<IndexEntry, Bad> {
    let offset_step = reader.unsigned_varint()?;
    let position_step = reader.unsigned_varint()?;
    let below = reader.unsigned_varint()?;
    let max_timestamp_ms = section_max_ms.checked_sub_unsigned(below).ok_or(Bad)?;
    let (relative_offset, position) = match last {
        None if offset_step == 0 && position_step == 0 => (0, 0),
        Some(last) if offset_step > 0 && position_step > 0 => (
            last.relative_offset.checked_add(offset_step).ok_or(Bad)?,
            last.position.checked_add(position_step).ok_or(Bad)?,
        ),
        _ => return Err(Bad),
    };
    Ok(IndexEntry { relative_offset, position, max_timestamp_ms })
}

fn above(base: i64, distance: u64) -> Result<i64, Bad> {
    base.checked_add_unsigned(distance).ok_or(Bad)
}
