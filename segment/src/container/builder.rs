//! Writing an object: sections one behind the other, batches in each as they come, the footer at
//! the end. The object's bytes can be taken at any time, so that large merged objects need not
//! be held whole.

use super::assemble::Assembler;
use super::frame::encode_header;
use super::{
    AbortedTransaction, FOOTER_BYTES_MAX, Footer, INDEX_STEP_BYTES, IndexEntry, ProducerRun,
    Section, SectionOffsets, TOPIC_NAME_BYTES_MAX, TRAILER_LEN, Trailer, VERSION,
};
use crate::batch::{BatchHeader, BatchView, add_sequence};
use crate::error::BatchError;
use crate::ids::{ClusterId, PartitionIndex, ProducerEpoch, ProducerId, SegmentId, TopicId};
use crate::mode::OffsetMode;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a batch's header up to the magic, which a fresh section rewrites.
const PATCHED_LEN: usize = 16;

/// Why an object cannot be written as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// A batch cannot be parsed.
    #[error("batch: {0}")]
    Batch(#[from] BatchError),
    /// A partition has a section already.
    #[error("partition {1} of topic {0} has a section already")]
    SecondSection(TopicId, PartitionIndex),
    /// A batch came before any section.
    #[error("batch without a section")]
    NoSection,
    /// A section without batches.
    #[error("section without batches")]
    EmptySection,
    /// A topic's name has no or too many bytes or is not what an earlier section said, or the
    /// partition is negative.
    #[error("invalid topic name or partition")]
    Name,
    /// A batch of a fresh section must have one record for each of its offsets.
    #[error("batch with {record_count} records for {offsets} offsets in a fresh section")]
    NotDense {
        /// Its records.
        record_count: i32,
        /// Its offsets.
        offsets: i64,
    },
    /// Offsets of a merged section must grow from batch to batch.
    #[error("base offset {0} does not follow the batch before")]
    OffsetOrder(i64),
    /// A negative producer id or offset in the aborted list, or its offsets out of order.
    #[error("invalid entry in the aborted list")]
    Aborted,
    /// The footer is larger than any reader would take.
    #[error("footer of {0} bytes is too large")]
    FooterTooLarge(usize),
}

/// What the builder must be told of a section; the rest it finds in the batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionStart {
    /// The topic.
    pub topic: TopicId,
    /// Its name.
    pub topic_name: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// Relative in fresh segments: base offsets and leader epochs are written as 0. Absolute in
    /// merged objects: both stay as they are.
    pub mode: OffsetMode,
    /// No record of the section has a smaller timestamp (milliseconds), `i64::MIN` if that is
    /// not known. Where LogAppendTime batches have a smaller one, theirs is taken.
    pub min_timestamp_ms: i64,
    /// Transactions aborted within the section, by last offset.
    pub aborted: Vec<AbortedTransaction>,
    /// The section's delete horizon, if compaction set one.
    pub delete_horizon_ms: Option<i64>,
}

/// Where a batch came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// First byte, from the object's start.
    pub position: u64,
    /// Bytes.
    pub length: u32,
    /// Its base offset, counted from the section's first.
    pub relative_offset: u64,
}

/// A finished object.
#[derive(Clone, Debug)]
pub struct BuiltSegment {
    /// The bytes, or those not taken before, in slices for a vectored write.
    pub parts: Vec<Bytes>,
    /// Bytes of the whole object.
    pub length: u64,
    /// What the footer says.
    pub footer: Footer,
    /// The trailer: with the length, it tells whether an object that exists is this one.
    pub trailer: Trailer,
}

/// Builds one object.
#[derive(Debug)]
pub struct SegmentBuilder {
    cluster: ClusterId,
    segment: Option<SegmentId>,
    alignment: u64,
    assembler: Assembler,
    sections: Vec<Section>,
    partitions: BTreeSet<(TopicId, PartitionIndex)>,
    /// The name of each topic, which all its sections share.
    topics: BTreeMap<TopicId, Arc<str>>,
    open: Option<OpenSection>,
}

impl SegmentBuilder {
    /// An empty object of this cluster.
    pub fn new(cluster: ClusterId) -> Self {
        let mut assembler = Assembler::default();
        assembler.copy(&encode_header(cluster));
        Self {
            cluster,
            segment: None,
            alignment: 1,
            assembler,
            sections: Vec::new(),
            partitions: BTreeSet::new(),
            topics: BTreeMap::new(),
            open: None,
        }
    }

    /// Names the fresh segment.
    pub fn segment_id(mut self, segment: SegmentId) -> Self {
        self.segment = Some(segment);
        self
    }

    /// Pads the object before its trailer to a multiple of `bytes`, for direct IO.
    pub fn align(mut self, bytes: u32) -> Self {
        self.alignment = u64::from(bytes.max(1));
        self
    }

    /// Bytes of header and batches so far.
    pub fn body_len(&self) -> u64 {
        self.assembler.position()
    }

