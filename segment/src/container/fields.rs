//! Typed fields: `tag varint (id * 2 + critical) | length varint | payload`.
//!
//! A reader passes over a field whose id it does not know, unless the critical bit is set.

use super::FormatError;
use crate::bytes_io::{ReadError, Reader, put_unsigned_varint};

/// Fields of the footer.
pub(super) mod footer {
    pub(in crate::container) const CLUSTER: u64 = 1;
    pub(in crate::container) const TOPICS: u64 = 2;
    pub(in crate::container) const SECTION: u64 = 3;
    pub(in crate::container) const SEGMENT_ID: u64 = 4;
}

/// Fields of a section. 8 (cipher and key id) and 9 (section codec) are reserved, both critical.
pub(super) mod section {
    pub(in crate::container) const PARTITION: u64 = 1;
    pub(in crate::container) const BYTES: u64 = 2;
    pub(in crate::container) const RECORDS: u64 = 3;
    pub(in crate::container) const OFFSETS: u64 = 4;
    pub(in crate::container) const PRODUCERS: u64 = 5;
    pub(in crate::container) const INDEX: u64 = 6;
    pub(in crate::container) const ABORTED: u64 = 10;
    pub(in crate::container) const DELETE_HORIZON: u64 = 11;
}

/// What a reader that does not know a field does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It refuses the object.
    Refuse,
    /// It passes over the field.
    Ignore,
}

/// One field.
pub(super) struct Field<'a> {
    pub(super) id: u64,
    pub(super) unknown: Unknown,
    pub(super) payload: Reader<'a>,
}

/// Iterates over the fields of `bytes`.
pub(super) struct Fields<'a> {
    reader: Reader<'a>,
    scope: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8], scope: &'static str) -> Self {
        Self { reader: Reader::new(bytes), scope }
    }

    fn read(&mut self) -> Result<Field<'a>, ReadError> {
        let tag = self.reader.unsigned_varint()?;
        let length = self.reader.unsigned_varint()?;
        let length = usize::try_from(length).map_err(|_| ReadError::Truncated)?;
        let payload = Reader::new(self.reader.bytes(length)?);
        let unknown = if tag & 1 == 1 { Unknown::Refuse } else { Unknown::Ignore };
        Ok(Field { id: tag >> 1, unknown, payload })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let field = self.read().map_err(|_| FormatError::Truncated(self.scope));
        if field.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(field)
    }
}

impl Field<'_> {
    /// What becomes of a field that the reader does not know.
    pub(super) fn skip(&self, scope: &'static str) -> Result<(), FormatError> {
        match self.unknown {
            Unknown::Ignore => Ok(()),
            Unknown::Refuse => Err(FormatError::CriticalField { scope, id: self.id }),
        }
    }
}

pub(super) fn put_field(out: &mut Vec<u8>, id: u64, unknown: Unknown, payload: &[u8]) {
    put_unsigned_varint(out, id << 1 | u64::from(unknown == Unknown::Refuse));
    put_unsigned_varint(out, payload.len() as u64);
    out.extend_from_slice(payload);
}
