//! The check that stands before every decode.
//!
//! Why: the message layer calls `Vec::with_capacity(n)` with an `n` that the client sent, so that a
//! body of a few bytes could ask for hundreds of gigabytes, and a failed allocation ends the
//! process. It also ignores the size of the tagged fields that it knows.
//!
//! Contract: [`check`] walks a body against its [`Layout`] the way the message layer will read it,
//! without allocating. It accepts only if every length fits the bytes that are left, every array
//! has at most one element per byte left, no non-nullable field is null, every known tagged field
//! has the size that it names, and all the memory that decoding will take on the heap stays below
//! [`memory_limit`]. What it accepts, the message layer reads with the same boundaries; it may
//! still refuse text that is not UTF-8. Bytes behind the body are left alone, as Kafka does.

use crate::error::CheckError;
use crate::schema::{Field, Kind, Layout, Struct, TAG_BYTES, TAGS_BYTES};

/// Heap bytes that decoding any body may take.
pub const DECODE_BYTES_FLOOR: usize = 4 * 1024 * 1024;

/// Heap bytes more that decoding may take for each byte of the body. Short names decode to about
/// this multiple; whatever takes more was made to hurt.
pub const DECODE_BYTES_PER_FRAME_BYTE: usize = 8;

/// Heap bytes that decoding may take at most, whatever the body's size. Payload (records, names)
/// does not count: it stays in the frame.
pub const DECODE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The limit of heap bytes for decoding a body of `body_bytes`.
pub(crate) fn memory_limit(body_bytes: usize) -> usize {
    let scaled = body_bytes.saturating_mul(DECODE_BYTES_PER_FRAME_BYTE);
    scaled.saturating_add(DECODE_BYTES_FLOOR).min(DECODE_BYTES_MAX)
}

/// What an accepted body takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Bytes of the body that the message has; more may follow.
    pub(crate) body_bytes: usize,
    /// An upper bound of the heap bytes that decoding takes.
    pub(crate) memory_bytes: usize,
}

/// Walks `body` as `layout` at `version`. See the module's contract.
pub(crate) fn check(layout: &Layout, version: i16, body: &[u8]) -> Result<Checked, CheckError> {
    let flexible = layout.is_flexible(version);
    let memory_bytes_max = memory_limit(body.len());
    let mut walker = Walker { body, at: 0, version, flexible, memory_bytes: 0, memory_bytes_max };
    walker.structure(&layout.body)?;
    Ok(Checked { body_bytes: walker.at, memory_bytes: walker.memory_bytes })
}

/// Walks over the tagged fields at the start of `bytes` (of a request header), and returns the
/// bytes that they take.
pub(crate) fn skip_tagged_fields(bytes: &[u8]) -> Result<usize, CheckError> {
    let mut walker = Walker::over(bytes);
    walker.tagged_fields(&[])?;
    Ok(walker.at)
}

/// The varint at the start of `bytes`, and the bytes that it takes.
pub(crate) fn varint(bytes: &[u8], field: &'static str) -> Result<(u32, usize), CheckError> {
    let mut walker = Walker::over(bytes);
    Ok((walker.varint(field)?, walker.at))
}

/// A position in a body, and the memory that decoding takes up to it.
struct Walker<'a> {
    body: &'a [u8],
    at: usize,
    version: i16,
    flexible: bool,
    memory_bytes: usize,
    memory_bytes_max: usize,
}

impl<'a> Walker<'a> {
    /// A walker for pieces outside of a layout, without a limit of memory.
    fn over(body: &'a [u8]) -> Self {
        let (version, flexible) = (0, true);
        Self { body, at: 0, version, flexible, memory_bytes: 0, memory_bytes_max: usize::MAX }
    }

    fn structure(&mut self, structure: &Struct) -> Result<(), CheckError> {
        for field in structure.fields {
            if field.tag.is_none() && field.exists_at(self.version) {
                self.value(field, &field.kind)?;
            }
        }
        if self.flexible {
            self.tagged_fields(structure.fields)?;
        }
        Ok(())
    }

    fn value(&mut self, field: &Field, kind: &'static Kind) -> Result<(), CheckError> {
        match kind {
            Kind::Fixed(bytes) => self.skip(field.name, usize::from(*bytes)),
            Kind::Text => {
                let length = if self.flexible {
                    self.compact_length(field.name)?
                } else {
                    self.text_length(field.name)?
                };
                self.blob(field, length)
            }
            Kind::Bytes => {
                let length = self.long_length(field.name)?;
                self.blob(field, length)
            }
            Kind::List(element) => self.list(field, element),
            Kind::Rows(row) => self.rows(field, row),
            Kind::Part(structure) => self.structure(structure),
            Kind::Maybe(structure) => match self.take::<1>(field.name)? {
                [1] => self.structure(structure),
                [0xff] => Ok(()),
                _ => Err(CheckError::BadLength(field.name)),
            },
        }
    }

