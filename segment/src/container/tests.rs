//! What later versions may do to the format, and what hostile footers may not.

use super::fields::{Unknown, footer, put_field};
use super::{Footer, FormatError, Section, SectionOffsets, Trailer, VERSION};
use crate::bytes_io::put_unsigned_varint;
use crate::ids::{ClusterId, PartitionIndex, TopicId};
use uuid::Uuid;

const BODY_END: u64 = 1000;

fn section() -> Section {
    let mut section = Section {
        topic: TopicId(Uuid::from_u128(2)),
        topic_name: "t".into(),
        partition: PartitionIndex(0),
        position: 32,
        length: 100,
        crc: 5,
        batch_count: 1,
        record_count: 3,
        min_timestamp_ms: i64::MIN,
        max_timestamp_ms: i64::MAX,
        has_transactional: false,
        has_control: false,
        offsets: SectionOffsets::Absolute { base_offset: 0, last_offset: i64::MAX - 1 },
        producers: Vec::new(),
        index: Vec::new(),
        aborted: Vec::new(),
        delete_horizon_ms: None,
    };
    section.index = vec![section.start_entry()];
    section
}

fn with(sections: Vec<Section>) -> Footer {
    Footer { cluster: ClusterId(Uuid::from_u128(1)), segment: None, sections }
}

fn parse(bytes: &[u8]) -> Result<Footer, FormatError> {
    Footer::parse_fields(bytes, BODY_END)
}

#[test]
fn unknown_fields_are_ignored_unless_they_are_critical() {
    let plain = with(vec![section()]);
    for (unknown, ignored) in [(Unknown::Ignore, true), (Unknown::Refuse, false)] {
        let mut bytes = plain.encode();
        put_field(&mut bytes, 99, unknown, b"later");
        let expected = if ignored { Ok(plain.clone()) } else { refused("footer", 99) };
        assert_eq!(parse(&bytes), expected);

        let mut bytes = with(Vec::new()).encode();
        let full = plain.encode();
        // The topics, as the encoder writes them, and a section with one field more.
        bytes.clear();
        let section_at = full.len() - section_payload(&full).len();
        let mut payload = section_payload(&full).to_vec();
        bytes.extend_from_slice(&full[..section_at - 2]);
        put_field(&mut payload, 8, unknown, b"cipher");
        put_field(&mut bytes, footer::SECTION, Unknown::Refuse, &payload);
        let expected = if ignored { Ok(plain.clone()) } else { refused("section", 8) };
        assert_eq!(parse(&bytes), expected);
    }
}

fn refused(scope: &'static str, id: u64) -> Result<Footer, FormatError> {
    Err(FormatError::CriticalField { scope, id })
}

/// The payload of the last field, whose tag and length take a byte each.
fn section_payload(footer: &[u8]) -> &[u8] {
    (1..footer.len())
        .map(|at| &footer[at..])
        .find(|rest| {
            let at = footer.len() - rest.len();
            at >= 2 && footer[at - 1] as usize == rest.len() && footer[at - 2] == 7
        })
        .expect("a section is the last field")
}

#[test]
fn extreme_values_survive() {
    let footer = with(vec![section()]);
    assert_eq!(parse(&footer.encode()), Ok(footer));
}

#[test]
fn sections_lie_within_the_body_and_do_not_overlap() {
    let invalid = Err(FormatError::Invalid("section position"));
    let at = |position, length| Section { position, length, ..section() };
    let result = |sections: Vec<Section>| parse(&with(sections).encode()).map(drop);
    assert_eq!(result(vec![at(32, 100), at(132, 868)]), Ok(()));
    assert_eq!(result(vec![at(31, 100)]), invalid);
    assert_eq!(result(vec![at(132, 869)]), invalid);
    assert_eq!(result(vec![at(32, 100), at(131, 100)]), invalid);
    assert_eq!(result(vec![at(u64::MAX, 100)]), invalid);
    let many = Section { batch_count: 2, ..section() };
    assert_eq!(result(vec![many]), Err(FormatError::Invalid("batch count")));
    let none = Section { batch_count: u64::MAX, ..section() };
    assert_eq!(result(vec![none]), Err(FormatError::Invalid("batch count")));
}

#[test]
fn missing_fields_are_named() {
    assert_eq!(parse(&[]), Err(FormatError::Missing("cluster")));
    let mut bytes = with(Vec::new()).encode();
    put_field(&mut bytes, footer::SECTION, Unknown::Refuse, &[]);
    assert_eq!(parse(&bytes), Err(FormatError::Missing("section partition")));
    let mut bytes = Vec::new();
    put_unsigned_varint(&mut bytes, 3);
    put_unsigned_varint(&mut bytes, u64::MAX);
    assert_eq!(parse(&bytes), Err(FormatError::Truncated("footer")));
}

#[test]
fn a_newer_object_is_read_as_long_as_it_allows_it() {
    let footer = with(Vec::new()).encode();
    let object_length = 32 + footer.len() as u64 + 48;
    let trailer = Trailer {
        footer_position: 32,
        footer_length: footer.len() as u64,
        object_length,
        footer_crc: crc32c::crc32c(&footer),
        version: VERSION + 5,
        min_reader: VERSION,
    };
    assert_eq!(Trailer::parse(object_length, &trailer.encode()), Ok(trailer));
    let newer = Trailer { min_reader: VERSION + 1, ..trailer };
    let expected = FormatError::TooNew { version: VERSION + 5, min_reader: VERSION + 1 };
    assert_eq!(Trailer::parse(object_length, &newer.encode()), Err(expected));
    let outside = Trailer { footer_position: 33, ..trailer };
    let invalid = Err(FormatError::Invalid("footer position"));
    assert_eq!(Trailer::parse(object_length, &outside.encode()), invalid);
    let before = Trailer { footer_position: 31, ..trailer };
    assert_eq!(Trailer::parse(object_length, &before.encode()), invalid);
}
