//! Keys: which are allowed, and what lies in a folder. Every store refuses the same keys, so that
//! what works on one works on all.

use floe_env::{Error, Result};
use std::ops::Range;

/// The longest key, bytes; S3 allows 1,024 with the store's own prefix.
pub const KEY_BYTES_MAX: usize = 768;

/// The longest segment of a key, bytes; file systems allow 255.
pub const KEY_SEGMENT_BYTES_MAX: usize = 240;

/// Refuses a key that is not made of `/`-separated segments of `[A-Za-z0-9._=-]`.
///
/// # Errors
/// `Invalid`, with the reason.
pub fn check_key(key: &str) -> Result<()> {
    let refuse = |reason: &str| Err(Error::invalid(format!("object key {key:?} {reason}")));
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid(format!("object key of {} bytes is too long", key.len())));
    }
    for segment in key.split('/') {
        if segment.is_empty() {
            return refuse("has an empty segment");
        }
        if segment == "." || segment == ".." {
            return refuse("leaves its folder");
        }
        if segment.len() > KEY_SEGMENT_BYTES_MAX {
            return refuse("has a segment that is too long");
        }
        if !segment.bytes().all(is_key_byte) {
            return refuse("has a character outside [A-Za-z0-9._=-]");
        }
    }
    Ok(())
}

/// Refuses a key that no listing of a folder can show. Others put objects beside ours, under names
/// that ours never have, and what is listed can be deleted.
///
/// # Errors
/// `Invalid`, with the reason.
pub fn check_listed_key(key: &str) -> Result<()> {
    let leaves = |segment: &str| matches!(segment, "" | "." | "..");
    match key.split('/').any(leaves) || key.contains('\0') {
        true => Err(Error::invalid(format!("object key {key:?} is in no folder"))),
        false => Ok(()),
    }
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'=' | b'-')
}

/// The folder `prefix` of a listing without its trailing slash; empty is the whole store.
///
/// # Errors
/// `Invalid` where it could hold no key.
pub fn check_folder(prefix: &str) -> Result<&str> {
    let folder = prefix.strip_suffix('/').unwrap_or(prefix);
    if !folder.is_empty() {
        check_key(folder)?;
    }
    Ok(folder)
}

/// Refuses a range that holds nothing.
///
/// # Errors
/// `Invalid`.
pub fn check_range(key: &str, range: &Range<u64>) -> Result<()> {
    if range.start < range.end {
        return Ok(());
    }
    Err(Error::invalid(format!("empty range {}..{} of object {key}", range.start, range.end)))
}

/// The error of a read of an object that is not there.
pub(crate) fn missing(key: &str) -> Error {
    Error::invalid(format!("there is no object {key}"))
}

/// The error of a read beyond an object's end.
pub(crate) fn outside(key: &str, range: &Range<u64>) -> Error {
    let Range { start, end } = range;
    Error::invalid(format!("range {start}..{end} lies outside object {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_could_leave_their_folder_are_refused() {
        let long = "a".repeat(KEY_SEGMENT_BYTES_MAX + 1);
        let deep = "ab/".repeat(300) + "c";
        for key in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a b", "a\\b", "ä", "a\0", "a%2f"]
        {
            assert!(check_key(key).is_err(), "{key:?} must be refused");
        }
        assert!(check_key(&long).is_err());
        assert!(check_key(&deep).is_err());
        for key in ["a", "a/b", "...", "a/.b", "x=1/y_2/z-3.kfs", "wal/ab/1-2-3.kfs"] {
            check_key(key).expect(key);
        }
    }

    #[test]
    fn what_others_have_put_can_be_deleted() {
        for key in ["a/city=New+York/1", "a/b%2Fc", "a b", "ä", "x\\y"] {
            check_listed_key(key).expect(key);
        }
        for key in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\0"] {
            assert!(check_listed_key(key).is_err(), "{key:?} must be refused");
        }
    }

    #[test]
    fn folders_may_end_in_a_slash() {
        assert_eq!(check_folder("a/b/").expect("valid"), "a/b");
        assert_eq!(check_folder("").expect("valid"), "");
        assert!(check_folder("a//").is_err());
    }
}