    fn blob(&mut self, field: &Field, length: Option<usize>) -> Result<(), CheckError> {
        match length {
            Some(bytes) => self.skip(field.name, bytes),
            None if field.nullable => Ok(()),
            None => Err(CheckError::Null(field.name)),
        }
    }

    fn list(&mut self, field: &Field, element: &'static Kind) -> Result<(), CheckError> {
        let count = self.count(field, element.memory_bytes())?;
        if let Kind::Fixed(bytes) = element {
            return self.skip(field.name, count.saturating_mul(usize::from(*bytes)));
        }
        for _ in 0..count {
            self.value(&field.element(), element)?;
        }
        Ok(())
    }

    fn rows(&mut self, field: &Field, row: &'static Struct) -> Result<(), CheckError> {
        let count = self.count(field, row.memory_bytes)?;
        for _ in 0..count {
            self.structure(row)?;
        }
        Ok(())
    }

    /// The number of an array's elements, zero for null; charges their memory.
    fn count(&mut self, field: &Field, element_memory_bytes: usize) -> Result<usize, CheckError> {
        let count = match self.long_length(field.name)? {
            Some(count) => count,
            None if field.nullable => return Ok(0),
            None => return Err(CheckError::Null(field.name)),
        };
        // Every element of every layout has at least one byte (a test of `schema` proves it), so
        // this bounds the loops over elements as well.
        let left = self.body.len() - self.at;
        if count > left {
            return Err(CheckError::Short { field: field.name, needed: count, left });
        }
        self.charge(field.name, count.saturating_mul(element_memory_bytes))?;
        Ok(count)
    }

    /// Walks over a tag section. The message layer reads a tag that it knows by the type and not by
    /// the size, so both must agree here; all others are skipped by their sizes.
    fn tagged_fields(&mut self, fields: &'static [Field]) -> Result<(), CheckError> {
        const NAME: &str = "tagged fields";
        let count = self.varint(NAME)?;
        let mut unknown = 0_usize;
        for _ in 0..count {
            let tag = self.varint(NAME)?;
            let size = self.varint(NAME)? as usize;
            if let Some(field) = fields.iter().find(|field| field.tag == Some(tag)) {
                if !field.exists_at(self.version) {
                    return Err(CheckError::TagVersion(field.name));
                }
                let end = self.at.checked_add(size);
                self.value(field, &field.kind)?;
                if end != Some(self.at) {
                    return Err(CheckError::TagSize(field.name));
                }
            } else {
                self.skip(NAME, size)?;
                let first = if unknown == 0 { TAGS_BYTES } else { 0 };
                self.charge(NAME, first + TAG_BYTES)?;
                unknown += 1;
            }
        }
        Ok(())
    }

    /// The length before text at versions that are not flexible.
    fn text_length(&mut self, field: &'static str) -> Result<Option<usize>, CheckError> {
        match i16::from_be_bytes(self.take(field)?) {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).or(Err(CheckError::BadLength(field))),
        }
    }

    /// The length before bytes and arrays.
    fn long_length(&mut self, field: &'static str) -> Result<Option<usize>, CheckError> {
        if self.flexible {
            return self.compact_length(field);
        }
        match i32::from_be_bytes(self.take(field)?) {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).or(Err(CheckError::BadLength(field))),
        }
    }

    /// A length plus one as a varint; zero is null.
    fn compact_length(&mut self, field: &'static str) -> Result<Option<usize>, CheckError> {
        Ok((self.varint(field)? as usize).checked_sub(1))
    }

    fn varint(&mut self, field: &'static str) -> Result<u32, CheckError> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.take(field)?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CheckError::BadLength(field))
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], CheckError> {
        let bytes = self.body[self.at..].first_chunk::<N>().copied();
        let left = self.body.len() - self.at;
        let bytes = bytes.ok_or(CheckError::Short { field, needed: N, left })?;
        self.at += N;
        Ok(bytes)
    }

    fn skip(&mut self, field: &'static str, needed: usize) -> Result<(), CheckError> {
        let left = self.body.len() - self.at;
        if needed > left {
            return Err(CheckError::Short { field, needed, left });
        }
        self.at += needed;
        Ok(())
    }

    fn charge(&mut self, field: &'static str, bytes: usize) -> Result<(), CheckError> {
        self.memory_bytes = self.memory_bytes.saturating_add(bytes);
        if self.memory_bytes > self.memory_bytes_max {
            return Err(CheckError::Memory { field, bytes_max: self.memory_bytes_max });
        }
        Ok(())
    }
}
