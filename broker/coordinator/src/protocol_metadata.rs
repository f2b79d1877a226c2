//! The topics in the metadata that consumers send with JoinGroup (`ConsumerProtocolSubscription`).
//!
//! The bytes belong to the clients; the broker looks into them only to know which topics a group
//! of protocol type `consumer` is subscribed to. Every version begins with version 0:
//! version (i16), topics (i32 count, each an i16 length and UTF-8), user data (i32 length, -1 for
//! none); later versions append fields, which are not read.

use std::collections::BTreeSet;

use bytes::Buf;
use thiserror::Error;

/// The protocol type of groups whose metadata has this form.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// The bytes are no subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the member metadata is not a consumer subscription")]
pub struct UnreadableSubscription;

/// The topic names of one member's subscription.
///
/// # Errors
/// [`UnreadableSubscription`] where the bytes end early, a length is negative or beyond the end,
/// or a name is not UTF-8.
pub fn subscribed_topics(mut metadata: &[u8]) -> Result<BTreeSet<String>, UnreadableSubscription> {
    let _version = metadata.try_get_i16().map_err(|_| UnreadableSubscription)?;
    let count = metadata.try_get_i32().map_err(|_| UnreadableSubscription)?;
    if count < 0 {
        return Err(UnreadableSubscription);
    }
    let mut topics = BTreeSet::new();
    // A false count ends at the first name that is missing: memory is bounded by the input.
    for _ in 0..count {
        let bytes = metadata.try_get_i16().map_err(|_| UnreadableSubscription)?;
        let name = take(&mut metadata, i32::from(bytes))?;
        let name = std::str::from_utf8(name).map_err(|_| UnreadableSubscription)?;
        topics.insert(name.to_owned());
    }
    let user_data_bytes = metadata.try_get_i32().map_err(|_| UnreadableSubscription)?;
    if user_data_bytes != -1 {
        take(&mut metadata, user_data_bytes)?;
    }
    Ok(topics)
}

fn take<'a>(from: &mut &'a [u8], bytes: i32) -> Result<&'a [u8], UnreadableSubscription> {
    let bytes = usize::try_from(bytes).map_err(|_| UnreadableSubscription)?;
    let (head, tail) = from.split_at_checked(bytes).ok_or(UnreadableSubscription)?;
    *from = tail;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(version: i16, topics: &[&str], tail: &[u8]) -> Vec<u8> {
        let mut bytes = version.to_be_bytes().to_vec();
        bytes.extend((topics.len() as i32).to_be_bytes());
        for topic in topics {
            bytes.extend((topic.len() as i16).to_be_bytes());
            bytes.extend(topic.as_bytes());
        }
        bytes.extend(tail);
        bytes
    }

    fn names(topics: &[&str]) -> BTreeSet<String> {
        topics.iter().map(|&topic| topic.to_owned()).collect()
    }

    #[test]
    fn topics_are_read_and_later_fields_skipped() {
        let without_user_data = (-1i32).to_be_bytes();
        let v0 = subscription(0, &["b", "a", "b"], &without_user_data);
        assert_eq!(subscribed_topics(&v0), Ok(names(&["a", "b"])));
        let v3 = subscription(3, &["t"], b"\0\0\0\x02xy and more fields");
        assert_eq!(subscribed_topics(&v3), Ok(names(&["t"])));
        let none = subscription(1, &[], &without_user_data);
        assert_eq!(subscribed_topics(&none), Ok(names(&[])));
    }

    #[test]
    fn every_truncation_is_unreadable() {
        let whole = subscription(0, &["topic"], b"\0\0\0\x02xy");
        for end in 0..whole.len() {
            assert_eq!(subscribed_topics(&whole[..end]), Err(UnreadableSubscription), "{end}");
        }
    }

    #[test]
    fn false_lengths_and_names_are_unreadable() {
        let cases: [&[u8]; 5] = [
            b"m",
            b"\0\0\xff\xff\xff\xff\0\0\0\0",
            b"\0\0\0\0\0\x01\xff\xff\0\0\0\0",
            b"\0\0\0\0\0\x01\0\x01\xff\0\0\0\0",
            b"\0\0\x7f\xff\xff\xff\0\x01a\0\0\0\0",
        ];
        for bytes in cases {
            assert_eq!(subscribed_topics(bytes), Err(UnreadableSubscription), "{bytes:?}");
        }
    }
}
