//! From a sealed segment to its object: key, bytes with footer, and the facts that its commit
//! needs.

use crate::keys::segment_key;
use crate::open_segment::SealedSection;
use bytes::Bytes;
use floe_env::{Error, Result};
use floe_metadata::rows::{BatchFacts, SectionFacts, SegmentFacts};
use kfs::{
    BatchPlace, ClusterId, OffsetMode, SectionStart, SegmentBuilder, SegmentError, SegmentId,
};

/// Objects end on a block of this size, bytes: a direct write to a local disk then needs no cut of
/// its padding, and elsewhere the few bytes more cost nothing.
const ALIGNMENT_BYTES: u32 = 4096;

/// An object that is ready to be put.
pub(crate) struct SegmentObject {
    pub(crate) parts: Vec<Bytes>,
    /// Positions are those in the object.
    pub(crate) facts: SegmentFacts,
}

/// Builds the object. Costs a pass over the bytes (the sections' checksums), and a copy of small
/// batches.
pub(crate) fn build(
    cluster: ClusterId,
    id: SegmentId,
    sections: &[SealedSection],
) -> Result<SegmentObject> {
    let failed = |error: SegmentError| Error::bug("building a segment").with_source(error);
    let mut builder = SegmentBuilder::new(cluster).segment_id(id).align(ALIGNMENT_BYTES);
    let mut facts = Vec::with_capacity(sections.len());
    for section in sections {
        let start = SectionStart {
            topic: section.partition.topic,
            topic_name: section.topic_name.clone(),
            partition: section.partition.partition,
            mode: OffsetMode::Relative,
            min_timestamp_ms: i64::MAX,
            aborted: Vec::new(),
            delete_horizon_ms: None,
        };
        let places = builder.add(start, section.batch_slices()).map_err(failed)?;
        facts.push(section_facts(section, &places));
    }
    let built = builder.finish().map_err(failed)?;
    let facts = SegmentFacts { id, key: segment_key(id), size: built.length, sections: facts };
    Ok(SegmentObject { parts: built.parts, facts })
}

fn section_facts(section: &SealedSection, places: &[BatchPlace]) -> SectionFacts {
    let placed = section
        .batches
        .iter()
        .zip(places)
        .map(|(batch, place)| BatchFacts { position: place.position, ..batch.clone() });
    SectionFacts {
        topic: section.partition.topic,
        partition: section.partition.partition,
        batches: placed.collect(),
    }
}
