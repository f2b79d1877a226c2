//! `floe segments inspect FILE`: shows what a `.kfs` file holds and verifies every checksum in it.
//! Files of version 2 are read section by section, files of version 1 whole.

use super::arguments::InspectArguments;
use super::{Failure, Outcome, print, print_json};
use crate::text::{bytes as shown_bytes, plain, table};
use bytes::Bytes;
use floe_env::{Error, Result};
use kfs::{BatchHeader, BatchView, Footer, FormatError, Section, SectionOffsets, V1Segment};
use serde::Serialize;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// No range of a file that is read at once may be larger.
const READ_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Bytes of a file's header, of both versions.
const HEADER_BYTES: u64 = 32;

/// A file, as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct Inspection {
    version: u16,
    bytes: u64,
    cluster: Option<String>,
    segment: Option<String>,
    created_ms: Option<i64>,
    sections: Vec<SectionView>,
    problems: Vec<String>,
}

/// One partition's batches.
#[derive(Debug, Serialize)]
struct SectionView {
    topic: Option<String>,
    topic_id: Option<String>,
    partition: Option<i32>,
    position: u64,
    bytes: u64,
    batch_count: u64,
    record_count: u64,
    base_offset: Option<i64>,
    last_offset: Option<i64>,
    offset_mode: &'static str,
    max_timestamp_ms: Option<i64>,
    transactional: bool,
    aborted_transactions: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    batches: Vec<BatchLine>,
}

/// One batch.
#[derive(Debug, Serialize)]
struct BatchLine {
    position: u64,
    bytes: u64,
    base_offset: i64,
    records: i32,
    codec: String,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    max_timestamp_ms: i64,
    transactional: bool,
    control: bool,
}

pub(super) fn run(arguments: InspectArguments) -> Outcome {
    let inspection = inspect(&arguments.file, arguments.batches)
        .map_err(|error| error.context(&arguments.file.display().to_string()))?;
    if arguments.json {
        print_json(&inspection)?;
    } else {
        print(&inspection.description())?;
    }
    if inspection.problems.is_empty() { Ok(()) } else { Err(Failure::Reported) }
}

/// Reads and verifies a file; `with_batches` keeps a line for each batch.
pub(super) fn inspect(path: &Path, with_batches: bool) -> Result<Inspection> {
    let unreadable = |error| Error::invalid("cannot be read").with_source(error);
    let file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let reader = FileReader { file, length };
    let header = reader.read(0..HEADER_BYTES.min(length))?;
    match kfs::container::parse_header(&header) {
        Ok(cluster) => {
            let footer = kfs::open(length, |range| reader.read(range))
                .map_err(|error| Error::corrupt(error.to_string()))?;
            let mut inspection = inspect_footer(&reader, &footer, with_batches)?;
            if footer.cluster != cluster {
                let problem = format!("header names cluster {cluster}, the footer another");
                inspection.problems.push(problem);
            }
            Ok(inspection)
        }
        Err(FormatError::Version1) => inspect_v1(&reader, with_batches),
        Err(error) => Err(Error::corrupt(error.to_string())),
    }
}

struct FileReader {
    file: File,
    length: u64,
}

impl FileReader {
    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let wanted = range.end.saturating_sub(range.start);
        if wanted > READ_BYTES_MAX || range.end > self.length {
            return Err(Error::corrupt(format!("bytes {range:?} are not in the file")));
        }
        let mut buffer = vec![0; wanted as usize];
        self.file
            .read_exact_at(&mut buffer, range.start)
            .map_err(|error| Error::unavailable("cannot be read").with_source(error))?;
        Ok(Bytes::from(buffer))
    }
}

