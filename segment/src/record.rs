//! The records of a batch, read lazily from their decompressed bytes.
//!
//! ```text
//! length varint | attributes i8 | timestamp delta varlong | offset delta varint
//! | key length varint (-1: null) | key | value length varint (-1: null) | value
//! | header count varint | { key length varint, key, value length varint (-1: null), value }*
//! ```
//!
//! Nothing is copied or allocated. A record is checked as a whole before it is handed out, its
//! headers too, so that iterating over these cannot fail.

use crate::bytes_io::{ReadError, Reader};
use crate::error::{BatchError, RecordError};

/// One record, borrowed from the batch's decompressed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// Timestamp less the batch's base timestamp, milliseconds.
    pub timestamp_delta: i64,
    /// Always 0 so far.
    pub attributes: i8,
    /// The key; null and empty are different.
    pub key: Option<&'a [u8]>,
    /// The value; null is a tombstone on a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: Headers<'a>,
}

/// A record's headers: an ordered multimap from keys (UTF-8 by convention only) to values that
/// may be null. Iterates in order, duplicates included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// The headers as encoded, without their count.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let mut reader = Reader::new(self.bytes);
        let header = read_header(&mut reader).expect("headers are checked with their record");
        self.bytes = reader.rest();
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, Some(self.count as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Iterates over the records of one batch. Yields as many as the header says; fewer, more, or
/// one that makes no sense is an error, after which nothing follows.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    reader: Reader<'a>,
    count: i32,
    index: u32,
    done: bool,
}

impl<'a> Records<'a> {
    /// Over decompressed bytes, which should hold `record_count` records and nothing else.
    pub fn new(bytes: &'a [u8], record_count: i32) -> Self {
        Self { reader: Reader::new(bytes), count: record_count, index: 0, done: false }
    }

    fn fail(&mut self, error: BatchError) -> Option<Result<Record<'a>, BatchError>> {
        self.done = true;
        Some(Err(error))
    }

    fn count_error(&self, found: u32) -> BatchError {
        BatchError::RecordCount {
            stated: self.count,
            last_offset_delta: self.count.saturating_sub(1),
            found,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if i64::from(self.index) >= i64::from(self.count) {
            self.done = true;
            if self.count < 0 || !self.reader.is_empty() {
                return self.fail(self.count_error(self.index + 1));
            }
            return None;
        }
        if self.reader.is_empty() {
            return self.fail(self.count_error(self.index));
        }
        match read_record(&mut self.reader) {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(error) => self.fail(BatchError::Record { index: self.index, error }),
        }
    }
}

#[inline]
fn read_record<'a>(reader: &mut Reader<'a>) -> Result<Record<'a>, RecordError> {
    let length = checked_length(reader.varint()?)?;
    let mut body = Reader::new(reader.bytes(length)?);
    let attributes = body.u8()? as i8;
    let timestamp_delta = body.varlong()?;
    let offset_delta = body.varint()?;
    let key = read_nullable(&mut body)?;
    let value = read_nullable(&mut body)?;
    let count = checked_length(body.varint()?)?;
    let headers = Headers { count: count as u32, bytes: body.rest() };
    for _ in 0..count {
        read_header(&mut body)?;
    }
    if !body.is_empty() {
        return Err(RecordError::LeftOver(body.rest().len()));
    }
    Ok(Record { offset_delta, timestamp_delta, attributes, key, value, headers })
}

type Header<'a> = (&'a [u8], Option<&'a [u8]>);

fn read_header<'a>(reader: &mut Reader<'a>) -> Result<Header<'a>, RecordError> {
    let length = checked_length(reader.varint()?)?;
    let key = reader.bytes(length)?;
    Ok((key, read_nullable(reader)?))
}

/// A length and its bytes; -1 is null, any other negative length an error.
#[inline]
fn read_nullable<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, RecordError> {
    match reader.varint()? {
        -1 => Ok(None),
        length => Ok(Some(reader.bytes(checked_length(length)?)?)),
    }
}

#[inline]
fn checked_length(length: i32) -> Result<usize, RecordError> {
    usize::try_from(length).map_err(|_| RecordError::NegativeLength(length))
}

impl From<ReadError> for RecordError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Truncated => Self::Truncated,
            ReadError::Overflow => Self::Varint,
        }
    }
}