    /// Ends the section before, if any, and begins one.
    ///
    /// # Errors
    /// `EmptySection` for the one before; `SecondSection`, `Name`, `Aborted`.
    pub fn begin(&mut self, mut start: SectionStart) -> Result<(), SegmentError> {
        self.end_section()?;
        let name_len = start.topic_name.len();
        if name_len == 0 || name_len > TOPIC_NAME_BYTES_MAX || start.partition.0 < 0 {
            return Err(SegmentError::Name);
        }
        let name = self.topics.entry(start.topic).or_insert_with(|| start.topic_name.clone());
        if *name != start.topic_name {
            return Err(SegmentError::Name);
        }
        start.topic_name = name.clone();
        if !start.aborted.iter().all(is_valid_aborted) {
            return Err(SegmentError::Aborted);
        }
        if !self.partitions.insert((start.topic, start.partition)) {
            return Err(SegmentError::SecondSection(start.topic, start.partition));
        }
        self.open = Some(OpenSection::new(start, self.assembler.position()));
        Ok(())
    }

    /// Appends exactly one batch to the section. Its checksum is not verified.
    ///
    /// # Errors
    /// `NoSection`, `Batch`, `NotDense`, `OffsetOrder`; the section is then as before.
    pub fn push(&mut self, batch: Bytes) -> Result<BatchPlace, SegmentError> {
        let section = self.open.as_mut().ok_or(SegmentError::NoSection)?;
        let header = BatchView::parse(&batch)?.header;
        let relative_offset = section.check_offsets(&header)?;
        let position = self.assembler.position();
        let length = batch.len();
        let rewrite = section.mode == OffsetMode::Relative
            && (header.base_offset != 0 || header.partition_leader_epoch != 0);
        if rewrite {
            let mut patched = [0; PATCHED_LEN];
            patched[8..12].copy_from_slice(&header.batch_length.to_be_bytes());
            let rest = batch.slice(PATCHED_LEN..);
            section.crc = crc32c::crc32c_append(section.crc, &patched);
            section.crc = crc32c::crc32c_append(section.crc, &rest);
            self.assembler.copy(&patched);
            self.assembler.push(rest);
        } else {
            section.crc = crc32c::crc32c_append(section.crc, &batch);
            self.assembler.push(batch);
        }
        section.count(&header, relative_offset, position, self.assembler.position());
        Ok(BatchPlace { position, length: length as u32, relative_offset })
    }

    /// A whole section at once.
    ///
    /// # Errors
    /// As [`begin`](Self::begin) and [`push`](Self::push).
    pub fn add(
        &mut self,
        start: SectionStart,
        batches: impl IntoIterator<Item = Bytes>,
    ) -> Result<Vec<BatchPlace>, SegmentError> {
        self.begin(start)?;
        batches.into_iter().map(|batch| self.push(batch)).collect()
    }

    /// Takes the object's bytes so far, to be sent ahead of the rest.
    pub fn take_parts(&mut self) -> Vec<Bytes> {
        self.assembler.take()
    }

    /// Writes footer, padding and trailer.
    ///
    /// # Errors
    /// `EmptySection`, `FooterTooLarge`.
    pub fn finish(mut self) -> Result<BuiltSegment, SegmentError> {
        self.end_section()?;
        let footer =
            Footer { cluster: self.cluster, segment: self.segment, sections: self.sections };
        let encoded = footer.encode();
        if encoded.len() as u64 > FOOTER_BYTES_MAX {
            return Err(SegmentError::FooterTooLarge(encoded.len()));
        }
        let footer_position = self.assembler.position();
        let footer_length = encoded.len() as u64;
        let end = footer_position + footer_length + TRAILER_LEN as u64;
        let object_length = end.next_multiple_of(self.alignment);
        let trailer = Trailer {
            footer_position,
            footer_length,
            object_length,
            footer_crc: crc32c::crc32c(&encoded),
            version: VERSION,
            min_reader: VERSION,
        };
        self.assembler.push(Bytes::from(encoded));
        self.assembler.push(Bytes::from(vec![0; (object_length - end) as usize]));
        self.assembler.copy(&trailer.encode());
        let parts = self.assembler.take();
        Ok(BuiltSegment { parts, length: object_length, footer, trailer })
    }

    fn end_section(&mut self) -> Result<(), SegmentError> {
        if let Some(section) = self.open.take() {
            self.sections.push(section.finish(self.assembler.position())?);
        }
        Ok(())
    }
}

fn is_valid_aborted(aborted: &AbortedTransaction) -> bool {
    aborted.producer.0 >= 0
        && aborted.first_offset >= 0
        && aborted.last_offset >= aborted.first_offset
        && aborted.last_stable_offset >= 0
}

/// The section that batches are added to.
#[derive(Debug)]
struct OpenSection {
    section: Section,
    mode: OffsetMode,
    crc: u32,
    /// The least offset of the next batch: relative, or the log's.
    next_offset: i64,
    /// The latest run of each producer, by its place in the list.
    runs: BTreeMap<i64, usize>,
    /// The smallest of the batches' greatest timestamps.
    smallest_max_ms: i64,
}

