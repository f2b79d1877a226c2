//! Fields of flexible request bodies, for the versions that the message layer lacks.
//!
//! Every reader takes its field off the front of `body`. `check` has walked the body before, so
//! that an error here is a mistake of a reader; it is one all the same, never a panic.

use bytes::{Buf, Bytes};
use uuid::Uuid;

use super::StrBytes;
use crate::check;
use crate::error::CheckError;

fn fixed<const N: usize>(body: &mut Bytes, field: &'static str) -> Result<[u8; N], CheckError> {
    let short = CheckError::Short { field, needed: N, left: body.len() };
    let bytes = *body.first_chunk::<N>().ok_or(short)?;
    body.advance(N);
    Ok(bytes)
}

/// A byte with a sign.
pub(super) fn int8(body: &mut Bytes, field: &'static str) -> Result<i8, CheckError> {
    fixed(body, field).map(i8::from_be_bytes)
}

/// A 16-bit integer.
pub(super) fn int16(body: &mut Bytes, field: &'static str) -> Result<i16, CheckError> {
    fixed(body, field).map(i16::from_be_bytes)
}

/// A 64-bit integer.
pub(super) fn int64(body: &mut Bytes, field: &'static str) -> Result<i64, CheckError> {
    fixed(body, field).map(i64::from_be_bytes)
}

/// A 32-bit integer.
pub(super) fn int32(body: &mut Bytes, field: &'static str) -> Result<i32, CheckError> {
    fixed(body, field).map(i32::from_be_bytes)
}

/// A byte that is 0 for false.
pub(super) fn boolean(body: &mut Bytes, field: &'static str) -> Result<bool, CheckError> {
    fixed(body, field).map(|[byte]| byte != 0)
}

/// A UUID.
pub(super) fn uuid(body: &mut Bytes, field: &'static str) -> Result<Uuid, CheckError> {
    fixed(body, field).map(Uuid::from_bytes)
}

/// A compact length; `None` is null.
fn length(body: &mut Bytes, field: &'static str) -> Result<Option<usize>, CheckError> {
    let (value, bytes) = check::varint(body, field)?;
    body.advance(bytes);
    Ok((value as usize).checked_sub(1))
}

/// A compact string that may be null.
pub(super) fn nullable_text(
    body: &mut Bytes,
    field: &'static str,
) -> Result<Option<StrBytes>, CheckError> {
    let Some(needed) = length(body, field)? else { return Ok(None) };
    let left = body.len();
    if needed > left {
        return Err(CheckError::Short { field, needed, left });
    }
    StrBytes::from_utf8(body.split_to(needed)).map(Some).map_err(|_| CheckError::NotText(field))
}

/// A compact string.
pub(super) fn text(body: &mut Bytes, field: &'static str) -> Result<StrBytes, CheckError> {
    nullable_text(body, field)?.ok_or(CheckError::Null(field))
}

/// The length of a compact array whose elements follow, none of which is without bytes.
fn nullable_array_length(
    body: &mut Bytes,
    field: &'static str,
) -> Result<Option<usize>, CheckError> {
    let Some(count) = length(body, field)? else { return Ok(None) };
    let left = body.len();
    if count > left {
        return Err(CheckError::Short { field, needed: count, left });
    }
    Ok(Some(count))
}

/// The length of a compact array whose elements follow.
pub(super) fn array_length(body: &mut Bytes, field: &'static str) -> Result<usize, CheckError> {
    nullable_array_length(body, field)?.ok_or(CheckError::Null(field))
}

/// A compact array that may be null.
pub(super) fn nullable_array<T>(
    body: &mut Bytes,
    field: &'static str,
    element: fn(&mut Bytes) -> Result<T, CheckError>,
) -> Result<Option<Vec<T>>, CheckError> {
    let Some(count) = nullable_array_length(body, field)? else { return Ok(None) };
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        elements.push(element(body)?);
    }
    Ok(Some(elements))
}

/// A compact array.
pub(super) fn array<T>(
    body: &mut Bytes,
    field: &'static str,
    element: fn(&mut Bytes) -> Result<T, CheckError>,
) -> Result<Vec<T>, CheckError> {
    nullable_array(body, field, element)?.ok_or(CheckError::Null(field))
}

/// Passes over the tagged fields at the end of a structure.
pub(super) fn skip_tags(body: &mut Bytes) -> Result<(), CheckError> {
    let bytes = check::skip_tagged_fields(body)?;
    body.advance(bytes);
    Ok(())
}
