//! Header and trailer, both of fixed size, and the way from an object's end to its footer.

use super::{
    CONTAINER_HEADER_LEN, FOOTER_BYTES_MAX, Footer, FormatError, TAIL_BYTES, TRAILER_LEN, VERSION,
};
use crate::bytes_io::{ReadError, Reader};
use crate::ids::ClusterId;
use bytes::Bytes;
use std::ops::Range;
use uuid::Uuid;

/// First bytes of every version.
pub(crate) const MAGIC: [u8; 4] = *b"KAFS";
/// Last bytes of version 1.
pub(crate) const END_MAGIC_V1: [u8; 4] = *b"END!";
/// Last bytes of version 2 and later.
const END_MAGIC: [u8; 4] = *b"END2";
/// Bytes of the trailer before its checksum, which covers them.
const TRAILER_CHECKED_LEN: usize = TRAILER_LEN - 8;
const HEADER_CHECKED_LEN: usize = CONTAINER_HEADER_LEN - 4;

pub(super) fn encode_header(cluster: ClusterId) -> Vec<u8> {
    let mut out = Vec::with_capacity(CONTAINER_HEADER_LEN);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(cluster.0.as_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
    out
}

/// Parses an object's first 32 bytes: for inspection, as the footer says all of it again.
///
/// # Errors
/// `NotKfs`, `Version1`, `TooNew`, `Truncated`, `Checksum`.
pub fn parse_header(bytes: &[u8]) -> Result<ClusterId, FormatError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(FormatError::NotKfs);
    }
    if bytes.get(4..6) == Some(&[0, 1]) {
        return Err(FormatError::Version1);
    }
    let read = || -> Result<_, ReadError> {
        let mut reader = Reader::new(&bytes[MAGIC.len()..]);
        let versions = (reader.u16()?, reader.u16()?);
        let cluster = reader.array::<16>()?;
        reader.u32()?;
        Ok((versions, cluster, reader.u32()?))
    };
    let ((version, min_reader), cluster, crc) =
        read().map_err(|_| FormatError::Truncated("header"))?;
    if crc32c::crc32c(&bytes[..HEADER_CHECKED_LEN]) != crc {
        return Err(FormatError::Checksum("header"));
    }
    check_version(version, min_reader)?;
    Ok(ClusterId(Uuid::from_bytes(cluster)))
}

/// The last 48 bytes of an object. Two objects of one size with the same trailer hold the same
/// bytes: it has the footer's checksum, which has those of the sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// First byte of the footer, from the object's start; the sections end before it.
    pub footer_position: u64,
    /// Bytes of the footer.
    pub footer_length: u64,
    /// Bytes of the whole object.
    pub object_length: u64,
    /// CRC-32C of the footer.
    pub footer_crc: u32,
    /// Version of the writer.
    pub version: u16,
    /// Least version of a reader that does not misread the object.
    pub min_reader: u16,
}