fn inspect_footer(reader: &FileReader, footer: &Footer, with_batches: bool) -> Result<Inspection> {
    let mut problems = Vec::new();
    let mut sections = Vec::with_capacity(footer.sections.len());
    for section in &footer.sections {
        let body = reader.read(section.position..section.position + section.length)?;
        let name = format!("{}-{}", section.topic_name, section.partition);
        if crc32c::crc32c(&body) != section.crc {
            problems.push(format!("{name}: checksum of the section does not match"));
        }
        let mut view = section_view(section);
        let walked = Walk::over(&body, section.position, with_batches, &name, &mut problems);
        if walked.count != section.batch_count || walked.records != section.record_count {
            problems.push(format!(
                "{name}: footer says {} batches and {} records, found {} and {}",
                section.batch_count, section.record_count, walked.count, walked.records
            ));
        }
        view.batches = walked.lines;
        sections.push(view);
    }
    Ok(Inspection {
        version: kfs::container::VERSION,
        bytes: reader.length,
        cluster: Some(footer.cluster.to_string()),
        segment: footer.segment.map(|segment| segment.to_string()),
        created_ms: None,
        sections,
        problems,
    })
}

fn section_view(section: &Section) -> SectionView {
    let (offset_mode, base_offset, last_offset) = match section.offsets {
        SectionOffsets::Relative => ("relative", None, None),
        SectionOffsets::Absolute { base_offset, last_offset } => {
            ("absolute", Some(base_offset), Some(last_offset))
        }
    };
    SectionView {
        topic: Some(section.topic_name.to_string()),
        topic_id: Some(section.topic.to_string()),
        partition: Some(section.partition.0),
        position: section.position,
        bytes: section.length,
        batch_count: section.batch_count,
        record_count: section.record_count,
        base_offset,
        last_offset,
        offset_mode,
        max_timestamp_ms: Some(section.max_timestamp_ms),
        transactional: section.has_transactional,
        aborted_transactions: section.aborted.len(),
        batches: Vec::new(),
    }
}

fn inspect_v1(reader: &FileReader, with_batches: bool) -> Result<Inspection> {
    let whole = reader.read(0..reader.length)?;
    let segment = V1Segment::parse(&whole).map_err(|error| Error::corrupt(error.to_string()))?;
    let body_start = kfs::v1::V1_HEADER_LEN;
    let body = &whole[body_start..whole.len() - kfs::v1::V1_FOOTER_LEN];
    let mut problems = Vec::new();
    let walked = Walk::over(body, body_start as u64, with_batches, "segment", &mut problems);
    if i64::from(segment.message_count) != walked.records as i64 {
        let (stated, found) = (segment.message_count, walked.records);
        problems.push(format!("header says {stated} records, found {found}"));
    }
    let view = SectionView {
        topic: None,
        topic_id: None,
        partition: None,
        position: body_start as u64,
        bytes: body.len() as u64,
        batch_count: walked.count,
        record_count: walked.records,
        base_offset: Some(segment.base_offset),
        last_offset: Some(segment.last_offset),
        offset_mode: "absolute",
        max_timestamp_ms: walked.max_timestamp_ms,
        transactional: walked.transactional,
        aborted_transactions: 0,
        batches: walked.lines,
    };
    Ok(Inspection {
        version: 1,
        bytes: reader.length,
        cluster: None,
        segment: None,
        created_ms: Some(segment.created_ms),
        sections: vec![view],
        problems,
    })
}

/// What walking over batches found.
#[derive(Default)]
struct Walk {
    count: u64,
    records: u64,
    max_timestamp_ms: Option<i64>,
    transactional: bool,
    lines: Vec<BatchLine>,
}

impl Walk {
    /// Walks to the end, or to the first batch that is torn, and verifies each checksum.
    fn over(
        body: &[u8],
        start: u64,
        with_lines: bool,
        name: &str,
        problems: &mut Vec<String>,
    ) -> Self {
        let mut walk = Self::default();
        let mut position = start;
        for batch in kfs::batches(body) {
            let batch: BatchView<'_> = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    problems.push(format!("{name}: batch at byte {position}: {error}"));
                    break;
                }
            };
            if let Err(error) = batch.verify_crc() {
                problems.push(format!("{name}: batch at byte {position}: {error}"));
            }
            walk.count += 1;
            walk.records += u64::try_from(batch.header.record_count).unwrap_or(0);
            walk.max_timestamp_ms = walk.max_timestamp_ms.max(Some(batch.header.max_timestamp_ms));
            walk.transactional |= batch.header.is_transactional();
            if with_lines {
                walk.lines.push(batch_line(position, &batch.header));
            }
            position += batch.header.total_len() as u64;
        }
        walk
    }
}