impl OpenSection {
    fn new(start: SectionStart, position: u64) -> Self {
        let section = Section {
            topic: start.topic,
            topic_name: start.topic_name,
            partition: start.partition,
            position,
            length: 0,
            crc: 0,
            batch_count: 0,
            record_count: 0,
            min_timestamp_ms: start.min_timestamp_ms,
            max_timestamp_ms: i64::MIN,
            has_transactional: false,
            has_control: false,
            offsets: SectionOffsets::Relative,
            producers: Vec::new(),
            index: Vec::new(),
            aborted: start.aborted,
            delete_horizon_ms: start.delete_horizon_ms,
        };
        let runs = BTreeMap::new();
        let mode = start.mode;
        Self { section, mode, crc: 0, next_offset: 0, runs, smallest_max_ms: i64::MAX }
    }

    /// The batch's base offset from the section's first.
    fn check_offsets(&self, header: &BatchHeader) -> Result<u64, SegmentError> {
        let offsets = i64::from(header.last_offset_delta) + 1;
        let record_count = header.record_count;
        match self.mode {
            OffsetMode::Relative if record_count <= 0 || i64::from(record_count) != offsets => {
                Err(SegmentError::NotDense { record_count, offsets })
            }
            OffsetMode::Relative => Ok(self.next_offset as u64),
            OffsetMode::Absolute => {
                let last_offset = header.base_offset.checked_add(offsets - 1);
                let fits = last_offset.is_some_and(|last| last < i64::MAX);
                if header.base_offset < self.next_offset || offsets < 1 || !fits {
                    return Err(SegmentError::OffsetOrder(header.base_offset));
                }
                let first = match self.section.offsets {
                    SectionOffsets::Absolute { base_offset, .. } => base_offset,
                    SectionOffsets::Relative => header.base_offset,
                };
                Ok((header.base_offset - first) as u64)
            }
        }
    }

    /// Takes a batch into the section's counts, after its bytes are placed.
    fn count(&mut self, header: &BatchHeader, relative_offset: u64, start: u64, end: u64) {
        let offsets = i64::from(header.last_offset_delta) + 1;
        let section = &mut self.section;
        match self.mode {
            OffsetMode::Relative => self.next_offset += offsets,
            OffsetMode::Absolute => {
                let base_offset = header.base_offset - relative_offset as i64;
                let last_offset = header.last_offset();
                section.offsets = SectionOffsets::Absolute { base_offset, last_offset };
                self.next_offset = last_offset + 1;
            }
        }
        section.batch_count += 1;
        section.record_count += header.record_count.max(0) as u64;
        section.max_timestamp_ms = section.max_timestamp_ms.max(header.max_timestamp_ms);
        self.smallest_max_ms = self.smallest_max_ms.min(header.max_timestamp_ms);
        section.has_transactional |= header.is_transactional();
        section.has_control |= header.is_control();
        self.index_batch(header, relative_offset, start, end);
        self.run_batch(header);
    }

    /// An entry covers at most [`INDEX_STEP_BYTES`], or one batch.
    fn index_batch(&mut self, header: &BatchHeader, relative_offset: u64, start: u64, end: u64) {
        let section_start = self.section.position;
        let max_timestamp_ms = header.max_timestamp_ms;
        if let Some(last) = self.section.index.last_mut()
            && end - section_start - last.position <= INDEX_STEP_BYTES
        {
            last.max_timestamp_ms = last.max_timestamp_ms.max(max_timestamp_ms);
            return;
        }
        let position = start - section_start;
        self.section.index.push(IndexEntry { relative_offset, position, max_timestamp_ms });
    }

    fn run_batch(&mut self, header: &BatchHeader) {
        if header.producer_id < 0 || header.base_sequence < 0 || header.is_control() {
            return;
        }
        let runs = &mut self.section.producers;
        let epoch = ProducerEpoch(header.producer_epoch);
        if let Some(&at) = self.runs.get(&header.producer_id) {
            let run = &mut runs[at];
            if run.epoch == epoch && add_sequence(run.last_sequence, 1) == header.base_sequence {
                run.last_sequence = header.last_sequence();
                return;
            }
        }
        self.runs.insert(header.producer_id, runs.len());
        runs.push(ProducerRun {
            producer: ProducerId(header.producer_id),
            epoch,
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
        });
    }

    fn finish(mut self, end: u64) -> Result<Section, SegmentError> {
        if self.section.batch_count == 0 {
            return Err(SegmentError::EmptySection);
        }
        // Under LogAppendTime a batch's one timestamp may lie before what its records say.
        self.section.min_timestamp_ms = self.section.min_timestamp_ms.min(self.smallest_max_ms);
        self.section.length = end - self.section.position;
        self.section.crc = self.crc;
        Ok(self.section)
    }
}