impl Trailer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TRAILER_LEN);
        out.extend_from_slice(&self.footer_position.to_be_bytes());
        out.extend_from_slice(&self.footer_length.to_be_bytes());
        out.extend_from_slice(&self.object_length.to_be_bytes());
        out.extend_from_slice(&self.footer_crc.to_be_bytes());
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.min_reader.to_be_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out.extend_from_slice(&END_MAGIC);
        out
    }

    /// Parses the trailer at the end of `tail`, the last bytes of an object of `object_length`.
    ///
    /// # Errors
    /// `Version1`, `NotKfs`, `Truncated`, `Checksum`, `TooNew`, `Length`, and `Invalid` for a
    /// footer that lies outside of the object or is larger than [`FOOTER_BYTES_MAX`].
    pub fn parse(object_length: u64, tail: &[u8]) -> Result<Self, FormatError> {
        if tail.ends_with(&END_MAGIC_V1) {
            return Err(FormatError::Version1);
        }
        if !tail.ends_with(&END_MAGIC) {
            return Err(FormatError::NotKfs);
        }
        let bytes = tail.last_chunk::<TRAILER_LEN>().ok_or(FormatError::Truncated("trailer"))?;
        let (trailer, crc) = Self::read(bytes).map_err(|_| FormatError::Truncated("trailer"))?;
        if crc32c::crc32c(&bytes[..TRAILER_CHECKED_LEN]) != crc {
            return Err(FormatError::Checksum("trailer"));
        }
        check_version(trailer.version, trailer.min_reader)?;
        if trailer.object_length != object_length {
            let stated = trailer.object_length;
            return Err(FormatError::Length { stated, actual: object_length });
        }
        let footer_end = trailer.footer_position.checked_add(trailer.footer_length);
        let fits = footer_end.is_some_and(|end| end <= object_length - TRAILER_LEN as u64);
        let behind_header = trailer.footer_position >= CONTAINER_HEADER_LEN as u64;
        if !fits || !behind_header || trailer.footer_length > FOOTER_BYTES_MAX {
            return Err(FormatError::Invalid("footer position"));
        }
        Ok(trailer)
    }

    fn read(bytes: &[u8]) -> Result<(Self, u32), ReadError> {
        let mut reader = Reader::new(bytes);
        let trailer = Self {
            footer_position: reader.u64()?,
            footer_length: reader.u64()?,
            object_length: reader.u64()?,
            footer_crc: reader.u32()?,
            version: reader.u16()?,
            min_reader: reader.u16()?,
        };
        reader.u64()?;
        Ok((trailer, reader.u32()?))
    }

    /// The footer's bytes in the object.
    pub fn footer_range(&self) -> Range<u64> {
        self.footer_position..self.footer_position + self.footer_length
    }
}

fn check_version(version: u16, min_reader: u16) -> Result<(), FormatError> {
    if min_reader > VERSION {
        return Err(FormatError::TooNew { version, min_reader });
    }
    // Version 1 has another end; nothing else was ever written.
    if version < VERSION { Err(FormatError::Invalid("version")) } else { Ok(()) }
}

/// The bytes that the first read takes: the last [`TAIL_BYTES`] of the object.
pub fn tail_range(object_length: u64) -> Range<u64> {
    object_length.saturating_sub(TAIL_BYTES)..object_length
}

/// What an object's last bytes gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The footer was among them.
    Footer(Footer),
    /// It was not: read [`Trailer::footer_range`] and give it to [`Footer::parse`].
    Trailer(Trailer),
}

impl Tail {
    /// Parses the last bytes of an object of `object_length`, as many as there are.
    ///
    /// # Errors
    /// As [`Trailer::parse`] and [`Footer::parse`].
    pub fn parse(object_length: u64, tail: &[u8]) -> Result<Self, FormatError> {
        let trailer = Trailer::parse(object_length, tail)?;
        let Some(tail_start) = object_length.checked_sub(tail.len() as u64) else {
            return Err(FormatError::Length { stated: object_length, actual: tail.len() as u64 });
        };
        let Some(start) = trailer.footer_position.checked_sub(tail_start) else {
            return Ok(Self::Trailer(trailer));
        };
        let footer = &tail[start as usize..][..trailer.footer_length as usize];
        Footer::parse(&trailer, footer).map(Self::Footer)
    }
}

/// Why an object was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError<E> {
    /// A read failed.
    #[error("read failed: {0}")]
    Read(E),
    /// What was read is not an object that this reader understands.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Opens an object of known length with at most two range reads.
///
/// # Errors
/// Whatever `read` fails with, and as [`Tail::parse`] and [`Footer::parse`].
pub fn open<E>(
    object_length: u64,
    mut read: impl FnMut(Range<u64>) -> Result<Bytes, E>,
) -> Result<Footer, OpenError<E>> {
    let tail = read(tail_range(object_length)).map_err(OpenError::Read)?;
    match Tail::parse(object_length, &tail)? {
        Tail::Footer(footer) => Ok(footer),
        Tail::Trailer(trailer) => {
            let bytes = read(trailer.footer_range()).map_err(OpenError::Read)?;
            Ok(Footer::parse(&trailer, &bytes)?)
        }
    }
}