fn batch_line(position: u64, header: &BatchHeader) -> BatchLine {
    BatchLine {
        position,
        bytes: header.total_len() as u64,
        base_offset: header.base_offset,
        records: header.record_count,
        codec: header.codec().map_or_else(|error| error.to_string(), |codec| codec.to_string()),
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        max_timestamp_ms: header.max_timestamp_ms,
        transactional: header.is_transactional(),
        control: header.is_control(),
    }
}

impl Inspection {
    pub(super) fn description(&self) -> String {
        let size = shown_bytes(self.bytes);
        let mut text = format!(".kfs version {}, {} bytes ({size})\n", self.version, self.bytes);
        let made = self.created_ms.map(|created_ms| created_ms.to_string());
        for (label, value) in
            [("cluster", &self.cluster), ("segment", &self.segment), ("created ms", &made)]
        {
            if let Some(value) = value {
                text.push_str(&format!("  {label:<11}{value}\n"));
            }
        }
        text.push('\n');
        text.push_str(&self.sections_table());
        for section in self.sections.iter().filter(|section| !section.batches.is_empty()) {
            text.push_str(&format!("\nBatches of {}\n", plain(&section.name())));
            text.push_str(&batches_table(&section.batches));
        }
        text.push('\n');
        for problem in &self.problems {
            text.push_str(&format!("PROBLEM: {}\n", plain(problem)));
        }
        if self.problems.is_empty() {
            text.push_str("All checksums match.\n");
        }
        text
    }

    fn sections_table(&self) -> String {
        let number = |value: Option<i64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
        let rows = self.sections.iter().map(|section| {
            vec![
                section.name(),
                section.position.to_string(),
                section.bytes.to_string(),
                section.batch_count.to_string(),
                section.record_count.to_string(),
                number(section.base_offset),
                number(section.last_offset),
                section.offset_mode.to_owned(),
                number(section.max_timestamp_ms),
            ]
        });
        let headings = [
            "PARTITION",
            "POSITION",
            "BYTES",
            "BATCHES",
            "RECORDS",
            "FIRST",
            "LAST",
            "OFFSETS",
            "MAX TIMESTAMP",
        ];
        table(&headings, rows.collect())
    }
}

impl SectionView {
    fn name(&self) -> String {
        match (&self.topic, self.partition) {
            (Some(topic), Some(partition)) => format!("{topic}-{partition}"),
            _ => "(named by its key)".to_owned(),
        }
    }
}

fn batches_table(batches: &[BatchLine]) -> String {
    let rows = batches.iter().map(|batch| {
        let producer = match batch.producer_id {
            -1 => "-".to_owned(),
            id => format!("{id}/{} seq {}", batch.producer_epoch, batch.base_sequence),
        };
        let kind = match (batch.control, batch.transactional) {
            (true, _) => "control",
            (false, true) => "transactional",
            (false, false) => "-",
        };
        vec![
            batch.position.to_string(),
            batch.bytes.to_string(),
            batch.base_offset.to_string(),
            batch.records.to_string(),
            batch.codec.clone(),
            producer,
            kind.to_owned(),
            batch.max_timestamp_ms.to_string(),
        ]
    });
    let headings = [
        "POSITION",
        "BYTES",
        "BASE OFFSET",
        "RECORDS",
        "CODEC",
        "PRODUCER",
        "KIND",
        "MAX TIMESTAMP",
    ];
    table(&headings, rows.collect())
}
