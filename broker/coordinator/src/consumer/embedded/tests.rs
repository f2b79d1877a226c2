//! Bytes that clients send: right ones, and ones that lie.

use super::*;

fn subscription(name: &[u8], indexes: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_i16(OWNED_SINCE);
    bytes.put_i32(0);
    bytes.put_i32(-1);
    bytes.put_i32(1);
    bytes.put_i16(i16::try_from(name.len()).expect("a name's length"));
    bytes.put_slice(name);
    bytes.put_i32(indexes);
    (0..indexes).for_each(|index| bytes.put_i32(index));
    bytes
}

#[test]
fn a_long_name_is_kept_once_for_all_of_its_partitions() {
    let name = [b'x'; 30_000];
    let parsed = Subscription::parse(&subscription(&name, 1_000)).expect("right");
    let bytes: usize = parsed.owned.iter().map(|(name, indexes)| name.len() + indexes.len()).sum();
    assert_eq!(bytes, 31_000);
}

#[test]
fn false_counts_and_lengths_are_malformed() {
    let right = subscription(b"t", 2);
    assert!(Subscription::parse(&right).is_ok());
    for end in 0..right.len() {
        assert_eq!(Subscription::parse(&right[..end]), Err(Malformed), "the first {end} bytes");
    }
    for at in [2, 10, 17] {
        for count in [i32::MAX, -2] {
            let mut wrong = right.clone();
            wrong[at..at + 4].copy_from_slice(&count.to_be_bytes());
            assert_eq!(Subscription::parse(&wrong), Err(Malformed), "{count} at {at}");
        }
    }
}
