//! The protocol that consumers embed in the classic one: what a member is subscribed to, and what
//! it is assigned.
//!
//! Both begin with a version (i16). A subscription: topics (i32 count of i16-length names), user
//! data (i32 length, -1 for none), from version 1 on the partitions that the member owns, from 2 on
//! its generation (i32), from 3 on its rack (i16-length text, -1 for none). An assignment:
//! partitions, then user data. Partitions: i32 count of a name and an i32 count of i32 indexes.

use super::TopicDirectory;
use super::partitions::Partitions;
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// The first version with owned partitions.
const OWNED_SINCE: i16 = 1;
/// The first version with a generation.
const GENERATION_SINCE: i16 = 2;
/// The first version with a rack.
const RACK_SINCE: i16 = 3;

/// The bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

type Parsed<T> = Result<T, Malformed>;

/// Topics by name, each with indexes. A name is kept once, however many indexes come with it: what
/// is parsed takes no more memory than some multiple of its bytes.
pub(super) type Named = Vec<(String, Vec<i32>)>;

/// What a member of the classic protocol says with its join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) version: i16,
    pub(super) topics: BTreeSet<String>,
    pub(super) owned: Named,
    pub(super) rack_id: Option<String>,
}

impl Subscription {
    pub(super) fn parse(mut bytes: &[u8]) -> Parsed<Self> {
        let from = &mut bytes;
        let version = i16_of(from)?;
        // A false count ends at the first name that is missing: memory is bounded by the input.
        let mut topics = BTreeSet::new();
        for _ in 0..count_of(from)? {
            topics.insert(text_of(from)?);
        }
        skip_bytes(from)?;
        let owned = if version >= OWNED_SINCE { partitions_of(from)? } else { Vec::new() };
        if version >= GENERATION_SINCE {
            i32_of(from)?;
        }
        let mut rack_id = None;
        if version >= RACK_SINCE {
            rack_id = optional_text_of(from)?;
        }
        Ok(Self { version, topics, owned, rack_id })
    }
}

/// Topics and indexes of an assignment; none in empty bytes.
pub(super) fn parse_assignment(mut bytes: &[u8]) -> Parsed<Named> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    i16_of(&mut bytes)?;
    partitions_of(&mut bytes)
}

/// The bytes of an assignment. Topics that are gone are left out.
pub(super) fn assignment(version: i16, assigned: &Partitions, topics: &TopicDirectory) -> Bytes {
    let named = assigned.iter().filter_map(|(id, indexes)| Some((topics.name(*id)?, indexes)));
    let named: Vec<(&str, &BTreeSet<i32>)> = named.collect();
    let mut bytes = Vec::new();
    bytes.put_i16(version);
    put_count(&mut bytes, named.len());
    for (name, indexes) in named {
        // Topic names have at most 249 bytes.
        bytes.put_i16(i16::try_from(name.len()).unwrap_or(i16::MAX));
        bytes.put_slice(name.as_bytes());
        put_count(&mut bytes, indexes.len());
        for index in indexes {
            bytes.put_i32(*index);
        }
    }
    bytes.put_i32(-1);
    Bytes::from(bytes)
}

/// Partitions by topic id; those of topics that are gone are left out.
pub(super) fn by_id(named: &[(String, Vec<i32>)], topics: &TopicDirectory) -> Partitions {
    let mut partitions = Partitions::new();
    for (name, indexes) in named.iter().filter(|(_, indexes)| !indexes.is_empty()) {
        if let Some((id, _)) = topics.find(name) {
            partitions.entry(id).or_default().extend(indexes);
        }
    }
    partitions
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
}

fn partitions_of(from: &mut &[u8]) -> Parsed<Named> {
    let mut partitions = Named::new();
    for _ in 0..count_of(from)? {
        let topic = text_of(from)?;
        let mut indexes = Vec::new();
        for _ in 0..count_of(from)? {
            indexes.push(i32_of(from)?);
        }
        partitions.push((topic, indexes));
    }
    Ok(partitions)
}

fn skip_bytes(from: &mut &[u8]) -> Parsed<()> {
    match i32_of(from)? {
        -1 => Ok(()),
        length => take(from, length).map(|_| ()),
    }
}

fn text_of(from: &mut &[u8]) -> Parsed<String> {
    optional_text_of(from)?.ok_or(Malformed)
}

fn optional_text_of(from: &mut &[u8]) -> Parsed<Option<String>> {
    let length = i16_of(from)?;
    if length == -1 {
        return Ok(None);
    }
    let bytes = take(from, i32::from(length))?;
    std::str::from_utf8(bytes).map(|text| Some(text.to_owned())).map_err(|_| Malformed)
}

fn take<'a>(from: &mut &'a [u8], length: i32) -> Parsed<&'a [u8]> {
    let length = usize::try_from(length).map_err(|_| Malformed)?;
    let (head, tail) = from.split_at_checked(length).ok_or(Malformed)?;
    *from = tail;
    Ok(head)
}

fn count_of(from: &mut &[u8]) -> Parsed<i32> {
    let count = i32_of(from)?;
    if count < 0 { Err(Malformed) } else { Ok(count) }
}

fn i16_of(from: &mut &[u8]) -> Parsed<i16> {
    from.try_get_i16().map_err(|_| Malformed)
}

fn i32_of(from: &mut &[u8]) -> Parsed<i32> {
    from.try_get_i32().map_err(|_| Malformed)
}
