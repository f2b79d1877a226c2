//! Reading and writing the variable-length integers of both formats.
//!
//! Kafka's records use zig-zag varints (32 bits in at most 5 bytes, 64 bits in at most 10), the
//! container uses the same encoding without zig-zag. Over-long encodings are accepted, bits beyond
//! the width are not.

/// A read that found too few bytes, or an integer that does not fit its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The bytes end before the value does.
    Truncated,
    /// The integer has more bits than its type.
    Overflow,
}

/// Takes values from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ReadError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(ReadError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, ReadError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ReadError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ReadError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ReadError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A zig-zag varint of 32 bits, as in Kafka's records.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<i32, ReadError> {
        let raw = self.unsigned(5)?;
        let raw = u32::try_from(raw).map_err(|_| ReadError::Overflow)?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    /// A zig-zag varint of 64 bits.
    #[inline]
    pub(crate) fn varlong(&mut self) -> Result<i64, ReadError> {
        let raw = self.unsigned(10)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// An unsigned varint of 64 bits.
    #[inline]
    pub(crate) fn unsigned_varint(&mut self) -> Result<u64, ReadError> {
        self.unsigned(10)
    }

    #[inline]
    fn unsigned(&mut self, bytes_max: usize) -> Result<u64, ReadError> {
        // One and two bytes are nearly all there is: deltas, short keys, values under 8 KiB.
        match self.rest {
            [first, rest @ ..] if *first < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*first))
            }
            [first, second, rest @ ..] if *second < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*first & 0x7f) | u64::from(*second) << 7)
            }
            _ => self.unsigned_long(bytes_max),
        }
    }

    fn unsigned_long(&mut self, bytes_max: usize) -> Result<u64, ReadError> {
        let mut value = 0_u64;
        for (index, &byte) in self.rest.iter().enumerate() {
            if index == bytes_max || (index == 9 && byte > 1) {
                return Err(ReadError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(ReadError::Truncated)
    }
}

/// Appends a zig-zag varint of 32 bits.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_unsigned_varint(out, u64::from((value << 1 ^ value >> 31) as u32));
}

/// Appends a zig-zag varint of 64 bits.
pub(crate) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    put_unsigned_varint(out, (value << 1 ^ value >> 63) as u64);
}

/// Appends an unsigned varint.
pub(crate) fn put_unsigned_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes [`put_varint`] appends.
pub(crate) fn varint_len(value: i32) -> usize {
    varlong_len(i64::from(value))
}

/// How many bytes [`put_varlong`] appends.
pub(crate) fn varlong_len(value: i64) -> usize {
    let raw = (value << 1 ^ value >> 63) as u64;
    (64 - (raw | 1).leading_zeros() as usize).div_ceil(7)
}
